"""Padding layers; for the modes see `F.pad`."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.windows import ntuple
from ..module import Module


class _Pad(Module):
    """Base of the padding layers; subclasses set the number of dims and the mode.

    Args:
        padding: sizes before and after the last dim, then the second to last, …; one int for all.
    """

    dims: int
    mode: str

    def __init__(self, padding: int | Sequence[int]):
        super().__init__()
        self.padding = ntuple(padding, 2 * self.dims, f"{type(self).__name__}: padding")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Base of the layers that pad with a value.

    Args:
        padding: see `_Pad`.
        value: of the padding.
    """

    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """Base of the layers that pad with zeros."""

    def __init__(self, padding: int | Sequence[int]):
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class _CircularPad(_Pad):
    """Base of the layers with circular padding.

    Raises (when called):
        ValueError: another number of dims.
    """

    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input, got {input.ndim}D")
        return super().forward(input)


class ConstantPad1d(_ConstantPad):
    """Pads with a value at both ends of the last dim, (N, C, W) or (C, W): ConstantPad1d(padding, value).

    >>> nn.ConstantPad1d(1, 5.0)(mytorch.ones(1, 2))
    tensor([[5.00000 1.00000 1.00000 5.00000]])
    """

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Pads with a value around the last two dims, (N, C, H, W) or (C, H, W): ConstantPad2d(padding,
    value).

    >>> nn.ConstantPad2d(1, 5.0)(mytorch.ones(1, 1, 2, 2)).shape
    Size([1, 1, 4, 4])
    """

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Pads with a value around the last three dims, (N, C, D, H, W) or (C, D, H, W):
    ConstantPad3d(padding, value).

    >>> nn.ConstantPad3d(1, 5.0)(mytorch.ones(1, 1, 2, 2, 2)).shape
    Size([1, 1, 4, 4, 4])
    """

    dims = 3


class ZeroPad1d(_ZeroPad):
    """Pads with zeros at both ends of the last dim, (N, C, W) or (C, W).

    >>> nn.ZeroPad1d(1)(mytorch.ones(1, 2))
    tensor([[0.00000 1.00000 1.00000 0.00000]])
    """

    dims = 1


class ZeroPad2d(_ZeroPad):
    """Pads with zeros around the last two dims, (N, C, H, W) or (C, H, W).

    >>> nn.ZeroPad2d(1)(mytorch.ones(1, 1, 1, 1))
    tensor([[[[0.00000 0.00000 0.00000]
              [0.00000 1.00000 0.00000]
              [0.00000 0.00000 0.00000]]]])
    """

    dims = 2


class ZeroPad3d(_ZeroPad):
    """Pads with zeros around the last three dims, (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ZeroPad3d(1)(mytorch.ones(1, 1, 2, 2, 2)).shape
    Size([1, 1, 4, 4, 4])
    """

    dims = 3


class ReflectionPad1d(_Pad):
    """Reflects the last dim at both ends, (N, C, W) or (C, W).

    >>> nn.ReflectionPad1d(1)(mytorch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2.00000 1.00000 2.00000 3.00000 2.00000]])
    """

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Reflects the last two dims at their ends, (N, C, H, W) or (C, H, W).

    >>> nn.ReflectionPad2d(1)(mytorch.ones(1, 1, 2, 2)).shape
    Size([1, 1, 4, 4])
    """

    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Reflects the last three dims at their ends, (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ReflectionPad3d(1)(mytorch.ones(1, 1, 2, 2, 2)).shape
    Size([1, 1, 4, 4, 4])
    """

    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Replicates the ends of the last dim, (N, C, W) or (C, W).

    >>> nn.ReplicationPad1d(1)(mytorch.tensor([[1.0, 2.0]]))
    tensor([[1.00000 1.00000 2.00000 2.00000]])
    """

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Replicates the border of the last two dims, (N, C, H, W) or (C, H, W).

    >>> nn.ReplicationPad2d(1)(mytorch.ones(1, 1, 2, 2)).shape
    Size([1, 1, 4, 4])
    """

    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Replicates the border of the last three dims, (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ReplicationPad3d(1)(mytorch.ones(1, 1, 2, 2, 2)).shape
    Size([1, 1, 4, 4, 4])
    """

    dims, mode = 3, "replicate"


class CircularPad1d(_CircularPad):
    """Pads the last dim circularly, (N, C, W) or (C, W).

    >>> nn.CircularPad1d(1)(mytorch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3.00000 1.00000 2.00000 3.00000 1.00000]])
    """

    dims = 1


class CircularPad2d(_CircularPad):
    """Pads the last two dims circularly, (N, C, H, W) or (C, H, W).

    >>> nn.CircularPad2d(1)(mytorch.ones(1, 1, 2, 2)).shape
    Size([1, 1, 4, 4])
    """

    dims = 2


class CircularPad3d(_CircularPad):
    """Pads the last three dims circularly, (N, C, D, H, W) or (C, D, H, W).

    >>> nn.CircularPad3d(1)(mytorch.ones(1, 1, 2, 2, 2)).shape
    Size([1, 1, 4, 4, 4])
    """

    dims = 3
