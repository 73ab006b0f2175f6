"""
The handshake between the launchers of a job that is launched on each node.

    node 0                                        node k
    (waits for a connection)                      challenge k          if it has a MYTORCH_JOB_SECRET
    challenge 0                                   its node_rank and settings, proof(node, k, 0)
    welcome, proof(machine 0, k, 0), or refused

A proof is an HMAC of both challenges, which are random: it shows that a side has the secret, and is of no use
to one that listens. Without a secret on either side there are no challenges, and node 0 admits who comes, as
with torchrun. The messages after the handshake are neither signed nor encrypted.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass, field

from ..utils.reading import printable
from .node_connection import ConnectionLost, Message, NodeConnection

SECRET_VARIABLE = "MYTORCH_JOB_SECRET"
HANDSHAKE_SECONDS = 10.0  # for a new connection to identify itself, and for a refused one to read why
_MOST_GUESTS = 128  # connections that haven't identified themselves; a further one replaces the oldest
_MOST_ACCEPTED = 8  # connections at a time, so that those before them have time to identify themselves
_LONGEST_REASON = 500  # characters


def job_secret() -> bytes:
    """Returns the secret that the launchers of a job share; empty if there is none."""
    return os.environ.get(SECRET_VARIABLE, "").encode(errors="surrogateescape")


class Prover:
    """One side's part of the challenges and proofs.

    Attributes:
        challenge: of this side.
        other: the challenge of the other side, once it is known.
    """

    def __init__(self, role: str, secret: bytes):
        self.secret, self.challenge, self.other = secret, secrets.token_hex(16), ""
        self._role = role

    def proof(self) -> str:
        return self._proof(self._role)

    def accepts(self, role: str, proof: object) -> bool:
        """Returns whether the other side has proved that it has the same secret; True if there is none."""
        given = str(proof).encode(errors="replace")
        return not self.secret or hmac.compare_digest(self._proof(role).encode(), given)

    def _proof(self, role: str) -> str:
        text = "|".join((role, *sorted((self.challenge, self.other))))
        return hmac.new(self.secret, text.encode(errors="replace"), "sha256").hexdigest()


@dataclass
class Guest:
    """A connection that isn't a node's yet."""

    connection: NodeConnection
    prover: Prover
    since: float = field(default_factory=time.monotonic)
    is_refused: bool = False


class Reception:
    """Accepts connections for node 0, and returns those that have identified themselves as launchers.

    Args:
        port: to listen at.
        limit: of a `NodeConnection`.

    Raises:
        OSError: the port is in use.
    """

    def __init__(self, port: int, limit: float):
        self._limit, self._secret, self._guests = limit, job_secret(), []
        self._server = _listen(port)
        self._server.setblocking(False)

    def receive(self) -> list[tuple[Guest, Message]]:
        """Returns the launchers that came since the last call: `welcome` or `refuse` them."""
        self._accept()
        return [(guest, hello) for guest in list(self._guests) if (hello := self._advance(guest))]

    def welcome(self, guest: Guest) -> None:
        """Admits a launcher; the connection is the caller's now."""
        self._guests.remove(guest)
        proof = {"proof": guest.prover.proof()} if self._secret else {}
        guest.connection.send(welcome=True, limit=self._limit, **proof)

    def refuse(self, guest: Guest, reason: str) -> None:
        """Tells a launcher why it is refused, and the user, too; it closes the connection, or we do later."""
        reason = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} …"
        print_message(f"machine 0 refused one at {guest.connection.remote_address}: {reason}")
        guest.connection.send(refused=reason)
        guest.is_refused, guest.since = True, time.monotonic()

    def close(self) -> None:
        for guest in list(self._guests):
            self._drop(guest)
        self._server.close()

    def _accept(self) -> None:
        for _ in range(_MOST_ACCEPTED):
            try:
                connection = NodeConnection(self._server.accept()[0], self._limit)
            except OSError:  # none is there, or it is gone already
                return
            self._guests.append(Guest(connection, Prover("machine 0", self._secret)))
            if len(self._guests) > _MOST_GUESTS:
                self._drop(self._guests[0])

    def _drop(self, guest: Guest) -> None:
        self._guests.remove(guest)
        guest.connection.close()

    def _advance(self, guest: Guest) -> Message | None:
        """Handles the next message of a guest; returns it if it identifies a launcher that has the secret."""
        try:
            messages = guest.connection.receive()
        except ConnectionLost:
            self._drop(guest)
            return None
        if messages and not guest.is_refused:
            return self._handle(guest, messages[0])
        if time.monotonic() - guest.since > HANDSHAKE_SECONDS:
            self._drop(guest)
        return None

    def _handle(self, guest: Guest, message: Message) -> Message | None:
        if "node_rank" in message:
            if guest.prover.accepts("node", message.get("proof")):
                return message
            which = "another" if guest.prover.other else "no"
            self.refuse(guest, f"it has {which} {SECRET_VARIABLE}: it must be the same on all machines")
        elif "challenge" not in message or guest.prover.other:
            self._drop(guest)  # not a launcher
        elif self._secret:
            guest.prover.other = str(message["challenge"])
            guest.connection.send(challenge=guest.prover.challenge)
        else:
            self.refuse(guest, f"it has a {SECRET_VARIABLE}, and machine 0 has none")
        return None


def print_message(text: str) -> None:
    """Prints a message of this launcher; it may quote any program that reaches the port."""
    print(f"mytorchrun: {printable(text)}", file=sys.stderr, flush=True)


def _listen(port: int) -> socket.socket:
    """Returns a server socket for IPv4 and, where the system has it, IPv6."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
