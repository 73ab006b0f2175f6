"""
Rendezvous: how the nodes of a job that was launched on each node find each other, as node 0 sees it.

    node 0                                               node k
    launcher, listens at master_port  <- connection ->   launcher, sends its node_rank       (node_agent.py,
                                                                                              handshake.py)
      mpiexec                                              |
        remote_shell.py, instead of ssh                    |
      forwards its command           ---- run ---------> starts Open MPI's daemon, which starts the ranks
      writes the ranks' error files  <--- error -------- reads them from its own run folder
      at the end                     ---- stop, end ---> ends all processes, exits with the same code

So no node needs an ssh server, each keeps its own environment, and both sides notice a broken connection.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import error_report, root_cause
from .environment import seconds
from .handshake import SECRET_VARIABLE, Reception, job_secret, print_message
from .launcher_command import LaunchError
from .node_connection import ConnectionLost, Message, NodeConnection

JOIN_VARIABLE = "MYTORCH_JOIN_TIMEOUT"
_JOIN_SECONDS = 600.0  # for the user to type the command on each machine
SHORTEST_LIMIT = 5.0  # seconds without a heartbeat that never count as a broken connection
_STOP_SECONDS = 8.0  # for a node to end its processes
_POLL_SECONDS = 0.05


def job_settings(options: argparse.Namespace, local_ranks: int) -> dict[str, object]:
    """Returns what must be the same on all nodes, by the name that messages call it."""
    return {
        "--nnodes": options.nnodes,
        "processes on each machine": local_ranks,
        "script": " ".join([options.script, *options.script_args]),
        "Python": sys.executable,
        "current folder": os.getcwd(),
    }


def join_seconds() -> float:
    """Returns how long nodes wait for each other at the start."""
    return seconds(os.environ.get(JOIN_VARIABLE) or _JOIN_SECONDS)


def heartbeat_limit(options: argparse.Namespace) -> float:
    """Returns the seconds without a heartbeat after which a connection counts as broken."""
    return max(seconds(options.timeout), SHORTEST_LIMIT)


class Rendezvous:
    """Node 0's connections to the other nodes.

    Args:
        options: of the launcher.
        local_ranks: the number of ranks on each node.

    Raises:
        LaunchError: the port is in use.
    """

    def __init__(self, options: argparse.Namespace, local_ranks: int):
        self._settings, self._count = job_settings(options, local_ranks), options.nnodes
        self._limit, self._local_ranks = heartbeat_limit(options), local_ranks
        self._nodes: dict[int, NodeConnection] = {}
        self._names: dict[int, str] = {}
        self._lost: dict[int, str] = {}  # nodes that were connected once, and why they aren't
        self._stopped: set[int] = set()
        self._port = options.master_port
        try:
            self._reception = Reception(self._port, self._limit)
        except OSError as error:
            raise LaunchError(
                f"can't wait for the other machines at --master_port {self._port}: {error}"
            ) from error
        if not job_secret() and not options.master_addr.startswith("127."):
            print_message(f"without {SECRET_VARIABLE} all that reach port {self._port} may join this job")

    def write_hostfile(self, folder: Path) -> Path:
        """Writes the hostfile for mpiexec: the address and the number of ranks of each node, node 0 first."""
        nodes = [self._nodes[rank] for rank in sorted(self._nodes)]
        addresses = [nodes[0].local_address, *(node.remote_address for node in nodes)]
        path = folder / "hosts"
        path.write_text("".join(f"{address} slots={self._local_ranks}\n" for address in addresses))
        return path

    def wait_for_nodes(self, interrupted: Callable[[], object]) -> None:
        """Waits until all nodes are connected, or `interrupted` returns True.

        Raises:
            LaunchError: they aren't within MYTORCH_JOIN_TIMEOUT seconds.
        """
        limit, printed = join_seconds(), ""
        deadline = time.monotonic() + limit
        self._receive_all()  # a node may be lost since the last start
        while (missing := self._missing()) and not interrupted():
            if missing != printed:
                print_message(f"machine 0 waits at port {self._port} for machine {missing}")
                printed = missing
            if time.monotonic() > deadline:
                raise LaunchError(f"machine {missing} did not come within {limit:g} s")
            self._accept()
            self._receive_all()
            time.sleep(_POLL_SECONDS)

    def poll(self, folder: Path) -> None:
        """Forwards the commands that remote_shell.py wrote; writes the error files of the nodes."""
        for path in folder.glob("daemon-*.json"):
            address = path.stem.removeprefix("daemon-")
            for node in self._nodes.values():
                if node.remote_address == address:
                    node.send(**json.loads(path.read_text()))
            path.unlink()
        self._accept()
        self._receive_all(folder)

    def stop(self, folder: Path) -> None:
        """Ends the processes of this run on all nodes; their launchers stay for the next one."""
        self._stopped.clear()
        for node in self._nodes.values():
            node.send(stop=True)
        self._receive_until(lambda: self._stopped >= set(self._nodes), folder)
        for rank in set(self._nodes) - self._stopped:  # the run may have succeeded all the same
            self._nodes.pop(rank).close()
            self._lost[rank] = "it did not end its part"

    def close(self, code: int) -> None:
        """Makes the launchers of all nodes exit with this code, and waits for them."""
        for node in self._nodes.values():
            node.send(end=code)
        self._receive_until(lambda: not self._nodes, None)
        for node in self._nodes.values():
            node.close()
        self._reception.close()

    def _receive_until(self, done: Callable[[], bool], folder: Path | None) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while not done() and time.monotonic() < deadline:
            self._receive_all(folder)
            time.sleep(_POLL_SECONDS)

    def _receive_all(self, folder: Path | None = None) -> None:
        """Handles the messages of all nodes; errors are written to the folder."""
        for rank in list(self._nodes):
            try:
                for message in self._nodes[rank].receive():
                    self._handle(rank, message, folder)
            except ConnectionLost as lost:
                self._lose(rank, folder, str(lost))
            except (ValueError, TypeError, KeyError) as error:
                self._lose(rank, folder, f"it sent an invalid message ({type(error).__name__}: {error})")

    def _lose(self, rank: int, folder: Path | None, why: str) -> None:
        """Removes a node, and reports that in the folder."""
        self._nodes.pop(rank).close()
        self._lost[rank] = why
        if folder is not None:
            self._write_error(rank, folder, "connection", f"its launcher is lost: {why}", 1)

    def _handle(self, rank: int, message: Message, folder: Path | None) -> None:
        if "stopped" in message:
            self._stopped.add(rank)
        elif folder is None:
            return
        elif "error" in message:
            error_report.write_error(folder, message["error"])
        elif "signal" in message:
            number = signal.Signals(message["signal"])
            self._write_error(rank, folder, "signal", f"its launcher got {number.name}", 128 + number)
        elif message.get("daemon_exit"):
            exit_text = root_cause.describe_exit(message["daemon_exit"])
            text = f"Open MPI's daemon {exit_text}\n{message['output']}"
            self._write_error(rank, folder, "daemon", text.strip(), 1)

    def _write_error(self, rank: int, folder: Path, kind: str, text: str, code: int) -> None:
        error_report.write_machine_error(folder, rank, self._names[rank], kind, text, code)

    def _accept(self) -> None:
        """Admits or refuses the launchers that have identified themselves."""
        for guest, hello in self._reception.receive():
            refusal = self._why_refused(hello)
            if refusal:
                self._reception.refuse(guest, refusal)
                continue
            rank = hello["node_rank"]
            self._nodes[rank] = guest.connection
            self._names[rank] = f"{hello.get('host')}, {guest.connection.remote_address}"
            self._reception.welcome(guest)

    def _why_refused(self, hello: Message) -> str:
        """Returns why a launcher can't be a node of this job; "" if it can."""
        rank, host, settings = hello["node_rank"], hello.get("host"), hello.get("settings")
        hosts = [socket.gethostname(), *(self._names[other].split(",")[0] for other in self._nodes)]
        for name, own in self._settings.items():
            other = settings.get(name) if isinstance(settings, dict) else None
            if other != own:
                return f"{name} is {other!r}, and {own!r} on machine 0"
        if type(rank) is not int or not 0 < rank < self._count:
            return f"its --node_rank {rank!r} is not in 1 … {self._count - 1}"
        if rank in self._nodes:
            return f"machine {rank} is connected already ({self._names[rank]}): --node_rank must be unique"
        if host in hosts:
            return f"the host names of a job must be unique, but another machine has the name {host}, too"
        return ""

    def _missing(self) -> str:
        return ", ".join(
            f"{rank} (lost: {self._lost[rank]})" if rank in self._lost else str(rank)
            for rank in range(1, self._count)
            if rank not in self._nodes
        )
