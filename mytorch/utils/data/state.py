"""The position of a loader: what `DataLoader.state_dict()` saves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_VERSION = 1
ENDED = {"ended": True, "samples": 0, "dataset": None}  # of a stream without more samples


@dataclass
class Position:
    """A position in a pass: counts the batches that were returned, not those loaded ahead.

    Attributes:
        seed: of the samples' random numbers.
        sampler: its state when the pass began.
        batches: the batches 0 … batches - 1 were returned.
        ahead: further ones that were, with `in_order=False`.
        streams: the state of each worker's stream, of an IterableDataset.
        turn: the worker whose batch comes next.
        is_over: the pass has ended.
    """

    seed: int
    epoch: int
    sampler: dict | None
    streams: list[dict | None]
    batches: int = 0
    ahead: list[int] = field(default_factory=list)
    turn: int = 0
    is_over: bool = False

    def advance(self, number: int, worker: int, stream: dict | None) -> None:
        """Records that batch `number` of `worker` was returned, and the state of that worker's stream."""
        self.ahead.append(number)
        while self.batches in self.ahead:
            self.ahead.remove(self.batches)
            self.batches += 1
        self.streams[worker] = stream
        self.turn = (worker + 1) % len(self.streams)

    @property
    def count(self) -> int:
        """The number of batches that were returned."""
        return self.batches + len(self.ahead)


def to_dict(position: Position, sizes: dict[str, Any]) -> dict:
    """Returns a position as numbers, lists and dicts; `sizes` must be the same when it is loaded."""
    streams = position.streams if any(state is not None for state in position.streams) else None
    return {
        "version": _VERSION, **sizes, "seed": position.seed, "epoch": position.epoch,
        "sampler": position.sampler, "batches": position.batches, "ahead": list(position.ahead),
        "streams": streams and list(streams), "turn": position.turn,
    }  # fmt: skip


def from_dict(state: dict, sizes: dict[str, Any], num_streams: int) -> Position:
    """Returns the position of a `to_dict`.

    Raises:
        ValueError: no such state, or that of a loader with other sizes.
    """
    missing = {"version", "seed", "epoch", "sampler", "batches", "ahead", "streams", "turn"} - state.keys()
    if missing or state["version"] != _VERSION:
        raise ValueError(f"load_state_dict(): no state of a DataLoader, it has the keys {sorted(state)}")
    for name, value in sizes.items():
        if state.get(name) != value:
            raise ValueError(
                f"load_state_dict(): the state is of a loader with {name}={state.get(name)}, "
                f"this one has {name}={value}"
            )
    streams = list(state["streams"] or [None] * num_streams)
    if len(streams) != num_streams:
        raise ValueError(
            f"load_state_dict(): an IterableDataset needs as many workers as before; the state is of "
            f"{len(streams)} streams, this loader has {num_streams}"
        )
    return Position(
        state["seed"], state["epoch"], state["sampler"], streams, state["batches"], list(state["ahead"]),
        state["turn"],
    )  # fmt: skip
