"""Loops: several instructions on the elements, or the rows, of arrays in one pass, as Numba source."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FULL, ROW, COLUMN, SCALAR = "full", "row", "column", "scalar"

# The source of each function, in float32. Sums and differences are in the order written: see `in_order`.
EXPRESSIONS = {
    "add": "plus({}, {})", "subtract": "minus({}, {})", "multiply": "times({}, {})", "divide": "{} / {}",
    "negative": "-{}", "positive": "{}", "absolute": "abs({})", "square": "times({0}, {0})",
    "reciprocal": "ONE / {}", "sqrt": "np.sqrt({})", "exp": "exp32({})", "tanh": "tanh32({})",
    "log": "np.log({})", "log1p": "np.log1p({})", "expm1": "np.expm1({})", "sin": "np.sin({})",
    "cos": "np.cos({})", "trunc": "np.trunc({})", "floor": "np.floor({})", "ceil": "np.ceil({})",
    "copysign": "math.copysign({}, {})", "maximum": "maximum32({}, {})", "minimum": "minimum32({}, {})",
    "where": "({1} if {0} else {2})", "less": "{} < {}", "less_equal": "{} <= {}", "greater": "{} > {}",
    "greater_equal": "{} >= {}", "equal": "{} == {}", "not_equal": "{} != {}",
    "logical_and": "({} and {})", "logical_or": "({} or {})", "logical_not": "(not {})", ".copy": "{}",
}  # fmt: skip
# For each reduction: the start, and how a number is added to it.
REDUCTIONS = {
    "sum": ("ZERO", "{0} + {1}"), "max": ("-INF", "maximum32({0}, {1})"),
    "min": ("INF", "minimum32({0}, {1})"),
}  # fmt: skip
_BLOCK = 4096  # elements that are summed in float32, or that a thread takes at a time
_PARTS = 64  # of the rows; a thread takes one at a time, and sums columns in it
_COSTS = {
    "exp": 20, "tanh": 20, "log": 20, "log1p": 20, "expm1": 20, "sin": 20, "cos": 20, "divide": 5, "sqrt": 5,
}  # fmt: skip
_CHEAP = 10  # what costs more is kept for a later pass, and not computed again in it
HEADER = """import math

import numpy as np

from mytorch.backends.jit import kernel, prange, routine
from mytorch.nn.fused_ops.numba.approximations import INF, ONE, ZERO, exp32, tanh32, wide_registers
from mytorch.nn.fused_ops.numba.in_order import minus, plus, times
from mytorch.nn.fused_ops.numba.maximum import maximum32, minimum32
from mytorch.nn.fused_ops.numba.moments import add


