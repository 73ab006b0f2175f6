"""Utilities for training: datasets and loaders, checkpointing, atomic writes."""

from . import checkpoint, data
from .atomic import atomic_write

__all__ = ["atomic_write", "checkpoint", "data"]
