"""
`mytorchrun launch --node_rank K`: the launcher of another machine than 0, where each is launched by hand.

It runs what machine 0 says, and nobody else: it connects to the address that the user gave, and listens
nowhere. machines.py is the other side, and shows how the two work together.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import failure, launcher_command, recorder, root_cause
from .failure import die_with_parent
from .job import Signals, adopt_orphans, end_all
from .launcher_command import LaunchError
from .link import Link, LinkLost
from .machines import facts, join_seconds, silence

_STEP = 0.05  # seconds between two looks
_RETRY = 0.5  # between two tries to connect
_CONNECT = 5.0  # for one try
_SAID = 2000  # characters of the daemon's last words


def join(options: argparse.Namespace, ranks: int, local_ranks: int) -> int:
    """Be one of the machines of a job until it is over; the exit code, that of machine 0 if it says one.

    Raises:
        LaunchError: machine 0 can't be reached, or doesn't want this one.
    """
    adopt_orphans()
    with Signals() as signals:
        link = _connect(options, signals)
        if link is None:
            return 128 + signals.caught
        try:
            link.send(
                node_rank=options.node_rank, host=socket.gethostname(), facts=facts(options, local_ranks)
            )
            return _Member(link, options, ranks, local_ranks, signals).run()
        finally:
            link.close()


def _connect(options: argparse.Namespace, signals: Signals) -> Link | None:
    """A link to machine 0, which may come later than this one; None after a signal."""
    address, limit = (options.master_addr, options.master_port), join_seconds()
    where = f"machine 0 at {address[0]} port {address[1]}"
    deadline, said = time.monotonic() + limit, False
    while not signals.caught:
        try:
            return Link(socket.create_connection(address, timeout=_CONNECT), silence(options))
        except OSError as error:
            if time.monotonic() > deadline:
                raise LaunchError(f"{where} could not be reached within {limit:g} s: {error}") from error
            if not said:
                _say(f"machine {options.node_rank} waits for {where} ({error})")
                said = True
        time.sleep(_RETRY)
    return None


class _Member:
    """This machine in a job."""

    def __init__(
        self, link: Link, options: argparse.Namespace, ranks: int, local_ranks: int, signals: Signals
    ):
        self._link, self._options, self._signals = link, options, signals
        self._ranks, self._local_ranks = ranks, local_ranks
        self._folder: Path | None = None
        self._daemon: subprocess.Popen | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this
        self._sent: set[int] = set()  # ranks whose errors machine 0 knows
        self._told = False
        self._code: int | None = None  # once machine 0 has said it

    def run(self) -> int:
        """Do what machine 0 says until it says that the job is over."""
        try:
            while self._code is None and not self._signals.caught:
                for message in self._link.receive():
                    self._take(message)
                self._look()
                time.sleep(_STEP)
            if self._code is None:
                self._link.send(signal=self._signals.caught)
                return 128 + self._signals.caught
        except LinkLost as lost:
            return self._lost(lost)
        finally:
            self._stop()
        if self._code:
            at = self._options.master_addr
            _say(f"the job failed with exit code {self._code}: machine 0 ({at}) says why, on its stderr")
        return self._code

    def _take(self, message: dict[str, Any]) -> None:
        if "refused" in message:
            raise LaunchError(f"machine 0 refused this one: {message['refused']}")
        if "welcome" in message:
            self._link.limit = message["limit"]
            _say(f"machine {self._options.node_rank} is in; what its ranks print appears on machine 0")
        elif "run" in message:
            self._start(message["run"], message["environment"])
        elif "stop" in message:
            self._stop()
            self._link.send(stopped=True)
        elif "end" in message:
            self._code = message["end"]

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        self._folder, self._told = recorder.new_folder(self._local_ranks), False
        names = launcher_command.rank_environment(self._options, self._ranks, self._local_ranks, self._folder)
        names |= {"PRTE_MCA_prte_remote_tmpdir_base": str(self._folder), **environment}
        try:
            self._daemon = subprocess.Popen(
                command, env=names, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        except OSError as error:
            self._told = True
            self._link.send(ended=127, said=str(error))

    def _look(self) -> None:
        """Tell machine 0 what goes wrong here."""
        self._pass_on_errors()
        if self._daemon is not None and self._daemon.poll() is not None and not self._told:
            self._told = True
            self._link.send(ended=self._daemon.returncode, said=self._said())

    def _pass_on_errors(self) -> None:
        for error in root_cause.errors(self._folder) if self._folder is not None else ():
            if "rank" in error and error["rank"] not in self._sent:
                self._sent.add(error["rank"])
                self._link.send(error=error)

    def _said(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")[-_SAID:]

    def _stop(self) -> None:
        """Leave no process and no file of this run behind."""
        if self._daemon is not None:
            end_all(self._daemon)
        if self._folder is not None:
            self._pass_on_errors()
            shutil.rmtree(self._folder, ignore_errors=True)
        self._daemon = self._folder = None
        self._sent.clear()

    def _lost(self, lost: LinkLost) -> int:
        """Machine 0 can't be asked any more: say what is known here."""
        self._folder = self._folder or recorder.new_folder(1)
        text = f"the launcher there is lost: {lost}"
        failure.keep_of_machine(self._folder, 0, self._link.there, "connection", text, 1)
        cause = root_cause.find(self._folder, "", 1)
        print(root_cause.block(cause.text), file=sys.stderr, flush=True)
        return cause.code


def _say(text: str) -> None:
    print(f"mytorchrun: {text}", file=sys.stderr, flush=True)
