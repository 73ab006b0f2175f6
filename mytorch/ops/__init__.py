"""The operations: differentiable functions of Tensors, one file a family."""

from types import ModuleType

from .added_product import *
from .aliases import *
from .broadcast import *
from .cast import *
from .categorical import *
from .compare import *
from .complex_numbers import *
from .create import *
from .diagonals import *
from .distance import *
from .einsum import *
from .elementwise import *
from .factors import *
from .gamma import *
from .gather_along import *
from .index import *
from .index_along import *
from .join import *
from .linalg import *
from .mask import *
from .matrix_chain import *
from .matrix_exponential import *
from .minmax import *
from .norms import *
from .order_statistics import *
from .properties import *
from .pseudoinverse import *
from .random import *
from .ranges import *
from .rearrange import *
from .reduce import *
from .scan import *
from .scatter_along import *
from .search import *
from .shape import *
from .solve import *
from .sort import *
from .special import *
from .split import *
from .svd import torch_svd as svd
from .trapezoid import *
from .unique import *
from .variance import *

# The functions, not the files: `mytorch.random` is the module of that name beside this package.
__all__ = [
    name for name, value in globals().items() if name[0] != "_" and not isinstance(value, (ModuleType, type))
]
