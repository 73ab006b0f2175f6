"""Watching a trace: it ends before an instruction that loads something opaque, or where code runs that wasn't
found.

Python calls a function for each function that begins, and within the user's for each instruction, if one of
them is a break point. Code that wasn't found is that of Python, but for what only computes, mytorch's own
settings, and functions that nothing refers to. Which line changes Python's objects is seen here, too.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ...backends.device import thread
from ..guards.allowed import why_opaque
from ..guards.modules import effect_of, is_foreign
from ..guards.snapshot import Snapshot
from .break_points import BreakPoints, graph_break

Frames = list[tuple[types.CodeType, int]]
_BY_LINES = sys.version_info >= (3, 12)  # which don't call it for each instruction reliably


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
def watching(breaks: BreakPoints, snapshot: Snapshot | None = None) -> Iterator[Frames]:
    """Context in which a function is traced.

    Where a debugger, or what measures coverage, looks at the lines already, nothing is seen.

    Args:
        breaks: the instructions before which the trace ends.
        snapshot: if it is given, the value of the context then holds where the first change came about.

    Raises:
        NotImplementedError: in the function, where it loads something opaque; at once if that can't be seen.
    """
    if sys.gettrace() is not None:
        if (what := breaks.first()) is not None:
            raise graph_break(what)
        yield []
        return
    watcher = Watcher(breaks, snapshot)
    collects = gc.isenabled()
    gc.disable()  # it would run the user's code at any time
    sys.settrace(watcher.call)
    try:
        yield watcher.changed_at
    finally:
        sys.settrace(None)
        if sys.getprofile() == watcher.resume:
            sys.setprofile(None)
        watcher.lines.clear()
        if collects:
            gc.enable()


def _folder(code: types.CodeType) -> Path | None:
    return None if code.co_filename.startswith("<") else Path(code.co_filename).parent


class Watcher:
    """The functions that Python calls: see `sys.settrace`.

    Attributes:
        changed_at: the functions and lines where the first change came about.
        lines: of each function that runs, the line that runs now or has run last.
    """

    def __init__(self, breaks: BreakPoints, snapshot: Snapshot | None):
        self.changed_at: Frames = []
        self.lines: dict[types.FrameType, int] = {}
        self._breaks, self._snapshot = breaks, snapshot
        self._folders = {_folder(code) for code in breaks.codes.values()} - {None}
        self._known: dict[int, tuple[types.CodeType, Callable | None]] = {}  # by the id of the code

    def call(self, frame: types.FrameType, event: str, arg: Any) -> Callable | None:
        """Returns the function for what happens within a function that begins."""
        code = frame.f_code
        known = self._known.get(id(code))
        if known is None:
            known = self._known[id(code)] = code, self._of(code, frame.f_globals.get("__name__"))
        return None if known[1] is None else known[1](frame)

    def _of(self, code: types.CodeType, module: str | None) -> Callable | None:
        """Returns what is to be done when a function begins; None if nothing is."""
        if is_foreign(module):
            what = effect_of(code, module)
            return None if what is None else lambda frame: self._foreign(frame, what)
        if id(code) not in self._breaks.codes:
            return self._unknown
        offsets = self._breaks.of(code)
        local = self._local(code, offsets) if offsets else None
        return (lambda frame: self._begin(frame, local)) if offsets or self._snapshot else None

    def _unknown(self, frame: types.FrameType) -> None:
        """Ends the trace at a function of the user's that wasn't found; those of CuPy, say, mytorch itself
        calls."""
        is_near = _folder(frame.f_code) in self._folders
        if frame.f_code.co_name != "__del__" and (is_near or self._is_users(frame.f_back)):
            self._break(f"what {frame.f_code.co_name}() does, which isn't found by its name")

    def _foreign(self, frame: types.FrameType, what: str) -> None:
        if self._is_users(frame.f_back):
            self._break(f"what {what}() does")

    def _is_users(self, frame: types.FrameType | None) -> bool:
        return frame is not None and id(frame.f_code) in self._breaks.codes

    def _break(self, what: str) -> None:
        if thread.tracer is not None:
            if sys.getprofile() is None:  # else what profiles sees it
                sys.setprofile(self.resume)
            thread.tracer.break_graph(graph_break(what))

    def resume(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """Watches again where the user catches the error, or has a `finally`: Python has ended it."""
        sys.setprofile(None)
        sys.settrace(self.call)
        while frame is not None:
            if self._is_users(frame):
                frame.f_trace = self.call(frame, "call", None)
            frame = frame.f_back
        if event == "c_call" and (what := why_opaque(arg)) is not None:
            self._break(what)

    def _begin(self, frame: types.FrameType, local: Callable | None) -> Callable | None:
        if local is not None and not _BY_LINES:
            frame.f_trace_opcodes = True
        if self._snapshot is None:
            frame.f_trace_lines = _BY_LINES
            return local
        return lambda *event: self._look_for_changes(*event, local)

    def _local(self, code: types.CodeType, offsets: dict[int, str]) -> Callable:
        """Returns the function that is called within a function which loads something opaque."""
        lines = {line: what for start, end, line in code.co_lines() for at, what in offsets.items()
                 if start <= at < end}

        def local(frame: types.FrameType, event: str, arg: Any) -> Callable:
            if event == "opcode" and frame.f_lasti in offsets:
                self._break(offsets[frame.f_lasti])
            elif event == "line" and _BY_LINES and frame.f_lineno in lines:
                self._break(lines[frame.f_lineno])
            return local

        return local

    def _look_for_changes(
        self, frame: types.FrameType, event: str, arg: Any, local: Callable | None
    ) -> Callable:
        """Looks for changes of Python's objects, line by line."""
        if event != "opcode":
            if not self.changed_at and self._snapshot.lasting_failure() is not None:
                self._note(frame)
            self.lines[frame] = frame.f_lineno
        if local is not None:
            local(frame, event, arg)
        return lambda *event: self._look_for_changes(*event, local)

    def _note(self, frame: types.FrameType | None) -> None:
        while frame is not None:
            self.changed_at.insert(0, (frame.f_code, self.lines.get(frame, frame.f_lineno)))
            frame = frame.f_back
