"""Convolutional layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core.tensor import Tensor
from ...ops import empty
from .. import functional as F
from .. import init
from ..functional.types import DeviceLike, DTypeLike, IntOrInts
from ..functional.windows import ntuple, read_padding
from ..module import Module
from ..parameter import Parameter

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Base of all convolutions; subclasses set the number of dims."""

    dims: int
    transposed = False

    def __init__(
        self, in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
        padding_mode, device, dtype,
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = self._tuple("kernel_size", kernel_size)
        self.stride = self._tuple("stride", stride)
        self.padding = padding if isinstance(padding, str) else self._tuple("padding", padding)
        self.dilation = self._tuple("dilation", dilation)
        self.output_padding = self._tuple("output_padding", output_padding)
        self.padding_mode = padding_mode
        self._check()
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _tuple(self, name: str, value: IntOrInts) -> tuple[int, ...]:
        return ntuple(value, self.dims, f"{type(self).__name__}: {name}")

    def _check(self) -> None:
        name = type(self).__name__
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"{name}: groups must be a positive number that divides in_channels and out_channels, "
                f"got {self.groups} for {self.in_channels} and {self.out_channels}"
            )
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"{name}: padding is 'same', 'valid' or ints, got {self.padding!r}")
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError(f"{name}: padding='same' is not supported with a stride, got {self.stride}")
        modes = PADDING_MODES[:1] if self.transposed else PADDING_MODES
        if self.padding_mode not in modes:
            raise ValueError(f"{name}: padding_mode must be one of {modes}, got {self.padding_mode!r}")

    def reset_parameters(self) -> None:
        fan_in = math.prod(self.weight.shape[1:])
        if fan_in:
            bound = 1 / math.sqrt(fan_in)  # equals kaiming_uniform_ with a = sqrt(5)
            init.uniform_(self.weight, -bound, bound)
            if self.bias is not None:
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )
        zeros, ones = (0,) * self.dims, (1,) * self.dims
        for name, usual in {"padding": zeros, "dilation": ones, "output_padding": zeros, "groups": 1}.items():
            value = getattr(self, name)
            text += "" if value == usual else f", {name}={value}"
        text += "" if self.bias is not None else ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: IntOrInts, stride: IntOrInts = 1,
        padding: IntOrInts | str = 0, dilation: IntOrInts = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode,
            device, dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            name = type(self).__name__
            pairs = read_padding(name, padding, self.kernel_size, self.stride, self.dilation)
            around = [p for pair in reversed(pairs) for p in pair]  # F.pad begins with the last dim
            input, padding = F.pad(input, around, mode=self.padding_mode), 0
        args = input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        return (F.conv1d, F.conv2d, F.conv3d)[self.dims - 1](*args)


