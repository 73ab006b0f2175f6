"""Which instructions a loop computes, and as which steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...backends.device import CPU
from ..codegen.loop import COLUMN, FULL, ROW, SCALAR, Loop, Step
from ..program.instruction import Instruction, Value
from ..program.origins import merged
from ..program.program import Program
from .domain import REDUCTIONS, Domain, reduced_dims
from .elementwise import BOOL, FLOAT, TAKE_BOOLS, is_step

_ALIASES = {"reshape", ".reshape", "broadcast_to", "expand_dims", "squeeze"}
_MOST_STEPS = 200
_ALONE = 1 << 16  # elements from which one step is a loop on the CPU: NumPy computes it in one thread


class Group:
    """A loop that is being put together.

    An array in its domain has an element for each place, for each row or column, or a single one.

    Attributes:
        refs: what stands for each value that it computes in the steps.
        made: the values that it computes, and views of these.
        originals: the instructions that it stands for.
    """

    def __init__(self, domain: Domain, program: Program, makers: Mapping[Value, Instruction]):
        self._domain, self._makers = domain, makers
        self._constants, self._device = program.constants, program.device
        self.refs: dict[Value, str] = {}
        self.made: set[Value] = set()
        self.originals: list[Instruction] = []
        self._views: list[Instruction] = []
        self._inputs: dict[tuple[Value, str], str] = {}
        self._steps: list[Step] = []
        self._values: list[Value | None] = []  # of the steps

    def accepts(self, i: Instruction) -> bool:
        """Adds an instruction; False if it isn't one of this loop's."""
        if len(self._steps) >= _MOST_STEPS or len(i.outputs) != 1:
            return False
        if i.outputs[0].of is None and not i.outputs[0].is_c_order:
            return False  # what loops store is in C order
        if i.name not in _ALIASES and COLUMN in map(self._step_kind, i.inputs()):
            return False  # it is known only at the end
        ways = self._accepts_view, self._accepts_reduction, self._accepts_element, self._accepts_step
        accepted = any(way(i) for way in ways)
        if accepted:
            self.originals.append(i)
            self.made.add(i.outputs[0])
        return accepted

    def _accepts_view(self, i: Instruction) -> bool:
        """A view of a value that the loop computes, which has the same place in it."""
        x, y = i.args[0] if i.args else None, i.outputs[0]
        if i.name not in _ALIASES or not isinstance(x, Value) or x not in self.made:
            return False
        allowed = self._has_same_place(i.name, x, y)
        if allowed:
            self.refs[y] = self.refs[x]
            self._views.append(i)
        return allowed

    def _has_same_place(self, name: str, x: Value, y: Value) -> bool:
        kind, step = self._domain.kind_of(y), self._step_kind(x)
        if step == FULL:
            return self._domain.kind_of(x) == kind == FULL
        if name != "broadcast_to":
            return y.size == x.size == (self._domain.rows if step == ROW else self._domain.n)
        return step == ROW and (kind == ROW or (kind == FULL and x.shape[-1:] == (1,)))

    def _accepts_reduction(self, i: Instruction) -> bool:
        """A sum, mean or extremum of each row, or a sum of each column."""
        name, x, y = REDUCTIONS.get(i.name), i.args[0] if i.args else None, i.outputs[0]
        if name is None or not isinstance(x, Value) or {x.dtype, y.dtype} != {FLOAT}:
            return False
        if self._domain.kind_of(x) != FULL or self._step_kind(x) == ROW:
            return False
        dims = reduced_dims(i)
        if dims == [x.ndim - 1]:
            self._add_row(name, self._ref(x, FULL), y)
            return True
        is_of_columns = name == "sum" and x.ndim > 1 and dims == [*range(x.ndim - 1)]
        if is_of_columns:
            self._add(Step("sum", (self._ref(x, FULL),), COLUMN), y)
        return is_of_columns

    def _add_row(self, name: str, x: str, y: Value) -> None:
        """Adds a reduction of each row; a mean is a sum that is divided."""
        self._add(Step("sum" if name == "mean" else name, (x,), ROW), y)
        if name == "mean":
            self._add(Step("divide", (self.refs[y], float(self._domain.n)), ROW), y)

    def _accepts_element(self, i: Instruction) -> bool:
        """x[arange(rows)[:, None], index]: an element of each row."""
        if i.name != ".getitem" or not isinstance(i.args[1], tuple) or len(i.args[1]) != 2:
            return False
        x, (row, index), y = i.args[0], i.args[1], i.outputs[0]
        if self._step_kind(x) != FULL or x.shape != self._domain or not self._domain.is_index(index):
            return False
        if index in self.made or not self._is_range(row) or not y.shape == row.shape == index.shape:
            return False
        self._add(Step("take", (self.refs[x], self._ref(index, ROW)), ROW), y)
        return True

    def _is_range(self, x: object) -> bool:
        """Whether an array holds the number of each row."""
        maker = self._makers.get(x) if isinstance(x, Value) else None
        while maker is not None and maker.name in ("reshape", ".reshape"):
            x = maker.args[0]
            maker = self._makers.get(x)
        if maker is not None:
            return maker.name == "arange" and maker.args == (self._domain.rows,)
        rows = np.arange(self._domain.rows)
        return x in self._constants and np.array_equal(self._constants[x].reshape(-1), rows)

    def _number(self, x: object) -> float | None:
        """Returns an operand that is a number, or an array of equal ones, as a number."""
        if not isinstance(x, Value):
            return float(x)
        raw = self._constants.get(x)
        if raw is None or raw.dtype != FLOAT or not raw.size or (raw != raw.flat[0]).any():
            return None
        return float(raw.flat[0])

    def _accepts_step(self, i: Instruction) -> bool:
        y = i.outputs[0]
        if not is_step(i) or y.of is not None:
            return False
        kind, kinds = self._kinds_of_row(i.inputs(), y) or self._kinds_of_all(i.inputs(), y) or (None, {})
        if kind is None:
            return False
        operands = i.args[:1] if i.name == ".astype" else i.args
        args = [self._operand(i, k, x, kind, kinds) for k, x in enumerate(operands)]
        name = i.name
        if name == ".astype":
            name, args = "where", [*args, 1.0, 0.0]
        elif name == "power":
            name, args = self._product(*args, kind)
        self._add(Step(name, tuple(args), kind, str(y.dtype)), y)
        return True

    def _operand(self, i: Instruction, k: int, x: object, kind: str, kinds: dict[Value, str]) -> str | float:
        """Returns a number, or what stands for an array; bools among numbers are made numbers."""
        number = self._number(x)
        if number is not None:
            return number
        ref = self._ref(x, kinds[x])
        takes_number = i.name not in TAKE_BOOLS or (i.name == "where" and k > 0)
        if x.dtype == BOOL and takes_number and FLOAT in {x.dtype for x in i.inputs()}:
            return self._add(Step("where", (ref, 1.0, 0.0), kind), None)
        return ref

    def _product(self, x: str | float, exponent: float, kind: str) -> tuple[str, list[str | float]]:
        """Returns the last step of a power."""
        if exponent == 1:
            return ".copy", [x]
        power = x
        for _ in range(int(exponent) - 2):
            power = self._add(Step("multiply", (power, x), kind), None)
        return "multiply", [power, x]

    def _kinds_of_row(self, values: list[Value], y: Value) -> tuple[str, dict[Value, str]] | None:
        """Returns the kind of a step with a result for each row, and of its operands; None if not so."""
        found = {x: self._step_kind(x) for x in values}
        if y.size != self._domain.rows or not (ROW in found.values() or self._domain.kind_of(y) == ROW):
            return None
        kinds = {x: ROW if x.shape == y.shape else self._domain.kind_of(x) for x in values}
        fits = [kinds[x] == (found[x] or kinds[x]) and kinds[x] in (ROW, SCALAR) for x in values]
        return (ROW, kinds) if all(fits) else None

    def _kinds_of_all(self, values: list[Value], y: Value) -> tuple[str, dict[Value, str]] | None:
        """Returns the same of a step with a result for each element."""
        kinds = {x: self._step_kind(x) or self._domain.kind_of(x) for x in values}
        turned = [x for x, kind in kinds.items() if kind == ROW and x.shape[-1:] != (1,) and x in self.refs]
        if None in kinds.values() or {FULL} != {*map(self._domain.kind_of, (y, *turned))}:
            return None
        return FULL, kinds

    def _add(self, step: Step, y: Value | None) -> str:
        ref = f"v{len(self._steps)}"
        self._steps.append(step)
        self._values.append(y)
        if y is not None:
            self.refs[y] = ref
        return ref

    def _ref(self, x: Value, kind: str) -> str:
        """Returns what stands for an operand; what was broadcast to a matrix is read where it lies."""
        if x in self.refs:
            return self.refs[x]
        maker = self._makers.get(x)
        if kind == FULL and maker is not None and maker.name == "broadcast_to":
            source = self._domain.kind_of(maker.args[0])
            if source not in (None, FULL):
                return self._ref(maker.args[0], source)
        return self._inputs.setdefault((x, kind), f"x{len(self._inputs)}")

    def _step_kind(self, x: Value) -> str | None:
        """Returns the kind of the step that stands for a value; None if the loop doesn't compute it."""
        return self._steps[int(self.refs[x][1:])].kind if x in self.refs else None

    def closed(self, wanted: list[Value]) -> list[Instruction]:
        """Returns the instructions: the loop, which stores the wanted values, and wanted views of these."""
        if len(self._steps) < 2 and (self._domain.size < _ALONE or self._device is not CPU):
            return self.originals
        views, needed = [], {*wanted}
        for i in reversed(self._views):
            if i.outputs[0] in needed:
                needed.add(i.args[0])
                views.insert(0, i)
        outputs = tuple(sorted({int(self.refs[value][1:]) for value in wanted}))
        loop = Loop(tuple([kind for _, kind in self._inputs]), tuple(self._steps), outputs)
        call = Instruction(
            "loop", tuple([x for x, _ in self._inputs]), {**self._domain._asdict(), "loop": loop},
            tuple([self._values[k] for k in outputs]),
            origin=merged([i.origin for i in self.originals]),
        )
        return [call, *views]
