"""Fuses chains of elementwise functions, broadcasts and sums of rows into loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..loop import COLUMN, EXPRESSIONS, FULL, ROW, SCALAR, Loop, Step
from ..program import Instruction, Program, Value, leaves

_REDUCTIONS = {
    "sum": "sum", "add.reduce": "sum", "max": "max", "maximum.reduce": "max", "min": "min",
    "minimum.reduce": "min", "mean": "mean",
}  # fmt: skip
_ALIASES = {"reshape", ".reshape", "broadcast_to", "expand_dims", "squeeze"}
_DTYPES = (np.dtype(np.float32), np.dtype(bool))
_MOST_STEPS = 200


def fuse(program: Program) -> Program:
    """Returns the program with loops in place of what they compute.

    A loop has a domain, (rows, n): the last dim of its arrays, and all dims before it. An array in it has an
    element for each place, or for each row, or for each column, or a single one. No instruction moves past
    one that writes in place or calls a Python object.
    """
    fused = _Fused(program)
    for i in program.instructions:
        if i.written or i.is_host:
            fused.close()
            fused.instructions.append(i)
        else:
            fused.add(i)
    fused.close()
    return replace(program, instructions=fused.instructions)


class _Fused:
    """The instructions so far, and the loop that is being put together.

    Attributes:
        instructions: those before the loop.
        group: the loop; None if there is none.
    """

    def __init__(self, program: Program):
        self.instructions: list[Instruction] = []
        self.group: _Group | None = None
        self._uses, self._results = program.uses(), {*program.results()}

    def add(self, i: Instruction) -> None:
        if self.group is not None and self.group.accepts(i):
            return
        if self.group is not None and self.group.made.isdisjoint(i.inputs()):
            domain = _domain(i)
            if domain is None or not _is_step(i):
                self.instructions.append(i)  # independent of the loop: before it
                return
        self.close()
        domain = _domain(i)
        self.group = None if domain is None else _Group(domain)
        if self.group is None or not self.group.accepts(i):
            self.group = None
            self.instructions.append(i)

    def close(self) -> None:
        group, self.group = self.group, None
        if group is None:
            return
        inside = {*group.originals}
        wanted = [
            value for value in group.refs
            if value in group.made and (
                value in self._results or any([user not in inside for user in self._uses.get(value, ())])
            )
        ]  # fmt: skip
        self.instructions += group.closed(wanted)


class _Group:
    """A loop that is being put together.

    Attributes:
        refs: what stands for each value in the steps.
        made: the values that the loop computes, and views of these.
        originals: the instructions that it stands for.
    """

    def __init__(self, domain: tuple[int, int]):
        self.rows, self.n = domain
        self.refs: dict[Value, str] = {}
        self.made: set[Value] = set()
        self.originals: list[Instruction] = []
        self._views: list[Instruction] = []
        self._inputs: list[tuple[Value, str]] = []
        self._steps: list[Step] = []
        self._values: list[Value] = []  # of the steps

    def accepts(self, i: Instruction) -> bool:
        """Adds an instruction; False if it isn't one of this loop's."""
        if len(self._steps) >= _MOST_STEPS or len(i.outputs) != 1:
            return False
        accepted = self._accepts_view(i) or self._accepts_reduction(i) or self._accepts_step(i)
        if accepted:
            self.originals.append(i)
            self.made.add(i.outputs[0])
        return accepted

    def _accepts_view(self, i: Instruction) -> bool:
        """A view of a value that the loop computes, which has the same place in it."""
        x, y = i.args[0] if i.args else None, i.outputs[0]
        if i.name not in _ALIASES or not isinstance(x, Value) or x not in self.made:
            return False
        kind = self._kind_of(y)
        if not self._is_row(x):
            allowed = self._kind_of(x) == kind == FULL
        elif i.name == "broadcast_to":
            allowed = kind == ROW or (kind == FULL and x.shape[-1:] == (1,))
        else:
            allowed = kind == ROW
        if not allowed:
            return False
        self.refs[y] = self.refs[x]
        self._views.append(i)
        return True

    def _accepts_reduction(self, i: Instruction) -> bool:
        name = _REDUCTIONS.get(i.name)
        x = i.args[0] if i.args else None
        if name is None or not isinstance(x, Value) or x.dtype != np.float32 or not _sums_rows(i):
            return False
        if self._kind_of(x) != FULL or self._is_row(x) or i.outputs[0].dtype != np.float32:
            return False
        self._add(Step("sum" if name == "mean" else name, (self._ref(x),), ROW), i.outputs[0])
        if name == "mean":
            self._add(Step("divide", (self.refs[i.outputs[0]], float(self.n)), ROW), i.outputs[0])
        return True

    def _accepts_step(self, i: Instruction) -> bool:
        y = i.outputs[0]
        if not _is_step(i) or y.of is not None:
            return False
        values = [x for x in i.args if isinstance(x, Value)]
        rows = [self._is_row(x) for x in values]
        others = [self._kind_of(x) for x, row in zip(values, rows, strict=True) if not row]
        if any(rows) and all([kind == SCALAR for kind in others]):
            kind = ROW  # also of rows that were broadcast: the same number for the whole row
            shapes = {x.shape for x, row in zip(values, rows, strict=True) if row}
            if len(shapes) > 1:
                return False
        elif self._kind_of(y) == FULL and None not in others:
            kind = FULL
            if any([row and not self._is_broadcast(x) for x, row in zip(values, rows, strict=True)]):
                return False
        else:
            return False
        args = tuple([self._ref(x) if isinstance(x, Value) else float(x) for x in i.args])
        self._add(Step(i.name, args, kind, str(y.dtype)), y)
        return True

    def _is_broadcast(self, x: Value) -> bool:
        """Whether NumPy broadcasts numbers for each row over the row."""
        return x.shape[-1:] == (1,) or self._kind_of(x) == FULL

    def _add(self, step: Step, y: Value) -> None:
        self.refs[y] = f"v{len(self._steps)}"
        self._steps.append(step)
        self._values.append(y)

    def _ref(self, x: Value) -> str:
        if x not in self.refs:
            self.refs[x] = f"x{len(self._inputs)}"
            self._inputs.append((x, self._kind_of(x)))
        return self.refs[x]

    def _is_row(self, x: Value) -> bool:
        """Whether the loop computes a number for each row that stands for this value."""
        ref = self.refs.get(x, "")
        return ref.startswith("v") and self._steps[int(ref[1:])].kind == ROW

    def _kind_of(self, x: Value) -> str | None:
        """Returns how NumPy would broadcast the array in the domain; None if it wouldn't."""
        if x.dtype not in _DTYPES:
            return None
        if x.size == 1:
            return SCALAR if self.rows * self.n != 1 else FULL
        if x.size == self.rows * self.n and x.shape[-1] == self.n:
            return FULL
        if x.size == self.rows and x.shape[-1] == 1:
            return ROW
        return COLUMN if x.size == self.n == x.shape[-1] else None

    def closed(self, wanted: list[Value]) -> list[Instruction]:
        """Returns the instructions: the loop, which stores the wanted values, and wanted views of these."""
        if len(self._steps) < 2:
            return self.originals
        views = [i for i in self._views if i.outputs[0] in wanted]
        stored = {int(self.refs[value][1:]) for value in wanted}
        if any([self._shape_differs(i) for i in views]) or any(
            [self._steps[k].kind == ROW and self._values[k].size != self.rows for k in stored]
        ):
            return self.originals
        outputs = tuple(sorted(stored))
        loop = Loop(tuple([kind for _, kind in self._inputs]), tuple(self._steps), outputs)
        call = Instruction(
            "loop", tuple([x for x, _ in self._inputs]), {"rows": self.rows, "n": self.n, "loop": loop},
            tuple([self._values[k] for k in outputs]),
        )  # fmt: skip
        return [call, *views]

    def _shape_differs(self, i: Instruction) -> bool:
        """Whether the view is of a value that isn't stored, because it is a view itself."""
        return i.args[0] in {view.outputs[0] for view in self._views}


