"""Streams: a program runs on the batches of a source, while threads read the next ones and write results."""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...backends.device import RawArray
from ...core.array import Array
from ...core.tensor import Tensor, raw_of
from ...utils.nested import leaves
from ...utils.reading import is_count
from ..program.instruction import Value
from ..program.program import Program
from ..tracing.host import draws
from .chunking import run_parts
from .stages import Stages
from .worker import Worker

AHEAD = 2  # batches that are read ahead, and results that wait to be written
_ARRAYS = (np.ndarray, Array, Tensor)
_STATE = (dict, type(None))
_END = object()


class BatchStream:
    """An iterable of the results of a program for each batch of a source: see `Program.stream`.

    A thread reads at most two batches ahead, and another writes; at most two results wait for it. An error in
    either is raised where the stream is iterated, at once if it is the sink's, and ends it; a note says at
    which batch. Where the loop is left, as by Ctrl-C, what has been computed is written first, but a source
    that waits for data isn't waited for. The source is read in the caller's thread if
    it is no array and the program draws random numbers of the default generator, as the source may.

    Args:
        source, sink: see `Program.stream`.

    Attributes:
        batches: the number of batches that have run, with those before the freezing.
    """

    def __init__(self, program: Program, source: Any, sink: object = None):
        position = program.position or {"batches": 0, "rows": [], "source": None}
        program.position, program._stream = None, self  # until its end
        self._program, self._source, self._state = program, source, position["source"]
        self.batches, self._rows = position["batches"], [*position["rows"]]
        self._sink, self._is_array = sink, isinstance(source, (*_ARRAYS, tuple))
        self._writes: deque[Future] = deque()
        self._writer: Worker | None = None
        if not (sink is None or callable(sink) or isinstance(sink, (*_ARRAYS, tuple, list))):
            raise TypeError(f"stream(): a sink is an array, a list or a function, got {type(sink).__name__}")

    def __iter__(self) -> Iterator[Any]:
        self._finish_writes()  # raises the error of the sink, if one has ended an earlier pass
        batches = self._of_arrays() if self._is_array else self._of_iterable()
        is_ahead = self._is_array or not draws(self._program)
        reader = _Reader(batches, self.batches, self._await_writes) if is_ahead else None
        self._writer = Worker("write", finishes=True)
        try:
            while (batch := reader.next() if reader else _next(batches, self.batches)) is not _END:
                with _at_batch("program", self.batches):
                    result = self._result(batch[0])
                self._finish_writes(AHEAD - 1)
                self._writes.append(self._writer.submit(self._store, result, self.batches))
                self.batches, self._state = self.batches + 1, batch[1]
                del batch
                yield result
                del result
            self._finish_writes()
            self._program._stream = None
        finally:
            if reader:
                reader.close()
            self._writer.close(wait=True)  # what has been computed is written
            self._flush()

    def run(self) -> int:
        """Runs on all batches that are left; returns `batches`."""
        for _ in self:
            pass
        return self.batches

    def freeze(self, path: str | os.PathLike) -> None:
        """Saves the program with the position, as `Program.freeze`, once all results so far are written.

        A source with `state_dict()` and `load_state_dict()`, as a DataLoader, is continued by these; of
        another iterable the batches that have run are read and skipped.

        Raises:
            RuntimeError: it is called by the sink, for whose end it would wait.
        """
        if self._writer is not None and self._writer.is_current():
            raise RuntimeError("freeze() of a stream in its sink: call it where the stream is iterated")
        self._finish_writes()
        position = {"batches": self.batches, "rows": self._rows, "source": self._state}
        self._program.position, before = position, self._program.position
        try:
            self._program.save(path)
        finally:
            self._program.position = before

    def _result(self, args: tuple) -> Any:
        """Returns the result for a batch, the last of which may be smaller."""
        inputs, raws = self._program.inputs, [raw_of(x) for x in args]
        if not _are_smaller(raws, inputs):
            return self._program(*args)
        rows = len(raws[0])
        if not self._stages.is_rowwise():
            raise ValueError(
                f"stream(): the last batch has {rows} rows, and {self._program.name}, which isn't a "
                f"function of each row, takes {inputs[0].shape[0]}"
            )
        return run_parts(self._stages, [*map(np.ascontiguousarray, raws)], rows, rows)

    @functools.cached_property
    def _stages(self) -> Stages:
        return Stages(self._program)

    def _finish_writes(self, left: int = 0) -> None:
        """Waits until at most `left` results are yet to be written; raises the error of the sink."""
        while len(self._writes) > left or (self._writes and self._writes[0].done()):
            self._writes[0].result()  # what has failed stays the first: the next call raises it, too
            self._writes.popleft()
        if not left:
            self._flush()

    def _await_writes(self) -> Iterable[Future]:
        """Returns the writes that are yet to be done, at most `AHEAD`; raises the error of the sink."""
        self._finish_writes(AHEAD)
        return self._writes

    def _flush(self) -> None:
        for array in leaves(self._sink):
            if isinstance(array, np.memmap):
                array.flush()

    def _store(self, result: object, number: int) -> None:
        with _at_batch("sink", number):
            if isinstance(self._sink, list):
                self._sink.append(result)
            elif callable(self._sink):
                self._sink(result)
            elif self._sink is not None:
                self._write_rows([raw_of(x) for x in leaves(self._sink)], [raw_of(x) for x in leaves(result)])

    def _write_rows(self, arrays: list[np.ndarray], raws: list[np.ndarray]) -> None:
        self._rows = self._rows or [0] * len(arrays)
        if not len(arrays) == len(raws) == len(self._rows):
            raise ValueError(f"stream(): {len(raws)} results, and sinks for {len(arrays)}")
        for k, (array, x) in enumerate(zip(arrays, map(np.atleast_1d, raws), strict=True)):
            place = slice(self._rows[k], self._rows[k] + len(x))
            if array.dtype != x.dtype or array[place].shape != x.shape:
                raise ValueError(
                    f"stream(): a sink of {array.dtype}{list(array.shape)} doesn't take {x.dtype}"
                    f"{list(x.shape)} at row {place.start}"
                )
            array[place] = x
            self._rows[k] = place.stop

    def _of_arrays(self) -> Iterator[tuple[tuple, None]]:
        given = self._source if isinstance(self._source, tuple) else (self._source,)
        raws = [raw_of(x) for x in given]
        step, length = self._rows_of(raws)
        for start in range(self.batches * step, length, step):  # copies: the program may write to them
            yield tuple([np.array(x[start : start + step], order="C") for x in raws]), None

    def _rows_of(self, raws: list[RawArray]) -> tuple[int, int]:
        """Returns the rows of a batch, and of the whole source."""
        inputs = self._program.inputs
        lengths, rows = {x.shape[:1] for x in raws}, {value.shape[:1] for value in inputs}
        if len(raws) != len(inputs) or len(lengths) != 1 or len(rows) != 1 or () in rows | lengths:
            shapes, wanted = [x.shape for x in raws], ", ".join(value.described() for value in inputs)
            name = self._program.name
            raise ValueError(f"stream(): {name} takes {wanted}, the source has the shapes {shapes}")
        return rows.pop()[0], lengths.pop()[0]

    def _of_iterable(self) -> Iterator[tuple[tuple, Any]]:
        source, state = self._source, self._state
        if state is not None:
            source.load_state_dict(state)
        batches = iter(source)  # now, as it may draw a seed
        return _with_states(batches, source, 0 if state is not None else self.batches)


