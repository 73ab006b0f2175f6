"""Along which dim instructions can be cut: for each the dims of its operands and results that are the batch.

A dim is cut into blocks, one for each row of the batch, of size // rows elements. A rule says, given the dims
of some operands, which operands are cut with these, and of each result the dim, or the ufunc that combines
the results of the parts. What no rule knows isn't cut: a missing rule costs memory, never correctness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..loops.loop import COLUMN, FULL, ROW
from ..program import Instruction, Value, leaves

Dims = Mapping[Value, int]
Makers = Mapping[Value, Instruction]  # the instructions that make values

_TOTALS = {
    "sum": "add", "add.reduce": "add", "max": "maximum", "amax": "maximum", "maximum.reduce": "maximum",
    "min": "minimum", "amin": "minimum", "minimum.reduce": "minimum", "any": "logical_or",
    "all": "logical_and",
}  # fmt: skip
_REDUCTIONS = {*_TOTALS, "mean", "prod", "multiply.reduce", "argmax", "argmin"}
_ALONG = {"cumsum": None, "sort": -1, "argsort": -1, "take_along_axis": None, "concatenate": 0}  # and default
_ELEMENTWISE = {
    "where", "clip", ".astype", ".copy", "copy", "nan_to_num", "ones_like", "zeros_like", "empty_like",
}  # fmt: skip
_RESHAPES = {"reshape", ".reshape", "expand_dims", "squeeze"}
_TRANSPOSES = {
    "transpose": np.transpose, ".transpose": np.transpose, "swapaxes": np.swapaxes, "moveaxis": np.moveaxis,
    ".T": np.transpose, "matrix_transpose": np.matrix_transpose, ".mT": np.matrix_transpose,
}  # fmt: skip
# Kernels that treat each row of these arguments by itself, if the arguments have at least this many dims.
_KERNELS = {
    "linear": ((0,), 2), "linear_activation": ((0,), 2), "layer_norm": ((0,), 2), "rms_norm": ((0,), 2),
    "add_layer_norm": ((0, 1), 2), "group_norm": ((0,), 2), "gelu": ((0,), 1), "swiglu": ((0,), 2),
    "geglu": ((0,), 2), "embedding": ((0,), 1), "conv1d": ((0,), 3), "conv2d": ((0,), 4),
    "self_attention": ((0,), 3), "scaled_dot_product_attention": ((0, 1, 2), 3),
}  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """How an instruction is cut.

    Attributes:
        operands: the dim of each operand that is cut; others are taken as a whole.
        results: for each result the dim along which it is cut, or the ufunc that combines those of the parts.
        resized: returns the instruction with the arguments for another number of rows.
    """

    operands: dict[Value, int]
    results: tuple[int | str, ...]
    resized: Callable[[Instruction, int], Instruction] = lambda i, now: i


def cut_of(i: Instruction, dims: Dims, rows: int, makers: Mapping[Value, Instruction]) -> Cut | None:
    """Returns how an instruction is cut, None if it isn't.

    Args:
        dims: of the values so far that are cut, or could be.
        rows: of the batch.
        makers: the instructions that make values.
    """
    given = {x: dims[x] for x in i.inputs() if x in dims}
    rule = _rule_of(i.name)
    if not given or i.written or rule is None:
        return None
    found = rule(i, given, rows, makers)
    if found is None or any([found.operands.get(x) != dim for x, dim in given.items()]):
        return None
    results = [*zip(i.outputs, found.results, strict=True)]
    if any([isinstance(d, str) and y.dtype.itemsize < 4 and y.dtype.kind in "fV" for y, d in results]):
        return None  # half precision would add up its errors
    cut = [(x, d) for x, d in (*found.operands.items(), *results) if isinstance(d, int)]
    cut = [(x, d) for x, d in cut if x.dtype.kind != "O"]
    return found if all([d < x.ndim and x.shape[d] and x.shape[d] % rows == 0 for x, d in cut]) else None


def scaled(shape: tuple[int, ...], dim: int, rows: int, now: int) -> tuple[int, ...]:
    """Returns the shape of a part of `now` of the rows."""
    return (*shape[:dim], shape[dim] // rows * now, *shape[dim + 1 :])


def _rule_of(name: str) -> Callable | None:
    ufunc = getattr(np, name, None)
    if name in _ELEMENTWISE or (isinstance(ufunc, np.ufunc) and ufunc.signature is None):
        return _elementwise
    for names, rule in _RULES:
        if name in names:
            return rule
    return None


def _aligned(x: Value, dim: int, y: Value) -> int | None:
    """Returns the dim of `x` that broadcasting aligns with a dim of `y`; None if it is the same for all."""
    own = dim - (y.ndim - x.ndim)
    return own if own >= 0 and x.shape[own] != 1 else None


def _elementwise(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    """All operands are broadcast to the result."""
    y, options = i.outputs[0], {name for name, value in i.kwargs.items() if value is not None}
    found = {y.ndim - x.ndim + dim for x, dim in given.items()}
    if len(found) != 1 or len(i.outputs) != 1 or options - {"dtype", "casting", "order", "copy", "subok"}:
        return None
    (dim,) = found
    aligned = {x: _aligned(x, dim, y) for x in i.inputs()}
    return Cut({x: d for x, d in aligned.items() if d is not None}, (dim,))


def _axes(i: Instruction, default: int | None, position: int = 1) -> list[int]:
    """Returns the dims that an instruction works along; all of them for None."""
    ndim = next(x.ndim for x in leaves(i.args) if isinstance(x, Value))
    axis = i.kwargs.get("axis", i.args[position] if len(i.args) > position else default)
    return sorted([a % ndim for a in leaves(axis)]) if axis is not None else [*range(ndim)]


def _reduction(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    ((x, dim),) = given.items()
    options = {name for name, value in i.kwargs.items() if value is not None}
    if i.args[0] is not x or len(i.args) > 2 or options - {"axis", "keepdims", "dtype"}:
        return None
    reduced = _axes(i, 0 if "." in i.name else None)
    if dim in reduced:
        return Cut({x: dim}, (_TOTALS[i.name],)) if i.name in _TOTALS else None
    return Cut({x: dim}, (dim if i.kwargs.get("keepdims") else dim - sum([a < dim for a in reduced]),))


def _along(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    """Functions along a dim, of one or several arrays of equal dims."""
    axes, found = _axes(i, _ALONG[i.name], 2 if i.name == "take_along_axis" else 1), {*given.values()}
    if len(found) != 1 or len(axes) != 1 or found & {*axes} or len({x.ndim for x in i.inputs()}) != 1:
        return None
    (dim,) = found
    return Cut(dict.fromkeys(i.inputs(), dim), (dim,))


def _product(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    """`matmul` of (…, n, k) and (…, k, m)."""
    (a, b), (y,) = i.args, i.outputs
    if not (isinstance(a, Value) and isinstance(b, Value) and a.ndim > 1 < b.ndim) or i.kwargs:
        return None
    x, dim = next(iter(given.items()))
    if a is b and dim >= x.ndim - 2:
        return None
    other, last = (b, x.ndim - 2) if x is a else (a, x.ndim - 1)
    if dim == last:  # the rows of the left, or the columns of the right matrix
        return Cut({x: dim}, (y.ndim - (x.ndim - dim),))
    if dim >= x.ndim - 2:  # the sum is over the batch
        return Cut({x: dim, other: other.ndim - 2 if x is a else other.ndim - 1}, ("add",))
    dim = y.ndim - x.ndim + dim
    aligned = {v: _aligned(v, dim, y) for v in (a, b)}
    return Cut({v: d for v, d in aligned.items() if d is not None}, (dim,))


def _reshape(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    ((x, dim),) = given.items()
    (y,), before = i.outputs, math.prod(x.shape[:dim])
    fits = [d for d, n in enumerate(y.shape) if math.prod(y.shape[:d]) == before and n and n % rows == 0]
    if not fits or i.kwargs.get("order", "C") != "C":
        return None

    def resized(i: Instruction, now: int) -> Instruction:
        return replace(i, name="reshape", args=(i.args[0], scaled(y.shape, fits[0], rows, now)), kwargs={})

    return Cut({x: dim}, (fits[0],), resized)


def _broadcast(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    ((x, dim),) = given.items()
    (y,) = i.outputs
    dim += y.ndim - x.ndim

    def resized(i: Instruction, now: int) -> Instruction:
        return replace(i, args=(i.args[0], scaled(y.shape, dim, rows, now)), kwargs={})

    return Cut({**given}, (dim,), resized)


def _transpose(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    ((x, dim),) = given.items()
    sizes = np.broadcast_to(0, [*range(2, x.ndim + 2)])  # each dim is known by its size
    turned = _TRANSPOSES[i.name](sizes, *i.args[1:], **i.kwargs)
    return Cut({x: dim}, (turned.shape.index(dim + 2),))


def _getitem(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    """Slices, numbers and new dims beside the batch."""
    x, index = i.args
    index = list(index) if isinstance(index, tuple) else [index]
    if x not in given or not all([p is None or p is Ellipsis or type(p) in (int, slice) for p in index]):
        return None
    taken = sum([p is not None and p is not Ellipsis for p in index])
    at = index.index(Ellipsis) if Ellipsis in index else len(index)
    index[at : at + 1] = [slice(None)] * (x.ndim - taken)
    old, new, dim = -1, -1, given[x]
    for p in index:
        old, new = old + (p is not None), new + (type(p) is not int)
        if old == dim and p is not None:
            return Cut({x: dim}, (new,)) if p == slice(None) else None
    return None


def _take(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    """Rows of a table."""
    x, index = i.args[:2]
    if x in given or not isinstance(index, Value) or (*i.args[2:], *i.kwargs.items()) != (("axis", 0),):
        return None
    return Cut({**given}, (given[index],))


def _check(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    return Cut({**given}, ())


def _kernel(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    name, *args = i.args
    positions, ndim = _KERNELS.get(name, ((), 0))
    cut = [args[k] for k in positions]
    others = [x for k, x in enumerate(args) if k not in positions]
    others = [x for x in leaves(others) if isinstance(x, Value)]
    if not cut or any([x.dtype.kind == "O" or x in given for x in others]) or any(given.values()):
        return None
    if any([x.ndim < ndim for x in cut]) or (others and "attention" in name):
        return None
    if name == "embedding" and (args[3] is not None or args[5]):
        return None  # writes to its table, or divides by counts in the whole batch
    if name in ("swiglu", "geglu") and args[1] % cut[0].ndim == 0:
        return None
    if name.endswith("norm") and isinstance(args[len(cut)], tuple) and len(args[len(cut)]) == cut[0].ndim:
        return None
    return Cut(dict.fromkeys(cut, 0), (0,) * len(i.outputs))


def _vjp(i: Instruction, given: Dims, rows: int, makers: Mapping[Value, Instruction]) -> Cut | None:
    saved, grads = i.args[0], [x for x in leaves(i.args[1]) if isinstance(x, Value)]
    if saved not in given:
        return None
    wanted, positions = i.kwargs["wanted"], _KERNELS[makers[saved].args[0]][0]

    def resized(i: Instruction, now: int) -> Instruction:
        shapes = {k: scaled(shape, 0, rows, now) if k in positions else shape for k, shape in wanted.items()}
        return replace(i, kwargs={**i.kwargs, "wanted": shapes})

    operands = {saved: given[saved], **dict.fromkeys(grads, 0)}
    return Cut(operands, tuple([0 if k in positions else "add" for k in wanted]), resized)


def _loop(i: Instruction, given: Dims, rows: int, makers: Makers) -> Cut | None:
    loop = i.kwargs["loop"]
    name = "n" if loop.is_flat and i.kwargs["rows"] == 1 else "rows"
    kinds = [*zip(i.args, loop.inputs, strict=True)]
    operands = {x: 0 for x, kind in kinds if kind in (FULL, ROW)}
    if i.kwargs[name] % rows or any([x in operands for x, kind in kinds if kind not in (FULL, ROW)]):
        return None

    def resized(i: Instruction, now: int) -> Instruction:
        return replace(i, kwargs={**i.kwargs, name: i.kwargs[name] // rows * now})

    steps = [loop.steps[k] for k in loop.outputs]
    return Cut(operands, tuple(["add" if step.kind == COLUMN else 0 for step in steps]), resized)


_RULES: tuple[tuple[Container[str], Callable], ...] = (
    (_REDUCTIONS, _reduction), (_ALONG, _along), (("matmul",), _product), (_RESHAPES, _reshape),
    (("broadcast_to",), _broadcast), (_TRANSPOSES, _transpose), ((".getitem",), _getitem), (("take",), _take),
    (("check",), _check), (("kernel",), _kernel), (("kernel.vjp",), _vjp), (("loop",), _loop),
)  # fmt: skip
