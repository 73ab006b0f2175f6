"""Activation layers: each calls the function of its name in `nn.functional`, which has the formulas."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from ...core.tensor import Tensor
from ...ops import full
from .. import functional as F
from .. import init as nn_init
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter


class _Activation(Module):
    """Base of all activations: calls `function` with the constructor's arguments, kept as attributes."""

    function: Callable

    def __init__(self, **arguments: object):
        super().__init__()
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, **{name: getattr(self, name) for name in self._arguments})

    def extra_repr(self) -> str:
        shown = [name for name in self._arguments if name != "inplace"]
        shown += ["inplace"] if getattr(self, "inplace", False) else []
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


class _Plain(_Activation):
    """Base of those without arguments."""

    def __init__(self):
        super().__init__()


class _Inplace(_Activation):
    """Base of those that can write into their input.

    Args:
        inplace: do so.
    """

    def __init__(self, inplace: bool = False):
        super().__init__(inplace=inplace)


class Sigmoid(_Plain):
    """1 / (1 + exp(-x))

    >>> nn.Sigmoid()(mytorch.tensor([0.0, 2.0]))
    tensor([0.50000 0.88080])
    """

    function = F.sigmoid


class Tanh(_Plain):
    """tanh(x)

    >>> nn.Tanh()(mytorch.tensor([0.0, 1.0]))
    tensor([0.00000 0.76159])
    """

    function = F.tanh


class LogSigmoid(_Plain):
    """log(sigmoid(x))

    >>> nn.LogSigmoid()(mytorch.tensor([0.0, 2.0]))
    tensor([-0.69315 -0.12693])
    """

    function = F.logsigmoid


class Softsign(_Plain):
    """x / (1 + |x|)

    >>> nn.Softsign()(mytorch.tensor([-1.0, 3.0]))
    tensor([-0.50000  0.75000])
    """

    function = F.softsign


class Tanhshrink(_Plain):
    """x - tanh(x)

    >>> nn.Tanhshrink()(mytorch.tensor([0.0, 1.0]))
    tensor([0.00000 0.23841])
    """

    function = F.tanhshrink


class ReLU(_Inplace):
    """max(x, 0)

    >>> nn.ReLU()(mytorch.tensor([-1.0, 2.0]))
    tensor([0.00000 2.00000])
    """

    function = F.relu


class SquaredReLU(_Inplace):
    """max(x, 0)^2; not in PyTorch.

    >>> nn.SquaredReLU()(mytorch.tensor([-1.0, 3.0]))
    tensor([0.00000 9.00000])
    """

    function = F.squared_relu


class ReLU6(_Inplace):
    """min(max(x, 0), 6)

    >>> nn.ReLU6()(mytorch.tensor([-1.0, 9.0]))
    tensor([0.00000 6.00000])
    """

    function = F.relu6


class SELU(_Inplace):
    """`ELU` with constants that keep the mean and variance of the activations.

    >>> nn.SELU()(mytorch.tensor([-1.0, 2.0]))
    tensor([-1.11133  2.10140])
    """

    function = F.selu


class SiLU(_Inplace):
    """x sigmoid(x)

    >>> nn.SiLU()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.26894  1.76159])
    """

    function = F.silu


class Mish(_Inplace):
    """x tanh(softplus(x))

    >>> nn.Mish()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.30340  1.94396])
    """

    function = F.mish


class Hardsigmoid(_Inplace):
    """x / 6 + 1/2 clamped to [0, 1]

    >>> nn.Hardsigmoid()(mytorch.tensor([-3.0, 0.0]))
    tensor([0.00000 0.50000])
    """

    function = F.hardsigmoid


class Hardswish(_Inplace):
    """x hardsigmoid(x)

    >>> nn.Hardswish()(mytorch.tensor([-3.0, 3.0]))
    tensor([-0.00000  3.00000])
    """

    function = F.hardswish


