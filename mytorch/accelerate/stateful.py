"""Types of objects with a state that a checkpoint can hold."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

StateDict: TypeAlias = dict[str, Any]


class Stateful(Protocol):
    """Any object with `state_dict()` and `load_state_dict()`."""

    def state_dict(self) -> StateDict: ...
    def load_state_dict(self, state_dict: StateDict) -> None: ...


class Schedule(Stateful, Protocol):
    """Any schedule of a learning rate, such as an LRScheduler."""

    def step(self, *args: Any, **kwargs: Any) -> None: ...
