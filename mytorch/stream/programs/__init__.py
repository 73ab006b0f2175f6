"""Programs: functions and training steps as data, to be looked at, changed, compiled and run."""

from .capture import capture
from .compile import compile
from .program import Instruction, Program, Value

__all__ = ["Instruction", "Program", "Value", "capture", "compile"]
