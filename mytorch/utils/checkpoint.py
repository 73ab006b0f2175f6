"""`utils.checkpoint.checkpoint`, where PyTorch has it; written in `autograd/checkpoint.py`."""

from ..autograd.checkpoint import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
