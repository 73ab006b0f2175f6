"""The same call on the CPU and on a GPU, the strict stand-in for CuPy: it has to give the same on both."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import mytorch
from mytorch import Array, Tensor, ops
from mytorch.backends.device import as_device, move, on
from tests import strict_cupy

DEVICE = "cuda:1"  # not the current GPU, which is 0: code that doesn't switch to its arrays' device fails
TOLERANCE = {"float16": (2e-3, 2e-3), "float32": (2e-5, 2e-6), "float64": (1e-10, 1e-12)}

# Raw arrays of the same values with other strides; each runs on both devices.
LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1) if a.ndim else a,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
}

FACTORIES = {
    "Tensor", "Array",
    *(name for name in ops.__all__ if "device" in inspect.signature(getattr(ops, name)).parameters),
} - {"to", "tril", "triu", *(name for name in ops.__all__ if name.endswith("_like"))}


class Library:
    """mytorch, whose factories make what they make on `device`."""

    def __init__(self, device: str):
        self.device = device

    def __getattr__(self, name: str) -> Any:
        value = getattr(mytorch, name)
        return functools.partial(value, device=self.device) if name in FACTORIES else value


def check(
    call: Callable, *arrays: Any, grad: bool = True, layout: str = "contiguous", device: str = DEVICE
) -> None:
    """Assert that `call(F, *tensors)` gives on the GPU what it gives on the CPU: values, dtypes, gradients.

    Args:
        call: gets the library, with its factories on the device, and the arrays as tensors there.
        arrays: NumPy arrays become tensors; other arguments are passed as they are.
        grad: also compare the gradients of all floating-point inputs.
        layout: of the tensors' memory, see LAYOUTS.
    """
    want, got = (run(call, arrays, where, grad, layout) for where in ("cpu", device))
    assert len(got) == len(want), f"{len(got)} results, the CPU gives {len(want)}"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        same(g, w, device, f"result {i}")


def run(call: Callable, arrays: tuple, where: str, grad: bool, layout: str) -> list:
    """The results of the call, and after them the gradients of the inputs."""
    inputs = [tensor(a, where, grad, layout) if isinstance(a, np.ndarray) else a for a in arrays]
    results = flat(call(Library(where), *inputs))
    if not grad:
        return results
    for x in results:
        if isinstance(x, Tensor) and x.requires_grad:
            weight = np.cos(np.arange(x.numel())).reshape(x.shape)
            x.backward(Tensor(weight, dtype=x.dtype, device=where), retain_graph=True)
    return results + [x.grad for x in inputs if isinstance(x, Tensor)]


def tensor(array: np.ndarray, where: str, grad: bool = False, layout: str = "contiguous") -> Tensor:
    """A tensor of its own memory on a device."""
    where = as_device(where)
    with on(where):
        raw = LAYOUTS[layout](move(array.copy(), where))
    return Tensor(raw, requires_grad=grad and array.dtype.kind == "f")


def flat(result: Any) -> list:
    return [x for item in result for x in flat(item)] if isinstance(result, (tuple, list)) else [result]


def same(got: Any, want: Any, device: str = DEVICE, what: str = "result") -> None:
    """Assert that `got`, on the GPU, has the value, dtype and shape of `want`, on the CPU."""
    assert type(got) is type(want), f"{what}: {type(got)}, on the CPU {type(want)}"
    if not isinstance(want, (Tensor, Array)):
        assert got == want, f"{what}: {got!r}, on the CPU {want!r}"
        return
    assert got.device == device, f"{what}: on {got.device}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, on the CPU {want.dtype}"
    assert got.shape == want.shape, f"{what}: {got.shape}, on the CPU {want.shape}"
    here, there = (x.data._array if isinstance(x, Tensor) else x._array for x in (want, got))
    rtol, atol = TOLERANCE.get(str(want.dtype), (0, 0))
    np.testing.assert_allclose(strict_cupy.to_numpy(there), here, rtol, atol, err_msg=what)


@contextmanager
def never_waiting(monkeypatch: Any, cupy: Any) -> Iterator[None]:
    """Inside, whatever waits for the GPU fails: reading a number there, or a size that depends on one."""

    def refuse(*args, **kwargs):
        raise AssertionError("this waits for the GPU")

    with monkeypatch.context() as patch:
        for name in ("get", "item", "tolist", "__bool__", "__int__", "__float__", "nonzero"):
            patch.setattr(cupy.ndarray, name, refuse)
        for name in ("nonzero", "flatnonzero", "argwhere", "unique", "argpartition", "asnumpy"):
            patch.setattr(cupy, name, refuse, raising=False)
        patch.setattr(cupy.lib.stride_tricks, "sliding_window_view", refuse)
        yield