class _Reader:
    """A thread that reads the next batches, of which at most `AHEAD` wait.

    Args:
        number: of the first batch.
        writes: returns the writes that are yet to be done, or raises the error of one, also while the source
            has no batch.
    """

    def __init__(self, batches: Iterator[Any], number: int, writes: Callable[[], Iterable[Future]]):
        self._batches, self._numbers, self._writes = batches, itertools.count(number), writes
        self._worker, self._reads = Worker("read"), deque()

    def next(self) -> Any:
        """Returns the next batch, or `_END`."""
        while len(self._reads) <= AHEAD:
            self._reads.append(self._worker.submit(_next, self._batches, next(self._numbers)))
        read = self._reads[0]
        while not read.done():
            wait([read, *self._writes()], return_when=FIRST_COMPLETED)
        self._writes()
        if (batch := read.result()) is not _END:
            self._reads.popleft()
        return batch

    def close(self) -> None:
        is_idle = all([x.cancel() or x.done() for x in self._reads])
        self._worker.close(wait=is_idle)  # else it may wait for the source forever


def _are_smaller(raws: list[RawArray], inputs: tuple[Value, ...]) -> bool:
    """Returns whether arrays differ from inputs in that they have fewer rows, all the same number."""
    rows, others = {x.shape[:1] for x in raws}, {value.shape[:1] for value in inputs}
    if len(raws) != len(inputs) or len(rows) != 1 or len(others) != 1 or not (0,) < rows.pop() < others.pop():
        return False
    pairs = zip(raws, inputs, strict=True)
    return all([(x.shape[1:], x.dtype) == (value.shape[1:], value.dtype) for x, value in pairs])


