"""Utilities for training: datasets and loaders, checkpointing, atomic writes."""

from typing import TYPE_CHECKING

from ..aliases import lazily as _lazily
from . import data
from .atomic import atomic_write

if TYPE_CHECKING:
    from mytorch.aliases import utils_checkpoint as checkpoint

__all__ = ["atomic_write", "checkpoint", "data"]

__getattr__, __dir__ = _lazily(globals())
