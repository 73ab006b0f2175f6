"""Activations of NaN, inf, zeros of both signs, and of numbers whose exponential over- or underflows.

Values and gradients are PyTorch's in every variant; 0 counts as -0. At NaN PyTorch's are others for a
number alone than in a vector register, for example hardtanh's gradient, 1 and 0: ours is one of the two.
"""

import numpy as np
import pytest
import torch

from mytorch import Tensor
from mytorch.nn import functional as F
from tests.nn.functional.oracles import ORACLES
from tests.nn.functional.test_parity import variants

BOUNDS = [1, -1, 3, -3, 0.5, -0.5, 6, 20, -20, 88.8, -88.8, 100, -100, 1e-40, 1e30, -1e30]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, *BOUNDS], "float32")

CALLS = {
    **{name: [{}] for name in (
        "relu", "relu6", "squared_relu", "selu", "hardswish", "hardsigmoid", "mish", "tanhshrink",
        "logsigmoid", "silu", "sigmoid", "tanh", "softsign", "rrelu",
    )},
    "elu": [{}, {"alpha": 0.5}, {"alpha": -2.0}],
    "celu": [{}, {"alpha": 0.5}, {"alpha": -2.0}],
    "threshold": [{"threshold": 0.1, "value": 20.0}, {"threshold": 0.0, "value": 0.0}],
    "hardtanh": [{}, {"min_val": -2.0, "max_val": 0.0}, {"min_val": 2.0, "max_val": 2.0}],
    "softplus": [{}, {"beta": 2.0, "threshold": 1.0}, {"beta": -0.5}],
    "leaky_relu": [{}, {"negative_slope": 0.0}, {"negative_slope": -0.5}],
    "hardshrink": [{}, {"lambd": 0.0}, {"lambd": -1.0}],
    "softshrink": [{}, {"lambd": 0.0}, {"lambd": 3.0}],
    "gelu": [{}, {"approximate": "tanh"}],
}
UNARY = pytest.mark.parametrize(
    ("name", "choice"),
    [pytest.param(n, choice, id=f"{n}-{variant}") for n in CALLS for variant, choice in variants(n)],
)
# PyTorch's gelu on the CPU is NaN at inf and where the square of x overflows; ours is x.
NUMBERS = {"gelu": SPECIAL[~(abs(SPECIAL) > 1e19)]}


@UNARY
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_values_and_gradients_are_pytorch_s(name, choice):
    numbers = NUMBERS.get(name, SPECIAL)
    for kwargs in CALLS[name]:
        x = Tensor(numbers, requires_grad=True)
        y = getattr(F, name)(x, **kwargs, **choice)
        y.backward(np.ones_like(numbers))
        ours = y.detach().numpy(), x.grad.numpy()
        alone, in_register = pytorch_s(name, kwargs, numbers, 1), pytorch_s(name, kwargs, numbers, 32)
        for what, a, *wanted in zip(("value", "gradient"), ours, alone, in_register, strict=True):
            same = np.any([np.isclose(a, b, 2e-5, 1e-6, equal_nan=True) for b in wanted], axis=0)
            where = f"{what} of {numbers[~same]} for {kwargs}"
            assert same.all(), f"{where}: {a[~same]}, PyTorch's {wanted[0][~same]}"


def pytorch_s(name, kwargs, numbers, count):
    """The values and the gradients, each computed `count` times at once."""
    function = ORACLES.get(name) or getattr(torch.nn.functional, name)
    found = []
    for number in numbers:
        x = torch.full((count,), float(number), requires_grad=True)
        y = function(x, **kwargs)
        y.backward(torch.ones(count))
        found.append((y[0].item(), x.grad[0].item()))
    return np.array(found, "float32").T
