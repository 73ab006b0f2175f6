"""Which numbers that a compiled function uses are inputs of its programs, and not constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...backends.device import RawArray
from ..tracing.numbers import Numbers
from ..tracing.stale import Picked
from .keys import changed_numbers
from .places import Place
from .snapshot import KINDS

T = TypeVar("T")
_ALL = frozenset(range(1000))  # more numbers than arguments hold; others would stay constants


class NumberInputs:
    """The numbers of a function that are inputs: those that were seen to change, unless programs need their
    exact values.

    Args:
        dynamic: True if all are inputs from the first trace on, False if none ever is.

    Attributes:
        positions: of these, among the numbers of the arguments in order, and their places in objects.
        has_learned: whether the last trace was the first one with one of them.
    """

    def __init__(self, dynamic: bool | None):
        self._dynamic = dynamic
        self.positions: frozenset[int | Place] = _ALL if dynamic else frozenset()
        self._known, self.has_learned = self.positions, False  # as of the last trace
        self._constant: frozenset[int | Place] = frozenset()  # positions that never are inputs

    def given(self, raws: list[RawArray], numbers: Sequence[float | int]) -> list:
        """Returns the inputs of a program: the arrays, and numbers of a call."""
        return [*raws, *[x for k, x in enumerate(numbers) if k in self.positions]]

    def learn(self, keys: Sequence[tuple], key: tuple) -> None:
        """Makes numbers inputs in which a call differs from an earlier one, if it differs in nothing else."""
        if self._dynamic is None:
            found = self.positions.union(*[changed_numbers(was, key) for was in keys])
            self.positions = found - self._constant

    def learn_places(self, places: set[Place]) -> None:
        """Makes numbers in objects, which have changed, inputs."""
        if self._dynamic is not False:
            self.positions = (self.positions | places) - self._constant

    def traced(self, trace: Callable[[Numbers], T], given: Sequence[float | int]) -> T:
        """Returns what `trace` makes with these inputs.

        Where it fails it is called again with the numbers as constants, at once and from now on; so are those
        that were pinned, or kept.
        """
        before = self._known, self._constant
        while True:
            numbers, made = self._inputs(given), None
            try:
                made = trace(numbers)
            except Picked:
                raise
            except Exception:  # whatever a function does that doesn't expect what stands for a number
                if not numbers.inputs:
                    self.positions, self._constant = before
                    raise
            constant = numbers.pinned
            if not constant and (made is None or numbers.escaped()):
                constant = {*numbers.inputs}
            if not constant:
                self.has_learned, self._known = not self.positions <= self._known, self.positions
                return made
            self._constant |= constant
            self.positions -= constant

    def _inputs(self, given: Sequence[float | int]) -> Numbers:
        places = {k: k.read() for k in self.positions if isinstance(k, Place)}
        inputs = {k: x for k, x in enumerate(given) if k in self.positions}
        return Numbers(inputs | {k: x for k, x in places.items() if type(x) in KINDS})
