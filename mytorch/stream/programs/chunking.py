"""Runs programs part by part of the batch, so that they need less memory: see `Program.chunked`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...backends.device import RawArray
from ...core.op import as_raw
from ...core.tensor import Tensor, from_raw, raw_of
from .cutting import scaled
from .memory import size_text
from .plan import Plan
from .program import Program, Value, fits, mapped
from .stage import Stage

_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Chunked:
    """A program that runs part by part of the batch.

    Instructions that treat the rows of the batch by themselves run in loops over parts of it; sums over the
    batch are added up. The others run between the loops, on whole arrays, which the loops store. A later loop
    computes again what an earlier one had computed and didn't store.

    Args:
        program: its first input's first dim is the batch, and that of all inputs of this length.
        memory: the limit of `peak`: bytes, or text as "500MB".

    Attributes:
        rows: of a part.
        peak: the bytes that the program makes, at the most at a time; inputs and state aren't among them.

    Raises:
        ValueError: even a row at a time needs more memory, or the program writes to its inputs.
    """

    def __init__(self, program: Program, memory: int | str):
        limit = _bytes_of(memory)
        self._plan = plan = Plan(program)
        self.name, self.inputs = program.name, program.inputs
        self._whole = program.optimized()
        self.rows, self.peak = plan.rows, self._whole.memory().peak
        if self.peak <= limit:
            return
        self._whole, smallest = None, plan.peak(1)
        if smallest > limit:
            least = size_text(smallest)
            raise ValueError(f"{self.name}: a row at a time needs {least}, the limit is {memory}")
        low, high = 1, plan.rows + 1  # binary search: `low` rows fit, `high` don't
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if plan.peak(middle) <= limit else (low, middle)
        parts = -(-plan.rows // low)
        self.rows = -(-plan.rows // parts)
        self.peak = plan.peak(self.rows)

    def __str__(self) -> str:
        plan = self._plan
        if self._whole is not None:
            return str(self._whole)
        lines = [f"{self.name}: parts of {self.rows} of {plan.rows} rows, peak {size_text(self.peak)}"]
        for stage in plan.stages:
            lines += ["for each part:"] * stage.is_loop + [str(stage.program(self.rows))]
        return "\n".join(lines)

    def __call__(self, *tensors: Tensor | RawArray) -> Any:
        """Runs the program; arguments and results are those of `Program.__call__`. Inputs may be memory maps:
        of what is cut, a part is read at a time."""
        raws = [np.asarray(raw_of(x)) for x in tensors]
        if self._whole is not None:
            return self._whole(*raws)
        if len(raws) != len(self.inputs) or not all(map(fits, raws, self.inputs)):
            wanted = ", ".join(value.described() for value in self.inputs)
            given = ", ".join(f"{x.dtype}{list(x.shape)}" for x in raws)
            raise ValueError(f"{self.name}: expected {wanted}, got {given}")
        return run_parts(self._plan, raws, self.rows, self._plan.rows)


def run_parts(plan: Plan, raws: list[RawArray], now: int, rows: int) -> Any:
    """Returns what a program returns, computed in parts.

    Args:
        now: the rows of a part.
        rows: all rows; another number than those of the program if it `is_rowwise`.

    Raises:
        ValueError: it writes to state that shares memory with an input.
    """
    known = dict(zip(plan.program.inputs, raws, strict=True)) | plan.program.constants
    for value, raw in plan.program.state.items():
        owner = plan.program.owners.get(value, lambda: None)()
        known[value] = raw if owner is None else owner._data._array
    written = [known[x] for x in plan.changed if x in plan.program.state]
    if any([np.may_share_memory(a, b) for a in written for b in raws]):
        raise ValueError(f"{plan.program.name}: it writes to a tensor that shares memory with another")
    for stage in plan.stages:
        if stage.is_loop:
            _run_loop(plan, stage, known, now, rows)
        else:
            results = _called(stage.program(now), [known[x] for x, _ in stage.inputs])
            known |= dict(zip(stage.outputs, results, strict=True))
            del results
        for x in [x for x in known if x in plan.makers and plan.last.get(x, -1) <= stage.number]:
            del known[x]
    outputs = plan.program.outputs
    return mapped(lambda x: from_raw(as_raw(known[x])) if isinstance(x, Value) else x, outputs)


def _run_loop(plan: Plan, stage: Stage, known: dict[Value, RawArray], now: int, rows: int) -> None:
    for y, kind in stage.outputs.items():
        if isinstance(kind, int):
            known[y] = np.empty(scaled(y.shape, kind, plan.rows, rows), y.dtype)
    for start in range(0, rows, now):
        stop = min(start + now, rows)
        args = [_part(plan, x, known[x], dim, start, stop) for x, dim in stage.inputs]
        results = _called(stage.program(stop - start), args)
        for (y, kind), part in zip(stage.outputs.items(), results, strict=True):
            if isinstance(kind, int):
                _part(plan, y, known[y], kind, start, stop)[...] = part
            elif start:
                with np.errstate(all="ignore"):  # inf and NaN are values
                    getattr(np, kind)(known[y], part, out=known[y])
            else:
                known[y] = np.array(part)
        del args, results, part


def _part(plan: Plan, x: Value, raw: RawArray, dim: int | None, start: int, stop: int) -> RawArray:
    if dim is None:
        return raw
    unit = x.shape[dim] // plan.rows
    return raw[(slice(None),) * dim + (slice(start * unit, stop * unit),)]


def _called(program: Program, args: Iterable[RawArray]) -> tuple:
    run = program.executable()
    run.bind()
    return run(*args)


def _bytes_of(memory: int | str) -> float:
    """Returns the number of bytes that a text says: "500MB", "1.5 GiB"."""
    if isinstance(memory, int):
        return memory
    found = re.fullmatch(r"([0-9]+\.?[0-9]*) *([A-Za-z]+)", memory) if isinstance(memory, str) else None
    if found is None or found[2] not in _UNITS:
        units = ", ".join(_UNITS)
        raise ValueError(f'memory is a number of bytes, or text as "500MB" (of {units}), got {memory!r}')
    return float(found[1]) * _UNITS[found[2]]
