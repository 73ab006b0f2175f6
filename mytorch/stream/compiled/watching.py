"""Watching a capture line by line: which one changes Python's objects?"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from ..programs.tracing.reachable import is_foreign
from ..programs.tracing.snapshot import Snapshot

Frames = list[tuple[types.CodeType, int]]


class Changed(NotImplementedError):
    """Raised if a function changes Python's objects, as a program can't.

    Args:
        frames: the functions that were running then, from the outermost one, with their lines; empty if that
            isn't known.
    """

    def __init__(self, text: str, frames: Frames):
        super().__init__(text)
        self.frames = frames


def frames_of(error: BaseException) -> Frames:
    """Returns the functions, from the outermost one, with the lines at which an error came about."""
    if isinstance(error, Changed) and error.frames:
        return error.frames
    return [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]


@contextmanager
def watching(snapshot: Snapshot) -> Iterator[Frames]:
    """Context in which a function runs; its value then holds where the first change came about.

    It stays empty where a debugger, or what measures coverage, looks at the lines already.
    """
    found: Frames = []
    lines: dict[types.FrameType, int] = {}  # that run, or have run last

    def note(frame: types.FrameType | None) -> None:
        sys.settrace(None)
        while frame is not None:
            found.insert(0, (frame.f_code, lines.get(frame, frame.f_lineno)))
            frame = frame.f_back

    def call(frame: types.FrameType, event: str, arg: Any) -> Any:
        return None if is_foreign(frame.f_globals.get("__name__")) else line

    def line(frame: types.FrameType, event: str, arg: Any) -> Any:
        if not found and snapshot.lasting_change() is not None:
            note(frame)
        lines[frame] = frame.f_lineno
        return line

    if sys.gettrace() is not None:
        yield found
        return
    sys.settrace(call)
    try:
        yield found
    finally:
        sys.settrace(None)
        lines.clear()
