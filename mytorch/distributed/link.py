"""
A link between the launchers of two machines: messages as JSON, a line each, and signs of life between them.

What comes over it is text that is checked, never a pickle. A link isn't secret: who can read the network can
read it, and who can connect to machine 0 before the right machine does takes its place, as with torchrun.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

_ALIVE = 1.0  # seconds between two signs of life
_COUNTED = 0.25  # of one look: while this process was stopped itself, the other's silence doesn't count
_LONGEST = 1 << 20  # bytes of a message


class LinkLost(Exception):
    """The other side is gone, or says nothing any more; the message says which."""


class Link:
    """One end of a link.

    Args:
        connection: a connected socket; it belongs to the link from now on.
        limit: seconds after which silence means that the link is cut.

    Attributes:
        here, there: the address of each end, without the port.
    """

    def __init__(self, connection: socket.socket, limit: float):
        self.here, self.there = map(_address, (connection.getsockname(), connection.getpeername()))
        self.limit = limit
        connection.setblocking(False)
        self._connection, self._buffer, self._broken = connection, b"", ""
        self._silent, self._looked, self._spoke = 0.0, time.monotonic(), 0.0

    def send(self, **message: Any) -> None:
        """Send a message; that it can't be sent is what `receive` says next."""
        self._spoke = time.monotonic()
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self._broken = self._broken or f"nothing can be sent ({error})"

    def receive(self) -> list[dict[str, Any]]:
        """The messages since the last call, which comes several times a second.

        Raises:
            LinkLost: there are none, and there will be none.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _COUNTED), now
        if now - self._spoke > _ALIVE and not self._broken:
            self.send()
        self._silent = 0.0 if self._read() else self._silent + passed
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [message for message in map(_parse, lines) if message]
        if not messages and (self._broken or self._silent > self.limit):
            raise LinkLost(self._broken or f"nothing was heard of it for {self.limit:g} s")
        return messages

    def close(self) -> None:
        self._connection.close()

    def _read(self) -> bool:
        """Did anything come?"""
        try:
            data = self._connection.recv(_LONGEST)
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = f"the connection broke ({error})"
            return False
        if not data or len(self._buffer) > _LONGEST:
            self._broken = "it closed the connection"
        self._buffer += data
        return bool(data)


def _address(name: tuple) -> str:
    """Of a socket's name, the address; a socket for both kinds calls 10.0.0.5 ::ffff:10.0.0.5."""
    return name[0].removeprefix("::ffff:")


def _parse(line: bytes) -> dict[str, Any]:
    """A message; an empty one, a sign of life, for what isn't one."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
