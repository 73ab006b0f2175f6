"""How the instructions of a program are cut along the batch, and in which stage each can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from ..program.instruction import Instruction, Value
from ..program.program import Program
from .cutting import Cut, cut_of


class Levels:
    """The cuts of instructions, and the first stage in which each can run: its level.

    Stages of odd numbers are loops over parts of the batch, in which the instructions run that are cut. One
    that isn't cut runs behind the loop that makes its inputs; one that is cut, in the same loop, but behind
    the stage that makes a whole input or combines one of parts.

    Args:
        rows: of the batch.
        uncut: instructions that mustn't be cut.

    Attributes:
        of: the levels.
        cuts: of the instructions that are cut.
        makers: the instructions that make values.
        bases, changed: see `Program.bases`, and which of these are written to.
    """

    def __init__(self, program: Program, rows: int, uncut: Set[Instruction] = frozenset()):
        self.bases, self.rows, self._uncut = program.bases(), rows, uncut
        self.changed = {self.bases.get(x, x) for x in program.changed_storages()}
        self.makers = program.makers()
        self.of: dict[Instruction, int] = {}
        self.cuts: dict[Instruction, Cut] = {}
        self._dims = {x: 0 for x in program.inputs if x.ndim and x.shape[0] == rows > 1}
        self._writes: dict[Value, list[int]] = {}
        self._touched: dict[Value, int] = {}  # the first stage for those that write there
        self._calls = 0  # the level of the last call of a Python object
        for i in program.instructions:
            self._add(i)

    @property
    def last(self) -> int:
        return max(self.of.values(), default=0)

    def result_of(self, x: Value) -> int | str | None:
        """Returns the dim along which a value is cut, or the ufunc that combines it of those of parts; None
        for what isn't made in a loop."""
        i = self.makers.get(x)
        return self.cuts[i].results[i.outputs.index(x)] if i in self.cuts else None

    def dim_of(self, x: Value) -> int | None:
        """Returns the dim along which a value is made, if it is made part by part."""
        kind = self.result_of(x)
        return kind if isinstance(kind, int) else None

    def dims_of(self, values: Iterable[Value]) -> dict[Value, int]:
        """Returns the dims of those among some values that are made part by part."""
        return {x: dim for x in values if (dim := self.dim_of(x)) is not None}

    def is_gradient(self, y: Value) -> bool:
        """Returns whether a value is kept as a `.grad`."""
        return self.makers[y].name == "host.set_grad"

    def is_stale(self, i: Instruction, number: int) -> bool:
        """Returns whether what an instruction takes is written to before a stage, so that it can't run there
        again."""
        levels = [w for x in i.inputs() for w in self._writes.get(self.bases[x], ())]
        return any([self.of[i] < w < number for w in levels])

    def _add(self, i: Instruction) -> None:
        cut = self._cut_of(i)
        if cut is not None:
            self.cuts[i] = cut
        written = {self.bases.get(x, x) for x in i.written}
        bases = {self.bases[x] for x in (*i.inputs(), *i.outputs)} | written
        level = self.of[i] = max(self._bounds(i, cut is not None, bases, written), default=0)
        self._calls = level if i.is_host else self._calls
        self._touched |= {x: max(self._touched.get(x, 0), level + (cut is not None)) for x in bases}
        for x in written:
            self._writes.setdefault(x, []).append(level)
        self._dims |= self._dims_of_results(i, cut)

    def _cut_of(self, i: Instruction) -> Cut | None:
        if i in self._uncut or i.is_host or not self.changed.isdisjoint([self.bases[y] for y in i.outputs]):
            return None
        return cut_of(i, self._dims, self.rows, self.makers)

    def _bounds(self, i: Instruction, is_cut: bool, bases: set[Value], written: set[Value]) -> Iterator[int]:
        """Yields the first stages in which an instruction can run for the sake of its inputs, of earlier
        writes to its arrays, earlier uses of the arrays to which it writes, and earlier calls of objects."""
        yield int(is_cut)
        yield from [self._first_use(x, is_cut) for x in i.inputs()]
        yield from [level + is_cut for x in bases for level in self._writes.get(x, ())]
        yield from [self._touched.get(x, 0) for x in written]
        yield self._calls if i.is_host else 0

    def _first_use(self, x: Value, is_cut: bool) -> int:
        """Returns the first stage in which an instruction can use a value."""
        kind, level = self.result_of(x), self.of[self.makers[x]] if x in self.makers else 0
        if kind is None:
            return level + is_cut
        return level + (2 if is_cut and isinstance(kind, str) else not is_cut)

    def _dims_of_results(self, i: Instruction, cut: Cut | None) -> dict[Value, int]:
        """Returns the dims along which results are cut; whole ones that look like an operand which is cut can
        be cut as that."""
        if cut is not None:
            return {y: dim for y, dim in zip(i.outputs, cut.results, strict=True) if isinstance(dim, int)}
        like = [x for x in i.inputs() if x.dtype.kind != "O"]
        if i.name == "kernel.vjp":
            args = self.makers[i.args[0]].args[1:]
            like = [args[k] for k in i.kwargs["wanted"]]
        dims = {x.shape: self._dims[x] for x in reversed(like) if x in self._dims}
        return {y: dims[y.shape] for y in i.outputs if y.shape in dims}
