"""The operations: differentiable functions of Tensors, one file a family."""

from types import ModuleType

from .arrange import *
from .cast import *
from .categorical import *
from .compare import *
from .create import *
from .einsum import *
from .elementwise import *
from .extremes import *
from .gather_scatter import *
from .index import *
from .info import *
from .join import *
from .linalg import *
from .mask import *
from .random import *
from .reduce import *
from .shape import *
from .sort import *
from .special import *

# The functions, not the files: `mytorch.random` is the module of that name beside this package.
__all__ = [
    name for name, value in globals().items() if name[0] != "_" and not isinstance(value, (ModuleType, type))
]