"""


class Step(NamedTuple):
    """A function of inputs "x0", …, of earlier steps "v0", …, and of numbers.

    Attributes:
        name: of EXPRESSIONS; of REDUCTIONS; or "take", the element of each row at an index.
        kind: whether there is a result for each element, for each row, or for each column.
        dtype: "float32" or "bool".
    """

    name: str
    args: tuple[str | float, ...]
    kind: str
    dtype: str = "float32"

    @property
    def reduces_rows(self) -> bool:
        """Whether it makes one number of the elements of a row."""
        return self.kind == ROW and (self.name in REDUCTIONS or self.name == "take")

    def steps(self) -> list[int]:
        """Returns the numbers of the steps among the arguments."""
        return [int(a[1:]) for a in self.args if isinstance(a, str) and a[0] == "v"]


@dataclass(frozen=True)
class Loop:
    """Steps over the elements of arrays that are (rows, n), all in C order.

    Attributes:
        inputs: of each, whether it is (rows, n), (rows,), (n,) or a single number.
        outputs: the numbers of the steps whose results are stored.
        places: the input in whose memory the result of a step is stored, as (step, input): see `reuse`.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    places: tuple[tuple[int, int], ...] = ()

    @property
    def is_flat(self) -> bool:
        """Whether rows don't matter."""
        return all(kind in (FULL, SCALAR) for kind in (*self.inputs, *[step.kind for step in self.steps]))

    @functools.cached_property
    def stages(self) -> tuple[int, ...]:
        """For each step the number of passes over the row that must be over before it."""
        stages: list[int] = []
        for step in self.steps:
            stages.append(max([stages[k] for k in step.steps()], default=0) + step.reduces_rows)
        return tuple(stages)

    @property
    def own(self) -> list[int]:
        """The outputs with arrays of their own."""
        return [k for k in self.outputs if k not in dict(self.places)]

    def is_read_first(self, x: int) -> bool:
        """Whether each element of an input is read before any result is stored in its place: in the only
        pass, and not by a reduction, which follows what is stored."""
        for step, stage in zip(self.steps, self.stages, strict=True):
            reads = step.kind != ROW or step.reduces_rows
            if step.name == "take" or (reads and stage - step.reduces_rows > 0):
                return False
            if step.name in REDUCTIONS and f"x{x}" in step.args:
                return False
        return True

    def in_numpy(self, *arrays: np.ndarray) -> None:
        """Computes the same as the kernel, `source`, step by step; where there is no Numba."""
        *arrays, rows, n = arrays
        shapes = {FULL: (rows, n), ROW: (rows, 1), COLUMN: (n,), SCALAR: ()}
        given = zip(arrays, self.inputs, strict=False)
        values = {f"x{k}": x.reshape(shapes[kind]) for k, (x, kind) in enumerate(given)}
        stored = {f"v{k}": (k, arrays[x]) for k, x in self.places}
        own = zip(self.own, arrays[len(self.inputs) :], strict=True)
        stored |= {f"v{k}": (k, y) for k, y in own}
        last = {a: k for k, step in enumerate(self.steps) for a in step.args}
        for k, step in enumerate(self.steps):
            args = [values[a] if isinstance(a, str) else np.float32(a) for a in step.args]
            if not any([isinstance(a, str) for a in step.args]):  # an array says on which device
                args[0] = np.full_like(arrays[0], args[0], np.float32, shape=())
            if step.name in REDUCTIONS:
                x = np.broadcast_to(args[0], (rows, n))
                result = getattr(np, step.name)(x, axis=int(step.kind == ROW), keepdims=step.kind == ROW)
            elif step.name == "take":
                result = np.take_along_axis(*args, axis=1)
            else:
                result = getattr(np, step.name.lstrip("."))(*args)
            values[f"v{k}"] = np.broadcast_to(result, (rows, n)) if step.kind == FULL else result
            for a in {*step.args}:
                if last[a] == k and a not in stored:
                    values.pop(a, None)  # its memory is free
        for k, y in stored.values():
            y.reshape(shapes[self.steps[k].kind])[...] = values[f"v{k}"]

    def source(self, name: str = "loop") -> str:
        """Returns the Python source of the kernel, `loop(*inputs, *own outputs, rows, n)`; see HEADER."""
        return _Source(self, name).text()


