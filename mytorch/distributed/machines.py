"""
The machines of a job that was launched on each of them by hand, as machine 0 sees them.

    machine 0                                            machine k
    launcher, waits at master_port  <---- link --------  launcher, comes with its node_rank  (member.py)
      mpiexec                                              |
        agent.py, in the place of ssh                      |
      passes the agent's command on  ---- run -------->    starts Open MPI's daemon, which starts the ranks
      keeps what its ranks report    <--- error --------   reads it from its own run folder
      when all is over               ---- stop, end --->   leaves nothing, exits with the same code

So no machine needs an ssh server, each keeps its own environment, and when a link is cut both sides know.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import failure, root_cause
from .environment import seconds
from .launcher_command import LaunchError
from .link import Link, LinkLost

JOIN_VARIABLE = "MYTORCH_JOIN_TIMEOUT"
_JOIN_SECONDS = 600.0  # for somebody to type the command on each machine
_HELLO_SECONDS = 10.0  # for who has connected to say who it is
_SHORTEST = 5.0  # seconds of silence that are never taken for a cut link
_LEAVE_SECONDS = 8.0  # for a machine to end all that it runs
_STEP = 0.05


def facts(options: argparse.Namespace, local_ranks: int) -> dict[str, Any]:
    """What must be the same on all machines, by what to call it."""
    return {
        "--nnodes": options.nnodes,
        "processes on each machine": local_ranks,
        "script": " ".join([options.script, *options.script_args]),
        "Python": sys.executable,
        "current folder": os.getcwd(),
    }


def join_seconds() -> float:
    """How long machines wait for each other at the start."""
    return seconds(os.environ.get(JOIN_VARIABLE) or _JOIN_SECONDS)


def silence(options: argparse.Namespace) -> float:
    """Seconds after which a silent link counts as cut."""
    return max(seconds(options.timeout), _SHORTEST)


class Machines:
    """The other machines.

    Args:
        options: of the launcher.
        local_ranks: on each machine.

    Raises:
        LaunchError: the port is taken.
    """

    def __init__(self, options: argparse.Namespace, local_ranks: int):
        self._facts, self._count, self._limit = facts(options, local_ranks), options.nnodes, silence(options)
        self._ranks = local_ranks
        self._links: dict[int, Link] = {}
        self._names: dict[int, str] = {}
        self._lost: dict[int, str] = {}  # those that were here once, and why they aren't
        self._guests: list[tuple[Link, float]] = []  # connected, but unknown; since when
        self._refused: list[Link] = []  # they close, once they have read why
        self._stopped: set[int] = set()
        self._port = options.master_port
        try:
            self._door = _open_door(self._port)
        except OSError as error:
            raise LaunchError(
                f"can't wait for the other machines at --master_port {self._port}: {error}"
            ) from error
        self._door.setblocking(False)

    def list_hosts(self, folder: Path) -> Path:
        """Write the file for mpiexec, with the address and the number of ranks of each, machine 0 first."""
        links = [self._links[rank] for rank in sorted(self._links)]
        addresses = [links[0].here, *(link.there for link in links)]
        path = folder / "hosts"
        path.write_text("".join(f"{address} slots={self._ranks}\n" for address in addresses))
        return path

    def gather(self, interrupted: Callable[[], bool]) -> None:
        """Wait until all are there, or somebody interrupts.

        Raises:
            LaunchError: they don't come within MYTORCH_JOIN_TIMEOUT seconds.
        """
        limit, said = join_seconds(), ""
        deadline = time.monotonic() + limit
        self._listen()  # somebody may have gone since the last start
        while (missing := self._missing()) and not interrupted():
            if missing != said:
                self._say(f"machine 0 waits at port {self._port} for machine {missing}")
                said = missing
            if time.monotonic() > deadline:
                raise LaunchError(f"machine {missing} did not come within {limit:g} s")
            self._look_at_the_door()
            self._listen()
            time.sleep(_STEP)

    def look(self, folder: Path) -> None:
        """Pass on what the agent left in the run's folder, and keep there what the machines report."""
        for path in folder.glob("daemon-*.json"):
            address = path.stem.removeprefix("daemon-")
            for link in self._links.values():
                if link.there == address:
                    link.send(**json.loads(path.read_text()))
            path.unlink()
        self._look_at_the_door()
        self._listen(folder)

    def stop(self, folder: Path) -> None:
        """Leave nothing of this run on any machine; the launchers there stay for the next one."""
        self._stopped.clear()
        for link in self._links.values():
            link.send(stop=True)
        self._until(lambda: self._stopped >= set(self._links), folder)
        for rank in set(self._links) - self._stopped:  # it may have gone well all the same
            self._links.pop(rank).close()
            self._lost[rank] = "it did not end its part"

    def dismiss(self, code: int) -> None:
        """Let all launchers exit with this code, and wait until they do."""
        for link in self._links.values():
            link.send(end=code)
        self._until(lambda: not self._links, None)
        for link in [*self._links.values(), *self._refused, *(guest for guest, _ in self._guests)]:
            link.close()
        self._door.close()

    def _until(self, done: Callable[[], bool], folder: Path | None) -> None:
        deadline = time.monotonic() + _LEAVE_SECONDS
        while not done() and time.monotonic() < deadline:
            self._listen(folder)
            time.sleep(_STEP)

    def _listen(self, folder: Path | None = None) -> None:
        """Take what the machines say; what goes wrong is kept in the folder."""
        for rank in list(self._links):
            for message in self._receive(rank, folder):
                self._take(rank, message, folder)

    def _receive(self, rank: int, folder: Path | None) -> list[dict[str, Any]]:
        """What a machine says; one that is lost is forgotten, after a word about it in the folder."""
        try:
            return self._links[rank].receive()
        except LinkLost as lost:
            self._links.pop(rank).close()
            self._lost[rank] = str(lost)
            if folder is not None:
                self._report(rank, folder, "connection", f"the launcher there is lost: {lost}", 1)
            return []

    def _take(self, rank: int, message: dict[str, Any], folder: Path | None) -> None:
        if "stopped" in message:
            self._stopped.add(rank)
        elif folder is None:
            return
        elif "error" in message:
            failure.keep(folder, message["error"])
        elif "signal" in message:
            number = signal.Signals(message["signal"])
            self._report(rank, folder, "signal", f"the launcher there got {number.name}", 128 + number)
        elif message.get("ended"):
            text = f"Open MPI's daemon there {root_cause.ending(message['ended'])}\n{message['said']}"
            self._report(rank, folder, "daemon", text.strip(), 1)

    def _report(self, rank: int, folder: Path, kind: str, text: str, code: int) -> None:
        failure.keep_of_machine(folder, rank, self._names[rank], kind, text, code)

    def _look_at_the_door(self) -> None:
        """Let in who knocks, and has said who it is."""
        with contextlib.suppress(BlockingIOError):
            self._guests.append((Link(self._door.accept()[0], self._limit), time.monotonic()))
        for guest, since in list(self._guests):
            try:
                messages = guest.receive()
            except LinkLost:
                messages = [{}]
            if not messages and time.monotonic() - since < _HELLO_SECONDS:
                continue
            self._guests.remove((guest, since))
            self._admit(guest, messages[0] if messages else {})

    def _admit(self, guest: Link, hello: dict[str, Any]) -> None:
        if "node_rank" not in hello:
            guest.close()  # not one of ours
            return
        refusal = self._why_not(guest, hello)
        if refusal:
            self._say(f"machine 0 refused one at {guest.there}: {refusal}")
            guest.send(refused=refusal)
            self._refused.append(guest)
            return
        rank = hello["node_rank"]
        self._links[rank], self._names[rank] = guest, f"{hello.get('host')}, {guest.there}"
        guest.send(welcome=True, limit=self._limit)

    def _why_not(self, guest: Link, hello: dict[str, Any]) -> str:
        """Why somebody can't be one of the machines; "" if it can."""
        rank, host, said = hello["node_rank"], hello.get("host"), hello.get("facts")
        taken = [socket.gethostname(), *(self._names[other].split(",")[0] for other in self._links)]
        for name, mine in self._facts.items():
            theirs = said.get(name) if isinstance(said, dict) else None
            if theirs != mine:
                return f"{name} is {theirs!r} there and {mine!r} on machine 0"
        if type(rank) is not int or not 0 < rank < self._count:
            return f"its --node_rank {rank} is not in 1 … {self._count - 1}"
        if rank in self._links:
            return f"there is a machine with --node_rank {rank} already ({self._names[rank]})"
        if host in taken:
            return f"another machine of the job is called {host}, too: each needs a name of its own"
        return ""

    def _missing(self) -> str:
        return ", ".join(
            f"{rank} (lost: {self._lost[rank]})" if rank in self._lost else str(rank)
            for rank in range(1, self._count)
            if rank not in self._links
        )

    def _say(self, text: str) -> None:
        print(f"mytorchrun: {text}", file=sys.stderr, flush=True)


def _open_door(port: int) -> socket.socket:
    """A socket at which machines can come by IPv4 and, where the system has it, by IPv6."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
