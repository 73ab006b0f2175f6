"""Loops: several instructions on the elements, or the rows, of arrays in one pass, as Numba source."""

from __future__ import annotations

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
    "copysign": "math.copysign({}, {})", "maximum": "maximum32({}, {})", "minimum": "-maximum32(-{}, -{})",
    "where": "({1} if {0} else {2})", "less": "{} < {}", "less_equal": "{} <= {}", "greater": "{} > {}",
    "greater_equal": "{} >= {}", "equal": "{} == {}", "not_equal": "{} != {}",
    "logical_and": "({} and {})", "logical_or": "({} or {})", "logical_not": "(not {})", ".copy": "{}",
}  # fmt: skip
# For each reduction of rows: the start, and how a number is added to it.
REDUCTIONS = {
    "sum": ("ZERO", "{0} + {1}"), "max": ("-INF", "maximum32({0}, {1})"),
    "min": ("INF", "-maximum32(-{0}, -{1})"),
}  # fmt: skip
_BLOCK = 1024  # numbers that are summed in float32; sums of blocks are added in float64
_PART = 4096  # elements that a thread takes at a time
HEADER = """import math

import numpy as np

from mytorch.backends.jit import kernel, prange
from mytorch.nn.fused_ops.numba.approximations import INF, ONE, ZERO, exp32, tanh32, wide_registers
from mytorch.nn.fused_ops.numba.in_order import minus, plus, times
from mytorch.nn.fused_ops.numba.maximum import maximum32


"""


class Step(NamedTuple):
    """A function of inputs "x0", …, of earlier steps "v0", …, and of numbers.

    Attributes:
        kind: whether there is a result for each element or for each row.
        dtype: "float32" or "bool".
    """

    name: str
    args: tuple[str | float, ...]
    kind: str
    dtype: str = "float32"

    @property
    def is_reduction(self) -> bool:
        return self.name in REDUCTIONS


