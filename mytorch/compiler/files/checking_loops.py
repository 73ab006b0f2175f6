"""Checks loops that come from a file: each step is run on meta arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from ...backends.meta.array import MetaArray
from ...utils.reading import is_count
from ..codegen.loop import COLUMN, EXPRESSIONS, FULL, REDUCTIONS, ROW, SCALAR, Loop, Step
from ..program.instruction import Instruction, Value
from ..program.rules import rule_of

_broadcast = rule_of("broadcast_to")


def check_loop(i: Instruction, arrays: Sequence[MetaArray]) -> None:
    """Raises ValueError, or whatever the rules of meta arrays raise, for a loop that can't be.

    Args:
        arrays: those that it takes.
    """
    rows, n, loop = i.kwargs["rows"], i.kwargs["n"], i.kwargs["loop"]
    if len(i.kwargs) != 3 or not isinstance(loop, Loop) or not i.args:
        raise ValueError(f"a loop has inputs, rows, n and the loop, got {list(i.kwargs)}")
    if not (is_count(rows, 1) and is_count(n, 1)):
        raise ValueError(f"a loop is over {rows!r} rows of {n!r}")
    _check_inputs(loop, i.args)
    steps = _Steps(loop, rows, n, arrays)
    for number, step in enumerate(loop.steps):
        steps.add(number, step)
    columns = {k for k, step in enumerate(loop.steps) if step.kind == COLUMN}
    if list(loop.outputs) != sorted({*loop.outputs} | columns):
        raise ValueError(f"the outputs of a loop are in order, with all columns, got {loop.outputs}")
    for number, value in zip(loop.outputs, i.outputs, strict=True):
        steps.check_output(number, value)


def _check_inputs(loop: Loop, given: Sequence[Value]) -> None:
    """Raises ValueError unless loops are compiled for these dtypes: float32, bool, int64 of indices."""
    indices = {step.args[1] for step in loop.steps if step.name == "take"}
    others = {a for step in loop.steps for a in (step.args[:1] if step.name == "take" else step.args)}
    for k, x in enumerate(given):
        allowed = ("int64",) if f"x{k}" in indices - others else ("float32", "bool")
        if x.dtype not in allowed:
            raise ValueError(f"a loop takes no {x.described()} as x{k}, only {' and '.join(allowed)}")


class _Steps:
    """The inputs and steps of a loop so far, as meta arrays of shape (rows, n), (rows, 1), (n,) or ()."""

    def __init__(self, loop: Loop, rows: int, n: int, arrays: Sequence[MetaArray]):
        self._shapes = {FULL: (rows, n), ROW: (rows, 1), COLUMN: (n,), SCALAR: ()}
        self._kinds = {f"x{k}": kind for k, kind in enumerate(loop.inputs)}
        self._kinds |= {f"v{k}": step.kind for k, step in enumerate(loop.steps)}
        given = enumerate(zip(arrays, loop.inputs, strict=True))
        self._values = {f"x{k}": x.reshape(self._shapes[kind]) for k, (x, kind) in given}

    def add(self, number: int, step: Step) -> None:
        if step.name in REDUCTIONS:
            y = self._reduced(step)
        elif step.name == "take":
            y = self._taken(step)
        elif step.name in EXPRESSIONS:
            y = self._elementwise(step)
        else:
            raise ValueError(f"no step of a loop is named {step.name!r}")
        self._values[f"v{number}"] = y = self._spread(y) if step.kind == FULL else y
        if str(y.dtype) != step.dtype:
            raise ValueError(f"step {number}, {step.name}, doesn't give {step.dtype} for each {step.kind}")

    def check_output(self, number: int, value: Value) -> None:
        """Raises ValueError unless a value can be the result of a step."""
        if not value.is_c_order:
            raise ValueError(f"{value.described()} has strides {value.strides}, not those of C order")
        y = self._values[f"v{number}"]
        size = math.prod(self._shapes[self._kinds[f"v{number}"]])
        if value.of is not None or (value.size, value.dtype) != (size, y.dtype):
            raise ValueError(f"{value.described()} isn't what step {number} gives, {size} of {y.dtype}")

    def _reduced(self, step: Step) -> MetaArray:
        (x,), is_row = self._operands(step, 1), step.kind == ROW
        if not isinstance(x, MetaArray) or not (is_row or (step.kind == COLUMN and step.name == "sum")):
            _refuse(step)
        return rule_of(step.name)(self._spread(x), axis=int(is_row), keepdims=is_row)

    def _taken(self, step: Step) -> MetaArray:
        x, index = self._operands(step, 2)
        kinds = [self._kinds.get(a) for a in step.args]
        if kinds != [FULL, ROW] or step.kind != ROW or step.args[1][0] != "x" or index.dtype.kind != "i":
            _refuse(step)
        return rule_of("take_along_axis")(x, index, axis=1)

    def _elementwise(self, step: Step) -> MetaArray:
        count = {"where": 3, ".copy": 1}.get(step.name) or getattr(np, step.name).nin
        operands = self._operands(step, count)
        kinds = {self._kinds[a] for a in step.args if isinstance(a, str)}
        if step.kind != FULL and not (step.kind == ROW and kinds <= {ROW, SCALAR}):
            _refuse(step)
        return rule_of(step.name)(*operands)

    def _operands(self, step: Step, count: int) -> list:
        """Returns the arguments of a step, none of which is a sum of columns: these are known at the end."""
        arrays = [a for a in step.args if isinstance(a, str)]
        if len(step.args) != count or any([a[0] == "v" and self._kinds[a] == COLUMN for a in arrays]):
            _refuse(step)
        return [self._values[a] if isinstance(a, str) else np.float32(a) for a in step.args]

    def _spread(self, x: MetaArray) -> MetaArray:
        return _broadcast(x, self._shapes[FULL])


def _refuse(step: Step) -> NoReturn:
    raise ValueError(f"{step.name} of {step.args} isn't for each {step.kind}")
