"""
The node agent: `mytorchrun launch --node_rank K`, K > 0, the launcher of a node other than node 0.

It runs only the commands of node 0: it connects to the address that the user passed, and doesn't listen.
rendezvous.py is the other side, and shows how both work together.
"""

from __future__ import annotations

import argparse
import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..utils.parent_death import die_with_parent
from . import error_report, launcher_command, root_cause
from .handshake import SECRET_VARIABLE, Prover, job_secret, print_message
from .launcher_command import LaunchError
from .node_connection import ConnectionLost, Message, NodeConnection
from .processes import SignalCatcher, adopt_orphans, terminate_all
from .rendezvous import heartbeat_limit, job_settings, join_seconds
from .run_folder import RunFolder

_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.5  # between two attempts to connect
_CONNECT_SECONDS = 5.0  # for one attempt
_ADMIT_SECONDS = 30.0  # for node 0 to admit or refuse this node
_OUTPUT_CHARACTERS = 2000  # of the daemon's last output


def join_job(options: argparse.Namespace, ranks: int, local_ranks: int) -> int:
    """Runs this node's part of a job; returns the exit code, node 0's if it is known.

    Raises:
        LaunchError: node 0 can't be reached, or refused this node.
    """
    adopt_orphans()
    with SignalCatcher() as signals:
        connection = _connect(options, signals)
        if connection is None:
            return 128 + signals.caught
        try:
            return _NodeAgent(connection, options, ranks, local_ranks, signals).run()
        finally:
            connection.close()


def _connect(options: argparse.Namespace, signals: SignalCatcher) -> NodeConnection | None:
    """Returns a connection to node 0, which may start later than this one; None after a signal."""
    address, limit = (options.master_addr, options.master_port), join_seconds()
    target = f"machine 0 at {address[0]} port {address[1]}"
    deadline, printed = time.monotonic() + limit, False
    while not signals.caught:
        try:
            connection = socket.create_connection(address, timeout=_CONNECT_SECONDS)
            return NodeConnection(connection, heartbeat_limit(options))
        except OSError as error:
            if time.monotonic() > deadline:
                raise LaunchError(f"{target} could not be reached within {limit:g} s: {error}") from error
            if not printed:
                print_message(f"machine {options.node_rank} waits for {target} ({error})")
                printed = True
        time.sleep(_RETRY_SECONDS)
    return None


