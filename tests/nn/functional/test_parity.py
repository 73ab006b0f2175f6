"""Every variant of every composite against PyTorch: values, gradients, dtypes, layouts of memory, devices.

Each variant computes all cases in float32. Half precision, layouts, repeated backward passes and devices run
with the first case of each kind of call: the same types of arguments and names of options.
"""

import contextlib

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F
from tests import on_device
from tests.every import every
from tests.nn.functional.cases import CASES, declined
from tests.nn.functional.oracles import ORACLES
from tests.oracle import check, numpy_of, outputs, torch_of


def variants(name, i=None):
    """Keyword arguments that choose each implementation that there is, for a case or at all."""
    yield "reference", {"auto": True}
    yield "manual", {"fused": False}
    if "cpu" in F.REGISTRY[name].suppliers and (i is None or not declined(name, CASES[name][i][0])):
        yield "fused", {"fused": True}


def _first_of_each_kind(cases):
    kinds = {}
    for i, (args, kwargs) in enumerate(cases):
        types = tuple((type(a), a.dtype.kind if isinstance(a, np.ndarray) else None) for a in args)
        kinds.setdefault((types, tuple(sorted(kwargs))), i)
    return list(kinds.values())


KINDS = {name: _first_of_each_kind(cases) for name, cases in CASES.items()}


def each(wanted=("reference", "manual", "fused")):
    rows = [
        pytest.param(name, variant, choice, id=f"{name}-{variant}")
        for name in CASES
        for variant, choice in variants(name)
        if variant in wanted
    ]
    return pytest.mark.parametrize(("name", "variant", "choice"), rows)


EVERY_VARIANT = each()


def kinds(name, variant):
    """Returns the numbers of the first cases of each kind that the variant computes."""
    return [i for i in KINDS[name] if variant != "fused" or not declined(name, CASES[name][i][0])]


