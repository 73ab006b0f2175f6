"""Runs programs part by part of the batch, so that they need less memory: see `Program.chunked`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product, starmap
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
from .stage import Stage
from .stages import Stages, rows_of

PARTS = 64  # the time of calling that many programs is small beside that of what they do


class Chunked:
    """A program that runs part by part of the batch.

    Instructions that treat the rows of the batch by themselves run in loops over parts of it; sums over the
    batch are added up. The others run between the loops, on whole arrays, which the loops store.

    What a later loop takes of an earlier one is stored, too, or computed again. Four ways are tried, and the
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
        self._stages = stages = Stages(program)
        if not stages.levels.cuts:
            needed = _described(self._whole.memory(), memory)
            raise ValueError(
                f"{self.name}: no instruction can be cut along the batch; the whole needs {needed}"
            )
        self._whole, rows = None, -(-stages.rows // PARTS)
        self._stages = stages = _chosen(stages, rows, limit)
        if stages.peak(1) > limit:
            needed = _described(max(stages.memories(1), key=lambda memory: memory.peak), memory)
            raise ValueError(f"{self.name}: a row at a time needs {needed}")
        low, high = 1, stages.rows + 1  # binary search: `low` rows fit, `high` don't
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if stages.peak(middle) <= limit else (low, middle)
        parts = -(-stages.rows // low)
        self.rows = -(-stages.rows // parts)
        self.peak = stages.peak(self.rows)

    def __str__(self) -> str:
        if self._whole is not None:
            return str(self._whole)
        stages = self._stages
        lines = [f"{self.name}: parts of {self.rows} of {stages.rows} rows, peak {size_text(self.peak)}"]
        for stage, alive in zip(stages.all, stages.crossings(), strict=True):
            lines += ["for each part:"] * stage.is_loop + [str(stage.program(self.rows))]
            if alive and stage is not stages.all[-1]:
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
        return run_parts(self._stages, raws, self.rows, self._stages.rows)


def _chosen(stages: Stages, rows: int, limit: float) -> Stages:
    """Returns the first stages that parts of some rows fit with; else the one with the smallest peak.

    Args:
        stages: the one that stores all.
    """
    ways = [stages]
    for price in PRICES:
        if price != stages.price:
            ways.append(Stages(stages.program, price))
        if ways[-1].peak(rows) <= limit:
            return ways[-1]
    return min(ways, key=lambda stages: stages.peak(1))


def _described(needed: Memory, limit: int | str) -> str:
    """Returns the peak, where it is, and the largest that is alive there."""
    at = str(needed.instruction).partition("\n")[0]
    held = [f"{x.value.described()} ({size_text(x.nbytes)})" for x in needed.held[:3]]
    rest = [f"{len(needed.held) - 3} others"] if needed.held[3:] else []
    alive = ", ".join([*held, *rest])
    return f"{size_text(needed.peak)}, the limit is {limit}; at {at} these are alive: {alive}"


def run_parts(stages: Stages, raws: list[RawArray], now: int, rows: int) -> Any:
    """Returns what a program returns, computed in parts.

    Args:
        now: the rows of a part.
        rows: all rows; another number than those of the program if it `is_rowwise`.

    Raises:
        ValueError: it writes to state that shares memory with an input.
    """
    known = dict(zip(stages.program.inputs, raws, strict=True)) | stages.program.constants
    known |= _state_of(stages.program)
    written = [known[x] for x in stages.levels.changed & stages.program.state.keys()]
    if any(starmap(np.may_share_memory, product(written, raws))):
        raise ValueError(f"{stages.program.name}: it writes to a tensor that shares memory with another")
    run = _Run(stages, known, now, rows)
    for stage in stages.all:
        run.loop(stage) if stage.is_loop else run.once(stage)
        run.drop_after(stage)
    outputs = stages.program.outputs
    return mapped(lambda x: from_raw(as_raw(known[x])) if isinstance(x, Value) else x, outputs)


def _state_of(program: Program) -> dict[Value, RawArray]:
    """Returns the arrays that the tensors of the state have now."""
    owners = {value: reference() for value, reference in program.owners.items()}
    return program.state | {value: x._data._array for value, x in owners.items() if x is not None}


@dataclass
class _Run:
    """A run of stages in parts of some rows, with the arrays that are known so far."""

    stages: Stages
    known: dict[Value, RawArray]
    now: int
    rows: int

    def once(self, stage: Stage) -> None:
        results = _called(stage.program(self.now), [self.known[x] for x, _ in stage.inputs])
        self.known |= dict(zip(stage.outputs, results, strict=True))

    def loop(self, stage: Stage) -> None:
        for y, dim in stage.outputs.items():
            if isinstance(dim, int):
                self.known[y] = np.empty(scaled(y.shape, dim, self.stages.rows, self.rows), y.dtype)
        for start in range(0, self.rows, self.now):
            stop = min(start + self.now, self.rows)
            args = [self._part(x, dim, start, stop) for x, dim in stage.inputs]
            results = _called(stage.program(stop - start), args)
            for (y, kind), part in zip(stage.outputs.items(), results, strict=True):
                if isinstance(kind, int):
                    self._part(y, kind, start, stop)[...] = part
                else:
                    self._combine(y, kind, part, is_first=not start)
                del part
            del args, results

    def _combine(self, y: Value, ufunc: str, part: RawArray, is_first: bool) -> None:
        if is_first:
            self.known[y] = np.array(part)
            return
        with np.errstate(all="ignore"):  # inf and NaN are values
            getattr(np, ufunc)(self.known[y], part, out=self.known[y])

    def _part(self, x: Value, dim: int | None, start: int, stop: int) -> RawArray:
        if dim is None:
            return self.known[x]
        unit = x.shape[dim] // self.stages.rows
        return self.known[x][(slice(None),) * dim + (slice(start * unit, stop * unit),)]

    def drop_after(self, stage: Stage) -> None:
        """Lets go of what no later stage takes."""
        made = self.known.keys() & self.stages.levels.makers.keys()
        for x in [x for x in made if self.stages.last.get(x, -1) <= stage.number]:
            del self.known[x]


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
