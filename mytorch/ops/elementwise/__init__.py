"""Element-wise ops, one file a family. Each is its formula and, for each input, the derivative times `g`."""

from . import arithmetic, bounds, constant, exponential, rounding, signs, trigonometry
from .arithmetic import *
from .bounds import *
from .constant import *
from .exponential import *
from .rounding import *
from .signs import *
from .trigonometry import *

__all__ = [
    name
    for family in (arithmetic, signs, exponential, trigonometry, rounding, bounds, constant)
    for name in family.__all__
]