class _NodeAgent:
    """This node in a job."""

    def __init__(
        self, connection: NodeConnection, options: argparse.Namespace, ranks: int, local_ranks: int,
        signals: SignalCatcher,
    ):
        self._connection, self._options, self._signals = connection, options, signals
        self._ranks, self._local_ranks = ranks, local_ranks
        self._prover, self._is_welcome = Prover("node", job_secret()), False
        self._run: RunFolder | None = None
        self._daemon: subprocess.Popen | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
        self._forwarded: set[int] = set()  # ranks whose errors were sent to node 0
        self._exit_sent = False
        self._code: int | None = None  # once node 0 has sent it

    @property
    def _folder(self) -> Path | None:
        return self._run and self._run.path

    def run(self) -> int:
        """Runs the commands of node 0 until the job ends; returns the exit code."""
        try:
            self._introduce()
            while self._code is None and not self._signals.caught:
                for message in self._connection.receive():
                    self._handle(message)
                self._report()
                time.sleep(_POLL_SECONDS)
            if self._code is None:
                self._connection.send(signal=self._signals.caught)
                return 128 + self._signals.caught
        except ConnectionLost as lost:
            if not self._is_welcome:
                raise LaunchError(f"machine 0 did not admit this one: {lost}") from lost
            return self._report_lost_connection(lost)
        finally:
            self._stop()
        if self._code:
            root = f"see the root cause on machine 0 ({self._options.master_addr})"
            print_message(f"the job failed with exit code {self._code}: {root}")
        return self._code

    def _introduce(self) -> None:
        """Does this node's part of the handshake.

        Raises:
            LaunchError: node 0 refused this node, or didn't answer, or doesn't have this job's secret.
            ConnectionLost: node 0 closed the connection.
        """
        deadline = time.monotonic() + _ADMIT_SECONDS
        if self._prover.secret:
            self._connection.send(challenge=self._prover.challenge)
        else:
            self._send_hello()
        while not (self._is_welcome or self._signals.caught):
            for message in self._connection.receive():
                self._handle(message)
            if not self._is_welcome and time.monotonic() > deadline:
                raise LaunchError(f"machine 0 did not admit this one within {_ADMIT_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def _send_hello(self) -> None:
        proof = {"proof": self._prover.proof()} if self._prover.other else {}
        settings = job_settings(self._options, self._local_ranks)
        rank, host = self._options.node_rank, socket.gethostname()
        self._connection.send(node_rank=rank, host=host, settings=settings, **proof)

    def _welcome(self, message: Message) -> None:
        if not self._prover.accepts("machine 0", message.get("proof")):
            raise LaunchError(f"machine 0 doesn't have this machine's {SECRET_VARIABLE}")
        self._connection.limit, self._is_welcome = float(message["limit"]), True
        rank = self._options.node_rank
        print_message(f"machine {rank} is connected; what its ranks print appears on machine 0")

    def _handle(self, message: Message) -> None:
        """Does what machine 0 says; LaunchError for what it can't say."""
        try:
            self._obey(message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise LaunchError(f"machine 0 sent an invalid message ({what})") from error

    def _obey(self, message: Message) -> None:
        if "refused" in message:
            raise LaunchError(f"machine 0 refused this one: {message['refused']}")
        if "welcome" in message:
            self._welcome(message)
        elif not self._is_welcome:  # only node 0 may give commands
            if "challenge" in message and not self._prover.other:
                self._prover.other = str(message["challenge"])
                self._send_hello()
        elif "run" in message:
            self._start(message["run"], message["environment"])
        elif "stop" in message:
            self._stop()
            self._connection.send(stopped=True)
        elif "end" in message:
            if type(message["end"]) is not int:
                raise ValueError(f"the exit code {message['end']!r}")
            self._code = message["end"]

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        """Starts Open MPI's daemon."""
        self._run, self._exit_sent = RunFolder(self._local_ranks), False
        variables = launcher_command.rank_environment(
            self._options, self._ranks, self._local_ranks, self._folder
        )
        variables |= {"PRTE_MCA_prte_remote_tmpdir_base": str(self._folder), **environment}
        try:
            self._daemon = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
                start_new_session=True, preexec_fn=functools.partial(die_with_parent, os.getpid()),
            )
        except OSError as error:
            self._exit_sent = True
            self._connection.send(daemon_exit=127, output=str(error))

    def _report(self) -> None:
        """Reports errors of this node's ranks and of the daemon to node 0."""
        self._forward_errors()
        if self._daemon is not None and self._daemon.poll() is not None and not self._exit_sent:
            self._exit_sent = True
            self._connection.send(daemon_exit=self._daemon.returncode, output=self._last_output())

    def _forward_errors(self) -> None:
        for error in root_cause.read_errors(self._folder) if self._folder is not None else ():
            if "rank" in error and error["rank"] not in self._forwarded:
                self._forwarded.add(error["rank"])
                self._connection.send(error=error)

    def _last_output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")[-_OUTPUT_CHARACTERS:]

    def _stop(self) -> None:
        """Ends all processes and removes all files of this run."""
        if self._daemon is not None:
            terminate_all(self._daemon)
        if self._folder is not None:
            self._forward_errors()
            self._run.remove()
        self._daemon = self._run = None
        self._forwarded.clear()

    def _report_lost_connection(self, lost: ConnectionLost) -> int:
        """Prints the root cause that is known on this node; returns the exit code."""
        self._run = self._run or RunFolder(1)
        text = f"its launcher is lost: {lost}"
        error_report.write_machine_error(
            self._folder, 0, self._connection.remote_address, "connection", text, 1
        )
        cause = root_cause.find_root_cause(self._folder, "", 1)
        print(root_cause.framed(cause.text), file=sys.stderr, flush=True)
        return cause.code
