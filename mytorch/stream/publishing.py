"""Publishing: the recorder of a process that has a page; it makes no instructions and writes the page."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
from time import monotonic
from typing import Any

from ..backends.functions import kind_of
from ..core.grad_mode import _state
from . import recording
from .instruction import FORWARD, Instruction, Signature
from .log import LogWriter, world_size
from .page import Page, Request, open_page
from .recorder import Recorder, Sink, rank_of_process

_POLL = 32  # operations between two looks for a request

_page: Page | None = None


class Running:
    """An operation that runs, in place of an Instruction."""

    __slots__ = ("name", "kind", "start", "inside", "parent", "phase", "site", "finish", "origin", "nested")
    inputs, module = (), ""

    def end(self, failed: bool = False) -> None:
        self.finish(self, failed=failed)


class PageRecorder(Recorder):
    """A recorder without sinks: each operation writes the page, nothing else."""

    def __init__(self, page: Page):
        super().__init__()
        self.page = page
        self.attach(())

    def begin(
        self, name: str, phase: str | None = None, signature: Signature = None, arguments: object = (),
        keywords: dict[str, object] | None = None, module: str | None = None, nested: bool = True,
    ) -> Any:
        running, thread = Running(), self._thread
        running.name, running.inside, running.parent, running.nested = name, 0.0, thread.current, nested
        running.phase = phase or (FORWARD if thread.current is None else thread.current.phase)
        running.kind = _kind(name, running.phase, signature)
        if nested:
            thread.current = running
        running.start = monotonic()
        self.page.begin(name, running.kind, running.start)
        if self.page.count % _POLL == 0:
            poll(self.page)
        return running

    def end(self, instruction: Any, outputs: object = (), failed: bool = False) -> None:
        now, thread, parent = monotonic(), self._thread, instruction.parent
        seconds = now - instruction.start
        if instruction.nested:
            thread.current = parent
            if parent is not None:
                parent.inside += seconds
        thread.last = None
        self.page.end(instruction.kind, seconds - instruction.inside, now, thread.current is None)

    def operand(self, raw: object, maker: Instruction | None = None) -> None:
        return None

    def connect(self, node: object) -> None:
        pass

    def call_module(self, module: Any, args: tuple, kwargs: dict) -> Any:
        if module._hooks is None:
            return module.forward(*args, **kwargs)
        return module._hooks.call(module, args, kwargs)


def _kind(name: str, phase: str, signature: Signature) -> str:
    if phase not in ("forward", "backward"):
        return phase
    return "annotation" if signature is None else kind_of(name)


class PageSink(Sink):
    """Writes the page while something else records, and nothing for it."""

    def __init__(self, page: Page):
        self.page = page

    def begin(self, instruction: Instruction) -> None:
        self.page.begin(instruction.name, instruction.kind, monotonic())
        if self.page.count % _POLL == 0:
            poll(self.page)

    def end(self, instruction: Instruction) -> None:
        self.page.end(instruction.kind, instruction.self_time, monotonic(), instruction.parent is None)


class Window(LogWriter):
    """The log of a window of a running program: it stops itself after some seconds or instructions."""

    _kind = os.O_EXCL  # what another program has put there, as a link, is not written to

    def __init__(self, request: Request, page: Page):
        super().__init__(request.path)
        self.request, self.page, self.left = request, page, request.instructions or -1
        self._open()
        self.timer = threading.Timer(request.seconds, self.expire)
        self.timer.daemon = True
        self.timer.start()

    def begin(self, instruction: Instruction) -> None:
        if self.left == 0 or self.page.is_done(self.request):  # those that began have ended
            self.close()
            return
        self.left -= 1
        super().begin(instruction)

    def expire(self) -> None:
        """Ends the window: it takes no more instructions."""
        self.left = 0
        self.timer.cancel()
        self.page.finish(self.request)

    def close(self) -> None:
        """Ends the window, and records no more."""
        self.expire()
        with contextlib.suppress(ValueError):  # another thread has stopped it
            recording.stop(self)


def poll(page: Page) -> None:
    """Starts the trace that a request in the page wants; it ends that of an earlier request."""
    request = page.request()
    if request is None:
        return
    for window in [sink for sink in _state.stream.sinks if isinstance(sink, Window)]:
        if window.request.number >= request.number:
            return
        window.close()  # the command that wanted it was interrupted
    try:
        recording.start(Window(request, page))
    except OSError as error:  # the folder can't be written
        page.finish(request)
        warnings.warn(f"no trace for `mytorchrun trace`: {error}", stacklevel=2)


def publish() -> bool:
    """Gives this process a page for `mytorchrun top`; returns whether it has one.

    The launcher calls it in its ranks; other programs may call it. MYTORCH_TOP=0 forbids it.
    """
    global _page
    if _page is None:
        job = os.path.basename(os.environ.get("MYTORCH_RUN_FOLDER", "")) or str(os.getpid())
        _page = open_page(rank_of_process(), world_size(), job)
        if _page is not None:
            atexit.register(unpublish)
            recording.set_background(PageRecorder(_page), PageSink(_page))
    return _page is not None


def unpublish() -> None:
    """Removes the page of this process."""
    global _page
    if _page is not None:
        atexit.unregister(unpublish)
        recording.set_background(None, None)
        _page.close()
        _page = None


def _forget() -> None:
    """A forked process has no page: this one is its parent's."""
    global _page
    if _page is not None:
        _page.close()
    _page = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def report(step: int, tokens_per_second: float) -> None:
    """Shows the step and the speed of a training in `mytorchrun top`, if this process has a page."""
    if _page is not None:
        _page.report(step, tokens_per_second)
