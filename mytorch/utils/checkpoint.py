"""Activation checkpointing under PyTorch's name; implemented in `autograd/checkpoint.py`."""

from ..autograd.checkpoint import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
