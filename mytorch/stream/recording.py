"""Recording on and off: sinks that see the operations of a program from now on, or in a block."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.grad_mode import _state
from .instruction import Instruction
from .recorder import Recorder, Sink


class Recording(list, Sink):
    """A sink: the list of the instructions, in the order in which they ended."""

    def begin(self, instruction: Instruction) -> None:
        pass

    end = list.append


_lock = threading.Lock()
_background: tuple[Recorder, Sink] | None = None
_of_parent: list[Sink] = []  # in a forked process: those that its parent had when it forked


def start(sink: Sink) -> None:
    """Shows the operations of all threads to a sink from now on."""
    with _lock:
        recorder = _state.stream if is_recording() else Recorder()
        behind = () if is_recording() or _background is None else (_background[1],)
        recorder.attach((*behind, *recorder.sinks, sink))
        type(_state).stream = recorder


def stop(sink: Sink) -> None:
    """Shows no more operations to a sink; without a sink nothing is recorded.

    Raises:
        ValueError: the sink wasn't started.
    """
    with _lock:
        if any(s is sink for s in _of_parent):  # a block that began in the parent ends here, too
            _of_parent[:] = [s for s in _of_parent if s is not sink]
            return
        if not is_recording() or not any(s is sink for s in _state.stream.sinks):
            raise ValueError(f"stop(): this {type(sink).__name__} doesn't record")
        _detach(sink)


def is_recording() -> bool:
    """Returns whether operations are recorded as instructions."""
    return _state.stream is not None and (_background is None or _state.stream is not _background[0])


def set_background(recorder: Recorder | None, sink: Sink | None = None) -> None:
    """Sets what sees operations while nothing else does, and the sink that takes its place otherwise."""
    global _background
    with _lock:
        was_recording, before = is_recording(), _background
        _background = None if recorder is None else (recorder, sink)
        if not was_recording:
            type(_state).stream = recorder
            return
        if before is not None:
            _detach(before[1])
        if sink is not None:
            _state.stream.attach((sink, *_state.stream.sinks))


def _detach(sink: Sink) -> None:
    """Removes a sink; without another one the background has its turn."""
    left = tuple(s for s in _state.stream.sinks if s is not sink)
    _state.stream.attach(left)
    if all(_background is not None and s is _background[1] for s in left):
        type(_state).stream = None if _background is None else _background[0]


@contextmanager
def record(with_site: bool = False) -> Iterator[Recording]:
    """Context whose value is a list of the instructions inside it, in the order in which they ended.

    Args:
        with_site: each has the line of the user's program; that takes some microseconds more.

    >>> from mytorch.stream import record
    >>> x = mytorch.ones(2, 3, requires_grad=True)
    >>> with record() as instructions:
    ...     (x * 2).sum().backward()
    >>> [(i.name, i.phase) for i in instructions]
    [('mul', 'forward'), ('sum', 'forward'), ('sum_backward', 'backward'), ('mul_backward', 'backward')]
    >>> instructions[0]
    #1 %2:float32[2,3] = mul left=%1:float32[2,3] right=2
    """
    recording = Recording()
    recording.wants_site = with_site
    start(recording)
    try:
        yield recording
    finally:
        stop(recording)


def _forget() -> None:
    """A forked process records nothing: its files and pages are those of its parent."""
    global _background, _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if type(_state).stream is not None:
        _of_parent.extend(type(_state).stream.sinks)
    type(_state).stream = _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
