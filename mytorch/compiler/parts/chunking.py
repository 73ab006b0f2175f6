"""Runs programs part by part of the batch, so that they need less memory: see `Program.chunked`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...backends.device import CPU, RawArray
from ...core.op import as_raw
from ...core.overriding import overriding
from ...core.tensor import Tensor, from_raw, raw_of
from ...utils.nested import mapped
from ..memory.peak import Memory, size_text
from ..program.instruction import Value
from ..program.program import Program, check_inputs
from .crossing import PRICES
from .cutting import scaled
from .limits import bytes_of
from .plan import Plan, rows_of
from .stage import Stage

PARTS = 64  # the time of calling that many programs is small beside that of what they do


class Chunked:
    """A program that runs part by part of the batch.

    Instructions that treat the rows of the batch by themselves run in loops over parts of it; sums over the
    batch are added up. The others run between the loops, on whole arrays, which the loops store.

    What a later loop takes of an earlier one is stored, too, or computed again. Four plans are tried, and the
    first one that needs at most 64 parts is taken; if there is none, the one with the smallest peak:

    1. All that a later loop takes is stored: nothing is computed twice.
    2. Cheap chains of elementwise functions are computed again, from what is smaller; results of products,
       kernels (attention, convolutions) and sorts, and what is small, are stored.
    3. Products run again, too, where a narrower value before them can be stored.
    4. All is computed again, from the inputs and the whole arrays, if these aren't larger.

    In 2 to 4 it is a minimum cut of the graph: see `crossing`. What kernels save for their vjps can't be
    stored; these kernels run again in any case.

    A program that writes to its inputs, or, beside a loop, to an array through two views of it, isn't cut.

    Args:
        program: its first input's first dim is the batch, and that of all inputs of this length.
        memory: the limit of `peak`: bytes, or text as "500MB" or "1.5 GiB".

    Attributes:
        rows: of a part.
        peak: the bytes that the program makes, at the most at a time; inputs and state aren't among them.

    Raises:
        ValueError: even a row at a time needs more memory; the program needs more and can't be cut; or the
            limit is neither a positive number of bytes nor such a text.
        NotImplementedError: the program is on a GPU.
    """

    def __init__(self, program: Program, memory: int | str):
        limit = bytes_of(memory, "chunked")
        self.name, self.inputs = program.name, program.inputs
        self._whole = program.optimized()
        self.rows, self.peak = rows_of(program), self._whole.memory().peak
        if self.peak <= limit and program.device is CPU:
            return
        self._plan = plan = Plan(program)
        if not plan.cuts:
            needed = _described(self._whole.memory(), memory)
            raise ValueError(
                f"{self.name}: no instruction can be cut along the batch; the whole needs {needed}"
            )
        self._whole, rows = None, -(-plan.rows // PARTS)
        self._plan = plan = _chosen(plan, rows, limit)
        if plan.peak(1) > limit:
            needed = _described(max(plan.memories(1), key=lambda memory: memory.peak), memory)
            raise ValueError(f"{self.name}: a row at a time needs {needed}")
        low, high = 1, plan.rows + 1  # binary search: `low` rows fit, `high` don't
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if plan.peak(middle) <= limit else (low, middle)
        parts = -(-plan.rows // low)
        self.rows = -(-plan.rows // parts)
        self.peak = plan.peak(self.rows)

    def __str__(self) -> str:
        if self._whole is not None:
            return str(self._whole)
        plan = self._plan
        lines = [f"{self.name}: parts of {self.rows} of {plan.rows} rows, peak {size_text(self.peak)}"]
        for stage, alive in zip(plan.stages, plan.crossings(), strict=True):
            lines += ["for each part:"] * stage.is_loop + [str(stage.program(self.rows))]
            if alive and stage is not plan.stages[-1]:
                values = ", ".join([f"{x.described()} ({size_text(n)})" for x, n in alive.items()])
                lines.append(f"stored, {size_text(sum(alive.values()))}: {values}")
        return "\n".join(lines)

    def __call__(self, *tensors: Tensor | RawArray) -> Any:
        """Runs the program; arguments and results are those of `Program.__call__`. Inputs may be memory maps:
        of what is cut, a part is read at a time."""
        if overriding and (answer := overriding.dispatch(self.__call__, tensors, {})) is not NotImplemented:
            return answer
        raws = [np.asarray(raw_of(x)) for x in tensors]
        if self._whole is not None:
            return self._whole(*raws)
        check_inputs(self.name, self.inputs, raws)
        return run_parts(self._plan, raws, self.rows, self._plan.rows)


def _chosen(plan: Plan, rows: int, limit: float) -> Plan:
    """Returns the first plan that parts of some rows fit with; else the one with the smallest peak.

    Args:
        plan: the one that stores all.
    """
    plans = [plan]
    for price in PRICES:
        if price != plan.price:
            plans.append(Plan(plan.program, price))
        if plans[-1].peak(rows) <= limit:
            return plans[-1]
    return min(plans, key=lambda plan: plan.peak(1))


def _described(needed: Memory, limit: int | str) -> str:
    """Returns the peak, where it is, and the largest that is alive there."""
    at = str(needed.instruction).partition("\n")[0]
    held = [f"{x.value.described()} ({size_text(x.nbytes)})" for x in needed.held[:3]]
    rest = [f"{len(needed.held) - 3} others"] if needed.held[3:] else []
    alive = ", ".join([*held, *rest])
    return f"{size_text(needed.peak)}, the limit is {limit}; at {at} these are alive: {alive}"


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
            del part
        del args, results


def _part(plan: Plan, x: Value, raw: RawArray, dim: int | None, start: int, stop: int) -> RawArray:
    if dim is None:
        return raw
    unit = x.shape[dim] // plan.rows
    return raw[(slice(None),) * dim + (slice(start * unit, stop * unit),)]


def _called(program: Program, args: Iterable[RawArray]) -> tuple:
    run = program.executable()
    run.bind()
    return run(*args)


def chunked(program: Program, memory: int | str) -> Chunked:
    """Returns a function that computes the same part by part of the batch, in less memory.

    The batch is the first dim of the first input, and of those of the same length. Results for each row
    are those of the program; products may round otherwise, and sums over the batch add up those of parts.

    Args:
        memory: that it may make besides inputs and state: bytes, or text as "500MB" or "1.5 GiB".

    Raises:
        ValueError: no part is small enough, the message says what the smallest one needs; or the program
            is too large and writes to its inputs, or between parts to an array and to views of it.

    >>> x = mytorch.ones(1000, 10)
    >>> program = mytorch.capture(lambda x: (x * 2).exp().sum(), x)
    >>> chunked = program.chunked(memory="10kB")
    >>> chunked.rows, chunked.peak
    (200, 8008)
    """
    return Chunked(program, memory)


Program.chunked = chunked
