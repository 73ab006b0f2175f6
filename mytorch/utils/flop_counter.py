"""PyTorch's place for `FlopCounterMode`."""

from ..stream.flop_counter import FlopCounterMode

__all__ = ["FlopCounterMode"]
