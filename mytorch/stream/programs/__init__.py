"""Programs: functions and training steps as data, to be looked at, changed, saved and run."""

from .capture import capture
from .loading import load, thaw
from .program import Instruction, Program, Value

__all__ = ["Instruction", "Program", "Value", "capture", "load", "thaw"]
