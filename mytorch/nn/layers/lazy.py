"""Lazy layers: the sizes of their inputs, and so their parameters, are known at the first call."""

from __future__ import annotations

from typing import Any

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops import zeros
from ..functional.types import DeviceLike, DTypeLike, IntOrInts
from ..uninitialized import UninitializedBuffer, UninitializedParameter, is_lazy
from .batch_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from .conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _Conv,
    _ConvTranspose,
)
from .linear import Linear


class LazyModuleMixin:
    """The part of a lazy module that initializes it before its first call.

    Attributes:
        cls_to_become: the class of the module from then on.
    """

    cls_to_become: type | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.has_uninitialized_params() or self.cls_to_become is not None:
            with no_grad():
                self.initialize_parameters(*args, **kwargs)
            if self.has_uninitialized_params():
                raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
            if self.cls_to_become is not None:
                self.__class__ = self.cls_to_become
                return self(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def has_uninitialized_params(self) -> bool:
        """Returns whether a parameter or buffer is uninitialized."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def initialize_parameters(self, *args: object, **kwargs: object) -> None:
        """Materializes the parameters for these arguments of `forward`."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def _make_uninitialized(self, names: list[str], device: DeviceLike, dtype: DTypeLike) -> None:
        for name in names:
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` whose `in_features` is the size of the last dim of its first input.

    >>> layer = nn.LazyLinear(3)
    >>> layer(mytorch.ones(4, 2)).shape
    Size([4, 3])
    >>> layer
    Linear(in_features=2, out_features=3, bias=True)
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None
    ):
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self._make_uninitialized(["weight", "bias"] if bias else ["weight"], device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        self.in_features = input.shape[-1]
        if self.has_uninitialized_params():
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()


class _LazyConvNd(LazyModuleMixin):
    def _begin(self, out_channels: int, bias: bool, device: DeviceLike, dtype: DTypeLike) -> None:
        self.out_channels = out_channels
        self._make_uninitialized(["weight", "bias"] if bias else ["weight"], device, dtype)

    def initialize_parameters(self, input: Tensor, *args: object, **kwargs: object) -> None:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {list(input.shape)}"
            )
        self.in_channels = input.shape[-1 - self.dims]
        if not self.has_uninitialized_params():
            return
        self._check()
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConv(_LazyConvNd, _Conv):
    def __init__(
        self, out_channels: int, kernel_size: IntOrInts, stride: IntOrInts = 1, padding: IntOrInts | str = 0,
        dilation: IntOrInts = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype
        )
        self._begin(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvNd, _ConvTranspose):
    def __init__(
        self, out_channels: int, kernel_size: IntOrInts, stride: IntOrInts = 1, padding: IntOrInts = 0,
        output_padding: IntOrInts = 0, groups: int = 1, bias: bool = True, dilation: IntOrInts = 1,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device,
            dtype,
        )
        self._begin(out_channels, bias, device, dtype)


class _LazyNorm(LazyModuleMixin):
    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: DeviceLike = None, dtype: DTypeLike = None, *,
        bias: bool = True,
    ):
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self._make_uninitialized(["weight", "bias"] if bias else ["weight"], device, dtype)
        if track_running_stats:
            for name in ("running_mean", "running_var"):
                setattr(self, name, UninitializedBuffer(device=device, dtype=dtype))
            self.num_batches_tracked = zeros((), dtype="int64", device=device)

    def initialize_parameters(self, input: Tensor) -> None:
        single = isinstance(self, _InstanceNorms) and input.ndim == self.dims[0]
        self.num_features = input.shape[0 if single else 1]
        if self.has_uninitialized_params():
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                if tensor is not None:
                    tensor.materialize((self.num_features,))
            self.reset_parameters()


_InstanceNorms = (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` whose `in_channels` is the number of channels of its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` whose `in_channels` is the number of channels of its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` whose `in_channels` is the number of channels of its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` whose `in_channels` is the number of channels of its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` whose `in_channels` is the number of channels of its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` whose `in_channels` is the number of channels of its first input."""

    cls_to_become = ConvTranspose3d


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A `BatchNorm1d` whose `num_features` is the number of channels of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A `BatchNorm2d` whose `num_features` is the number of channels of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A `BatchNorm3d` whose `num_features` is the number of channels of its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """A `InstanceNorm1d` whose `num_features` is the number of channels of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """A `InstanceNorm2d` whose `num_features` is the number of channels of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """A `InstanceNorm3d` whose `num_features` is the number of channels of its first input."""

    cls_to_become = InstanceNorm3d
