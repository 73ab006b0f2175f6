"""
NodeConnection: messages and heartbeats between the launchers of two nodes, as lines of JSON.

Messages are checked text, never pickles: any program that reaches the port may send them. Until the handshake
(handshake.py) is over nothing is known of the sender, so size and depth are bounded.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]  # JSON

HEARTBEAT_SECONDS = 1.0
_LONGEST_STEP = 0.25  # seconds between two calls that count: while this process was stopped, silence doesn't
_MAX_BYTES = 1 << 20  # of a message
_READ_BYTES = 1 << 16  # at a time: a sender of many small messages must not occupy this process
_MAX_DEPTH = 8  # of lists and dicts in each other


class ConnectionLost(Exception):
    """The other side is gone or sends no heartbeats; the message says which."""


class NodeConnection:
    """One end of a connection.

    Args:
        connection: a connected socket; the object owns it.
        limit: seconds without a heartbeat after which the connection counts as broken.

    Attributes:
        local_address, remote_address: without the port.
    """

    def __init__(self, connection: socket.socket, limit: float):
        self.local_address = _address(connection.getsockname())
        self.remote_address = _address(connection.getpeername())
        self.limit = limit
        connection.setblocking(False)
        self._socket, self._buffer, self._broken = connection, b"", ""
        self._silent, self._last_receive, self._last_send = 0.0, time.monotonic(), 0.0

    def send(self, **message: object) -> None:
        """Sends a message; a failure is raised by the next `receive`."""
        self._last_send = time.monotonic()
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self._broken = self._broken or f"nothing can be sent ({error})"

    def receive(self) -> list[Message]:
        """Returns the messages since the last call, and sends heartbeats; called several times per second.

        Raises:
            ConnectionLost: no message arrived, and none will.
        """
        now = time.monotonic()
        elapsed, self._last_receive = min(now - self._last_receive, _LONGEST_STEP), now
        if now - self._last_send > HEARTBEAT_SECONDS and not self._broken:
            self.send()
        self._silent = 0.0 if self._read() else self._silent + elapsed
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [message for message in map(_parse, lines) if message]
        if not messages and (self._broken or self._silent > self.limit):
            raise ConnectionLost(self._broken or f"no heartbeat for {self.limit:g} s")
        return messages

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> bool:
        """Reads into the buffer; returns whether data arrived."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = f"the connection broke ({error})"
            return False
        if not data:
            self._broken = "it closed the connection"
        self._buffer += data
        if len(self._buffer) - self._buffer.rfind(b"\n") > _MAX_BYTES:
            self._broken, self._buffer = f"it sent a message of more than {_MAX_BYTES} bytes", b""
        return bool(data)


def _address(name: tuple) -> str:
    """Returns the address in a socket's name; a dual-stack socket calls 10.0.0.5 ::ffff:10.0.0.5."""
    return name[0].removeprefix("::ffff:")


def _parse(line: bytes) -> Message:
    """Returns the message in a line; {} (a heartbeat) if it isn't one."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) and not _is_deeper(message, _MAX_DEPTH) else {}


def _is_deeper(value: object, depth: int) -> bool:
    """Returns whether lists and dicts are nested more than `depth` times."""
    if not isinstance(value, (list, dict)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(item, depth - 1) for item in items)
