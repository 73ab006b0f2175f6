"""Normalization layers without running statistics; those with them are in `batch_norm`."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ...core.tensor import Tensor
from ...ops import empty
from .. import functional as F
from .. import init
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter


class _Affine(Module):
    """Base of the layers with a scale and a shift: a weight, initially ones, and a bias, initially zeros."""

    def _add_parameters(
        self, shape: tuple[int, ...], weight: bool, bias: bool, device: DeviceLike, dtype: DTypeLike
    ) -> None:
        for name, wanted in (("weight", weight), ("bias", bias)):
            value = Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, (tuple, list)):
        return tuple(normalized_shape)
    return (operator.index(normalized_shape),)


class LayerNorm(_Affine):
    """Normalizes the last dims to mean 0 and variance 1, then scales and shifts them: see `F.layer_norm`.

    Args:
        normalized_shape: the sizes of these dims; an int for the last dim.
        eps: added to the variance.
        elementwise_affine: whether to learn a weight (initially ones).
        bias: whether to learn a bias (initially zeros), too.

    >>> nn.LayerNorm(3)(mytorch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[-1.22474  0.00000  1.22474]], grad_fn=<layer_norm>)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        self.normalized_shape, self.eps = _sizes(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        self._add_parameters(
            self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype
        )
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"


class AddLayerNorm(LayerNorm):
    """Adds two tensors and normalizes the sum; returns both: see `F.add_layer_norm`.

        y, sum = norm(input, residual)
        y, sum = norm(input)            # without a residual: sum is the input

    PyTorch has no such layer; arguments and parameters are those of `LayerNorm`.

    >>> normalized, total = nn.AddLayerNorm(2)(mytorch.tensor([[1.0, 2.0]]), mytorch.ones(1, 2))
    >>> normalized
    tensor([[-0.99998  0.99998]], grad_fn=<add_layer_norm[0]>)
    >>> total
    tensor([[2.00000 3.00000]], grad_fn=<add_layer_norm[1]>)
    """

    def forward(self, input: Tensor, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if residual is None:
            return super().forward(input), input
        sizes = self.normalized_shape
        return F.add_layer_norm(input, residual, sizes, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divides by the root of the mean square of the last dims, then scales: see `F.rms_norm`.

    Args:
        normalized_shape: the sizes of these dims; an int for the last dim.
        eps: added to the mean square; by default the epsilon of the input's dtype.
        elementwise_affine: whether to learn a weight (initially ones).

    >>> nn.RMSNorm(2)(mytorch.tensor([[3.0, 4.0]]))
    tensor([[0.84853 1.13137]], grad_fn=<rms_norm>)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        self.normalized_shape, self.eps = _sizes(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalizes groups of channels, of each sample, then scales and shifts: see `F.group_norm`.

    Args:
        num_groups: the number of groups of channels.
        num_channels: the size of dim 1.
        eps: added to the variance.
        affine: whether to learn a weight (initially ones).
        bias: whether to learn a bias (initially zeros), too.

    Raises:
        ValueError: num_channels is not divisible by num_groups.

    >>> nn.GroupNorm(2, 4)(mytorch.ones(1, 4, 5)).shape
    Size([1, 4, 5])
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: DeviceLike = None, dtype: DTypeLike = None, *, bias: bool = True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._add_parameters((num_channels,), affine, affine and bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{text}, bias={self.bias is not None}"


class LocalResponseNorm(Module):
    """Divides by a power of the mean square over neighbouring channels: see `F.local_response_norm`.

    Args:
        size: the number of neighbouring channels.
        alpha, beta, k: y = x / (k + alpha mean)^beta

    >>> nn.LocalResponseNorm(2)(mytorch.ones(1, 4, 5)).shape
    Size([1, 4, 5])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
