"""Prints loops as Numba source, in several strategies."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .loop import COLUMN, EXPRESSIONS, FULL, REDUCTIONS, ROW, SCALAR, Loop, Step
from .loop_printer import LoopPrinter, Sweep, indented
from .source_files import module_of

SMALL = 1 << 14  # elements of arrays that one thread works on
# For each reduction: the start, and how an element is added.
_REDUCTIONS = {
    "sum": ("0.0", "p{k} = p{k} + {x}"), "max": ("-INF", "v{k} = maximum32(v{k}, {x})"),
    "min": ("INF", "v{k} = minimum32(v{k}, {x})"),
}
_FEW_PARTS, _MEGABYTE = 16, 1 << 18  # parts of the rows, with a sum of columns each: few, or in a megabyte
_COSTS = {
    "exp": 20, "tanh": 20, "log": 20, "log1p": 20, "expm1": 20, "sin": 20, "cos": 20, "divide": 5, "sqrt": 5,
    "one_plus_tanh": 20,
}
_CHEAP = 10  # elements that cost more are kept for a later sweep, and not computed again in it
_MATH = Path(__file__).with_name("loop_math.py")
# Numba's cache knows the sources beside a loop, so that its name depends on this one.
HEADER = f"""# {hashlib.sha256(_MATH.read_bytes()).hexdigest()[:16]}
import math

import numpy as np

from mytorch.backends.jit import kernel, prange, routine
from mytorch.nn.fused_ops.numba.approximations import INF, ONE, ZERO, wide_registers
from mytorch.nn.fused_ops.numba.in_order import minus, over, plus, times
from mytorch.nn.fused_ops.numba.maximum import maximum32, minimum32
from mytorch.nn.fused_ops.numba.moments import add
from mytorch.compiler.codegen.loop_math import exp32, expm1_32, log1p32, log32, one_plus_tanh32, tanh32


