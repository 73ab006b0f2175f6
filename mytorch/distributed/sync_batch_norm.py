"""SyncBatchNorm: batch norm over the batches of all ranks."""

from __future__ import annotations

import math

import numpy as np

from ..core.array import Array
from ..core.op import op
from ..core.tensor import Tensor
from ..nn.functional.batch_norm import Running
from ..nn.functional.types import DeviceLike, DTypeLike
from ..nn.layers.batch_norm import _BatchNorm
from ..nn.module import Module
from .collectives import all_gather_into_tensor, all_reduce
from .process_group import ProcessGroup
from .world import get_world_size, is_initialized


class SyncBatchNorm(_BatchNorm):
    """Normalizes each channel of (N, C, ...) over the batches of all ranks; of one process as batch norm.

    Gradients of weight and bias are the rank's own, which DistributedDataParallel averages.

    Args:
        process_group: the ranks; by default all.

    Raises:
        ValueError: an input without a batch or without channels.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: ProcessGroup | None = None,
        device: DeviceLike = None, dtype: DTypeLike = None, *, bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero, got 0")

    def forward(self, input: Tensor) -> Tensor:
        of_the_batch = self.training or self.running_mean is None
        if not (of_the_batch and is_initialized() and get_world_size(self.process_group) > 1):
            return super().forward(input)
        self._check_input_dim(input)
        momentum, mean, var = self.momentum or 0.0, None, None
        if self.training and self.track_running_stats:
            mean, var = self.running_mean, self.running_var
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / float(self.num_batches_tracked)
        return _normalize(
            input, self.weight, self.bias, eps=self.eps, group=self.process_group,
            running=Running(mean, var, momentum, 0),
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: ProcessGroup | None = None) -> Module:
        """Returns the module with every batch norm in it replaced, on the same parameters and buffers."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            new = cls(
                module.num_features, module.eps, module.momentum, False, module.track_running_stats,
                process_group,
            )
            new.affine = module.affine
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(new, name, getattr(module, name))
            new.training = module.training
            return new
        for name, child in module.named_children():
            module.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return module


@op
def _normalize(x, weight, bias, *, eps, group, running):
    """Returns batch norm with the statistics of all ranks.

    The ranks exchange (count, mean, sum of squared deviations), which add up without cancellation. Source:
    Chan, Golub & LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979,
    https://doi.org/10.1007/978-3-642-51461-6_3
    """
    shape, channels = x.shape, x.shape[1]
    x = np.reshape(x, (shape[0], channels, math.prod(shape[2:])))
    own = np.full_like(x, x.shape[0] * x.shape[2], shape=(1,))
    mean = np.sum(x, axis=(0, 2)) / np.maximum(own, 1)
    deviation = np.sum(np.square(x - mean[:, None]), axis=(0, 2))
    table = _gathered(np.concatenate([own, mean, deviation]), group)
    counts, means, deviations = table[:, :1], table[:, 1 : channels + 1], table[:, channels + 1 :]
    count = np.sum(counts)
    mean = np.sum(counts * means, axis=0) / count
    variance = np.sum(deviations + counts * np.square(means - mean), axis=0) / count
    running.count = float(count)
    running.waiting = running.mean is not None
    running.update(mean, variance)
    rstd = (1 / np.sqrt(variance + x.dtype.type(eps)))[:, None]
    x_hat = (x - mean[:, None]) * rstd
    scale = rstd if weight is None else rstd * weight[:, None]
    y = x_hat if weight is None else x_hat * weight[:, None]
    y = y if bias is None else y + bias[:, None]

    def dx(g):
        g = np.reshape(g, x_hat.shape)
        sums = Array(np.concatenate([np.sum(g, axis=(0, 2)), np.sum(g * x_hat, axis=(0, 2))]))
        all_reduce(sums, group=group)
        dmean, dvariance = np.reshape(sums._array / count, (2, channels, 1))
        return np.reshape((g - dmean - x_hat * dvariance) * scale, shape)

    return np.reshape(y, shape), (
        dx,
        lambda g: np.sum(np.reshape(g, x_hat.shape) * x_hat, axis=(0, 2)),
        lambda g: np.sum(np.reshape(g, x_hat.shape), axis=(0, 2)),
    )


def _gathered(row, group):
    """Returns the rows of all ranks."""
    table = Array(np.empty_like(row, shape=(get_world_size(group), row.shape[0])))
    all_gather_into_tensor(table, Array(row), group)
    return table._array
