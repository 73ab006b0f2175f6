"""What training needs around the model: data, and files that are written whole."""

from . import checkpoint, data
from .atomic import atomic_write

__all__ = ["atomic_write", "checkpoint", "data"]
