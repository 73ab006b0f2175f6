"""Every variant of every composite against PyTorch: values, gradients, dtypes, layouts of memory, devices."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F
from tests import on_device
from tests.nn.functional.cases import CASES
from tests.nn.functional.oracles import ORACLES
from tests.oracle import check


def variants(name):
    """Keyword arguments that choose each implementation there is."""
    yield "reference", {"auto": True}
    yield "manual", {"fused": False}
    if "cpu" in F.REGISTRY[name].kernels:
        yield "fused", {"fused": True}


EVERY_VARIANT = pytest.mark.parametrize(
    ("name", "i", "choice"),
    [
        pytest.param(name, i, choice, id=f"{name}-{i}-{variant}")
        for name, cases in CASES.items()
        for i in range(len(cases))
        for variant, choice in variants(name)
    ],
)


def arguments(name, i, dtype):
    args, kwargs = CASES[name][i]
    return [cast(a, dtype) for a in args], {key: cast(a, dtype) for key, a in kwargs.items()}


def cast(a, dtype):
    return a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float32 else a


def call(library, name, kwargs, **choice):
    """The function with its keyword arguments as tensors without gradient."""
    wrap = mytorch.from_numpy if library is F else torch.from_numpy
    kwargs = {key: wrap(a) if isinstance(a, np.ndarray) else a for key, a in kwargs.items()}
    function = getattr(F, name) if library is F else ORACLES.get(name) or getattr(library, name)
    return lambda *args: function(*args, **kwargs, **choice)


def is_float(a):
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def test_every_composite_has_a_case():
    assert CASES.keys() == F.REGISTRY.keys()
    assert all(CASES.values())


SINGLE_CONSTANTS = {"celu", "hardsigmoid"}  # 1 / alpha and 1 / 6 are float32 in PyTorch, for float64, too


@EVERY_VARIANT
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_against_pytorch(name, i, choice, dtype):
    args, kwargs = arguments(name, i, dtype)
    limit = 1e-7 if dtype == "float64" and name in SINGLE_CONSTANTS else None
    check(
        call(F, name, kwargs, **choice),
        call(torch.nn.functional, name, kwargs),
        *args,
        rtol=limit,
        atol=limit,
    )


NO_HALF = {"rrelu"}  # PyTorch hasn't it in half precision


@EVERY_VARIANT
def test_half_precision_is_as_good_as_pytorch_s(name, i, choice):
    """The error against float64 is at most twice PyTorch's, or the rounding of the result."""
    args, kwargs = arguments(name, i, "float16")

    def pytorch_s(dtype):
        kw = {key: cast16(a, dtype) for key, a in kwargs.items()}
        return results(torch.nn.functional, name, [cast16(a, dtype) for a in args], kw)

    want = pytorch_s("float64")
    half = [w.astype("float16") for w in want] if name in NO_HALF else pytorch_s("float16")
    for got, w, h in zip(results(F, name, args, kwargs, **choice), want, half, strict=True):
        assert got.dtype == np.float16
        np.testing.assert_array_equal(np.isnan(got), np.isnan(h))
        good = np.isfinite(w) & (np.abs(w) < 60000)
        got, w, h = (np.where(good, a, 0).astype("float64") for a in (got, w, h))
        limit = np.maximum(2 * np.max(np.abs(h - w), initial=0), 2e-3 * np.abs(w) + 1e-6)
        assert np.all(np.abs(got - w) <= limit)


def cast16(a, dtype):
    return a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float16 else a


def results(library, name, args, kwargs, **choice):
    """The value and the gradients of the floating-point arguments, for a gradient of ones."""
    make = (lambda a: Tensor(a)) if library is F else (lambda a: torch.tensor(a))
    xs = [make(np.array(a)) if isinstance(a, np.ndarray) else a for a in args]
    for x, a in zip(xs, args, strict=True):
        if is_float(a):
            x.requires_grad_()
    y = call(library, name, kwargs, **choice)(*xs)
    y.backward(make(np.ones(tuple(y.shape), "float64")).to(y.dtype))
    return [y.detach().numpy(), *(x.grad.numpy() for x, a in zip(xs, args, strict=True) if is_float(a))]


LAYOUTS = {
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1) if a.ndim else a,
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@EVERY_VARIANT
def test_layouts(name, i, choice, layout):
    args, kwargs = arguments(name, i, "float32")
    args = [LAYOUTS[layout](a) if isinstance(a, np.ndarray) else a for a in args]
    check(call(F, name, kwargs, **choice), call(torch.nn.functional, name, kwargs), *args)


@EVERY_VARIANT
def test_backward_twice_adds_up_and_writes_into_nothing(name, i, choice):
    args, kwargs = arguments(name, i, "float32")
    xs = [Tensor(a.copy(), requires_grad=is_float(a)) if isinstance(a, np.ndarray) else a for a in args]
    y = call(F, name, kwargs, **choice)(*xs)
    value = y.detach().numpy().copy()
    ones = np.ones(tuple(y.shape), "float32")
    floats = [x for x, a in zip(xs, args, strict=True) if is_float(a)]
    once = []
    for times in (1, 2, 3):
        y.backward(ones * (4 if times == 2 else 1), retain_graph=True)
        if times == 1:
            once = [x.grad.numpy().copy() for x in floats]
    for x, first in zip(floats, once, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), 6 * first, rtol=1e-5, atol=1e-6)
    assert (ones == 1).all()
    np.testing.assert_array_equal(y.detach().numpy(), value)
    for x, a in zip(xs, args, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(x.detach().numpy(), a)


@EVERY_VARIANT
def test_without_gradient_the_value_is_the_same(name, i, choice):
    args, kwargs = arguments(name, i, "float32")
    xs = [Tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    wanted = call(F, name, kwargs, **choice)(*xs).numpy()
    with mytorch.no_grad():
        np.testing.assert_array_equal(call(F, name, kwargs, **choice)(*xs).numpy(), wanted)


@EVERY_VARIANT
def test_on_a_gpu(fake_cuda, name, i, choice):
    args, kwargs = arguments(name, i, "float32")

    def function(library, *xs):
        def there(a):
            return Tensor(a, device=library.device) if isinstance(a, np.ndarray) else a

        return getattr(F, name)(*xs, **{key: there(a) for key, a in kwargs.items()}, **choice)

    on_device.check(function, *args)
