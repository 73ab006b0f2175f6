"""Composites that stay one instruction of a program; their kernels, or manual variants, compute them.

    %5: float32[8, 16], %6: saved = kernel('layer_norm', %4, (16,), %2, %3, 1e-05)
    %9: float32[8, 16], %10: float32[16] = kernel.vjp(%6, %8, wanted={0: (8, 16), 2: (16,)})

What the forward pass saves for the vjp is an opaque value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...backends.device import RawArray, is_raw
from ...core.grad_accumulator import LazyGrad
from ...core.op import op
from ...core.unbroadcast import unbroadcast
from ...nn.functional.composite import REGISTRY, Composite, Unsupported, use_fused
from .tracing import current

# Those with products inside, and those whose kernels do more in a pass than a loop can.
KEPT = (
    "linear", "scaled_dot_product_attention", "embedding", "cross_entropy",
    "linear_cross_entropy", "layer_norm", "add_layer_norm", "rms_norm", "group_norm", "gelu",
)  # fmt: skip


@contextmanager
def kept_whole() -> Iterator[None]:
    """Context in which these composites are noted as single instructions, unless `use_fused(False)`."""
    names = KEPT if use_fused.default else ()
    before = {name: REGISTRY[name].reference for name in names}
    for name in names:
        REGISTRY[name].reference = _traced(REGISTRY[name])
    try:
        yield
    finally:
        for name, reference in before.items():
            REGISTRY[name].reference = reference


def _traced(composite: Composite) -> Callable:
    """Returns the reference, except that while a program is captured it is one instruction."""
    reference, manual = composite.reference, composite.manual_variant

    def forward(*args: Any) -> tuple:
        tracer = current.tracer
        with tracer.inside():
            result, vjp = manual.forward(*args)
        results = result if composite.outputs else (result,)
        name = composite.__name__
        made, saved = tracer.note_kernel("kernel", (name, *args), results)
        return (made if composite.outputs else made[0]), lambda g: _vjp(vjp, saved, g, args)

    variant = op(forward, outputs=composite.outputs, half=True)

    def call(*args: Any) -> Any:
        if current.tracer is None:
            return reference(*args)
        try:
            return variant(*args)
        except Unsupported:
            return reference(*args)

    return call


def _vjp(vjp: Any, saved: Any, g: Any, args: tuple) -> tuple:
    """Records the vjp of a kernel."""
    tracer = current.tracer
    with tracer.inside():
        found = zip(args, gradients(vjp, g), strict=False)
        wanted = {k: tuple(x.shape) for k, (x, dx) in enumerate(found) if is_raw(x) and dx is not None}
        grads = [np.empty(shape, args[k].dtype, like=args[k]) for k, shape in wanted.items()]
    made, _ = tracer.note_kernel("kernel.vjp", (saved, g), grads, wanted)
    by_position = dict(zip(wanted, made, strict=True))
    return tuple([by_position.get(k) for k in range(len(args))])


def gradients(vjp: Any, g: Any) -> list:
    """Returns the gradients of the arguments, in memory; None for those that have none."""
    if isinstance(vjp, tuple):
        found = [None if f is None else f(g) for f in vjp]
    else:
        found = vjp(g)
        found = found if isinstance(found, (tuple, list)) else (found,)
    return [x.array() if type(x) is LazyGrad else x for x in found]


def run_kernel(name: str, *args: Any) -> tuple:
    """Computes a composite: its results, and what its vjp needs."""
    composite = REGISTRY[name]
    result, vjp = _computed(composite, args)
    return (*result, vjp) if composite.outputs else (result, vjp)


def _computed(composite: Composite, args: tuple) -> tuple:
    if use_fused.default:
        try:
            return composite.kernel("cpu").forward(*args)
        except Unsupported:
            pass
    return composite.manual_variant.forward(*args)


def run_vjp(vjp: Any, g: RawArray, wanted: dict[int, tuple[int, ...]]) -> tuple:
    """Computes the gradients of the wanted arguments, by their positions, in these shapes."""
    grads = gradients(vjp, g)
    return tuple([_shaped(grads[k], shape) for k, shape in wanted.items()])


def _shaped(grad: RawArray, shape: tuple[int, ...]) -> RawArray:
    return np.asarray(grad if grad.shape == shape else unbroadcast(grad, shape))
