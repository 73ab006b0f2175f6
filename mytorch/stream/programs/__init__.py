"""Programs: functions and training steps as data, to be looked at, changed, compiled, saved and run."""

from .capture import capture
from .compile import compile
from .loading import load, thaw
from .program import Instruction, Program, Value

__all__ = ["Instruction", "Program", "Value", "capture", "compile", "load", "thaw"]
