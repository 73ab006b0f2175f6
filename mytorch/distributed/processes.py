"""The processes of a launcher: signals that it receives, and how all processes below it are ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

_PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 2.0  # for processes to exit by themselves, after an error or a signal, before they are killed


class SignalCatcher:
    """Context manager that records SIGINT, SIGTERM and SIGHUP instead of ending the process.

    A signal that this process was started to ignore, as SIGHUP by nohup, stays ignored.

    Attributes:
        caught: the first signal, or 0.
        is_repeated: another one followed.
    """

    def __init__(self):
        self.caught, self.is_repeated = 0, False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> SignalCatcher:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if not is_ignored(number):
                    self._previous[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.is_repeated = bool(self.caught)
        self.caught = self.caught or number


def is_ignored(number: int) -> bool:
    """Returns whether a signal is ignored: nohup ignores SIGHUP, and a shell SIGINT for `command &`."""
    return signal.getsignal(number) is signal.SIG_IGN


def adopt_orphans() -> None:
    """Makes this process the parent of descendants that lose theirs, so that it finds them (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def terminate_all(command: subprocess.Popen, grace: float = GRACE_SECONDS) -> None:
    """Terminates the launcher command, then kills every process that is still below this one.

    Args:
        command: the process that started the ranks.
        grace: seconds for it to exit after SIGTERM.
    """
    if command.poll() is None:
        command.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(grace)
    # The ranks first: without them the command exits by itself. Children of a dead rank are now ours.
    for _ in range(20):
        pids = descendants(os.getpid())
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        command.poll()
        _reap(command.pid)
        time.sleep(0.01)
    command.wait()


def state_of(pid: int) -> str:
    """Returns "running", "stopped" or "gone" for a process of this machine."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(state, "running")


def descendants(root: int) -> list[int]:
    """Returns all living processes below one, the deepest first."""
    children, found, pending = _children(), [], [root]
    while pending:
        pids = children.get(pending.pop(), [])
        found += pids
        pending += pids
    return found[::-1]


def _reap(command: int) -> None:
    """Reaps adopted children that have died; the launcher command itself is left to `subprocess`."""
    for pid in _children().get(os.getpid(), []):
        if pid != command:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> dict[int, list[int]]:
    """Returns the living children of each process."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found.setdefault(int(fields[1]), []).append(int(path.parent.name))
    return found
