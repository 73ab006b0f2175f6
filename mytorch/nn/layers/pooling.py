"""Pooling layers: each calls the function of its name in `nn.functional`."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.types import IntOrInts
from ..functional.windows import ntuple
from ..module import Module


class _MaxPool(Module):
    """Base of the layers that take the maximum of each window.

    Args:
        kernel_size, stride, padding, dilation, return_indices, ceil_mode: see `F.max_pool2d`.
    """

    function: Callable

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
        dilation: IntOrInts = 1, return_indices: bool = False, ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.function(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The maximum of each window over the last dim, (N, C, L) or (C, L): see `F.max_pool1d`.

    >>> nn.MaxPool1d(2)(mytorch.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
    tensor([[[3.00000 2.00000]]])
    """

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The maximum of each window over the last two dims, (N, C, H, W) or (C, H, W): see `F.max_pool2d`.

    >>> nn.MaxPool2d(2)(mytorch.ones(1, 3, 8, 8)).shape
    Size([1, 3, 4, 4])
    """

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The maximum of each window over the last three dims: see `F.max_pool3d`.

    >>> nn.MaxPool3d(2)(mytorch.ones(1, 3, 8, 8, 8)).shape
    Size([1, 3, 4, 4, 4])
    """

    function = staticmethod(F.max_pool3d)


class AvgPool1d(Module):
    """The mean of each window over the last dim, (N, C, L) or (C, L).

    Args:
        kernel_size, stride, padding, ceil_mode, count_include_pad: see `F.avg_pool2d`.

    >>> nn.AvgPool1d(2)(mytorch.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
    tensor([[[2.00000 1.00000]]])
    """

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ):
        super().__init__()
        self.kernel_size = ntuple(kernel_size, 1, "AvgPool1d: kernel_size")
        self.stride = ntuple(kernel_size if stride is None else stride, 1, "AvgPool1d: stride")
        self.padding = ntuple(padding, 1, "AvgPool1d: padding")
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window over the last two dims, (N, C, H, W) or (C, H, W).

    Args:
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: see `F.avg_pool2d`.

    >>> nn.AvgPool2d(2)(mytorch.ones(1, 3, 8, 8)).shape
    Size([1, 3, 4, 4])
    """

    function: Callable = staticmethod(F.avg_pool2d)

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self.function(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )

    extra_repr = AvgPool1d.extra_repr


class AvgPool3d(AvgPool2d):
    """The mean of each window over the last three dims; the arguments are those of `AvgPool2d`.

    >>> nn.AvgPool3d(2)(mytorch.ones(1, 3, 8, 8, 8)).shape
    Size([1, 3, 4, 4, 4])
    """

    function = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    """Base of the layers that take the p-norm of each window.

    Args:
        norm_type: p.
        kernel_size, stride, ceil_mode: see `F.avg_pool2d`.
    """

    function: Callable

    def __init__(
        self, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride = norm_type, kernel_size, stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """(sum x^p)^(1/p) over each window of the last dim, (N, C, L) or (C, L).

    >>> nn.LPPool1d(2, kernel_size=2)(mytorch.tensor([[[3.0, 4.0]]]))
    tensor([[[5.00000]]])
    """

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """(sum x^p)^(1/p) over each window of the last two dims, (N, C, H, W) or (C, H, W).

    >>> nn.LPPool2d(2, kernel_size=2)(mytorch.ones(1, 3, 8, 8)).shape
    Size([1, 3, 4, 4])
    """

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """(sum x^p)^(1/p) over each window of the last three dims, (N, C, D, H, W) or (C, D, H, W).

    >>> nn.LPPool3d(2, kernel_size=2)(mytorch.ones(1, 3, 8, 8, 8)).shape
    Size([1, 3, 4, 4, 4])
    """

    function = staticmethod(F.lp_pool3d)


class _AdaptiveAvgPool(Module):
    """Base of the layers that make means of as many windows as are wanted.

    Args:
        output_size: how many, in each dim; None for a dim that stays as it is.
    """

    function: Callable

    def __init__(self, output_size: IntOrInts):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` windows over the last dim: see `F.adaptive_avg_pool1d`.

    >>> nn.AdaptiveAvgPool1d(2)(mytorch.ones(1, 3, 8)).shape
    Size([1, 3, 2])
    """

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of `output_size` windows over the last two dims: see `F.adaptive_avg_pool2d`.

    >>> nn.AdaptiveAvgPool2d(1)(mytorch.ones(1, 3, 8, 8)).shape
    Size([1, 3, 1, 1])
    """

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of `output_size` windows over the last three dims: see `F.adaptive_avg_pool3d`.

    >>> nn.AdaptiveAvgPool3d(1)(mytorch.ones(1, 3, 8, 8, 8)).shape
    Size([1, 3, 1, 1, 1])
    """

    function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(_AdaptiveAvgPool):
    """Base of the layers that take the maxima of as many windows as are wanted.

    Args:
        output_size: how many, in each dim; None for a dim that stays as it is.
        return_indices: see `F.max_pool2d`.
    """

    def __init__(self, output_size: IntOrInts, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of `output_size` windows over the last dim: see `F.adaptive_max_pool1d`.

    >>> nn.AdaptiveMaxPool1d(2)(mytorch.ones(1, 3, 8)).shape
    Size([1, 3, 2])
    """

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of `output_size` windows over the last two dims: see `F.adaptive_max_pool2d`.

    >>> nn.AdaptiveMaxPool2d(1)(mytorch.ones(1, 3, 8, 8)).shape
    Size([1, 3, 1, 1])
    """

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of `output_size` windows over the last three dims: see `F.adaptive_max_pool3d`.

    >>> nn.AdaptiveMaxPool3d(1)(mytorch.ones(1, 3, 8, 8, 8)).shape
    Size([1, 3, 1, 1, 1])
    """

    function = staticmethod(F.adaptive_max_pool3d)