class _Source:
    """The Numba source of a loop: a routine for a row, or a part of a flat loop, and the kernel.

    Slices of the arrays are the routine's arguments: for indices from 0 LLVM makes vector instructions.
    """

    def __init__(self, loop: Loop, name: str):
        self.loop, self.name, self.steps, self.stages = loop, name, loop.steps, loop.stages
        self.columns = [k for k, step in enumerate(self.steps) if step.kind == COLUMN]
        self.places = {k: f"y{k}" for k in loop.outputs if self.steps[k].kind == FULL}
        self.places |= {k: f"x{x}" for k, x in loop.places}
        self.kept: list[int] = []  # elements for later passes, in memory of their own
        self._keep()

    def text(self) -> str:
        """Returns both functions."""
        body = ["wide_registers()"]
        if self.loop.is_flat:
            body += self._pass(0)
        else:
            for stage in range(max(self.stages, default=0) + 1):
                body += self._row_steps(stage) + self._pass(stage)
        given = [(f"x{k}", kind) for k, kind in enumerate(self.loop.inputs)]
        stored = [(f"y{k}", self.steps[k].kind) for k in self.loop.own if k not in self.columns]
        names = [name for name, _ in given] + [f"y{k}" for k in self.loop.own]
        passed = [_slice(name, kind) for name, kind in given]
        passed += [_slice(name, kind) if kind == FULL else name for name, kind in stored]
        own = [f"t{k}" for k in self.kept]
        params = [*[name for name, _ in (*given, *stored)], *[f"p{k}" for k in self.columns], *own, "i", "n"]
        row = ["@routine", f"def {self.name}_row({', '.join(params)}):", *[f"    {line}" for line in body]]
        head = ["@kernel", f"def {self.name}({', '.join(names)}, rows, n):"]
        passed += [f"p{k}[part]" for k in self.columns] + own
        call = f"{self.name}_row({', '.join(passed)}, i, last - first)"
        kernel = self._flat(call) if self.loop.is_flat else self._rows(call)
        return "\n".join(row) + "\n\n\n" + "\n".join([*head, *[f"    {line}" for line in kernel]])

    def _flat(self, call: str) -> list[str]:
        return [
            "n *= rows",
            f"for i in prange((n + {_BLOCK - 1}) // {_BLOCK}):",
            f"    first, last = {_BLOCK} * i, min(n, {_BLOCK} * i + {_BLOCK})",
            f"    {call}",
        ]

    def _rows(self, call: str) -> list[str]:
        lines = []
        for index in dict.fromkeys(step.args[1] for step in self.steps if step.name == "take"):
            lines += [
                "for i in range(rows):",
                f"    if not -n <= {index}[i] < n:",
                "        raise IndexError('an index is out of bounds')",
            ]
        lines += [f"parts = min({'(rows + 7) // 8' if self.columns else 'rows'}, {_PARTS})"]
        lines += [f"p{k} = np.zeros((parts, n), np.float32)" for k in self.columns]
        lines += ["for part in prange(parts):"]
        lines += [f"    t{k} = np.empty(n, np.{self._numpy(k)})" for k in self.kept]
        lines += [
            "    for i in range(rows * part // parts, rows * (part + 1) // parts):",
            "        first, last = i * n, i * n + n",
            f"        {call}",
        ]
        for k in self.columns:
            lines += [f"y{k}[:] = ZERO", "for part in range(parts):", f"    add(y{k}, p{k}[part], y{k})"]
        return lines

    def _keep(self) -> None:
        """Finds the elements that are kept for later passes: in an output's memory, if that is written later,
        or in memory of their own."""
        costs: list[int] = []
        for step in self.steps:
            costs.append(_COSTS.get(step.name, 1) + sum([costs[k] for k in step.steps()]))
        last: dict[int, int] = {}
        for stage in reversed(range(max(self.stages, default=0) + 1)):
            todo, seen = self._wanted(stage), set()
            while todo:
                k = todo.pop()
                if k in seen or self.steps[k].kind == ROW:
                    continue
                seen.add(k)
                earlier = self.stages[k] < stage
                if earlier and costs[k] > _CHEAP and k not in self.places:
                    self.places[k] = f"t{k}"
                    last[k] = stage
                elif not (earlier and k in self.places):
                    todo += self.steps[k].steps()
        free = [k for k in self.loop.outputs if self.steps[k].kind == FULL]
        for k, stage in last.items():
            dtype = self.steps[k].dtype
            later = [o for o in free if self.stages[o] >= stage and self.steps[o].dtype == dtype]
            if later:
                self.places[k] = f"y{later[0]}"
                free.remove(later[0])
            else:
                self.kept.append(k)

    def _wanted(self, stage: int) -> list[int]:
        """Returns the steps whose elements a pass stores or reduces."""
        found = [k for k in self.places if self.stages[k] == stage]
        for step, at in zip(self.steps, self.stages, strict=True):
            if step.name in REDUCTIONS and at == stage + step.reduces_rows:
                found += step.steps()
        return sorted(set(found))

    def _row_steps(self, stage: int) -> list[str]:
        lines = []
        for k, step in enumerate(self.steps):
            if step.kind == ROW and self.stages[k] == stage:
                if step.name == "take":
                    lines += [f"j = {step.args[1]}", "j += n if j < 0 else 0"]
                    lines += [*self._elements(step.steps(), stage), f"v{k} = {self._name(step.args[0])}"]
                elif not step.reduces_rows:
                    lines.append(f"v{k} = {self._expression(step)}")
                if k in self.loop.outputs:
                    lines.append(f"y{k}[i] = v{k}")
        return lines

    def _pass(self, stage: int) -> list[str]:
        """The loop over the elements of a row for the steps of a stage, and the reductions of its results."""
        reductions = [
            k for k, step in enumerate(self.steps)
            if step.name in REDUCTIONS and step.kind == ROW and self.stages[k] == stage + 1
        ]  # fmt: skip
        columns = [k for k in self.columns if self.stages[k] == stage]
        inner = self._elements(self._wanted(stage), stage)
        inner += [f"{place}[j] = v{k}" for k, place in self.places.items() if self.stages[k] == stage]
        inner += [f"p{k}[j] += {self._name(self.steps[k].args[0])}" for k in columns]
        sums = [k for k in reductions if self.steps[k].name == "sum"]
        for k in reductions:
            total, step = f"p{k}" if k in sums else f"v{k}", self.steps[k]
            inner.append(f"{total} = {REDUCTIONS[step.name][1].format(total, self._name(step.args[0]))}")
        if not inner:
            return []
        head = [f"v{k} = {'0.0' if k in sums else REDUCTIONS[self.steps[k].name][0]}" for k in reductions]
        loop = ["for j in range(n):", *[f"    {line}" for line in inner]]
        return head + (_in_blocks(loop, sums) if sums else loop)

    def _elements(self, wanted: Sequence[int], stage: int) -> list[str]:
        """The lines that compute, or load, the elements of these steps."""
        lines: dict[int, str] = {}

        def visit(k: int) -> None:
            if k in lines or self.steps[k].kind == ROW:
                return
            if k in self.places and self.stages[k] < stage:
                lines[k] = f"v{k} = {self.places[k]}[j]"
                return
            for source in self.steps[k].steps():
                visit(source)
            lines[k] = f"v{k} = {self._expression(self.steps[k])}"

        for k in wanted:
            visit(k)
        return [*lines.values()]

    def _numpy(self, k: int) -> str:
        return "bool_" if self.steps[k].dtype == "bool" else "float32"

    def _expression(self, step: Step) -> str:
        return EXPRESSIONS[step.name].format(*map(self._name, step.args))

    def _name(self, a: str | float) -> str:
        if not isinstance(a, str):
            number = float(np.float32(a))
            return f"np.float32({number!r})" if np.isfinite(number) else f"np.float32('{number}')"
        return f"{a}[j]" if a[0] == "x" and self.loop.inputs[int(a[1:])] in (FULL, COLUMN) else a


def _slice(name: str, kind: str) -> str:
    """Returns the source of what a row has of an array."""
    return {FULL: f"{name}[first:last]", ROW: f"{name}[i]", COLUMN: name, SCALAR: f"{name}[0]"}[kind]


def _in_blocks(loop: Sequence[str], sums: Sequence[int]) -> list[str]:
    """The loop over the elements in blocks, whose sums are added in float64."""
    element = re.compile(r"\b([xytp]\d+)\[j\]")
    used = sorted({name for line in loop for name in element.findall(line)})
    inner = [element.sub(r"\1b[j]", line) for line in loop]
    lines = [f"{name}b = {name}[start : start + {_BLOCK}]" for name in used]
    lines += [f"p{k} = ZERO" for k in sums]
    size = f"{used[0]}b.size" if used else f"min({_BLOCK}, n - start)"
    lines += [line.replace("range(n)", f"range({size})") for line in inner]
    lines += [f"v{k} += p{k}" for k in sums]
    head = f"for start in range(0, n, {_BLOCK}):"
    return [head, *[f"    {line}" for line in lines], *[f"v{k} = np.float32(v{k})" for k in sums]]
