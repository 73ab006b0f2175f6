"""Linear layers, and layers that only pass on or reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core.tensor import Tensor
from ...ops import empty, flatten, unflatten
from .. import functional as F
from .. import init
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter


class Identity(Module):
    """y = x, whatever the arguments.

    >>> nn.Identity()(mytorch.ones(2))
    tensor([1.00000 1.00000])
    """

    def __init__(self, *args: object, **kwargs: object):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Make one dim of the dims `start_dim` to `end_dim`; by default of all but the first.

    >>> nn.Flatten()(mytorch.ones(2, 3, 4)).shape
    Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Make several dims of one.

    Args:
        dim: which.
        unflattened_size: their sizes; -1 for one that follows from the others.

    Raises:
        TypeError: sizes that aren't a tuple or list of ints.

    >>> nn.Unflatten(1, (3, 4))(mytorch.ones(2, 12)).shape
    Size([2, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)) or not all(
            isinstance(n, int) for n in unflattened_size
        ):
            raise TypeError(f"unflattened_size must be a tuple of ints, got {unflattened_size!r}")
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Linear(Module):
    """y = x W^T + b, from (..., in_features) to (..., out_features).

    Args:
        bias: whether to add b.

    Attributes:
        weight: (out_features, in_features), from the uniform distribution between ± 1 / sqrt(in_features).
        bias: (out_features,), from the same, or None.

    >>> nn.Linear(2, 3)(mytorch.ones(4, 2)).shape
    Size([4, 3])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class LinearActivation(Linear):
    """y = f(x W^T + b): see `F.linear_activation`. (PyTorch has no such layer; its parameters are Linear's.)

    Args:
        bias: whether to add b.
        activation: f, "gelu", "gelu_tanh", "relu" or "silu".

    >>> nn.LinearActivation(2, 3)(mytorch.ones(4, 2)).shape
    Size([4, 3])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, activation: str = "gelu",
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        return F.linear_activation(input, self.weight, self.bias, self.activation)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation!r}"


class Bilinear(Module):
    """y_o = x1^T W_o x2 + b_o, from (..., in1_features) and (..., in2_features) to (..., out_features).

    Args:
        bias: whether to add b.

    Attributes:
        weight: (out_features, in1_features, in2_features), from the uniform distribution between
            ± 1 / sqrt(in1_features).
        bias: (out_features,), from the same, or None.

    Raises:
        ValueError: in1_features isn't positive.

    >>> nn.Bilinear(2, 3, 4)(mytorch.ones(5, 2), mytorch.ones(5, 3)).shape
    Size([5, 4])
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
