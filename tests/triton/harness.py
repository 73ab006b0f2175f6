"""Call a kernel as a composite would, in any dtype, and the reference on the very same numbers in float64."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mytorch import Tensor
from mytorch.core.grad_accumulator import LazyGrad
from mytorch.nn import functional  # noqa: F401 - it fills the registry
from mytorch.nn.functional.composite import REGISTRY
from mytorch.nn.fused_ops.kernels import KERNELS
from tests.triton.cases import CONSTANT, FUNCTIONS, TOLERANCE

try:
    import ml_dtypes

    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # the GPU benchmark runs without it, and says so
    BFLOAT16 = None

# The error may be rtol * |value| + atol * the largest |value|. Rounding a result to float16 costs up to
# 4.9e-4 of it, to bfloat16 3.9e-3: what is left is for what was rounded before.
LIMITS = {"float32": (1e-5, 2e-6), "float16": (1e-3, 5e-4), "bfloat16": (8e-3, 4e-3)}


def is_float(a: Any) -> bool:
    return isinstance(a, np.ndarray) and (a.dtype.kind == "f" or a.dtype.name == "bfloat16")


def kernel(name: str) -> Callable:
    """`(raw arrays…) -> (result, vjp)`, as registered."""
    if name in FUNCTIONS:
        file, _, function = FUNCTIONS[name][0].partition(":")
        return getattr(importlib.import_module(f"mytorch.nn.fused_ops.triton.{file}"), function)
    file = KERNELS[name]
    importlib.import_module(f"mytorch.nn.fused_ops.triton.{file}")
    return REGISTRY[name].kernels["cuda"].forward


def arguments(name: str, row: tuple, dtype: str) -> list | None:
    """What the kernel gets for a row: all arguments, checked, with raw arrays in `dtype`.

    None if the checker gives the result by itself.
    """
    args, kwargs = row
    if name in FUNCTIONS:
        return [_cast(a, dtype) for a in args]
    composite = REGISTRY[name]
    bound = composite.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    given = np.dtype("float16" if dtype == "bfloat16" else dtype)  # Tensors have no bfloat16
    args = [
        Tensor(_cast(_cast(a, dtype), given), requires_grad=is_float(a) and key not in CONSTANT.get(name, ()))
        if isinstance(a, np.ndarray) else a
        for key, a in bound.arguments.items()
    ]
    if composite.checker is not None:
        answer = composite.checker(*args)
        if isinstance(answer, Tensor):
            return None
        args = args if answer is None else answer
    raws = [a.data._array if isinstance(a, Tensor) else a for a in args]
    if dtype == "bfloat16":
        raws = [a.astype(BFLOAT16) if is_float(a) and a.dtype == given else a for a in raws]
    return raws


def _cast(a: Any, dtype: Any) -> Any:
    floats = isinstance(a, np.ndarray) and a.dtype.name in ("float32", "bfloat16")
    return a.astype(dtype) if floats else a


def incoming(outputs: list, dtype: str) -> list:
    """A gradient for each output, the same ones for every kernel."""
    random = np.random.default_rng(1)
    wide = [random.standard_normal(y.shape) for y in outputs]
    return [g.astype(BFLOAT16 if dtype == "bfloat16" else dtype) for g in wide]


def expected(name: str, raws: list, dtype: str, layout: Callable = lambda g: g) -> tuple[list, list, list]:
    """The outputs and the gradients (None where there is none) of the reference in float64, and for which
    incoming gradients: random ones, in that layout of memory."""
    args = [
        Tensor(a.astype("float64"), requires_grad=True) if is_float(a)
        else Tensor(a) if isinstance(a, np.ndarray) else a
        for a in raws
    ]
    result = REGISTRY[name].reference(*args)
    outputs = list(result) if isinstance(result, tuple) else [result]
    gs = [layout(g) for g in incoming(outputs, dtype)]
    for y, g in zip(outputs, gs, strict=True):
        if y.requires_grad:
            y.backward(g.astype("float64"), retain_graph=True)
    names, constant = [*REGISTRY[name].signature.parameters], CONSTANT.get(name, ())
    grads = [None if n in constant else getattr(a, "grad", None) for n, a in zip(names, args, strict=True)]
    return [y.detach().numpy() for y in outputs], [None if d is None else d.numpy() for d in grads], gs


def gradients(name: str, vjp: Any, gs: list, count: int) -> list:
    """The kernel's gradients, None where there is none, for every argument."""
    if vjp is None:
        return [None] * count
    g = gs if REGISTRY[name].outputs else gs[0]
    if isinstance(vjp, tuple):
        found = [None if f is None else f(g) for f in vjp]
    else:
        found = vjp(g)
        found = list(found) if isinstance(found, tuple) else [found]
    found = [d.array() if isinstance(d, LazyGrad) else d for d in found]
    return found + [None] * (count - len(found))


def assert_close(name: str, got: Any, want: np.ndarray, dtype: str, what: str) -> None:
    """`got`, computed in `dtype`, is as close to the float64 `want` as LIMITS say."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    rtol, atol = (TOLERANCE.get(name, 1) * limit for limit in LIMITS[dtype])
    got = got.astype("float64")
    if dtype == "float16":  # what it can't hold
        want = np.where(np.abs(want) > 65504, np.copysign(np.inf, want), want)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=f"{what}: NaN")
    infinite = np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite], err_msg=f"{what}: inf")
    finite = np.isfinite(want)
    got, want = got[finite], want[finite]
    largest = np.max(np.abs(want), initial=0) or 1.0  # all 0: differences of numbers of that size, usually
    excess = np.abs(got - want) / (rtol * np.abs(want) + atol * largest + 1e-30)
    worst = int(np.argmax(excess)) if excess.size else 0
    assert not excess.size or excess[worst] <= 1, (
        f"{what}: {got[worst]} instead of {want[worst]}, {excess[worst]:.2f} times the limit (max {largest})"
    )
