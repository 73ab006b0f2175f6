"""Composites that stay one instruction of a program; their kernels, or manual variants, compute them.

    %5: float32[8, 16], %6: saved = kernel('layer_norm', %4, (16,), %2, %3, 1e-05)
    %9: float32[8, 16], %10: float32[16] = kernel.vjp(%6, %8, wanted={0: (8, 16), 2: (16,)})

What the forward pass saves for the vjp is an opaque value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from ...backends.device import CPU, is_raw, thread
from ...backends.door import in_force
from ...backends.dtypes import is_half
from ...backends.meta.array import MetaArray, new
from ...core.op import op
from ...core.tensor import Tensor
from ...nn.functional.composite import Composite, Unsupported
from .instruction import Value

# Those with products or steps inside, and those whose kernels do more in a pass than a loop can.
KERNELS = (
    "linear", "linear_activation", "linear_cross_entropy", "quantized_linear", "conv1d", "conv2d",
    "scaled_dot_product_attention", "self_attention", "rotary_embedding", "rnn_steps", "lstm_steps",
    "gru_steps", "embedding", "dropout", "cross_entropy", "layer_norm", "add_layer_norm", "rms_norm",
    "group_norm", "gelu", "swiglu", "geglu",
)
# On a GPU these of half precision, too: a loop computes in float32 and would need casts before and behind it.
KERNELS_IN_HALF = ("sigmoid", "silu", "leaky_relu", "relu", "squared_relu", "softmax", "log_softmax")
# Those that check elements, which aren't there in a capture, and the number of arguments for their checkers.
CHECKED = {"embedding": 7, "cross_entropy": 7, "linear_cross_entropy": 8}
_TAKEN_APART = ("linear", "layer_norm", "add_layer_norm", "rms_norm", "group_norm", "gelu", "swiglu", "geglu")
_SMALL = 1 << 14  # elements
_SMALL_PRODUCT = 1 << 20  # multiplications


def call_kernel(composite: Composite, args: tuple, has_kernels: bool) -> Any:
    """Notes a composite in KERNELS as one instruction; returns its results, or None for another.

    Args:
        has_kernels: without, only those are kept that check elements.
    """
    name = composite.__name__
    is_half = has_kernels and _is_half_on_a_gpu(name, args)
    is_kernel = is_half or name in (KERNELS if has_kernels else CHECKED)
    if not is_kernel or composite.manual_variant is None:
        return None
    if in_force().choose(lambda: _is_small(name, args)):
        return None
    try:
        return _variant(composite)(*args)
    except Unsupported:
        return None


def _is_half_on_a_gpu(name: str, args: tuple) -> bool:
    return name in KERNELS_IN_HALF and is_half(args[0].dtype) and thread.tracer.device is not CPU


def _is_small(name: str, args: tuple) -> bool:
    """Whether the call of a kernel takes longer than what it computes: loops and a bare product take less."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    if name not in _TAKEN_APART or any([x.dtype != np.float32 and x.dtype.kind == "f" for x in tensors]):
        return False
    if name == "linear":
        return tensors[0].ndim > 1 and tensors[0].numel() * len(tensors[1]) < _SMALL_PRODUCT
    return max([x.numel() for x in tensors]) < _SMALL


@functools.cache
def _variant(composite: Composite) -> Callable:
    """Returns the op that notes a composite and its vjp."""
    manual = composite.manual_variant

    def forward(*args: Any) -> tuple:
        tracer, name = thread.tracer, composite.__name__
        if name in CHECKED:
            tracer.without_check(args)
        with tracer.inside():
            result, vjp = manual.forward(*args)
            results = result if composite.outputs else (result,)
            results = [in_order(y, name) for y in results]
        made, saved = tracer.note_kernel("kernel", (name, *args), results)
        return (made if composite.outputs else made[0]), lambda g: _vjp(vjp, saved, g, args, name)

    variant = op(forward, outputs=composite.outputs, half=True)
    variant.__name__, variant.reference = composite.__name__, manual.reference  # for a graph of the gradient
    return variant


def _vjp(vjp: Callable | tuple, saved: Value, g: Any, args: tuple, name: str) -> tuple:
    """Records the vjp of a kernel."""
    tracer = thread.tracer
    with tracer.inside():
        found = zip(args, gradients(vjp, g), strict=False)
        wanted = {k: tuple(x.shape) for k, (x, dx) in enumerate(found) if is_raw(x) and dx is not None}
        grads = [np.empty(shape, args[k].dtype, like=args[k]) for k, shape in wanted.items()]
        grads = [in_order(dx, name) for dx in grads]
    kwargs: dict[str, object] = {"wanted": wanted}
    if any([dx.dtype != np.float32 for dx in grads]):
        kwargs["dtypes"] = tuple([dx.dtype for dx in grads])
    made, _ = tracer.note_kernel("kernel.vjp", (saved, g), grads, kwargs)
    by_position = dict(zip(wanted, made, strict=True))
    return tuple([by_position.get(k) for k in range(len(args))])


def in_order(y: MetaArray, name: str) -> MetaArray:
    """Returns what stands for a result of a kernel: in C order, but for the heads of attention, which lie
    beside each other for each token."""
    if name == "scaled_dot_product_attention" and y.ndim > 2:
        *outer, heads, n, features = y.shape
        return np.empty((*outer, n, heads, features), y.dtype, like=y).swapaxes(-3, -2)
    is_in_place = name == "gelu" or y.flags.c_contiguous  # GELU's results lie in memory as its input does
    return y if is_in_place else np.empty(y.shape, y.dtype, like=y)


def gradients(vjp: Callable | tuple, g: Any, wanted: Container[int] | None = None) -> list:
    """Returns the gradients of the arguments, which may be lazy; None for those that have none, or if they
    can be left out and aren't wanted."""
    if isinstance(vjp, tuple):
        needs = [f is not None and (wanted is None or k in wanted) for k, f in enumerate(vjp)]
        found = [f(g) if is_needed else None for f, is_needed in zip(vjp, needs, strict=True)]
    else:
        found = vjp(g)
        found = found if isinstance(found, (tuple, list)) else (found,)
    return [*found]


class MetaDraw:
    """What stands for a dropout's `Draw` where a kernel runs on meta arrays."""

    def mask(self, x: MetaArray, p: float) -> MetaArray:
        """Returns the mask, without elements."""
        return new(x.shape, np.dtype(bool))