"""


class Strategy(NamedTuple):
    """How a loop runs; results are the same but for the order of sums.

    Attributes:
        threads: 1, or 0 for all.
        bits: of vector registers, 512 or what LLVM takes, 0; LLVM also decides how far it unrolls.
        keeps: whether costly elements are kept for later sweeps over a row, and not computed again.
        block: how many elements are summed in float32, or, of a loop without rows, taken by a thread at once.
        parts: into how many the rows are split; a thread takes one at a time.
    """

    threads: int = 0
    bits: int = 512
    keeps: bool = True
    block: int = 4096
    parts: int = 64

    def changes(self, usual: Strategy) -> str:
        """Returns in what it differs from the usual strategy, as "bits=0"."""
        changes = [f"{name}={x}" for name, x in self._asdict().items() if x != getattr(usual, name)]
        return " ".join(changes) or "as usual"


DEFAULT = Strategy()


def usual(elements: int) -> Strategy:
    """Returns the strategy of a loop that wasn't measured: one thread for few elements, which saves some
    microseconds."""
    return Strategy(threads=int(elements < SMALL))


def candidates(loop: Loop, elements: int, pool: int) -> list[Strategy]:
    """Returns the strategies that make a difference for a loop, at most 4, the usual one first.

    Args:
        pool: the number of threads.
    """
    first = usual(elements)
    changes = [{}, {"bits": 0}, {"keeps": False}, {"threads": 1 - first.threads} if pool > 1 else {}]
    found: dict[tuple[str, int], Strategy] = {}
    for strategy in [first._replace(**change) for change in changes]:
        found.setdefault((source(loop, strategy=strategy), strategy.threads), strategy)
    return [*found.values()]


def source(loop: Loop, name: str = "loop", strategy: Strategy = DEFAULT) -> str:
    """Returns the Python source of the kernel, `loop(*inputs, *own outputs, rows, n)`; see HEADER."""
    return NumbaPrinter(loop, name, strategy).text()


def loaded(loop: Loop, strategy: Strategy = DEFAULT) -> Callable:
    """Returns the compiled loop."""
    kernel = module_of(HEADER + source(loop, strategy=strategy)).loop
    return kernel.serial() if strategy.threads == 1 else kernel


def _simplified(loop: Loop) -> list[Step]:
    """Returns the steps with `1 + tanh(x)`, as GELU has it, in one, which is less work than tanh alone."""
    uses = Counter([k for step in loop.steps for k in step.steps()]) + Counter(loop.outputs)
    steps = [*loop.steps]
    for k, step in enumerate(steps):
        if step.name == "add" and step.kind == FULL and 1.0 in step.args:
            for tanh in [steps[j] for j in step.steps() if uses[j] == 1]:
                if (tanh.name, tanh.kind) == ("tanh", FULL):
                    steps[k] = step._replace(name="one_plus_tanh", args=tanh.args)
    return steps


def _costs_of(steps: Sequence[Step]) -> list[int]:
    """Returns what an element of each step costs, with those that it is computed of."""
    costs: list[int] = []
    for step in steps:
        costs.append(_COSTS.get(step.name, 1) + sum([costs[k] for k in step.steps()]))
    return costs


class NumbaPrinter(LoopPrinter):
    """Prints a routine for a row, or for a part of a flat loop, and the kernel, which calls it.

    Slices of the arrays are the routine's arguments: for indices from 0 LLVM makes vector instructions.

    Attributes:
        held: the array in which the elements of a step are stored.
        kept: elements for later sweeps, in memory of their own.
    """

    expressions = {name: text for name, (text, _) in EXPRESSIONS.items()}
    expressions |= {"one_plus_tanh": "one_plus_tanh32({})"}

    def __init__(self, loop: Loop, name: str, strategy: Strategy):
        super().__init__(loop, name, _simplified(loop))
        self.strategy = strategy
        self.columns = [k for k, step in enumerate(self.steps) if step.kind == COLUMN]
        self.held = {k: f"y{k}" for k in loop.outputs if self.steps[k].kind == FULL}
        self.held |= {k: f"x{x}" for k, x in loop.places}
        self.kept: list[int] = []
        if strategy.keeps:
            self._keep()
        self._suffix = ""  # "b" in a sweep in blocks, in which x0b is a block of x0
        self._in_blocks: set[str] = set()  # the arrays of which a sweep takes elements

    def text(self) -> str:
        """Returns both functions."""
        passed = [(f"x{k}", _slice(f"x{k}", kind)) for k, kind in enumerate(self.loop.inputs)]
        names = [*[name for name, _ in passed], *[f"y{k}" for k in self.loop.own]]
        own = [k for k in self.loop.own if k not in self.columns]
        passed += [(f"y{k}", _slice(f"y{k}", FULL) if self.steps[k].kind == FULL else f"y{k}") for k in own]
        passed += [(f"p{k}", f"p{k}[part]") for k in self.columns]
        passed += [*[(f"t{k}", f"t{k}") for k in self.kept], ("i", "i"), ("n", "last - first")]
        params, args = [", ".join(texts) for texts in zip(*passed, strict=True)]
        body = ["wide_registers()"] * (self.strategy.bits == 512) + self.body()
        call = f"{self.name}_row({args})"
        return "\n".join([
            "@routine", f"def {self.name}_row({params}):", *indented(body), "", "",
            "@kernel", f"def {self.name}({', '.join(names)}, rows, n):",
            *indented(self._flat(call) if self.loop.is_flat else self._rows(call)),
        ])

    def _flat(self, call: str) -> list[str]:
        block = self.strategy.block
        return [
            "n *= rows",
            f"for i in prange((n + {block - 1}) // {block}):",
            f"    first, last = {block} * i, min(n, {block} * i + {block})",
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
        few = f"(rows + 7) // 8, max({_FEW_PARTS}, {_MEGABYTE} // n)"
        lines += [f"parts = min({few if self.columns else 'rows'}, {self.strategy.parts})"]
        lines += [f"p{k} = np.zeros((parts, n), np.float32)" for k in self.columns]
        lines += ["for part in prange(parts):"]
        dtypes = {"bool": "bool_", "float32": "float32"}
        lines += [f"    t{k} = np.empty(n, np.{dtypes[self.steps[k].dtype]})" for k in self.kept]
        lines += [
            "    for i in range(rows * part // parts, rows * (part + 1) // parts):",
            "        first, last = i * n, i * n + n",
            f"        {call}",
        ]
        for k in self.columns:
            lines += [f"y{k}[:] = ZERO", "for part in range(parts):", f"    add(y{k}, p{k}[part], y{k})"]
        return lines

    def _keep(self) -> None:
        """Keeps costly elements for later sweeps: in the memory of an output that is stored later, or in
        memory of their own."""
        costs = _costs_of(self.steps)
        free = [k for k in self.loop.outputs if self.steps[k].kind == FULL]
        for stage in reversed(range(len(self.sweeps()))):
            while costly := [
                k for k in self.sweeps()[stage].computed
                if self.loop.stages[k] < stage and costs[k] > _CHEAP
            ]:
                k = costly[-1]
                later = [y for y in free if self.loop.stages[y] >= stage and self._have_same_dtype(k, y)]
                self.held[k] = f"y{later[0]}" if later else f"t{k}"
                if later:
                    free.remove(later[0])
                else:
                    self.kept.append(k)

    def _have_same_dtype(self, k: int, other: int) -> bool:
        return self.steps[k].dtype == self.steps[other].dtype

    def is_reduced(self, step: Step) -> bool:
        return step.name in REDUCTIONS and step.kind == ROW

    def row(self, k: int) -> list[str]:
        step, lines = self.steps[k], []
        if step.name == "take":
            loaded, computed = self.elements(step.steps(), self.loop.stages[k])
            lines = [f"j = {step.args[1]}", "j += n if j < 0 else 0", *self._elements(loaded, computed)]
            lines.append(f"v{k} = {self.operand(step.args[0])}")
        else:
            lines = [self.line(k)]
        return lines + self._store_of_row(k)

    def _store_of_row(self, k: int) -> list[str]:
        return [f"y{k}[i] = v{k}"] if k in self.loop.outputs else []

    def sweep(self, sweep: Sweep) -> list[str]:
        sums = [k for k in sweep.reduced if self.steps[k].name == "sum"]
        self._suffix, self._in_blocks = "b" if sums else "", set()
        lines = self._elements(sweep.loaded, sweep.computed)
        lines += [f"{self._element(self.held[k])} = v{k}" for k in sweep.stored]
        lines += [f"{self._element(f'p{k}')} += {self.operand(self.steps[k].args[0])}" for k in sweep.columns]
        starts, after = [], []
        for k in sweep.reduced:
            start, added = _REDUCTIONS[self.steps[k].name]
            lines.append(added.format(k=k, x=self.operand(self.steps[k].args[0])))
            starts.append(f"v{k} = {start}")
            after += self._store_of_row(k)
        whole = self._blocks(lines, sums) if sums else ["for j in range(n):", *indented(lines)]
        self._suffix = ""
        return [*starts, *whole, *after]

    def _blocks(self, lines: list[str], sums: Sequence[int]) -> list[str]:
        """Returns a sweep in blocks, whose sums are added in float64."""
        used, block = sorted(self._in_blocks), self.strategy.block
        size = f"{used[0]}b.size" if used else f"min({block}, n - start)"
        return [
            f"for start in range(0, n, {block}):",
            *[f"    {name}b = {name}[start : start + {block}]" for name in used],
            *[f"    p{k} = ZERO" for k in sums],
            f"    for j in range({size}):",
            *indented(indented(lines)),
            *[f"    v{k} += p{k}" for k in sums],
            *[f"v{k} = np.float32(v{k})" for k in sums],
        ]

    def _elements(self, loaded: Iterable[int], computed: Iterable[int]) -> list[str]:
        return [f"v{k} = {self._element(self.held[k])}" for k in loaded] + [*map(self.line, computed)]

    def _element(self, array: str) -> str:
        self._in_blocks.add(array)
        return f"{array}{self._suffix}[j]"

    def operand(self, a: str | float) -> str:
        if isinstance(a, str):
            is_array = a[0] == "x" and self.loop.inputs[int(a[1:])] in (FULL, COLUMN)
            return self._element(a) if is_array else a
        number = float(np.float32(a))
        sign = "-" if number < 0 else ""
        return f"np.float32({number!r})" if np.isfinite(number) else f"np.float32({sign}np.{abs(number)})"


def _slice(name: str, kind: str) -> str:
    """Returns the source of what a row has of an array."""
    return {FULL: f"{name}[first:last]", ROW: f"{name}[i]", COLUMN: name, SCALAR: f"{name}[0]"}[kind]
