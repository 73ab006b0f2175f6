"""Cache entries of a compiled function: each is a program for one kind of arguments, with its guards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..backends.device import RawArray
from ..core.tensor import Tensor
from .guards.places import Place
from .guards.snapshot import Snapshot
from .guards.tensors import TensorGuards
from .partition import Partition


class GuardFailure(Exception):
    """Raised by a cache entry if what its program depends on has changed.

    Args:
        entry: that can't be used.
        text: what has changed.
    """

    def __init__(self, entry: CacheEntry, text: str):
        super().__init__(text)
        self.entry = entry


class EagerEntry:
    """What runs a function for arguments for which it can't be traced.

    Attributes:
        key: of these arguments; see `key_of`.
    """

    def __init__(self, function: Callable, key: tuple):
        self._function, self.key = function, key

    def run(self, tensors: list[Tensor], given: list, args: tuple, kwargs: dict) -> Any:
        return self._function(*args, **kwargs)


class CacheEntry:
    """A program for one kind of arguments.

    Args:
        function: that was traced.
        partition: what it computes.
        tensors, snapshot: guards of the state, and of Python's objects.
        places: of numbers in objects that are inputs, with their kinds.
        flags: bools that the function changes, as `training`: the dict, the name, and what it becomes.
        asks_identity: whether the function asks which tensor is the same object.

    Attributes:
        key: of the arguments; see `key_of`.
        kind: of the arguments, of any size; see `kind_of`.
    """

    key: tuple
    kind: tuple

    def __init__(
        self, function: Callable, partition: Partition, tensors: TensorGuards, snapshot: Snapshot,
        places: dict[Place, type], flags: Collection[tuple], asks_identity: bool,
    ):
        self._function, self.partition, self._tensors, self._snapshot = function, partition, tensors, snapshot
        self._places, self._flags, self._asks_identity = places, flags, asks_identity
        self.prepare()

    def prepare(self) -> None:
        """Makes the functions that run the programs."""
        has_more = self._tensors.depends_on_grads or self._places
        self._hold, self._change = None if has_more else self._tensors.hold, self._snapshot.failure
        executable = self.partition.forward.executable()
        self._bind, self._overlap = executable.bind, executable.overlap
        self._writes, self._movers = executable.writes, executable.movers
        self._may_run_eagerly = bool(self._writes or self._asks_identity or self._movers)

    def resized(self, partition: Partition) -> CacheEntry:
        """Returns the entry of the same function for arguments of other sizes."""
        made = object.__new__(CacheEntry)
        made.__dict__.update(self.__dict__)
        made.partition, made._tensors = partition, self._tensors.copy()
        return made

    def run(
        self, tensors: list[Tensor], given: list, args: tuple, kwargs: dict, asks_guards: bool = True
    ) -> Any:
        """Returns what the function does, computed by the program.

        Args:
            tensors: the arguments that are tensors.
            given: their arrays, and the numbers among the arguments that are inputs.
            args, kwargs: what the function gets.
            asks_guards: not right after the trace: another thread may be tracing what the guards look at.

        Raises:
            GuardFailure: something has changed since the trace.
            Mismatch: the program depends on an element, or a number, that is another one.
        """
        if asks_guards:
            is_same = self._hold is not None and self._hold()  # most often
            if (change := self._change() if is_same else self.failure()) is not None:
                raise GuardFailure(self, change)
        if self._may_run_eagerly and self._must_run_eagerly(tensors, given):
            return self._function(*args, **kwargs)
        if self._places:
            given = [*given, *[place.read() for place in self._places]]
        result = self.partition(tensors, given)
        for entries, name, value in self._flags:
            entries[name] = value
        return result

    def failure(self) -> str | None:
        """Returns what has changed since the trace; None if the program still holds."""
        if (change := self._tensors.failure(self._bind)) is not None:
            return change
        for place, kind in self._places.items():
            if type(place.read()) is not kind:
                return f"{place} is no {kind.__name__}"
        return self._snapshot.failure()

    def changed_numbers(self) -> set[Place]:
        """Returns the places of numbers in objects that are others than in the trace: see `Reachable`."""
        return self._snapshot.changed_numbers()

    def _must_run_eagerly(self, tensors: Sequence[Tensor], raws: list[RawArray]) -> bool:
        """Returns whether an argument is a tensor of the state, if that matters, the program would write
        to memory that another tensor shares (see `Executable`), or an optimizer would move what it uses."""
        if self._movers and not all([optimizer.is_settled() for optimizer in self._movers]):
            return True
        if self._asks_identity and self._tensors.hold_one_of(tensors):
            return True
        return self._writes and self._overlap(raws)

    def __str__(self) -> str:
        programs = [p for p in (self.partition.forward, self.partition.backward) if p is not None]
        counts = [f"{p.name}: {len(p.instructions)} instructions" for p in programs]
        return ", ".join([*counts, *filter(None, [str(self.partition.graph)])])
