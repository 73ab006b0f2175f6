"""Prints loops as Triton source, and launches them on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ...backends.device import RawArray
from .loop import COLUMN, EXPRESSIONS, FULL, ROW, SCALAR, Loop
from .loop_printer import LoopPrinter, Sweep, indented
from .source_files import module_of

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
    return (InRegisters if loop.is_flat or n <= LONGEST else InBlocks)(loop, name).text()


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
    pointers, count = [*arrays], len(loop.inputs)
    for p in columns:
        pointers[count + p] = np.empty((grid, n), np.float32, like=arrays[0])
    block = next_power_of_2(n) if n <= LONGEST else 2 * _BLOCK
    launch(kernel, (grid,), *pointers, rows, n, BLOCK=block, num_warps=min(16, max(1, block // 256)))
    for p in columns:
        arrays[count + p][...] = column_sums(pointers[count + p], np.dtype(np.float32))


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


class TritonPrinter(LoopPrinter):
    """Prints a kernel, whose programs compute a row, or several, or a block of a flat loop."""

    expressions = {name: text for name, (_, text) in EXPRESSIONS.items()}

    def __init__(self, loop: Loop, name: str):
        super().__init__(loop, name, loop.steps)

    def function(self, parameters: Sequence[str], body: Sequence[str]) -> str:
        names = [f"x{k}_ptr" for k in range(len(self.loop.inputs))]
        names += [f"y{k}_ptr" for k in self.loop.outputs]
        head = f"def {self.name}({', '.join([*names, *parameters])}, BLOCK: tl.constexpr):"
        return "\n".join(["@triton.jit", head, *indented(body)])

    def loads(self, kinds: Sequence[str], used: Sequence[int] | None = None) -> list[str]:
        """Returns the lines that load inputs of some kinds: all, or those that some steps use."""
        places = {FULL: " + at, mask=inside", COLUMN: " + j, mask=inside", ROW: " + i", SCALAR: ""}
        names = None if used is None else {a for k in used for a in self.steps[k].args}
        return [
            f"x{k} = tl.load(x{k}_ptr{places[kind]})" for k, kind in enumerate(self.loop.inputs)
            if kind in kinds and (names is None or f"x{k}" in names)
        ]

    def row(self, k: int) -> list[str]:
        return [self.line(k), *self.store(k)]

    def store(self, k: int) -> list[str]:
        """Returns the lines that store the result of a step, if it is stored."""
        at = "at, v{k}, mask=inside" if self.steps[k].kind == FULL else "i, v{k}"
        return [f"tl.store(y{k}_ptr + {at.format(k=k)})"] if k in self.loop.outputs else []

    def reduction(self, k: int) -> tuple[str, str, str, str]:
        """Returns the element that a reduction takes, also beyond the end of the row, and its REDUCTIONS."""
        step = self.steps[k]
        start, *rest = _REDUCTIONS["sum" if step.name == "take" else step.name]
        element = f"tl.where(inside, {step.args[0]}, {start})"
        if step.name == "take":
            x, index = step.args
            element = f"tl.where(j == tl.where({index} < 0, {index} + n, {index}), {x}, 0.0)"
        return element, start, *rest

    def operand(self, a: str | float) -> str:
        if isinstance(a, str):
            return a
        number = float(np.float32(a))
        return repr(number) if np.isfinite(number) else f'float("{number}")'


class InRegisters(TritonPrinter):
    """A program holds whole rows, or a block of a loop without rows, in registers."""

    def __init__(self, loop: Loop, name: str):
        super().__init__(loop, name)
        self.held = [k for k, step in enumerate(self.steps) if step.kind == FULL]

    def text(self) -> str:
        if self.loop.is_flat:
            at = ["at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)", "inside = at < n"]
            return self.function(["n"], [*at, *self.loads((FULL, SCALAR)), *self.body()])
        columns = [k for k, step in enumerate(self.steps) if step.kind == COLUMN]
        part = "tl.program_id(0).to(tl.int64) * n + j"
        row = ["at = tl.cast(i, tl.int64) * n + j", *self.loads((FULL, ROW)), *self.body()]
        if columns:  # a program has several rows, one after another
            row = ["for i in range(tl.program_id(0), rows, tl.num_programs(0)):", *indented(row)]
        else:
            row = ["i = tl.program_id(0)", *row]
        return self.function(["rows", "n"], [
            "j = tl.arange(0, BLOCK)", "inside = j < n", *self.loads((COLUMN, SCALAR)),
            *[f"p{k} = tl.zeros((BLOCK,), tl.float32)" for k in columns], *row,
            *[f"tl.store(y{k}_ptr + {part}, p{k}, mask=inside)" for k in columns],
        ])

    def sweep(self, sweep: Sweep) -> list[str]:
        lines = [line for k in sweep.computed for line in (self.line(k), *self.store(k))]
        lines += [f"p{k} += {self.steps[k].args[0]}" for k in sweep.columns]
        for k in sweep.reduced:
            element, _, _, whole = self.reduction(k)
            lines += [f"v{k} = {whole.format(element)}", *self.store(k)]
        return lines


class InBlocks(TritonPrinter):
    """A program sweeps over a long row in blocks, and computes in each sweep what it needs again."""

    def text(self) -> str:
        body = ["i = tl.program_id(0)", *self.loads((ROW, SCALAR)), *self.body()]
        return self.function(["rows", "n"], body)

    def sweep(self, sweep: Sweep) -> list[str]:
        lines = ["j = start + tl.arange(0, BLOCK)", "inside = j < n", "at = tl.cast(i, tl.int64) * n + j"]
        lines += self.loads((FULL, COLUMN), [*sweep.computed, *sweep.reduced, *sweep.columns])
        lines += [*map(self.line, sweep.computed), *[line for k in sweep.stored for line in self.store(k)]]
        lines += [f"tl.store(y{k}_ptr + at, {self.steps[k].args[0]}, mask=inside)" for k in sweep.columns]
        before, after = [], []
        for k in sweep.reduced:
            element, start, combined, whole = self.reduction(k)
            before.append(f"b{k} = tl.full((BLOCK,), {start}, tl.float32)")
            lines.append(f"b{k} = {combined.format(f'b{k}', element)}")
            after += [f"v{k} = {whole.format(f'b{k}')}", *self.store(k)]
        return [*before, "for start in range(0, n, BLOCK):", *indented(lines), *after]