def _next(batches: Iterator[Any], number: int) -> Any:
    with _at_batch("source", number):
        return next(batches, _END)


@contextmanager
def _at_batch(place: str, number: int) -> Iterator[None]:
    """Context whose errors say where in the stream they are, below the traceback (since Python 3.11)."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"in the {place} of a stream, at batch {number}, counted from 0")
        raise


def _with_states(batches: Iterator[Any], source: Any, skipped: int) -> Iterator[tuple[tuple, Any]]:
    has_state = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
    for batch in itertools.islice(batches, skipped, None):
        args = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        yield args, source.state_dict() if has_state else None


def check_position(position: object) -> None:
    """Raises ValueError unless it is None or what `BatchStream.freeze` saves."""
    if position is None:
        return
    is_dict = isinstance(position, dict) and position.keys() == {"batches", "rows", "source"}
    if not is_dict or not isinstance(position["rows"], list) or not isinstance(position["source"], _STATE):
        raise ValueError(f"the position is {position!r}")
    if not all(map(is_count, [position["batches"], *position["rows"]])):
        raise ValueError(f"the position is {position!r}")


def stream(program: Program, source: Any, sink: object = None) -> BatchStream:
    """Returns an iterable that runs a program on each batch of a source, and gives its results.

    Batches are read, and results written, by threads beside the program; see `BatchStream`.

    Args:
        source: an array or memory map, or a tuple with one for each input, that is cut along the first
            dim; or a DataLoader, or any iterable of batches. The last batch may have fewer rows if the
            program treats each row by itself.
        sink: an array or memory map for the rows of the results, or a tuple of such; a list, or a
            function, that gets each result; or None.

    >>> program = mytorch.capture(lambda x: x * 2, mytorch.ones(2))
    >>> for y in program.stream(mytorch.arange(4.0)):
    ...     print(y)
    tensor([0.00000 2.00000])
    tensor([4.00000 6.00000])
    """
    return BatchStream(program, source, sink)


def freeze(program: Program, path: str | os.PathLike) -> None:
    """Saves a program in the middle of a run, which `thaw` continues in another process, bit for bit.

    That is `save`, which is atomic: with parameters, gradients that are set, moments, buffers, rates and
    counts of steps, and random states. If the program's last stream hasn't come to its end, it is the
    stream's `freeze`: results so far are written, and the position in the source is stored.
    """
    if program._stream is None:
        program.save(path)
    else:
        program._stream.freeze(path)


Program.stream, Program.freeze = stream, freeze
