"""Programs: functions and training steps as data, to be looked at, changed, saved and run."""

from .capture import capture
from .instruction import Instruction, Value
from .loading import load, thaw
from .program import Program

__all__ = ["Instruction", "Program", "Value", "capture", "load", "thaw"]