@contextlib.contextmanager
def case(name, i):
    """Names the case in the message of a failing assertion."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"case {i} of {name}: {error}") from error


def arguments(name, i, dtype):
    args, kwargs = CASES[name][i]
    return [cast(a, dtype) for a in args], {key: cast(a, dtype) for key, a in kwargs.items()}


def cast(a, dtype):
    return a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float32 else a


def call(library, name, kwargs, **choice):
    """The function with its keyword arguments as tensors without gradient."""
    wrap = mytorch.from_numpy if library is F else torch_of
    kwargs = {key: wrap(a) if isinstance(a, np.ndarray) else a for key, a in kwargs.items()}
    function = getattr(F, name) if library is F else ORACLES.get(name) or getattr(library, name)
    return lambda *args: function(*args, **kwargs, **choice)


def is_float(a):
    return isinstance(a, np.ndarray) and a.dtype.kind in "fV"


def test_every_composite_has_a_case():
    assert CASES.keys() == F.REGISTRY.keys()
    assert every(CASES.values())


@pytest.mark.parametrize("name", ["cross_entropy", "linear", "linear_cross_entropy", "lstm_steps"])
def test_a_kernel_says_what_it_cannot_do(name):
    reasons = {i: declined(name, args) for i, (args, _) in enumerate(CASES[name])}
    assert any(reasons.values())
    for i in reasons:
        if reasons[i] is None:
            continue
        args, kwargs = arguments(name, i, "float32")
        xs = [Tensor(a) if isinstance(a, np.ndarray) else a for a in args]
        with case(name, i):
            with pytest.raises(RuntimeError, match=rf"{name}\(\): fused=True, but .*{reasons[i]}"):
                call(F, name, kwargs, fused=True)(*xs)
            default, manual = (outputs(call(F, name, kwargs, fused=choice)(*xs)) for choice in (None, False))
            for a, b in zip(default, manual, strict=True):
                np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", [name for name in CASES if "cpu" in F.REGISTRY[name].suppliers])
def test_kernels_for_the_cpu_leave_float64_to_numpy(name):
    args, kwargs = arguments(name, 2 if name == "dropout" else 0, "float64")  # the first drops nothing
    xs = [Tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    with pytest.raises(RuntimeError, match=rf"{name}\(\): fused=True, but .*float64"):
        call(F, name, kwargs, fused=True)(*xs)


SINGLE_CONSTANTS = {"celu", "hardsigmoid"}  # 1 / alpha and 1 / 6 are float32 in PyTorch, for float64, too


@EVERY_VARIANT
def test_against_pytorch(name, variant, choice):
    for i in range(len(CASES[name])):
        if variant == "fused" and declined(name, CASES[name][i][0]):
            continue
        with case(name, i):
            args, kwargs = arguments(name, i, "float32")
            check(call(F, name, kwargs, **choice), call(torch.nn.functional, name, kwargs), *args)


@pytest.mark.parametrize("name", CASES)
def test_all_variants_give_the_same_strides(name):
    """A program is made of the reference where eager code runs a kernel: its views must be possible there."""
    for i in KINDS[name]:
        args, kwargs = arguments(name, i, "float32")
        for order in ("C", "F"):
            xs = [Tensor(np.array(a, order=order)) if is_float(a) else a for a in args]
            xs = [mytorch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in xs]
            found = {v: strides(call(F, name, kwargs, **choice)(*xs)) for v, choice in variants(name, i)}
            if order == "F" and name != "dropout":  # which draws before it is compiled
                found["compiled"] = strides(mytorch.compile(call(F, name, kwargs))(*xs))
            assert len({*found.values()}) == 1, f"case {i} in order {order}: {found}"


def strides(results):
    """Those of dims with more than one element, which alone mean something."""
    each = [zip(y.shape, y.stride(), strict=True) if y.numel() else [] for y in outputs(results)]
    return tuple([tuple([step for n, step in sizes if n > 1]) for sizes in each])


@each(("reference", "manual"))
def test_float64_against_pytorch(name, variant, choice):
    limit = 1e-7 if name in SINGLE_CONSTANTS else None
    for i in KINDS[name]:
        with case(name, i):
            args, kwargs = arguments(name, i, "float64")
            ours, theirs = call(F, name, kwargs, **choice), call(torch.nn.functional, name, kwargs)
            check(ours, theirs, *args, rtol=limit, atol=limit)


NO_HALF = {"rrelu", "ctc_loss"}  # PyTorch hasn't it in half precision


ROUNDING = {"float16": 2e-3, "bfloat16": 2.0**-7}  # of a result, as a part of it


# In float16 every variant; bfloat16 takes the same path, so the variant that runs by default is enough.
HALF = [pytest.param(*row.values, "float16", id=f"{row.id}-float16") for row in EVERY_VARIANT.args[1]]
HALF += [pytest.param(name, "default", {}, "bfloat16", id=f"{name}-bfloat16") for name in CASES]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant", "choice", "dtype"), HALF)
def test_half_precision_is_as_good_as_pytorch_s(name, variant, choice, dtype):
    """The error against float64 is at most twice PyTorch's, or the rounding of the result."""
    dtype = mytorch.promote_types(dtype, "bool")
    for i in kinds(name, variant):
        args, kwargs = arguments(name, i, dtype)
        with case(name, i):
            _check_half(name, args, kwargs, choice, dtype)


def _check_half(name, args, kwargs, choice, dtype):
    def pytorch_s(wanted):
        kw = {key: cast_half(a, dtype, wanted) for key, a in kwargs.items()}
        return results(torch.nn.functional, name, [cast_half(a, dtype, wanted) for a in args], kw)

    want = pytorch_s("float64")
    half = [w.astype(dtype) for w in want] if name in NO_HALF else pytorch_s(dtype)
    for got, w, h in zip(results(F, name, args, kwargs, **choice), want, half, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.isnan(got), np.isnan(h))
        good = np.isfinite(w) & (np.abs(w) < 60000)
        got, w, h = (np.where(good, a, 0).astype("float64") for a in (got, w, h))
        limit = np.maximum(2 * np.max(np.abs(h - w), initial=0), ROUNDING[str(dtype)] * np.abs(w) + 1e-6)
        assert np.all(np.abs(got - w) <= limit)


