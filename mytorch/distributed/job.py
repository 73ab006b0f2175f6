"""A job: the starter's process and all below it, from the first to the last."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import launcher_command, recorder, root_cause
from .environment import TIMEOUT_VARIABLE, seconds
from .failure import die_with_parent
from .machines import Machines
from .output import Output

_PR_SET_CHILD_SUBREAPER = 36
START_VARIABLE = "MYTORCH_START_TIMEOUT"
_START_SECONDS = 120.0  # for Python to start and import mytorch: it may come from a slow disk
_STEP = 0.05  # seconds between two looks
_GRACE = 2.0  # for ranks to end by themselves, after an error or a signal, before they are killed
_SHORT_GRACE = 0.5  # if they had one already
# The timeout of collectives, within these, is for ranks that are told of Ctrl-C, and write a checkpoint.
_SHORTEST_GRACE, _LONGEST_GRACE = 5.0, 30.0


def run_job(options: argparse.Namespace, ranks: int, local_ranks: int) -> int:
    """Run the script as so many ranks, again after a failure if `max_restarts` says so; the exit code."""
    adopt_orphans()
    machines = Machines(options, local_ranks) if launcher_command.manual_variant(options) else None
    code = launcher_command.NOT_LAUNCHED
    try:
        with Signals() as signals:
            for attempt in range(options.max_restarts + 1):
                os.environ["MYTORCH_RESTART_COUNT"] = str(attempt)
                if machines is not None:
                    code = launcher_command.NOT_LAUNCHED  # for those who came, if somebody doesn't come again
                    machines.gather(lambda: signals.caught)
                code = _attempt(options, ranks, local_ranks, machines, signals)
                if code == 0 or signals.caught:
                    break
                if attempt < options.max_restarts:
                    print(f"mytorchrun: restart {attempt + 1} of {options.max_restarts}", file=sys.stderr)
    finally:
        if machines is not None:
            machines.dismiss(code)
    return code


def _attempt(
    options: argparse.Namespace, ranks: int, local_ranks: int, machines: Machines | None, signals: Signals
) -> int:
    folder = recorder.new_folder(ranks)
    try:
        code = 0
        if not signals.caught:
            environment = launcher_command.rank_environment(options, ranks, local_ranks, folder)
            hosts = None if machines is None else machines.list_hosts(folder)
            command = launcher_command.command(options, ranks, environment, hosts)
            job = Job(
                command, environment, folder, ranks, _awaited(options, ranks, local_ranks), options.prefix
            )
            code = job.wait(signals, lambda: machines is None or machines.look(folder))
            if machines is not None:
                machines.stop(folder)
        if signals.caught:
            name = signal.Signals(signals.caught).name
            print(root_cause.block(f"the launcher got {name}: all ranks were ended"), file=sys.stderr)
            return 128 + signals.caught
        if not root_cause.failed(folder, job.messages(), code):
            return 0
        cause = root_cause.find(folder, job.messages(), code, job.pid if ranks == 1 else None)
        print(root_cause.block(cause.text), file=sys.stderr, flush=True)
        return cause.code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _awaited(options: argparse.Namespace, ranks: int, local_ranks: int) -> int:
    """How many ranks are known to run on this machine."""
    if ranks == 1 or launcher_command.under_slurm() or options.hostfile:
        return 0
    return local_ranks


class Job:
    """Processes below a starter.

    Args:
        command, environment: of the starter.
        folder: where the ranks' recorders and error files are.
        ranks: how many there are.
        awaited: how many of them, from 0 on, write their recorders there.
        prefix: lines of output are tagged by the starter, and begin with the rank then.
    """

    def __init__(
        self, command: list[str], environment: dict, folder: Path, ranks: int, awaited: int, prefix: bool
    ):
        self._folder, self._ranks = folder, ranks
        piped = ranks > 1
        self._awaited, self._late = awaited, ""
        self._limit = seconds(environment.get(START_VARIABLE) or _START_SECONDS)
        self._late_at = time.monotonic() + self._limit
        self._grace = min(max(seconds(environment.get(TIMEOUT_VARIABLE)), _SHORTEST_GRACE), _LONGEST_GRACE)
        # In a session of its own, so that Ctrl-C reaches the launcher alone, which ends the ranks in order.
        # A single process keeps the terminal: a debugger wants it.
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL if piped else None,
            stdout=subprocess.PIPE if piped and prefix else None,
            stderr=subprocess.PIPE if piped else None,
            start_new_session=piped,
            preexec_fn=die_with_parent,
        )
        self._outputs = []
        for source, target in ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)):
            if source is not None:
                self._outputs.append(Output(source, target, prefix, folder))
        for output in self._outputs:
            output.start()

    @property
    def pid(self) -> int:
        """Of the starter; of the rank itself if there is only one."""
        return self._process.pid

    def wait(self, signals: Signals, look: Callable[[], object]) -> int:
        """Wait for the end, or bring it about after a signal or an error; the starter's exit code.

        Args:
            look: is called several times a second.
        """
        failed_at = None
        while self._process.poll() is None and not signals.caught:
            look()
            if failed_at is None and (root_cause.errors(self._folder) or self._is_late()):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > _GRACE:
                break  # the rank that failed couldn't end the others
            time.sleep(_STEP)
        if signals.caught:
            self._pass_on(signals, look)
        end_all(self._process, _GRACE if failed_at is None else _SHORT_GRACE)
        for output in self._outputs:
            output.join(timeout=_GRACE)
        return self._process.returncode

    def _pass_on(self, signals: Signals, look: Callable[[], object]) -> None:
        """Tell the ranks of this machine of a signal, and let them end by themselves, until a second one."""
        listeners = self._listeners(signals.caught)
        if listeners is None:
            return
        for pid in listeners:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signals.caught)
        until = time.monotonic() + self._grace
        while self._process.poll() is None and time.monotonic() < until and not signals.is_repeated:
            look()
            time.sleep(_STEP)

    def _listeners(self, number: int) -> list[int] | None:
        """Whom to tell of a signal: the ranks that are known here; None if not all of them have begun.

        A single process knows already of Ctrl-C at the terminal, which tells all who are there.
        """
        if self._ranks == 1:
            at_terminal = number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()
            return [] if at_terminal else [self._process.pid]
        begun = recorder.read_all(self._folder)
        pids = [flight.pid for flight in begun.values()]
        return pids if pids and len(pids) >= self._awaited else None

    def messages(self) -> str:
        """What the starter itself said, and what is to be said of a late start."""
        return "\n".join(filter(None, [*(output.held for output in self._outputs), self._late]))

    def _is_late(self) -> bool:
        """Did ranks of this machine not begin in time? No rank could say so: MPI waits for them."""
        if not self._awaited or time.monotonic() < self._late_at:
            return False
        begun = recorder.read_all(self._folder)
        missing = [str(rank) for rank in range(self._awaited) if rank not in begun]
        self._awaited = 0
        if missing:
            self._late = f"rank {', '.join(missing)} did not begin within {self._limit:g} s"
        return bool(missing)


def end_all(starter: subprocess.Popen, grace: float = _GRACE) -> None:
    """Leave no process behind: ask the one that started the ranks, then kill everything below this one.

    Args:
        grace: seconds for it to do what it is asked.
    """
    if starter.poll() is None:
        starter.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            starter.wait(grace)
    # Ranks first: without them the starter ends by itself. Those below a dead rank are our children now.
    for _ in range(20):
        below = descendants(os.getpid())
        if not below:
            break
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        starter.poll()
        _bury(starter.pid)
        time.sleep(0.01)
    starter.wait()


class Signals:
    """Catches SIGINT, SIGTERM and SIGHUP for as long as the job runs.

    Attributes:
        caught: the first one, or 0.
        is_repeated: there was another one since.
    """

    def __init__(self):
        self.caught, self.is_repeated = 0, False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: object) -> None:
        self.is_repeated = bool(self.caught)
        self.caught = self.caught or number


def adopt_orphans() -> None:
    """Become the parent of what loses its own, so that it can be found (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _bury(starter: int) -> None:
    """Take note of the deaths of adopted children, but leave the starter to `subprocess`."""
    for pid in _children().get(os.getpid(), []):
        if pid != starter:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def descendants(root: int) -> list[int]:
    """All living processes below one, the deepest first."""
    children, found, todo = _children(), [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found[::-1]


def _children() -> dict[int, list[int]]:
    """The living children of each process."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found.setdefault(int(fields[1]), []).append(int(path.parent.name))
    return found