@dataclass(frozen=True)
class Loop:
    """Steps over the elements of arrays that are (rows, n), all in C order.

    Attributes:
        inputs: of each, whether it is (rows, n), (rows,), (n,) or a single number.
        outputs: the numbers of the steps whose results are stored.
        places: for each output the number of the input in whose memory it is stored; None for an array of its
            own, as are all if there are none (see `reuse`).
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    places: tuple[int | None, ...] = ()

    def in_numpy(self, *arrays: np.ndarray) -> None:
        """Computes the same as the kernel, `source`, step by step; where there is no Numba."""
        *arrays, rows, n = arrays
        shapes = {FULL: (rows, n), ROW: (rows, 1), COLUMN: (n,), SCALAR: ()}
        given = zip(arrays, self.inputs, strict=False)
        values = {f"x{k}": x.reshape(shapes[kind]) for k, (x, kind) in enumerate(given)}
        own = iter(arrays[len(self.inputs) :])
        stored = {k: next(own) if x is None else arrays[x] for k, x in self._stored().items()}
        last = {a: k for k, step in enumerate(self.steps) for a in step.args}
        for k, step in enumerate(self.steps):
            args = [values[a] if isinstance(a, str) else np.float32(a) for a in step.args]
            function = getattr(np, step.name.lstrip("."))
            y = function(*args, axis=1, keepdims=True) if step.is_reduction else function(*args)
            if k in stored:
                out = stored[k].reshape(shapes[step.kind])
                out[...], y = y, out
            values[f"v{k}"] = y
            for a in {*step.args}:
                if last[a] == k:
                    values.pop(a, None)  # its memory is free

    def source(self, name: str = "loop") -> str:
        """Returns the Python source of the kernel, `loop(*inputs, *outputs, rows, n)`; see HEADER. Outputs in
        the memory of an input aren't among the arguments."""
        names = [f"x{k}" for k in range(len(self.inputs))]
        names += [f"y{k}" for k, x in self._stored().items() if x is None]
        lines = ["@kernel", f"def {name}({', '.join(names)}, rows, n):"]
        lines += [f"    c{k} = x{k}[0]" for k, kind in enumerate(self.inputs) if kind == SCALAR]
        is_flat = all(kind in (FULL, SCALAR) for kind in (*self.inputs, *[step.kind for step in self.steps]))
        body = self._flat() if is_flat else self._by_rows()
        return "\n".join([*lines, *[f"    {line}" for line in body]])

    def is_read_before(self, x: int, k: int) -> bool:
        """Whether each element of an input is read for the last time before step k stores its element."""
        stages = self._stages()
        for j, step in enumerate(self.steps):
            # the reductions of a pass come after its elements
            when = (stages[j] - step.is_reduction, step.is_reduction, j)
            if f"x{x}" in step.args and (j > k or when > (stages[k], False, k)):
                return False
        return True

    def _stored(self) -> dict[int, int | None]:
        """Returns for each step that is stored the input in whose memory, or None."""
        return dict(zip(self.outputs, self.places or [None] * len(self.outputs), strict=True))

    def _flat(self) -> list[str]:
        inner = self._elements(range(len(self.steps)), set())
        body = ["wide_registers()", f"start = part * {_PART}", f"stop = min(start + {_PART}, n)"]
        body += [*self._slices(inner, "start:stop"), "for j in range(stop - start):"]
        body += [f"    {line}" for line in inner]
        head = ["n *= rows", f"for part in prange((n + {_PART - 1}) // {_PART}):"]
        return [*head, *[f"    {line}" for line in body]]

    def _by_rows(self) -> list[str]:
        stages = self._stages()
        body = ["wide_registers()", "first = i * n"]
        body += [f"r{k} = x{k}[i]" for k, kind in enumerate(self.inputs) if kind == ROW]
        kept = self._kept(stages)
        body += [f"t{k} = np.empty(n, np.{self._numpy(k)})" for k in sorted(kept - {*self.outputs})]
        for stage in range(max(stages, default=0) + 1):
            body += self._row_steps(stage, stages)
            body += self._pass(stage, stages, kept)
        return ["for i in prange(rows):", *[f"    {line}" for line in body]]

    def _stages(self) -> list[int]:
        """Returns for each step the number of passes over the row that must be over before it."""
        stages: list[int] = []
        for step in self.steps:
            before = [stages[int(a[1:])] for a in step.args if isinstance(a, str) and a[0] == "v"]
            stages.append(max(before, default=0) + step.is_reduction)
        return stages

    def _kept(self, stages: Sequence[int]) -> set[int]:
        """Returns the steps with a result for each element that a later pass needs."""
        kept = set()
        for k, step in enumerate(self.steps):
            stage = stages[k] - step.is_reduction
            for a in step.args:
                if isinstance(a, str) and a[0] == "v":
                    source = int(a[1:])
                    if self.steps[source].kind == FULL and stages[source] < stage:
                        kept.add(source)
        return kept

    def _row_steps(self, stage: int, stages: Sequence[int]) -> list[str]:
        lines = []
        for k, step in enumerate(self.steps):
            if step.kind == ROW and stages[k] == stage:
                if not step.is_reduction:
                    lines.append(f"v{k} = {self._expression(step)}")
                if k in self.outputs:
                    lines.append(f"y{k}[i] = v{k}")
        return lines

    def _pass(self, stage: int, stages: Sequence[int], kept: set[int]) -> list[str]:
        """The loop over the elements of a row for the steps of a stage, and the reductions of its results."""
        full = [k for k, step in enumerate(self.steps) if step.kind == FULL and stages[k] == stage]
        reductions = [k for k, step in enumerate(self.steps) if step.is_reduction and stages[k] == stage + 1]
        if not full and not reductions:
            return []
        sums = [k for k in reductions if self.steps[k].name == "sum"]
        lines = [f"v{k} = {'0.0' if k in sums else REDUCTIONS[self.steps[k].name][0]}" for k in reductions]
        inner = self._elements(full, kept)
        for k in reductions:
            total, step = f"p{k}" if k in sums else f"v{k}", self.steps[k]
            loaded = self._loads(step.args, stage, stages)
            inner += [line for line in loaded if line not in inner]
            inner.append(f"{total} = {REDUCTIONS[step.name][1].format(total, self._name(step.args[0]))}")
        earlier = [line for k in full for line in self._loads(self.steps[k].args, stage, stages)]
        inner = [*dict.fromkeys(earlier), *inner]
        lines += [f"for start in range(0, n, {_BLOCK}):", f"    stop = min(start + {_BLOCK}, n)"]
        lines += [f"    p{k} = ZERO" for k in sums]
        lines += [f"    {line}" for line in self._slices(inner, "first + start:first + stop")]
        lines.append("    for j in range(stop - start):")
        lines += [f"        {line}" for line in inner]
        lines += [f"    v{k} += p{k}" for k in sums]
        return lines + [f"v{k} = np.float32(v{k})" for k in sums]

    def _loads(self, args: Sequence[str | float], stage: int, stages: Sequence[int]) -> list[str]:
        """The lines that read elements which an earlier pass kept."""
        sources = [int(a[1:]) for a in args if isinstance(a, str) and a[0] == "v"]
        return [
            f"v{k} = {self._place(k)}" for k in sources if self.steps[k].kind == FULL and stages[k] < stage
        ]

    def _elements(self, steps: Sequence[int], kept: set[int]) -> list[str]:
        lines = []
        for k in steps:
            lines.append(f"v{k} = {self._expression(self.steps[k])}")
            if k in self.outputs or k in kept:
                lines.append(f"{self._place(k)} = v{k}")
        return lines

    def _slices(self, inner: Sequence[str], place: str) -> list[str]:
        """The lines that take the parts of arrays in which the inner loop counts from 0: with `x[first + j]`
        Numba looks at each index whether it is negative, which takes twice the time of tanh and more."""
        lines = []
        for name in sorted({*re.findall(r"\b[ab]\d+(?=\[j\])", "\n".join(inner))}):
            k = int(name[1:])
            if name[0] == "a":
                array, is_row = f"x{k}", self.inputs[k] == COLUMN
            else:
                array, is_row = (f"y{k}", False) if k in self.outputs else (f"t{k}", True)
            lines.append(f"{name} = {array}[{'start:stop' if is_row else place}]")
        return lines

    def _place(self, k: int) -> str:
        x = self._stored().get(k)
        return f"b{k}[j]" if x is None else f"a{x}[j]"

    def _numpy(self, k: int) -> str:
        return "bool_" if self.steps[k].dtype == "bool" else "float32"

    def _expression(self, step: Step) -> str:
        return EXPRESSIONS[step.name].format(*map(self._name, step.args))

    def _name(self, a: str | float) -> str:
        if not isinstance(a, str):
            number = float(np.float32(a))
            return f"np.float32({number!r})" if np.isfinite(number) else f"np.float32('{number}')"
        if a[0] == "v":
            return a
        kind = self.inputs[int(a[1:])]
        return {FULL: f"a{a[1:]}[j]", ROW: f"r{a[1:]}", COLUMN: f"a{a[1:]}[j]", SCALAR: f"c{a[1:]}"}[kind]