def _is_step(i: Instruction) -> bool:
    return (
        i.name in EXPRESSIONS and len(i.outputs) == 1 and i.outputs[0].dtype in _DTYPES
        and i.kwargs.keys() <= {"order"}
        and all([isinstance(x, (Value, bool, int, float, np.generic)) for x in i.args])
        and all([x.dtype in _DTYPES for x in i.inputs()])
    )  # fmt: skip


def _sums_rows(i: Instruction) -> bool:
    """Whether a reduction is over the last dim."""
    x = i.args[0]
    axis = i.kwargs.get("axis", i.args[1] if len(i.args) > 1 else 0 if "." in i.name else None)
    axes = [a % max(x.ndim, 1) for a in leaves(axis) if a is not None] if x.shape else []
    extra = {name for name, v in i.kwargs.items() if v is not None} - {"axis", "keepdims"}
    return axes == [len(x.shape) - 1] and not extra and len(i.args) < 3


def _domain(i: Instruction) -> tuple[int, int] | None:
    """Returns the rows and columns of a loop that begins with this instruction."""
    if len(i.outputs) != 1:
        return None
    shape = i.outputs[0].shape
    if i.name in _REDUCTIONS and i.args and isinstance(i.args[0], Value):
        shape = i.args[0].shape
    elif not _is_step(i):
        return None
    size = int(np.prod(shape, dtype=np.int64))
    return (size // shape[-1], shape[-1]) if shape and size else None
