"""Loops as Triton source, and their launch on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ...backends.device import RawArray
from .loop import COLUMN, FULL, ROW, SCALAR, Loop, Step
from .source_files import module_of

# The source of each function, in float32.
EXPRESSIONS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}", "negative": "-{}",
    "positive": "{}", "absolute": "tl.abs({})", "square": "{0} * {0}", "reciprocal": "1.0 / {}",
    "sqrt": "tl.sqrt({})", "exp": "tl.exp({})", "tanh": "tanh32({})", "log": "tl.log({})",
    "log1p": "log1p32({})", "expm1": "expm132({})", "sin": "tl.sin({})", "cos": "tl.cos({})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))", "floor": "tl.floor({})", "ceil": "tl.ceil({})",
    "copysign": "copysign32({}, {})", "maximum": "larger({}, {})", "minimum": "smaller({}, {})",
    "where": "tl.where({}, {}, {})", "less": "{} < {}", "less_equal": "{} <= {}", "greater": "{} > {}",
    "greater_equal": "{} >= {}", "equal": "{} == {}", "not_equal": "{} != {}", "logical_and": "{} & {}",
    "logical_or": "{} | {}", "logical_not": "~{}", ".copy": "{}",
}  # fmt: skip
# For each reduction: the start; how two elements become one; the same for all elements of a row.
_REDUCTIONS = {
    "sum": ("0.0", "{} + {}", "tl.sum({}, axis=0)"),
    "max": ('-float("inf")', "larger({}, {})", "tl.reduce({}, 0, larger)"),
    "min": ('float("inf")', "smaller({}, {})", "tl.reduce({}, 0, smaller)"),
}
LONGEST = 8192  # elements of a row that one program holds in registers; it passes over longer ones in blocks
_PARTS = 1024  # programs at most, if they add up columns: each has a partial sum
_BLOCK = 1024  # elements of a program, if there are no rows; of a block of a long row twice that
HEADER = """import triton
import triton.language as tl

from mytorch.nn.fused_ops.triton.activations import tanh32
from mytorch.nn.fused_ops.triton.functions import copysign32, expm132, larger, log1p32, smaller


