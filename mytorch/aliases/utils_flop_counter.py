"""PyTorch's place for `FlopCounterMode`."""

from mytorch.stream.flop_counter import FlopCounterMode

__all__ = ["FlopCounterMode"]
