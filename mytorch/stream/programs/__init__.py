"""Programs: functions and training steps as data, to be looked at, changed, saved and run."""

from .files.loading import load, thaw
from .instruction import Instruction, Value
from .program import Program
from .tracing.capture import capture

__all__ = ["Instruction", "Program", "Value", "capture", "load", "thaw"]
