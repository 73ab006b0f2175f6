"""Rows of ops that a log or a program holds as one, though they call many functions: linear, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .dims import all_of, along, axes_of, by_text, same, without
from .labels import Dims, Labels, Shaped, arrays_in, sizes_of


class Call(NamedTuple):
    """An op and what it was called with; arrays have a shape."""

    inputs: Sequence[Shaped]  # the arrays
    outputs: Sequence[Shaped]
    arguments: Sequence[object]


class Composite(NamedTuple):
    """What is known of an op.

    Attributes:
        dims: the rule that returns the labels of a call; None where nothing is kept.
        flops: returns the floating-point operations of a call; None for what is bound by memory.
    """

    dims: Callable[..., Labels] | None
    flops: Callable[[Call], int] | None


def products(text: str, *letters: str) -> Callable[[Call], int]:
    """Two operations for each product of elements: one for each place of these dims of the text.

    "...i,oi->...o" with "...oi": 2 · … · o · i.
    """

    terms = [(*(["..."] if "..." in term else []), *term.removeprefix("...")) for term in letters]

    def flops(call: Call) -> int:
        inputs, outputs = (tuple([x.shape for x in arrays]) for arrays in (call.inputs, call.outputs))
        sizes = sizes_of(text, inputs, outputs)
        return 2 * sum([math.prod([sizes[name] for name in term]) for term in terms])

    return flops


def by_products(text: str, *letters: str) -> Composite:
    return Composite(by_text(text), products(text, *letters))


def labels_of_composite(name: str, *args: object) -> Labels | None:
    """Returns the labels of a call of an op; None where they aren't known, or it isn't one of these."""
    dims = COMPOSITES[name].dims if name in COMPOSITES else None
    try:
        return None if dims is None else dims(*args)
    except NotImplementedError:
        return None


# Dims.


def _normalized(count: int) -> Callable[..., Labels]:
    """Norms of the last dims of the first `count` arguments; the weights have these dims alone."""

    def dims(*args) -> Labels:
        shape, ndim = args[count], len(args[0].shape)
        last = range(ndim - len(shape), ndim) if isinstance(shape, (tuple, list)) else (ndim - 1,)
        kept = without(all_of(args[0]), last)
        weights = [(None,) * len(x.shape) for x in arrays_in(args[count:])]
        return Labels((*[kept] * count, *weights), (kept,) * count)

    return dims


def _first_dim(least: int) -> Callable[..., Labels]:
    """Each element of the batch by itself, if there are at least this many dims."""

    def dims(x: Shaped, *args) -> Labels:
        kept: Dims = tuple([0 if d == 0 and len(x.shape) >= least else None for d in all_of(x)])
        return Labels((kept, *[(None,) * len(y.shape) for y in arrays_in(args)]), (kept,))

    return dims


def _embedding(x: Shaped, weight: Shaped, padding: object = None, limit: object = None, kind: object = 2.0,
               scales: bool = False, *args: object) -> Labels:
    if limit is not None or scales:
        raise NotImplementedError("it writes to its table, or divides by counts in the whole batch")
    return by_text("...,vd->...d")(x, weight)


def _attention(query: Shaped, key: Shaped, value: Shaped, *args: object) -> Labels:
    """The dims before the queries, where all three have them alike."""
    if [*arrays_in(args)]:
        raise NotImplementedError("attention with a mask")
    shapes = [x.shape[:-2] for x in (query, key, value)]
    ndim = {len(shape) for shape in shapes}
    sizes = [{*dims} for dims in zip(*shapes, strict=True)] if len(ndim) == 1 else []
    kept = tuple([d if len(found) == 1 else None for d, found in enumerate(sizes)])
    kept = kept or (None,) * len(shapes[0])
    return Labels(tuple([(*kept, None, None)] * 3), ((*kept, None, None),))


def _self_attention(x: Shaped, *args: object) -> Labels:
    if [*arrays_in(args)]:
        raise NotImplementedError("attention with a mask")
    return along((-2, -1))(x)


def _rotated(x: Shaped, cos: Shaped, sin: Shaped, *args: object) -> Labels:
    """The dims before positions and features, which the angles are for."""
    if max(len(cos.shape), len(sin.shape)) > 2:
        raise NotImplementedError("angles of their own for each element of the batch")
    kept = without(all_of(x), axes_of((-2, -1), len(x.shape)))
    return Labels((kept, *[(None,) * len(y.shape) for y in (cos, sin)]), (kept,))


def _softmax(x: Shaped, dim: int | None = None, *args: object) -> Labels:
    return along((), flattens=False)(x, dim)


def _gated(x: Shaped, dim: int = -1, *args: object) -> Labels:
    return along((-1,))(x, axes_of(dim, len(x.shape)))


# Floating-point operations that don't follow from a text.


def _self_attention_flops(call: Call) -> int:
    *batch, length, features = call.inputs[0].shape  # queries, keys and values of all heads
    return 4 * math.prod(batch) * length * length * (features // 3)


def _convolution_flops(call: Call) -> int:
    return 2 * math.prod(call.outputs[0].shape) * math.prod(call.inputs[1].shape[1:])


def _transposed_flops(call: Call) -> int:
    x, weight = call.inputs[:2]
    return 2 * math.prod(x.shape) * math.prod(weight.shape[1:])


def _convolution_weight_flops(call: Call) -> int:
    return 2 * math.prod(call.inputs[1].shape) * math.prod(call.outputs[0].shape[1:])


def _steps(states: int) -> Callable[[Call], int]:
    """A recurrent layer: the hidden state before each row, times the weights after the states."""

    def flops(call: Call) -> int:
        gates, weights = call.inputs[0], call.inputs[1 + states :]
        return 2 * gates.shape[0] * sum([math.prod(w.shape) for w in weights if len(w.shape) == 2])

    return flops


def _cached_attention_flops(call: Call) -> int:
    query, _, _, keys, values, position = call.arguments[:6]
    length, known = query.shape[-2], position + query.shape[-2]
    return 2 * math.prod(query.shape[:-2]) * length * known * (keys.shape[-1] + values.shape[-1])


def _cached_self_attention_flops(call: Call) -> int:
    qkv, heads, keys, _, position = call.arguments[:5]
    *batch, length, _ = qkv.shape
    return 4 * math.prod(batch) * length * heads * keys.shape[-1] * (position + length)


_ATTENTION = products("...qd,...kd,...kv->...qv", "...qkd", "...qkv")

COMPOSITES: dict[str, Composite] = {
    "linear": by_products("...i,oi,o->...o", "...io"),
    "linear_activation": by_products("...i,oi,o->...o", "...io"),
    "linear_cross_entropy": Composite(None, products("...i,vi->", "...iv")),
    "quantized_linear": by_products("...i,rb->...o", "...io"),  # rows of blocks
    "conv1d": Composite(by_text("ncx,oiu,o->noa"), _convolution_flops),
    "conv2d": Composite(by_text("ncxy,oiuv,o->noab"), _convolution_flops),
    "conv3d": Composite(by_text("ncxyz,oiuvw,o->noefg"), _convolution_flops),
    "convolution": Composite(None, _convolution_flops),
    "conv_input_gradient": Composite(None, _transposed_flops),
    "conv_weight_gradient": Composite(None, _convolution_weight_flops),
    "scaled_dot_product_attention": Composite(_attention, _ATTENTION),
    "self_attention": Composite(_self_attention, _self_attention_flops),
    "cached_attention": Composite(None, _cached_attention_flops),
    "cached_self_attention": Composite(None, _cached_self_attention_flops),
    "rnn_steps": Composite(None, _steps(1)),
    "gru_steps": Composite(None, _steps(1)),
    "lstm_steps": Composite(None, _steps(2)),
    "layer_norm": Composite(_normalized(1), None),
    "rms_norm": Composite(_normalized(1), None),
    "add_layer_norm": Composite(_normalized(2), None),
    "group_norm": Composite(_first_dim(2), None),
    "embedding": Composite(_embedding, None),
    "rotary_embedding": Composite(_rotated, None),
    "softmax": Composite(_softmax, None),
    "log_softmax": Composite(_softmax, None),
    "cross_entropy": Composite(None, None),
    "dropout": Composite(None, None),
    "gelu": Composite(same, None),
    "swiglu": Composite(_gated, None),
    "geglu": Composite(_gated, None),
    **dict.fromkeys(("sigmoid", "silu", "relu", "leaky_relu", "squared_relu"), Composite(same, None)),
}
