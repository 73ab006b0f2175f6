"""Arrays that hold nothing, for `device="meta"`: NumPy's functions give their shapes, strides and dtypes."""

from . import indexing, joining, linalg, methods, writing  # noqa: F401 - they add to tables and MetaArray
from .array import MetaArray, like, new
from .creation import module
from .random import MetaRandom

__all__ = ["MetaArray", "MetaRandom", "like", "module", "new"]
