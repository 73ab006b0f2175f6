"""What a program's function calls for its kernels, and their vjps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.device import RawArray, is_raw
from ...core.grad_accumulator import LazyGrad
from ...core.op import as_raw
from ...core.tensor import from_raw
from ...core.unbroadcast import unbroadcast
from ...nn.functional.composite import REGISTRY, Composite, Unsupported
from ...nn.functional.variant import uses_kernels
from ..program.kernels import CHECKED, gradients


def run_kernel(name: str, kind: str, *args: Any) -> tuple:
    """Computes a composite on a kind of device: its results, and what its vjp needs."""
    composite = REGISTRY[name]
    if name in CHECKED:
        on_gpu = kind != "cpu"
        tensors = [from_raw(x) if type(x) is np.ndarray or (on_gpu and is_raw(x)) else x for x in args]
        composite.checker(*tensors[: CHECKED[name]], *[None] * (len(args) - CHECKED[name]))
    result, vjp = _computed(composite, kind, args)
    return (*result, vjp) if composite.outputs else (result, vjp)


def _computed(composite: Composite, kind: str, args: tuple) -> tuple:
    if uses_kernels():
        try:
            return composite.kernel(kind).forward(*args)
        except Unsupported:
            pass
    return composite.manual_variant.forward(*args)


def run_vjp(
    vjp: Any, g: RawArray, wanted: dict[int, tuple[int, ...]], dtypes: tuple = (), lazy: tuple[int, ...] = ()
) -> tuple:
    """Computes the gradients of the wanted arguments, by their positions, in these shapes and dtypes.

    Args:
        dtypes: none if all are float32.
        lazy: positions of gradients that may be left to `set_grad`, which computes them where they will be.
    """
    grads, found = gradients(vjp, g, wanted), []
    for i, (k, shape) in enumerate(wanted.items()):
        grad = grads[k]
        if type(grad) is not LazyGrad or k not in lazy or grad.shape != shape:
            grad = _shaped(grad, shape)
            if grad.dtype != (dtypes[i] if dtypes else np.float32):
                grad = grad.astype(dtypes[i] if dtypes else np.float32)
        found.append(grad)
    return tuple(found)


def _shaped(grad: RawArray | LazyGrad, shape: tuple[int, ...]) -> RawArray:
    grad = grad.array() if type(grad) is LazyGrad else grad
    grad = grad if grad.shape == shape else unbroadcast(grad, shape)
    return grad if type(grad) is np.ndarray else as_raw(grad)
