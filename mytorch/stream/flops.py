"""The floating-point operations of an instruction, from its shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

from .instruction import BACKWARD, Instruction

_BACKWARD = "_backward"


def _matmul(i: Instruction) -> int:
    x, _ = i.inputs[:2]
    return 2 * math.prod(i.outputs[0].shape) * x.shape[-1]


def _linear(i: Instruction) -> int:
    x, weight = i.inputs[:2]
    return 2 * math.prod(x.shape) * weight.shape[0]


def _attention(i: Instruction) -> int:
    query, key, value = i.inputs[:3]
    return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _self_attention(i: Instruction) -> int:
    *batch, length, features = i.inputs[0].shape  # queries, keys and values of all heads
    return 4 * math.prod(batch) * length * length * (features // 3)


def _convolution(i: Instruction) -> int:
    weight = i.inputs[1]
    return 2 * math.prod(i.outputs[0].shape) * math.prod(weight.shape[1:])


def _transposed_convolution(i: Instruction) -> int:
    x, weight = i.inputs[:2]
    return 2 * math.prod(x.shape) * math.prod(weight.shape[1:])


def _elementwise(i: Instruction) -> int:
    return math.prod(i.outputs[0].shape)


_FORWARD: dict[str, Callable[[Instruction], int]] = {
    "matmul": _matmul, "linear": _linear, "linear_activation": _linear, "outer": _elementwise,
    "scaled_dot_product_attention": _attention, "self_attention": _self_attention,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    **dict.fromkeys(("add", "sub", "mul", "div"), _elementwise),
}  # fmt: skip
# Products in the backward pass for each one in the forward pass; of others, one for each gradient.
_ATTENTION = 2.5  # computes the weights again, then four products, where the forward pass has two
_NO_BACKWARD = ("add", "sub")


def flops(instruction: Instruction) -> int:
    """Returns the floating-point operations of products, convolutions, attention, `+ - * /` and their vjps.

    2 M N K for a product of (M, K) and (K, N), and again for the gradient of each factor; a causal mask
    halves nothing. 0 for every other op: normalization, softmax and the like are bound by memory.

    >>> from mytorch.stream import flops, record
    >>> with record() as instructions:
    ...     y = mytorch.ones(2, 3) @ mytorch.ones(3, 5)
    >>> flops(instructions[0])
    60
    """
    if instruction.failed:
        return 0
    if instruction.phase != BACKWARD or instruction.origin is None:
        count = _FORWARD.get(instruction.name)
        return 0 if count is None else count(instruction)
    origin = instruction.origin
    count = None if origin.name in _NO_BACKWARD else _FORWARD.get(origin.name)
    if count is None or not instruction.name.startswith(origin.name + _BACKWARD):
        return 0
    factor = _ATTENTION if origin.name.endswith("attention") else _products(instruction)
    return int(factor * count(origin))


def _products(instruction: Instruction) -> int:
    """Returns how many gradients of factors a vjp computed; that of a bias is a sum."""
    factors = {a.shape for a in instruction.origin.inputs[:2]}
    return sum([a.shape in factors for a in instruction.outputs])
