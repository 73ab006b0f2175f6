"""PyTorch as the oracle: run the same call in both and compare values, dtypes, shapes and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mytorch

TOLERANCE = {"float16": (2e-3, 2e-3), "float32": (2e-5, 2e-6), "float64": (1e-10, 1e-12)}


def torch_of(a: np.ndarray) -> torch.Tensor:
    """A copy of the array for PyTorch, which reads no bfloat16 of NumPy's, and no negative strides."""
    a = np.array(a, order="C", copy=True)
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def numpy_of(x: torch.Tensor) -> np.ndarray:
    """PyTorch's tensor as an array on its memory."""
    if x.dtype == torch.bfloat16:
        return x.detach().view(torch.int16).numpy().view(mytorch.bfloat16)
    return x.numpy(force=True)


LAYOUTS = {
    "contiguous": lambda a: a,
    "fortran": lambda a: np.asfortranarray(a) if a.ndim else a,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
}


def cofactors(a: np.ndarray) -> np.ndarray:
    """The gradient of the determinants of (..., 3, 3): rows b x c, c x a, a x b. PyTorch's is wrong by as
    much as 4 where LAPACK's determinant of a singular matrix isn't exactly 0, which depends on the CPU."""
    rows = np.moveaxis(a, -2, 0)
    return np.stack([np.cross(rows[i - 2], rows[i - 1]) for i in range(3)], -2)


def in_both(call: Callable) -> tuple[Callable, Callable]:
    """The functions of tensors `call(mytorch, *tensors)` and `call(torch, *tensors)`."""
    return (lambda *xs: call(mytorch, *xs)), (lambda *xs: call(torch, *xs))


def tensors(arrays: list[Any], grad: bool) -> tuple[list, list]:
    """The same inputs for both: NumPy arrays become tensors (floats requiring grad), anything else stays."""
    ours, theirs = [], []
    for a in arrays:
        if isinstance(a, np.ndarray):
            wants = grad and a.dtype.kind in "fV"
            ours.append(mytorch.Tensor(a, requires_grad=wants))
            theirs.append(torch_of(a).requires_grad_(wants))
        else:
            ours.append(a)
            theirs.append(a)
    return ours, theirs


def check(
    ours: Callable, theirs: Callable, *arrays: Any, grad: bool = True, rtol: float | None = None,
    atol: float | None = None, **kwargs: Any,
) -> None:
    """Assert that `ours(*arrays, **kwargs)` is as PyTorch's `theirs`: values, dtypes, shapes, gradients.

    Args:
        arrays: NumPy arrays become tensors of the same dtype; other arguments are passed as they are.
        grad: compare the gradients of the floating inputs, too, for random gradients of the floating outputs.
        rtol, atol: default to those of the output's dtype.
    """
    mine, his = tensors(list(arrays), grad)
    got, want = ours(*mine, **kwargs), theirs(*his, **kwargs)
    gots, wants = outputs(got), outputs(want)
    assert len(gots) == len(wants), f"{len(gots)} outputs, PyTorch gives {len(wants)}"
    for g, w in zip(gots, wants, strict=True):
        same(g, w, rtol, atol)
    if grad:
        compare_gradients(gots, wants, mine, his, rtol, atol)


def compare_gradients(gots, wants, mine, his, rtol=None, atol=None) -> None:
    rng = np.random.default_rng(7)
    pairs = [
        (g, w) for g, w in zip(gots, wants, strict=True) if isinstance(w, torch.Tensor) and w.requires_grad
    ]
    for g, w in zip(gots, wants, strict=True):
        if isinstance(w, torch.Tensor):
            assert g.requires_grad == w.requires_grad, (
                f"requires_grad is {g.requires_grad}, PyTorch's {w.requires_grad}"
            )
    if not pairs:
        return
    weights = [rng.standard_normal(tuple(w.shape)) for _, w in pairs]
    for (g, w), weight in zip(pairs, weights, strict=True):
        cotangent = weight.astype(str(w.dtype).removeprefix("torch."))
        g.backward(cotangent, retain_graph=True)
        w.backward(torch_of(cotangent), retain_graph=True)
    for i, (m, h) in enumerate(zip(mine, his, strict=True)):
        if isinstance(h, torch.Tensor) and h.requires_grad:
            if h.grad is None:
                assert m.grad is None or not np.any(m.grad.numpy()), (
                    f"input {i}: a gradient where PyTorch has none"
                )
                continue
            assert m.grad is not None, f"input {i}: no gradient"
            same(m.grad, h.grad, rtol, atol, what=f"gradient of input {i}")


def outputs(result: Any) -> list:
    if isinstance(result, (tuple, list)):
        return [x for item in result for x in outputs(item)]
    return [result]


def same(
    got: Any, want: Any, rtol: float | None = None, atol: float | None = None, what: str = "result"
) -> None:
    """Assert that our Tensor, Array or number equals PyTorch's in value, dtype and shape."""
    if not isinstance(want, torch.Tensor):
        assert got == want and type(got) is type(want), f"{what}: {got!r}, PyTorch gives {want!r}"
        return
    assert isinstance(got, (mytorch.Tensor, mytorch.Array)), f"{what}: {type(got)} instead of a tensor"
    dtype = str(want.dtype).removeprefix("torch.")
    assert str(got.dtype) == dtype, f"{what}: dtype {got.dtype}, PyTorch's is {dtype}"
    assert tuple(got.shape) == tuple(want.shape), (
        f"{what}: shape {got.shape}, PyTorch's is {tuple(want.shape)}"
    )
    default = TOLERANCE.get(dtype, (0, 0))
    array = got.data.numpy() if isinstance(got, mytorch.Tensor) else got.numpy()
    rtol, atol = default[0] if rtol is None else rtol, default[1] if atol is None else atol
    want = numpy_of(want)
    if dtype == "bfloat16":  # NumPy's differences of it would be rounded
        array, want = array.astype(np.float32), want.astype(np.float32)
    np.testing.assert_allclose(array, want, rtol, atol, err_msg=what)


def fails_alike(ours: Callable, theirs: Callable, *arrays: Any, match: str, **kwargs: Any) -> None:
    """Assert that both refuse the call with the same kind of error, and that our message matches `match`."""
    import pytest

    mine, his = tensors(list(arrays), grad=False)
    with pytest.raises(Exception) as expected:  # noqa: B017 - whatever PyTorch raises
        theirs(*his, **kwargs)
    with pytest.raises(expected.type, match=match):
        ours(*mine, **kwargs)