class GELU(_Activation):
    """x P(X <= x), X normally distributed.

    Args:
        approximate: "none" or "tanh".

    >>> nn.GELU()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.15866  1.95450])
    """

    function = F.gelu

    def __init__(self, approximate: str = "none"):
        super().__init__(approximate=approximate)


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope * x

    >>> nn.LeakyReLU(0.1)(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.10000  2.00000])
    """

    function = F.leaky_relu

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class RReLU(_Activation):
    """x where x > 0, else a * x with a drawn from U(lower, upper) in training, else their mean.

    >>> nn.RReLU().eval()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.22917  2.00000])
    """

    function = F.rrelu

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        super().__init__(lower=lower, upper=upper, inplace=inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """x where x > 0, else weight * x, with learned slopes.

    Args:
        num_parameters: the number of slopes: 1, or the number of channels (dim 1 of the input).
        init: their initial value.
        device, dtype: of the weight.

    Attributes:
        weight: (num_parameters,).

    >>> nn.PReLU()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.25000  2.00000], grad_fn=<_where>)
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike = None, dtype: DTypeLike = None
    ):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Sets all slopes to `init`."""
        nn_init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(_Activation):
    """x where x > 0, else alpha (exp(x) - 1)

    >>> nn.ELU()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.63212  2.00000])
    """

    function = F.elu

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(_Activation):
    """x where x > 0, else alpha (exp(x / alpha) - 1)

    >>> nn.CELU()(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.63212  2.00000])
    """

    function = F.celu

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(alpha=alpha, inplace=inplace)


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.

    >>> nn.Softplus()(mytorch.tensor([0.0, 2.0]))
    tensor([0.69315 2.12693])
    """

    function = F.softplus

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(_Activation):
    """x clamped to [min_val, max_val].

    Args:
        min_value, max_value: deprecated names of min_val and max_val.

    Raises:
        AssertionError: max_val is not above min_val.

    >>> nn.Hardtanh()(mytorch.tensor([-3.0, 0.5]))
    tensor([-1.00000  0.50000])
    """

    function = F.hardtanh

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
        min_value: float | None = None, max_value: float | None = None,
    ):
        if min_value is not None or max_value is not None:
            warnings.warn("min_value and max_value are now min_val and max_val", FutureWarning, stacklevel=3)
        min_val = min_val if min_value is None else min_value
        max_val = max_val if max_value is None else max_value
        if not max_val > min_val:
            raise AssertionError(f"Hardtanh: max_val must be above min_val, got {max_val} and {min_val}")
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class Threshold(_Activation):
    """x where x > threshold, else `value`.

    >>> nn.Threshold(0.5, 9.0)(mytorch.tensor([0.0, 1.0]))
    tensor([9.00000 1.00000])
    """

    function = F.threshold

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class Softshrink(_Activation):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> nn.Softshrink()(mytorch.tensor([-1.0, 0.2]))
    tensor([-0.50000  0.00000])
    """

    function = F.softshrink

    def __init__(self, lambd: float = 0.5):
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Softshrink):
    """x where |x| > lambd, else 0

    >>> nn.Hardshrink()(mytorch.tensor([-1.0, 0.2]))
    tensor([-1.00000  0.00000])
    """

    function = F.hardshrink


class GLU(_Activation):
    """a sigmoid(b) of the two halves of the input along a dim.

    >>> nn.GLU()(mytorch.tensor([2.0, 0.0]))
    tensor([1.00000])
    """

    function = F.glu

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)


class SwiGLU(_Activation):
    """silu(a) b of the two halves of the input along a dim; not in PyTorch.

    >>> nn.SwiGLU()(mytorch.ones(2, 6)).shape
    Size([2, 3])
    """

    function = F.swiglu

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)


class GeGLU(_Activation):
    """gelu(a) b of the two halves of the input along a dim; not in PyTorch.

    >>> nn.GeGLU()(mytorch.ones(2, 6)).shape
    Size([2, 3])
    """

    function = F.geglu

    def __init__(self, dim: int = -1, approximate: str = "none"):
        super().__init__(dim=dim, approximate=approximate)
