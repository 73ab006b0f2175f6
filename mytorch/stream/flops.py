"""The floating-point operations of an instruction, from its shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..backends.functions import COMPOSITES, TABLE, flops_of
from ..ops.einsum import Labels, cheapest, parse, sizes_of
from .instruction import Instruction

_Formula = Callable[[Instruction], int]
Sizes = dict[str | int, int]


def _matmul(i: Instruction) -> int:
    return flops_of("matmul", *i.inputs[:2])


def _einsum(i: Instruction) -> int:
    return _contraction(*_labels(i))


def _labels(i: Instruction) -> tuple[list[Labels], Labels, Sizes]:
    terms, out = parse(i.keywords["equation"], [len(a.shape) for a in i.inputs])
    return terms, out, sizes_of(terms, i.inputs)


def _einsum_gradients(i: Instruction) -> int:
    """The gradient of an operand is the einsum of that of the result and the other operands."""
    (terms, out, sizes), made = _labels(i.origin), [a.shape for a in i.outputs]
    count = 0
    for k, a in enumerate(i.origin.inputs):
        if a.shape in made:
            made.remove(a.shape)
            count += _contraction([out, *terms[:k], *terms[k + 1 :]], terms[k], sizes)
    return count


def _contraction(terms: Sequence[Labels], out: Labels, sizes: Sizes) -> int:
    """Each product of two operands; a label of one alone is summed over before."""
    parts, count = [set(term) for term in terms], 0
    while len(parts) > 1:
        i, j = cheapest(parts, sizes)
        rest = [part for k, part in enumerate(parts) if k not in (i, j)]
        kept = set(out).union(*rest)
        x = parts[i] & (kept | parts[j])
        y = parts[j] & (kept | x)
        if x & y - kept:
            count += 2 * math.prod([sizes[name] for name in x | y])
        parts = [(x | y) & kept, *rest]
    return count


def _elementwise(i: Instruction) -> int:
    return flops_of(i.name, result=i.outputs[0].shape)


def _gradients(i: Instruction) -> int:
    """A product as large as that of the forward pass for the gradient of each factor; a bias has a sum."""
    factors = {a.shape for a in i.origin.inputs[:2]}
    return _FORMULAS[i.origin.name](i.origin) * sum([a.shape in factors for a in i.outputs])


def _each_gradient(i: Instruction) -> int:
    return _FORMULAS[i.origin.name](i.origin) * len(i.outputs)


def _all_gradients(i: Instruction) -> int:
    """The vjp counts for all gradients, also for one that a later `…_backward.3` computes."""
    is_vjp = i.name.endswith("_backward") and i.outputs
    return 2 * _FORMULAS[i.origin.name](i.origin) if is_vjp else 0


_PRODUCTS: dict[str, _Formula] = {
    **{name: row.flops for name, row in COMPOSITES.items() if row.flops is not None},
    "matmul": _matmul, "einsum": _einsum,
}
_FORMULAS = {**_PRODUCTS, **{name: _elementwise for name, row in TABLE.items() if row.flops}}
# Of vjps. Those of attention and recurrent layers compute all gradients at once. One that is differentiated
# again has no arrays as outputs, and the operations in it are counted.
_VJPS: dict[str, _Formula] = {
    "einsum": _einsum_gradients,
    **{name: _all_gradients for name in _PRODUCTS if name.endswith(("attention", "_steps"))},
    **dict.fromkeys(("matmul", "conv_weight_gradient", "mul", "true_divide", "outer"), _each_gradient),
    **dict.fromkeys(("add", "sub"), lambda i: 0),
}


def flops(instruction: Instruction) -> int:
    """Returns the floating-point operations of products, convolutions, attention, `+ - * /` and their vjps.

    2 M N K for a product of (M, K) and (K, N), and again for the gradient of each factor; a causal mask
    halves nothing, and what a kernel computes a second time isn't counted. 0 for every other op:
    normalization, softmax and the like are bound by memory.

    >>> from mytorch.stream import flops, record
    >>> with record() as instructions:
    ...     y = mytorch.ones(2, 3) @ mytorch.ones(3, 5)
    >>> flops(instructions[0])
    60
    """
    formula = _formula(instruction)
    return 0 if formula is None or instruction.failed else formula(instruction)


def product_flops(instruction: Instruction) -> int:
    """Returns `flops` without those of `+ - * /`."""
    origin = instruction if instruction.origin is None else instruction.origin
    return flops(instruction) if origin.name in _PRODUCTS else 0


def _formula(instruction: Instruction) -> _Formula | None:
    origin = instruction.origin
    if isinstance((origin or instruction).signature, type):
        return None  # a custom Function, whose operations are counted, may have the name of an op
    if origin is None:
        # a block that `record_function` names "add" is no addition
        return None if instruction.signature is None else _FORMULAS.get(instruction.name)
    if origin.name not in _FORMULAS or not instruction.name.startswith(origin.name + "_backward"):
        return None
    return _VJPS.get(origin.name, _gradients)
