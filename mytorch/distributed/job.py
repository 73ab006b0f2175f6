"""Job: starts the launcher command that starts the ranks, monitors it, restarts after a failure, ends all."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ..utils.parent_death import die_with_parent
from . import error_report, flight_recorder, launcher_command, root_cause
from .environment import TIMEOUT_VARIABLE, seconds
from .exit_watch import ExitDeadline
from .output import OutputFilter
from .processes import GRACE_SECONDS, SignalCatcher, adopt_orphans, terminate_all
from .rendezvous import Rendezvous
from .run_folder import RunFolder

START_VARIABLE = "MYTORCH_START_TIMEOUT"
_START_SECONDS = 120.0  # for Python to start and import mytorch: it may come from a slow disk
_POLL_SECONDS = 0.05
_SHORT_GRACE = 0.5  # if the ranks had their grace already
# Ranks have the timeout of collectives, within these limits, to write a checkpoint after Ctrl-C.
_SHORTEST_GRACE, _LONGEST_GRACE = 5.0, 30.0


def run_job(options: argparse.Namespace, ranks: int, local_ranks: int) -> int:
    """Runs the script as `ranks` processes, restarts it up to `max_restarts` times; returns the exit code."""
    adopt_orphans()
    rendezvous = Rendezvous(options, local_ranks) if launcher_command.is_launched_per_node(options) else None
    code = launcher_command.NOT_LAUNCHED
    try:
        with SignalCatcher() as signals:
            for attempt in range(options.max_restarts + 1):
                os.environ["MYTORCH_RESTART_COUNT"] = str(attempt)
                if rendezvous is not None:
                    code = launcher_command.NOT_LAUNCHED  # for the nodes that came, if one doesn't
                    rendezvous.wait_for_nodes(lambda: signals.caught)
                code = _run_once(options, ranks, local_ranks, rendezvous, signals)
                if code == 0 or signals.caught:
                    break
                if attempt < options.max_restarts:
                    restart = f"restart {attempt + 1} of {options.max_restarts} after exit code {code}"
                    print(f"mytorchrun: {restart}", file=sys.stderr)
    finally:
        if rendezvous is not None:
            rendezvous.close(code)
    return code


def _run_once(
    options: argparse.Namespace, ranks: int, local_ranks: int, rendezvous: Rendezvous | None,
    signals: SignalCatcher,
) -> int:
    """Runs the ranks once and prints the root cause of a failure; returns the exit code."""
    run = RunFolder(ranks)
    folder = run.path
    try:
        code = 0
        if not signals.caught:
            environment = launcher_command.rank_environment(options, ranks, local_ranks, folder)
            hostfile = None if rendezvous is None else rendezvous.write_hostfile(folder)
            command = launcher_command.command(options, ranks, environment, hostfile)
            expected = _expected_ranks(options, ranks, local_ranks)
            job = Job(command, environment, folder, ranks, expected, options.prefix)
            code = job.wait(signals, lambda: rendezvous is None or rendezvous.poll(folder))
            if rendezvous is not None:
                rendezvous.stop(folder)
        if signals.caught:
            name = signal.Signals(signals.caught).name
            print(root_cause.framed(f"the launcher got {name}: all ranks were ended"), file=sys.stderr)
            return 128 + signals.caught
        if not root_cause.has_failed(folder, job.messages(), code):
            return 0
        cause = root_cause.find_root_cause(folder, job.messages(), code, job.pid if ranks == 1 else None)
        print(root_cause.framed(cause.text), file=sys.stderr, flush=True)
        return cause.code
    finally:
        run.remove()


def _expected_ranks(options: argparse.Namespace, ranks: int, local_ranks: int) -> int:
    """Returns how many ranks are known to run on this machine."""
    if ranks == 1 or launcher_command.under_slurm() or options.hostfile:
        return 0
    return local_ranks


class Job:
    """The launcher command and the ranks below it.

    Args:
        command, environment: of the launcher command.
        folder: for the ranks' flight recorders and error files.
        ranks: how many ranks it starts.
        expected: how many of them, from rank 0 on, write their flight recorders to `folder`.
        prefix: the launcher command tags each line of output; lines are shown with the rank in front.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], folder: Path, ranks: int, expected: int,
        prefix: bool,
    ):
        self._folder, self._ranks = folder, ranks
        piped = ranks > 1
        self._expected, self._late_message = expected, ""
        self._start_seconds = seconds(environment.get(START_VARIABLE) or _START_SECONDS)
        self._exit_deadline = ExitDeadline(ranks, expected, environment)
        self._start_deadline = time.monotonic() + self._start_seconds
        self._grace = min(max(seconds(environment.get(TIMEOUT_VARIABLE)), _SHORTEST_GRACE), _LONGEST_GRACE)
        # In its own process session, so that Ctrl-C reaches only the launcher, which ends the ranks in order.
        # A single process keeps the terminal: a debugger needs it.
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL if piped else None,
            stdout=subprocess.PIPE if piped and prefix else None,
            stderr=subprocess.PIPE if piped else None,
            start_new_session=piped,
            preexec_fn=functools.partial(die_with_parent, os.getpid()),
        )
        self._outputs = []
        for source, target in ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)):
            if source is not None:
                self._outputs.append(OutputFilter(source, target, prefix, folder))
        for output in self._outputs:
            output.start()

    @property
    def pid(self) -> int:
        """The process id of the launcher command; of the rank itself if there is only one."""
        return self._process.pid

    def wait(self, signals: SignalCatcher, poll: Callable[[], object]) -> int:
        """Waits for the end of the job, and ends it after a signal or an error; returns the exit code.

        Args:
            poll: called several times per second.
        """
        failed_at = None
        while self._process.poll() is None and not signals.caught:
            poll()
            self._check_exits()
            if failed_at is None and (root_cause.read_errors(self._folder) or self._is_late()):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > GRACE_SECONDS:
                break  # the rank that failed couldn't end the others
            time.sleep(_POLL_SECONDS)
        if signals.caught:
            self._forward_signal(signals, poll)
        terminate_all(self._process, GRACE_SECONDS if failed_at is None else _SHORT_GRACE)
        for output in self._outputs:
            output.finish(lambda: signals.caught)
        return self._process.returncode

    def _check_exits(self) -> None:
        """Reports ranks that have finished the script but can't exit, as an error of this machine."""
        text = self._exit_deadline.error(self._folder)
        if text:
            error_report.write_machine_error(self._folder, 0, socket.gethostname(), "timeout", text, 1)

    def _forward_signal(self, signals: SignalCatcher, poll: Callable[[], object]) -> None:
        """Forwards a signal to the ranks of this machine; waits until they exit, or for a second signal."""
        pids = self._signal_targets(signals.caught)
        if pids is None:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signals.caught)
        deadline = time.monotonic() + self._grace
        while self._process.poll() is None and time.monotonic() < deadline and not signals.is_repeated:
            poll()
            time.sleep(_POLL_SECONDS)

    def _signal_targets(self, number: int) -> list[int] | None:
        """Returns the ranks to forward a signal to; None if some have not started yet.

        A single process gets Ctrl-C from the terminal itself.
        """
        if self._ranks == 1:
            at_terminal = number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()
            return [] if at_terminal else [self._process.pid]
        pids = [flight.pid for flight in flight_recorder.read_all(self._folder).values()]
        return pids if pids and len(pids) >= self._expected else None

    def messages(self) -> str:
        """Returns what the launcher command itself wrote, and whether ranks started too late."""
        return "\n".join(filter(None, [*(output.held for output in self._outputs), self._late_message]))

    def _is_late(self) -> bool:
        """Returns whether ranks of this machine missed the start deadline: MPI would wait forever."""
        if not self._expected or time.monotonic() < self._start_deadline:
            return False
        started = flight_recorder.read_all(self._folder)
        missing = [str(rank) for rank in range(self._expected) if rank not in started]
        self._expected = 0
        if missing:
            self._late_message = f"rank {', '.join(missing)} did not start within {self._start_seconds:g} s"
        return bool(missing)
