"""Along which dim instructions can be cut: for each the dims of its operands and results that are the batch.

A dim is cut into blocks, one for each row of the batch, of size // rows elements. A rule says, given the dims
of some operands, which operands are cut with these, and of each result the dim, or the ufunc that combines
the results of the parts. What no rule knows isn't cut: a missing rule costs memory, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...backends.functions import Labels, arrays_in, labels_of, labels_of_composite, row_of
from ...backends.functions.table import ELEMENTWISE
from ...utils.nested import leaves
from ..codegen.loop import COLUMN, FULL, ROW
from ..program.instruction import Instruction, Value

Dims = Mapping[Value, int]
Makers = Mapping[Value, Instruction]  # the instructions that make values

_RESHAPES = {"reshape", ".reshape", "squeeze", "broadcast_to"}  # a part has another shape


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
    known = {x: dims[x] for x in i.inputs() if x in dims}
    if not known or i.written:
        return None
    found = _RULES.get(i.name, _function)(i, known, rows, makers)
    if found is None or any([found.operands.get(x) != dim for x, dim in known.items()]):
        return None
    results = [*zip(i.outputs, found.results, strict=True)]
    are_possible = [_is_possible(x, dim, rows) for x, dim in (*found.operands.items(), *results)]
    return found if all(are_possible) else None


def _is_possible(x: Value, dim: int | str, rows: int) -> bool:
    """Whether an array can be cut along a dim, or combined of parts."""
    if isinstance(dim, str):  # half precision would add up its errors
        return x.dtype.itemsize >= 4 or x.dtype.kind not in "fV"
    return x.dtype.kind == "O" or (dim < x.ndim and x.shape[dim] > 0 and x.shape[dim] % rows == 0)


def scaled(shape: tuple[int, ...], dim: int, rows: int, now: int) -> tuple[int, ...]:
    """Returns the shape of a part of `now` of the rows."""
    return (*shape[:dim], shape[dim] // rows * now, *shape[dim + 1 :])


def _cut_by(labels: Labels | None, i: Instruction, known: Dims) -> Cut | None:
    """Returns how an instruction is cut along the label of the known dims, if they have but one."""
    if labels is None:
        return None
    pairs = [*zip(arrays_in(i.args, i.kwargs), labels.inputs, strict=True)]
    found = {dims[known[x]] for x, dims in pairs if x in known}
    label = found.pop() if len(found) == 1 else None
    results = labels.results_of_parts(label)
    if results is None:
        return None
    operands: dict[Value, list[int]] = {}
    for x, dims in pairs:
        places = [d for d, own in enumerate(dims) if own == label]
        if len(places) > 1 or operands.setdefault(x, places) != places:
            return None  # as `x @ x` along one dim of one x
    return Cut({x: places[0] for x, places in operands.items() if places}, results)


def _function(i: Instruction, known: Dims, rows: int, makers: Makers) -> Cut | None:
    """A NumPy function: the table of functions knows its dims, unless a shape is computed."""
    row = row_of(i.name)
    if row is None or (row.kind != ELEMENTWISE and any([x.dtype.kind == "O" for x in i.inputs()])):
        return None
    cut = _cut_by(labels_of(i.name, *i.args, **i.kwargs), i, known)
    if cut is None or len(cut.results) != len(i.outputs):
        return None
    if i.name not in _RESHAPES:
        return cut
    (y,), (dim,) = i.outputs, cut.results

    def resized(i: Instruction, now: int) -> Instruction:
        name = i.name if i.name == "broadcast_to" else "reshape"
        return replace(i, name=name, args=(i.args[0], scaled(y.shape, dim, rows, now)), kwargs={})

    return replace(cut, resized=resized)


def _check(i: Instruction, known: Dims, rows: int, makers: Makers) -> Cut | None:
    return Cut({**known}, ())


def _kernel(i: Instruction, known: Dims, rows: int, makers: Makers) -> Cut | None:
    """A kernel treats each element of the batch by itself; what it draws isn't cut."""
    name, *args = i.args
    if any(known.values()) or any([x.dtype.kind == "O" for x in i.inputs()]):
        return None
    cut = _cut_by(labels_of_composite(name, *args), i, known)
    return replace(cut, results=(0,) * len(i.outputs)) if cut and {*cut.results} == {0} else None


def _vjp(i: Instruction, known: Dims, rows: int, makers: Mapping[Value, Instruction]) -> Cut | None:
    saved, grads = i.args[0], [x for x in leaves(i.args[1]) if isinstance(x, Value)]
    if saved not in known:
        return None
    name, *args = makers[saved].args
    labels, places = labels_of_composite(name, *args), [k for k, x in enumerate(args) for _ in arrays_in(x)]
    batch = {places[k] for k, _ in labels.places(labels.outputs[0][0])}
    wanted = i.kwargs["wanted"]

    def resized(i: Instruction, now: int) -> Instruction:
        shapes = {k: scaled(shape, 0, rows, now) if k in batch else shape for k, shape in wanted.items()}
        return replace(i, kwargs={**i.kwargs, "wanted": shapes})

    operands = {saved: known[saved], **dict.fromkeys(grads, 0)}
    return Cut(operands, tuple([0 if k in batch else "add" for k in wanted]), resized)


def _loop(i: Instruction, known: Dims, rows: int, makers: Makers) -> Cut | None:
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


_RULES: dict[str, Callable] = {"check": _check, "kernel": _kernel, "kernel.vjp": _vjp, "loop": _loop}
