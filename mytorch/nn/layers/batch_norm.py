"""Normalization layers with running statistics: batch norm and instance norm."""

from __future__ import annotations

import warnings

from ...core.tensor import Tensor
from ...ops import ones, zeros
from .. import functional as F
from ..functional.types import DeviceLike, DTypeLike
from .normalization import _Affine


class _RunningNorm(_Affine):
    """Base of batch and instance norm.

    Args:
        num_features: the number of channels C.
        eps: added to the variance.
        momentum: the weight of a batch in the running statistics; None for the mean over all batches.
        affine: whether to learn a weight (initially ones).
        track_running_stats: whether to keep running statistics, used in evaluation.
        bias: whether to learn a bias (initially zeros), too.

    Attributes:
        dims: the valid numbers of dims of the input.
    """

    dims: tuple[int, ...]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: DeviceLike = None, dtype: DTypeLike = None, *,
        bias: bool = True,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._add_parameters((num_features,), affine, affine and bias, device, dtype)
        made: dict[str, Tensor | None] = dict.fromkeys(("running_mean", "running_var", "num_batches_tracked"))
        if track_running_stats:
            made["running_mean"] = zeros(num_features, device=device, dtype=dtype)
            made["running_var"] = ones(num_features, device=device, dtype=dtype)
            made["num_batches_tracked"] = zeros((), device=device, dtype="int64")
        for name, value in made.items():
            self.register_buffer(name, value)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Resets to mean 0, variance 1 and no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.dims:
            expected = " or ".join(f"{n}D" for n in self.dims)
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = self.momentum or 0.0
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        if self.training and not self.track_running_stats:
            mean, var = None, None
        training = self.training or (mean is None and var is None)
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel of (N, C) or (N, C, L) over the batch: see `F.batch_norm`.

    >>> nn.BatchNorm1d(2)(mytorch.ones(4, 2)).shape
    Size([4, 2])
    """

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of (N, C, H, W) over the batch: see `F.batch_norm`.

    >>> nn.BatchNorm2d(2)(mytorch.ones(4, 2, 5, 5)).shape
    Size([4, 2, 5, 5])
    """

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalizes each channel of (N, C, D, H, W) over the batch: see `F.batch_norm`.

    >>> nn.BatchNorm3d(2)(mytorch.ones(4, 2, 5, 5, 5)).shape
    Size([4, 2, 5, 5, 5])
    """

    dims = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: DeviceLike = None, dtype: DTypeLike = None, *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.ndim == self.dims[0]  # without the dim of the batch
        channels = input.shape[0 if single else 1]
        if channels != self.num_features:
            text = f"the input has {channels} channels, num_features is {self.num_features}"
            if self.affine:
                raise ValueError(text)
            warnings.warn(f"{text}, which is not used, because affine=False", stacklevel=2)
        y = F.instance_norm(
            input.unsqueeze(0) if single else input, self.running_mean, self.running_var, self.weight,
            self.bias, self.training or not self.track_running_stats, self.momentum or 0.0, self.eps,
        )
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, L) or (C, L): see `F.instance_norm`.

    >>> nn.InstanceNorm1d(2)(mytorch.ones(4, 2, 5)).shape
    Size([4, 2, 5])
    """

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, H, W) or (C, H, W): see `F.instance_norm`.

    >>> nn.InstanceNorm2d(2)(mytorch.ones(4, 2, 5, 5)).shape
    Size([4, 2, 5, 5])
    """

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, D, H, W) or (C, D, H, W): see `F.instance_norm`.

    >>> nn.InstanceNorm3d(2)(mytorch.ones(4, 2, 5, 5, 5)).shape
    Size([4, 2, 5, 5, 5])
    """

    dims = (4, 5)


class InstanceNorm(_InstanceNorm):
    """`InstanceNorm1d`, `InstanceNorm2d` or `InstanceNorm3d`, as the input's dims say; not in PyTorch.

    The input is (N, C, L), (N, C, H, W), (N, C, D, H, W), or (C, L): for (C, H, W) take `InstanceNorm2d`.

    >>> norm = nn.InstanceNorm(2)
    >>> norm(mytorch.ones(4, 2, 5)).shape, norm(mytorch.ones(4, 2, 5, 5)).shape
    (Size([4, 2, 5]), Size([4, 2, 5, 5]))
    """

    dims = (2, 3, 4, 5)