def cast_half(a, half, dtype):
    return a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == half else a


def results(library, name, args, kwargs, **choice):
    """The value and the gradients of the floating-point arguments, for a gradient of ones."""
    make = (lambda a: Tensor(np.array(a))) if library is F else torch_of
    xs = [make(a) if isinstance(a, np.ndarray) else a for a in args]
    for x, a in zip(xs, args, strict=True):
        if is_float(a):
            x.requires_grad_()
    ys = outputs(call(library, name, kwargs, **choice)(*xs))
    for y in [y for y in ys if y.requires_grad]:
        y.backward(make(np.ones(tuple(y.shape), "float64")).to(y.dtype), retain_graph=True)
    found = [*(y.detach() for y in ys), *(x.grad for x, a in zip(xs, args, strict=True) if is_float(a))]
    return [x.numpy() if library is F else numpy_of(x) for x in found]


LAYOUTS = {
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1) if a.ndim else a,
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
}


@EVERY_VARIANT
def test_layouts(name, variant, choice):
    """All layouts of the first case, and one of each other kind."""
    for k, i in enumerate(kinds(name, variant)):
        for layout in LAYOUTS if k == 0 else [list(LAYOUTS)[k % len(LAYOUTS)]]:
            args, kwargs = arguments(name, i, "float32")
            args = [LAYOUTS[layout](a) if isinstance(a, np.ndarray) else a for a in args]
            with case(name, f"{i}, {layout}"):
                check(call(F, name, kwargs, **choice), call(torch.nn.functional, name, kwargs), *args)


@EVERY_VARIANT
def test_backward_twice_adds_up_and_writes_into_nothing(name, variant, choice):
    for i in kinds(name, variant):
        with case(name, i):
            _check_backward_twice(name, *arguments(name, i, "float32"), choice)


def _check_backward_twice(name, args, kwargs, choice):
    xs = [Tensor(a.copy(), requires_grad=is_float(a)) if isinstance(a, np.ndarray) else a for a in args]
    ys = outputs(call(F, name, kwargs, **choice)(*xs))
    values = [y.detach().numpy().copy() for y in ys]
    ones = [np.ones(tuple(y.shape), "float32") for y in ys]
    floats = [x for x, a in zip(xs, args, strict=True) if is_float(a)]
    once = []
    for times in (1, 2, 3):
        for y, one in [(y, one) for y, one in zip(ys, ones, strict=True) if y.requires_grad]:
            y.backward(one * (4 if times == 2 else 1), retain_graph=True)
        if times == 1:
            once = [x.grad.numpy().copy() for x in floats]
    for x, first in zip(floats, once, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), 6 * first, rtol=1e-5, atol=1e-6)
    for y, one, value in zip(ys, ones, values, strict=True):
        assert (one == 1).all()
        np.testing.assert_array_equal(y.detach().numpy(), value)
    for x, a in zip(xs, args, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(x.detach().numpy(), a)


@EVERY_VARIANT
def test_without_gradient_the_value_is_the_same(name, variant, choice):
    for i in kinds(name, variant):
        args, kwargs = arguments(name, i, "float32")
        xs = [Tensor(a) if isinstance(a, np.ndarray) else a for a in args]
        wanted = outputs(call(F, name, kwargs, **choice)(*xs))
        with mytorch.no_grad():
            got = outputs(call(F, name, kwargs, **choice)(*xs))
        with case(name, i):
            for y, w in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(y.numpy(), w.numpy())


@each(("reference", "manual"))  # the kernels for a GPU are tested in tests/triton
def test_on_a_gpu(fake_cuda, name, variant, choice):
    for i in kinds(name, variant):
        args, kwargs = arguments(name, i, "float32")

        def function(library, *xs, kwargs=kwargs):
            named = {
                key: Tensor(a, device=library.device) if isinstance(a, np.ndarray) else a
                for key, a in kwargs.items()
            }
            return getattr(F, name)(*xs, **named, **choice)

        with case(name, i):
            on_device.check(function, *args)
