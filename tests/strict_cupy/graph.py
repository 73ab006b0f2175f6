"""CUDA graphs of NumPy calls: what a stream that captures is given is noted, undone at the end, and done in
`launch`.

As on a GPU, arguments are noted as they are, arrays by their memory, and whatever waits for the GPU raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import device

UNSUPPORTED, INVALIDATED = 900, 901


class Tape:
    """What was done between begin_capture and end_capture."""

    def __init__(self):
        self.calls: list[tuple] = []
        self.memory: list[tuple[np.ndarray, np.ndarray]] = []  # arrays, and what was in them before
        self.is_recording, self.is_valid = True, True


class Graph:
    """What `end_capture` returns."""

    def __init__(self, tape: Tape):
        self._calls = tape.calls

    def launch(self, stream: Any = None) -> None:
        for index, function, args, kwargs, result in self._calls:
            with device.Device(index):
                _write(function(*args, **kwargs), result)

    def upload(self, stream: Any = None) -> None:
        pass


def begin(stream: Any) -> None:
    if stream.ptr in (0, 1):
        raise RuntimeError("cannot capture on the default (legacy) stream")
    stream.tape = Tape()


def end(stream: Any) -> Graph:
    tape, stream.tape = stream.tape, None
    for memory, before in reversed(tape.memory):
        memory[...] = before
    if not tape.is_valid:
        raise device.CUDARuntimeError(INVALIDATED)
    return Graph(tape)


def refuse_waiting() -> None:
    """What waits for the GPU, or copies from memory of the CPU that will be gone, spoils a capture."""
    tape = device.get_current_stream().tape
    if tape is not None:
        tape.is_valid = False
        raise device.CUDARuntimeError(UNSUPPORTED)


def refuse_libraries() -> None:
    """CuPy calls neither cuBLAS nor cuSOLVER while a stream is captured."""
    if device.get_current_stream().tape is not None:
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


def taped(function: Callable) -> Callable:
    """Let calls of a function be noted by a stream that captures; what it calls itself isn't noted again."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        tape = device.get_current_stream().tape
        if tape is None or not tape.is_recording:
            return function(*args, **kwargs)
        arrays = _arrays([*args, *kwargs.values()])
        tape.memory += [(array, array.copy()) for array in arrays if array.flags.writeable]
        tape.is_recording = False
        try:
            result = function(*args, **kwargs)
        finally:
            tape.is_recording = True
        tape.calls.append((device.get_device(), function, args, kwargs, result))
        return result

    return call


def note(function: Callable, written: np.ndarray) -> None:
    """Call a function that writes into an array, and let a stream that captures note it."""
    tape = device.get_current_stream().tape
    if tape is not None and tape.is_recording:
        tape.memory.append((written, written.copy()))
        tape.calls.append((device.get_device(), function, (), {}, None))
    function()


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays(item)]
    return [value._numpy] if hasattr(value, "_numpy") and isinstance(value._numpy, np.ndarray) else []


def _write(again: Any, result: Any) -> None:
    for new, old in zip(_arrays([again]), _arrays([result]), strict=True):
        if not np.shares_memory(new, old):
            old[...] = new
