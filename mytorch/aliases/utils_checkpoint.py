"""Activation checkpointing under PyTorch's name; implemented in `autograd/checkpoint.py`."""

from mytorch.autograd.checkpoint import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