"""


def source(loop: Loop, n: int, name: str = "loop") -> str:
    """Returns the Triton source of a loop over rows of n; see HEADER."""
    return _Flat(loop, name).text() if loop.is_flat else (_Long if n > LONGEST else _Short)(loop, name).text()


def launched(loop: Loop, *arrays: RawArray) -> None:
    """Computes a loop on a GPU.

    Args:
        arrays: the inputs and the outputs, flat and in C order; then `rows` and `n`.
    """
    from ...nn.fused_ops.triton.launch import launch
    from ...nn.fused_ops.triton.moments import column_sums
    from ...nn.fused_ops.triton.sizes import cdiv, next_power_of_2

    *arrays, rows, n = arrays
    kernel = _kernel(loop, n > LONGEST and not loop.is_flat)
    if loop.is_flat:
        launch(kernel, (cdiv(rows * n, _BLOCK),), *arrays, rows * n, BLOCK=_BLOCK, num_warps=4)
        return
    columns = [p for p, k in enumerate(loop.outputs) if loop.steps[k].kind == COLUMN]
    grid = min(rows, _PARTS) if columns and n <= LONGEST else rows
    given, count = [*arrays], len(loop.inputs)
    for p in columns:
        given[count + p] = np.empty((grid, n), np.float32, like=arrays[0])
    block = next_power_of_2(n) if n <= LONGEST else 2 * _BLOCK
    launch(kernel, (grid,), *given, rows, n, BLOCK=block, num_warps=min(16, max(1, block // 256)))
    for p in columns:
        arrays[count + p][...] = column_sums(given[count + p], np.dtype(np.float32))


def flat(x: RawArray, size: int) -> RawArray:
    """Returns the elements in C order.

    Raises:
        ValueError: the array has another size, for which the loop would read beyond its end.
    """
    if x.size != size:
        raise ValueError(f"a loop needs an array of {size} elements, got shape {x.shape}")
    return np.ascontiguousarray(x, like=x).reshape(-1)


@functools.cache
def _kernel(loop: Loop, is_long: bool) -> Callable:
    return module_of(HEADER + source(loop, LONGEST + is_long)).loop


class _Source:
    """The Triton source of a loop: what all forms share."""

    def __init__(self, loop: Loop, name: str):
        self.loop, self.name, self.steps = loop, name, loop.steps

    def function(self, parameters: Sequence[str], body: Sequence[str]) -> str:
        names = [f"x{k}_ptr" for k in range(len(self.loop.inputs))]
        names += [f"y{k}_ptr" for k in self.loop.outputs]
        head = f"def {self.name}({', '.join([*names, *parameters])}, BLOCK: tl.constexpr):"
        return "\n".join(["@triton.jit", head, *[f"    {line}" for line in body]])

    def loads(self, kinds: Sequence[str], used: Sequence[Step] | None = None) -> list[str]:
        """The lines that load inputs of some kinds: all, or those that are used."""
        places = {FULL: "at", COLUMN: "j", ROW: "i"}
        names = None if used is None else {a for step in used for a in step.args}
        lines = []
        for k, kind in enumerate(self.loop.inputs):
            if kind in kinds and (names is None or f"x{k}" in names):
                place = f" + {places[kind]}" if kind in places else ""
                mask = ", mask=inside" if kind in (FULL, COLUMN) else ""
                lines.append(f"x{k} = tl.load(x{k}_ptr{place}{mask})")
        return lines

    def line(self, k: int) -> str:
        """The line that computes a step."""
        step = self.steps[k]
        return f"v{k} = {EXPRESSIONS[step.name].format(*map(_name, step.args))}"

    def stores(self, k: int) -> list[str]:
        """The lines that store the result of a step, if it is stored."""
        if k not in self.loop.outputs:
            return []
        if self.steps[k].kind == FULL:
            return [f"tl.store(y{k}_ptr + at, v{k}, mask=inside)"]
        return [f"tl.store(y{k}_ptr + i, v{k})"]


class _Flat(_Source):
    """A program computes a block of elements."""

    def text(self) -> str:
        body = ["at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)", "inside = at < n"]
        body += self.loads((FULL, SCALAR))
        for k in range(len(self.steps)):
            body += [self.line(k), *self.stores(k)]
        return self.function(["n"], body)


class _Short(_Source):
    """A program computes whole rows, which it holds in registers: one, or several with sums of columns."""

    def text(self) -> str:
        columns = [k for k, step in enumerate(self.steps) if step.kind == COLUMN]
        row = ["at = tl.cast(i, tl.int64) * n + j", *self.loads((FULL, ROW))]
        for k, step in enumerate(self.steps):
            row += self._step(k, step)
        body = ["j = tl.arange(0, BLOCK)", "inside = j < n", *self.loads((COLUMN, SCALAR))]
        body += [f"p{k} = tl.zeros((BLOCK,), tl.float32)" for k in columns]
        if columns:
            body += ["for i in range(tl.program_id(0), rows, tl.num_programs(0)):"]
            body += [f"    {line}" for line in row]
        else:
            body += ["i = tl.program_id(0)", *row]
        place = "tl.program_id(0).to(tl.int64) * n + j"
        body += [f"tl.store(y{k}_ptr + {place}, p{k}, mask=inside)" for k in columns]
        return self.function(["rows", "n"], body)

    def _step(self, k: int, step: Step) -> list[str]:
        if step.kind == COLUMN:
            return [f"p{k} += {step.args[0]}"]
        if not step.reduces_rows:
            return [self.line(k), *self.stores(k)]
        _, _, whole = _reduction(step)
        return [f"v{k} = {whole.format(_element(step))}", *self.stores(k)]


class _Long(_Source):
    """A program passes over a row in blocks, once for each reduction that depends on another."""

    def text(self) -> str:
        body = ["i = tl.program_id(0)", *self.loads((ROW, SCALAR))]
        for stage in range(max(self.loop.stages, default=0) + 1):
            for k, step in enumerate(self.steps):
                if step.kind == ROW and self.loop.stages[k] == stage and not step.reduces_rows:
                    body += [self.line(k), *self.stores(k)]
            body += self._pass(stage)
        return self.function(["rows", "n"], body)

    def _pass(self, stage: int) -> list[str]:
        """The loop over the blocks of a row for what is stored or reduced in a stage."""
        stages = self.loop.stages
        reduced = [k for k, step in enumerate(self.steps) if step.reduces_rows and stages[k] == stage + 1]
        columns = [k for k, step in enumerate(self.steps) if step.kind == COLUMN and stages[k] == stage]
        stored = [k for k in self.loop.outputs if self.steps[k].kind == FULL and stages[k] == stage]
        needed = self._needed([*stored, *[a for k in (*reduced, *columns) for a in self.steps[k].steps()]])
        if not (reduced or columns or stored):
            return []
        inner = ["j = start + tl.arange(0, BLOCK)", "inside = j < n", "at = tl.cast(i, tl.int64) * n + j"]
        inner += self.loads((FULL, COLUMN), [self.steps[k] for k in (*needed, *reduced, *columns)])
        inner += [self.line(k) for k in needed]
        inner += [line for k in stored for line in self.stores(k)]
        inner += [f"tl.store(y{k}_ptr + at, {self.steps[k].args[0]}, mask=inside)" for k in columns]
        before, after = [], []
        for k in reduced:
            start, combined, whole = _reduction(self.steps[k])
            before.append(f"b{k} = tl.full((BLOCK,), {start}, tl.float32)")
            inner.append(f"b{k} = {combined.format(f'b{k}', _element(self.steps[k]))}")
            after += [f"v{k} = {whole.format(f'b{k}')}", *self.stores(k)]
        return [*before, "for start in range(0, n, BLOCK):", *[f"    {line}" for line in inner], *after]

    def _needed(self, wanted: Sequence[int]) -> list[int]:
        """The steps of elements that others depend on, in order: each pass computes them again."""
        found, todo = set(), [*wanted]
        while todo:
            k = todo.pop()
            if k not in found and self.steps[k].kind == FULL:
                found.add(k)
                todo += self.steps[k].steps()
        return sorted(found)


def _reduction(step: Step) -> tuple[str, str, str]:
    return _REDUCTIONS["sum" if step.name == "take" else step.name]


def _element(step: Step) -> str:
    """What a reduction takes of each element, also of those beyond the end of the row."""
    if step.name == "take":
        element, index = step.args
        return f"tl.where(j == tl.where({index} < 0, {index} + n, {index}), {element}, 0.0)"
    return f"tl.where(inside, {step.args[0]}, {_reduction(step)[0]})"


def _name(a: str | float) -> str:
    if isinstance(a, str):
        return a
    number = float(np.float32(a))
    return repr(number) if np.isfinite(number) else f'float("{number}")'