class _ConvTranspose(_ConvNd):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: IntOrInts, stride: IntOrInts = 1,
        padding: IntOrInts = 0, output_padding: IntOrInts = 0, groups: int = 1, bias: bool = True,
        dilation: IntOrInts = 1, padding_mode: str = "zeros", device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
            padding_mode, device, dtype,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The transposed convolution; `output_size`, its last dims or its whole shape, stands for the
        output_padding that leads to it.

        Raises:
            ValueError: no output_padding leads to that size.
        """
        more = self.output_padding if output_size is None else self._more(input, output_size)
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.dims - 1]
        return convolve(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )

    def _more(self, input: Tensor, output_size: Sequence[int]) -> list[int]:
        name, others = type(self).__name__, input.ndim - self.dims
        wanted = list(output_size)[others:] if len(output_size) == input.ndim else list(output_size)
        if len(wanted) != self.dims:
            raise ValueError(
                f"{name}: output_size must have {self.dims} or {input.ndim} elements, "
                f"got {tuple(output_size)}"
            )
        settings = zip(self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        sizes = zip(input.shape[others:], settings, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, (k, s, p, d) in sizes]
        more = [w - n for w, n in zip(wanted, least, strict=True)]
        if not all(0 <= m < s for m, s in zip(more, self.stride, strict=True)):
            most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
            raise ValueError(
                f"{name}: output sizes of this input are from {least} to {most}, got output_size={wanted}"
            )
        return more


class Conv1d(_Conv):
    """Convolution over one dim, from (N, C, L) to (N, out_channels, L'): see `Conv2d`.

    >>> nn.Conv1d(2, 4, kernel_size=3)(mytorch.ones(1, 2, 8)).shape
    Size([1, 4, 6])
    """

    dims = 1


class Conv2d(_Conv):
    """Convolution of images, from (N, C, H, W) to (N, out_channels, H', W'): see `F.conv2d`.

    Args:
        in_channels, out_channels: the channels of the input and the result.
        kernel_size, stride, padding, dilation, groups: see `F.conv2d`.
        bias: whether to add one.
        padding_mode: the values of the padding: "zeros", or "reflect", "replicate" or "circular" as in
            `F.pad`.

    Attributes:
        weight: (out_channels, in_channels / groups, *kernel_size), from the uniform distribution between
            ± 1 / sqrt(elements of weight[0]).
        bias: (out_channels,), from the same, or None.

    Raises:
        ValueError: groups don't divide the channels; unknown or impossible padding.

    >>> nn.Conv2d(3, 4, kernel_size=3, padding=1)(mytorch.ones(1, 3, 8, 8)).shape
    Size([1, 4, 8, 8])
    """

    dims = 2


class Conv3d(_Conv):
    """Convolution over three dims, from (N, C, D, H, W) to (N, out_channels, D', H', W'): see `Conv2d`.

    >>> nn.Conv3d(2, 4, kernel_size=3)(mytorch.ones(1, 2, 8, 8, 8)).shape
    Size([1, 4, 6, 6, 6])
    """

    dims = 3


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over one dim, from (N, C, L) to (N, out_channels, L'): see `ConvTranspose2d`.

    >>> nn.ConvTranspose1d(2, 4, kernel_size=2, stride=2)(mytorch.ones(1, 2, 8)).shape
    Size([1, 4, 16])
    """

    dims = 1


class ConvTranspose2d(_ConvTranspose):
    """The gradient of a `Conv2d`, from (N, C, H, W) to larger (N, out_channels, H', W'): see
    `F.conv_transpose2d`.

    Args:
        in_channels, out_channels: the channels of the input and the result.
        kernel_size, stride, padding, output_padding, groups, dilation: see `F.conv_transpose2d`.
        bias: whether to add one.
        padding_mode: must be "zeros".

    Attributes:
        weight: (in_channels, out_channels / groups, *kernel_size), from the uniform distribution between
            ± 1 / sqrt(elements of weight[0]).
        bias: (out_channels,), from the same, or None.

    Raises:
        ValueError: groups don't divide the channels; another padding_mode.

    >>> nn.ConvTranspose2d(2, 4, kernel_size=2, stride=2)(mytorch.ones(1, 2, 8, 8)).shape
    Size([1, 4, 16, 16])
    """

    dims = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three dims: see `ConvTranspose2d`, with a depth before the height.

    >>> nn.ConvTranspose3d(2, 4, kernel_size=2, stride=2)(mytorch.ones(1, 2, 4, 4, 4)).shape
    Size([1, 4, 8, 8, 8])
    """

    dims = 3


class Unfold(Module):
    """Windows of images as columns, (N, C, H, W) to (N, C kernel, windows): see `F.unfold`.

    >>> nn.Unfold(kernel_size=2)(mytorch.ones(1, 1, 3, 3)).shape
    Size([1, 4, 4])
    """

    def __init__(
        self, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0, stride: IntOrInts = 1
    ):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Sums of windows to images, (N, C kernel, windows) to (N, C, H, W): see `F.fold`.

    >>> nn.Fold((4, 4), kernel_size=2, stride=2)(mytorch.ones(1, 4, 4)).shape
    Size([1, 1, 4, 4])
    """

    def __init__(
        self, output_size: IntOrInts, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ):
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
