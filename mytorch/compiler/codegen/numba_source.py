"""Loops as Numba source, in several strategies."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .loop import COLUMN, EXPRESSIONS, FULL, REDUCTIONS, ROW, SCALAR, Loop, Step
from .source_files import module_of

SMALL = 1 << 14  # elements of arrays that one thread works on
_EXPRESSIONS = EXPRESSIONS | {"one_plus_tanh": "one_plus_tanh32({})"}
_BLOCK = 4096  # elements that are summed in float32, or that a thread takes at a time
# Of the rows; a thread takes one part at a time, and sums columns in it: in a megabyte, or in few parts.
_PARTS, _FEW_PARTS, _MEGABYTE = 64, 16, 1 << 18
_COSTS = {
    "exp": 20, "tanh": 20, "log": 20, "log1p": 20, "expm1": 20, "sin": 20, "cos": 20, "divide": 5, "sqrt": 5,
    "one_plus_tanh": 20,
}  # fmt: skip
_CHEAP = 10  # what costs more is kept for a later pass, and not computed again in it
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
        bits: of vector registers, 512 or what LLVM takes, 0.
        keeps: whether costly elements are kept for later passes over a row, and not computed again.
    """

    threads: int = 0
    bits: int = 512
    keeps: bool = True


DEFAULT = Strategy()


def source(loop: Loop, name: str = "loop", strategy: Strategy = DEFAULT) -> str:
    """Returns the Python source of the kernel, `loop(*inputs, *own outputs, rows, n)`; see HEADER."""
    return _Source(loop, name, strategy).text()


def loaded(loop: Loop, strategy: Strategy = DEFAULT) -> Callable:
    """Returns the compiled loop."""
    kernel = module_of(HEADER + source(loop, strategy=strategy)).loop
    return kernel.serial() if strategy.threads == 1 else kernel


def _simplified(loop: Loop) -> tuple[Step, ...]:
    """Returns the steps with `1 + tanh(x)`, as GELU has it, in one, which is less work than tanh alone."""
    uses = Counter([k for step in loop.steps for k in step.steps()]) + Counter(loop.outputs)
    steps = [*loop.steps]
    for k, step in enumerate(steps):
        others = [steps[j] for j in step.steps() if uses[j] == 1 and step.name == "add" and 1.0 in step.args]
        if others and others[0].name == "tanh" and others[0].kind == step.kind == FULL:
            steps[k] = step._replace(name="one_plus_tanh", args=others[0].args)
    return tuple(steps)


class _Source:
    """The Numba source of a loop: a routine for a row, or a part of a flat loop, and the kernel.

    Slices of the arrays are the routine's arguments: for indices from 0 LLVM makes vector instructions.
    """

    def __init__(self, loop: Loop, name: str, strategy: Strategy):
        self.loop, self.name, self.strategy = loop, name, strategy
        self.steps, self.stages = _simplified(loop), loop.stages
        self.columns = [k for k, step in enumerate(self.steps) if step.kind == COLUMN]
        self.places = {k: f"y{k}" for k in loop.outputs if self.steps[k].kind == FULL}
        self.places |= {k: f"x{x}" for k, x in loop.places}
        self.kept: list[int] = []  # elements for later passes, in memory of their own
        self._keep()

    def text(self) -> str:
        """Returns both functions."""
        body = ["wide_registers()"] if self.strategy.bits == 512 else []
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
        few = f"(rows + 7) // 8, max({_FEW_PARTS}, {_MEGABYTE} // n)"
        lines += [f"parts = min({few if self.columns else 'rows'}, {_PARTS})"]
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
                if self.strategy.keeps and earlier and costs[k] > _CHEAP and k not in self.places:
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
        return _EXPRESSIONS[step.name].format(*map(self._name, step.args))

    def _name(self, a: str | float) -> str:
        if not isinstance(a, str):
            number = float(np.float32(a))
            sign = "-" if number < 0 else ""
            return f"np.float32({number!r})" if np.isfinite(number) else f"np.float32({sign}np.{abs(number)})"
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
