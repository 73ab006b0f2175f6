"""
Is the rank still there that a send or receive waits for? One that has come to its end says so, if asked.

It is asked only when the wait has become long, so a message that comes soon costs nothing. Messages that it
sent before its end may still be on their way when its answer is here: so there is some time left for them.
"""

from __future__ import annotations

import time

from .channel import Channel
from .errors import DistMismatch

_ASK_AFTER = 0.05  # seconds of waiting
_LATE_MESSAGE = 0.5  # seconds after the answer


class PeerWatch:
    """Watches over one send or receive.

    Args:
        channel: of the group.
        peers: the ranks of the group that it can be with: the others all, for a receive from any.
    """

    def __init__(self, channel: Channel, peers: tuple[int, ...]):
        self._channel, self._peers = channel, peers
        self._begin: float | None = None  # of the wait
        self._ended: float | None = None  # since then it is known that all have come to their end

    def are_gone(self) -> bool:
        """Have all of them come to the end of the program, and is nothing to be expected of them?

        Raises:
            DistMismatch: the ranks don't agree on an operation that began earlier.
        """
        now = time.monotonic()
        if self._begin is None:
            self._begin = now
        if now - self._begin < _ASK_AFTER:
            return False
        self._channel.advance()  # others may want to know why the ranks don't agree on something earlier
        if self._ended is None:
            for peer in self._peers:
                self._channel.ask(peer)
            if not all(self._channel.has_ended(peer) for peer in self._peers):
                return False
            self._ended = now
        return now - self._ended > _LATE_MESSAGE

    def error(self, operation: str) -> DistMismatch:
        """What to raise then."""
        ranks = tuple(self._channel.ranks[peer] for peer in self._peers)
        names = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        return DistMismatch(f"{names} came to the end of the program; {operation}", ranks)
