"""NaN, inf and zeros of both signs in reductions, scans and bounds.

Values, indices and gradients are PyTorch's; 0 and -0 count as equal.
"""

import numpy as np
import pytest
import torch

from tests.oracle import in_both, outputs, tensors

nan, inf = np.nan, np.inf
ROWS = [
    [1, nan, 3], [nan, nan, 1], [nan, inf, 0], [0, nan, 3], [inf, 1, -inf], [inf, inf, 1], [-inf, -inf, -inf],
    [0, inf, 2], [2, -inf, 2], [0, -0.0, 0], [-0.0, 0, -0.0], [0, 2, 0], [0, 2, 3], [1, 1, 1],
]
NUMBERS = [nan, inf, -inf, 0, -0.0, 1, -1, 2.5, -3]


def reduction(name):
    return lambda torch, x: getattr(torch, name)(x, dim=0)


CALLS = {
    **{name: reduction(name) for name in (
        "sum", "mean", "prod", "amax", "amin", "nansum", "nanmean", "logsumexp", "cumsum", "softmax",
        "log_softmax",
    )},
    **{name: lambda torch, x, name=name: tuple(getattr(torch, name)(x, dim=0)) for name in (
        "max", "min", "median", "nanmedian", "cummax", "cummin",
    )},
    **{f"{name} of all": lambda torch, x, name=name: getattr(torch, name)(x) for name in (
        "sum", "mean", "prod", "max", "min", "median", "nanmedian", "amax", "amin", "var", "std", "norm",
    )},
    "argmax": lambda torch, x: torch.argmax(x), "argmin": lambda torch, x: torch.argmin(x),
    "aminmax": lambda torch, x: tuple(torch.aminmax(x)),
    "maximum norm": lambda torch, x: torch.linalg.vector_norm(x, inf),
    "normalize": lambda torch, x: torch.nn.functional.normalize(x, dim=0),
}
PAIRS = {
    name: lambda torch, x, y, name=name: getattr(torch, name)(x, y)
    for name in ("maximum", "minimum", "fmax", "fmin", "mul", "div", "logaddexp", "hypot", "xlogy")
}
PAIRS["clamp"] = lambda torch, x, y: torch.clamp(x, y - 1, y)
for low, high in ((-1, 2), (None, 1), (0, None), (0, 0), (2, -2), (nan, 1)):
    PAIRS[f"clamp {low} {high}"] = lambda torch, x, y, low=low, high=high: torch.clamp(x, low, high) + 0 * y


def check(call, *arrays):
    (ours, theirs), (mine, his) = in_both(call), tensors([np.array(a, "float32") for a in arrays], True)
    got, want = outputs(ours(*mine)), outputs(theirs(*his))
    for y, z in zip(got, want, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), 1e-5, 1e-6, err_msg=f"{arrays}")
    if not want[0].requires_grad:
        return
    g = np.arange(1, want[0].numel() + 1, dtype="float32").reshape(tuple(want[0].shape))
    got[0].backward(g)
    want[0].backward(torch.tensor(g))
    for x, y in zip(mine, his, strict=True):
        got, want = x.grad.numpy(), y.grad.numpy()
        np.testing.assert_allclose(got, want, 1e-5, 1e-6, err_msg=f"gradient of {arrays}")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning", "ignore:Degrees of freedom")
def test_along_a_dim(name):
    for row in ROWS:
        check(CALLS[name], row)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_pairs(name):
    x, y = np.meshgrid(NUMBERS, NUMBERS)
    check(PAIRS[name], x.ravel(), y.ravel())
