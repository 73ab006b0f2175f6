"""Values that a program can't use any more: eager code would find their elements elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..program.instruction import Value


class Picked(NotImplementedError):
    """Raised by a program that has copied what would have to be a view: see `Tracer.picked`."""


class StaleValues:
    """Copies in place of views, which are stale when what they were copied from is written to, and parameters
    after a step that may move them. All are known by their storages."""

    def __init__(self) -> None:
        self._bases: dict[Value, Value] = {}  # of the copies, what they were copied from
        self._stale: set[Value] = set()  # the copies whose base was written to
        self._moved: set[Value] = set()  # parameters and gradients after a step that may move them

    def __bool__(self) -> bool:
        return bool(self._bases or self._moved)

    def add_copy(self, copy: Value, base: Value) -> None:
        """Adds a copy that is a view in eager code."""
        self._bases[copy.storage] = base.storage

    def add_moved(self, values: Iterable[Value]) -> None:
        """Adds parameters and gradients that a step may have moved."""
        self._moved |= {x.storage for x in values}

    def error(
        self, used: Iterable[Value], written: Collection[Value], are_results: bool = False
    ) -> NotImplementedError | None:
        """Returns why values can't be used, as they are by an instruction or as results; None if they can.

        Args:
            written: the storages that the instruction writes to.
            are_results: whether the function returns them, which a copy can't be.
        """
        storages = {x.storage for x in used}
        changed = storages.union(written) if are_results else written
        if not (self._bases.keys().isdisjoint(changed) and self._stale.isdisjoint(storages)):
            return Picked("a program can't write to, or return, a view at an index that it computes")
        self._stale |= {copy for copy, base in self._bases.items() if base in written}
        if not self._moved.isdisjoint(storages):
            return NotImplementedError(
                "a program can't use a parameter or gradient after a step that may move it: of an optimizer "
                "with a step() of its own, or after one of its schedule"
            )
        return None
