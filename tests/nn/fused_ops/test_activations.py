"""What the parity tests leave out of the elementwise kernels on the CPU: special values, sizes, memory."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.core.closure import closure_arrays
from mytorch.nn import functional as F
from tests.each import each
from tests.nn.functional.oracles import ORACLES

pytest.importorskip("numba")

CALLS = {
    "sigmoid": {}, "tanh": {}, "silu": {}, "relu": {}, "leaky_relu": {"negative_slope": 0.2},
    "squared_relu": {}, "gelu": {}, "gelu tanh": {"approximate": "tanh"}, "swiglu": {"dim": 0},
    "geglu": {"dim": 0}, "geglu tanh": {"dim": 0, "approximate": "tanh"},
}
EVERY = pytest.mark.parametrize("name", CALLS)
UNARY = pytest.mark.parametrize("name", [name for name in CALLS if "glu" not in name])
LARGE = (1 << 16) + 37  # more than one thread takes alone, and not a whole number of vector registers


def both(name, x, dtype="float32"):
    """(value, gradient) of our kernel's and of PyTorch's, computed in a dtype."""
    name, kwargs = name.split()[0], CALLS[name]
    theirs = torch.from_numpy(x.astype(dtype)).requires_grad_()
    y = (ORACLES.get(name) or getattr(torch.nn.functional, name))(theirs, **kwargs)
    y.sum().backward()
    ours = Tensor(x, requires_grad=True)
    z = getattr(F, name)(ours, **kwargs, fused=True)
    z.backward(np.ones(tuple(z.shape), "float32"))
    return (z.detach().numpy(), ours.grad.numpy()), (y.detach().numpy(), theirs.grad.numpy())


SPECIAL = [np.nan, -np.inf, 0, -0.0, 1e-45, -1e-39, 1e12, -1e12, 88.8, -88.8, -104, 13, -13, 5.5, -5.5]
LARGEST = [np.inf, 3e38, -3e38]  # PyTorch's gelu on the CPU makes NaN and inf of the first two, ours x


@EVERY
@pytest.mark.parametrize("count", [1, 20, 10_000])
def test_special_values(name, count):
    x = np.array(SPECIAL + ([] if "ge" in name else LARGEST), "float32")
    x = np.repeat(x, count)
    x = np.concatenate([x, np.ones_like(x)]) if "dim" in CALLS[name] else x
    for got, want in zip(*both(name, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@EVERY
def test_large_and_odd_sizes(name):
    rng = np.random.default_rng(0)
    for shape in ((2 * LARGE,), (2, LARGE), (2 * 5, 8209), (40_000, 2), (2, 3)):
        x = (3 * rng.standard_normal(shape)).astype("float32")
        for got, want in zip(*both(name, x, "float64"), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


LAYOUTS = {
    "transposed": lambda x: x.transpose(2, 0, 1), "channels last": lambda x: x.transpose(0, 2, 1),
    "expanded": lambda x: np.broadcast_to(x[:, :1], x.shape), "part": lambda x: x[:, 1:4, ::2],
    "reversed": lambda x: x[::-1, :, ::-1],
}


@UNARY
@each("layout", LAYOUTS)
def test_memory_is_laid_out_as_in_pytorch(name, layout):
    """A dense input's order of dims stays; the result of a part, or of what overlaps, is dense."""
    x = np.random.default_rng(0).standard_normal((6, 5, 8)).astype("float32")
    view = LAYOUTS[layout](x)
    got, want = both(name, view)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)
    y = getattr(F, name.split()[0])(Tensor(view), **CALLS[name], fused=True)
    if layout in ("transposed", "channels last"):
        assert y.stride() == Tensor(view).stride()
    dense = sorted(zip(y.stride(), y.shape, strict=True))
    assert [step for step, _ in dense] == [int(np.prod([n for _, n in dense[:i]])) for i in range(3)]


@EVERY
def test_one_array_is_kept_for_backward(name):
    """No larger than the input; without gradients gelu makes none."""
    kwargs = CALLS[name]
    composite = F.REGISTRY[name.split()[0]]
    x = np.ones((8, 6), "float32")
    getattr(F, composite.__name__)(Tensor(x), **kwargs, fused=True)
    args = {"inplace": False, **kwargs}
    args = [args.get(n, p.default) for n, p in composite.signature.parameters.items()][1:]
    _, vjp = composite.kernels["cpu"].forward(x, *args)
    assert sum(a.nbytes for a in closure_arrays(vjp) if a.ndim) == x.nbytes
    with mytorch.no_grad():
        _, vjp = composite.kernels["cpu"].forward(x, *args)
    assert vjp is None or composite is not F.gelu


@EVERY
def test_other_dtypes_fall_back(name):
    function, kwargs = getattr(F, name.split()[0]), CALLS[name]
    x = mytorch.ones(4, 6, dtype="float64")
    with pytest.raises(RuntimeError, match="fused=True, but .*none for float64"):
        function(x, **kwargs, fused=True)
    assert function(x, **kwargs).dtype == "float64"
