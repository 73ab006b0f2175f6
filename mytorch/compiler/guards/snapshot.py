"""The state of Python's objects when a function was traced: is it still so, and what has the function itself
changed?"""

from __future__ import annotations

import abc
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from . import state_guards as guards
from .places import Attributes, ClassAttributes, Place
from .state_guards import KINDS, LONGEST, Comparison, Guard

__all__ = ["KINDS", "Snapshot"]
_ORDER = (  # in which guards are compared: of several failures the first one is told
    guards.ValueGuard, guards.RegistrationsGuard, guards.BasesGuard, guards.NamesGuard,
    guards.ParametersGuard, guards.ItemsGuard, guards.SetGuard, guards.LayoutGuard, guards.ElementsGuard,
)


class Snapshot:
    """The guards of a program that compare Python's state.

    Args:
        inputs: where values may change, as they are inputs.

    Attributes:
        classes: the classes that have guards, with their attributes.
    """

    def __init__(self, inputs: Container[Place] = ()):
        self._inputs = inputs
        self._guards: dict[type[Guard], list[Any]] = {kind: [] for kind in _ORDER}
        self._guarded: set[tuple] = set()  # the keys of places that have guards
        self.classes: dict[type, ClassAttributes] = {}
        self._holds: Callable[[], bool] | None = None

    # What is guarded.

    def _add(self, guard: Guard) -> None:
        self._guards[type(guard)].append(guard)

    def guard(self, place: Place) -> bool:
        """Guards a value, or that there is none, unless it is an input; returns whether it does."""
        if self._inputs and place in self._inputs:
            return False
        key = place.key()
        if key not in self._guarded:
            self._guarded.add(key)
            self._add(guards.ValueGuard(place))
        return True

    def guard_attribute(self, x: object, name: str) -> bool:
        """Guards an attribute that isn't in a `__dict__`: see `guard`."""
        return self.guard(Place(Attributes(x, (name,)), name))

    def guard_class(self, kind: type) -> ClassAttributes:
        """Guards the bases of a class, and which attributes it has; returns the attributes."""
        if kind not in self.classes:
            self.classes[kind] = ClassAttributes(kind)
            self._add(guards.BasesGuard(kind))
            self.guard_names(self.classes[kind])
        return self.classes[kind]

    def guard_registrations(self) -> None:
        """Guards which classes are registered as subclasses of abstract ones."""
        if not self._guards[guards.RegistrationsGuard]:
            self._add(guards.RegistrationsGuard(abc.get_cache_token))

    def guard_names(self, entries: Mapping, is_ordered: bool = False) -> None:
        """Guards which entries there are, and in which order."""
        self._add(guards.NamesGuard(entries, is_ordered, self._guarded))

    def guard_items(self, x: Any) -> None:
        """Guards the items of a list, set or deque."""
        self._add(guards.SetGuard(x) if isinstance(x, set) else guards.ItemsGuard(x))

    def guard_parameters(self, optimizer: Any) -> None:
        """Guards which parameters an optimizer has."""
        self._add(guards.ParametersGuard(optimizer))
        for group in optimizer.param_groups:
            self.guard_items(group["params"])

    def guard_array(self, x: np.ndarray) -> None:
        """Guards the elements of an array, unless it is long, and how they lie."""
        self._add(guards.LayoutGuard(x))
        if x.size <= LONGEST:
            self._add(guards.ElementsGuard(x))

    def forget_arrays(self, arrays: list[np.ndarray]) -> None:
        """Leaves out the elements of some arrays."""
        ids, found = {id(x) for x in arrays}, self._guards[guards.ElementsGuard]
        found[:] = [guard for guard in found if id(guard.x) not in ids]

    # What has changed.

    def failure(self) -> str | None:
        """Returns which guard fails, as "x is 3, was 2"; None if all hold."""
        if self._holds is None:
            comparison = Comparison()
            comparison.terms = [guard.term(comparison.name) for guard in self._all()]
            self._holds = comparison.compiled()
        try:  # most often all hold
            if self._holds():
                return None
        except (AttributeError, KeyError, IndexError, ValueError):
            pass  # something is gone
        return next(filter(None, map(_failure, self._all())), None)

    def _all(self) -> list[Guard]:
        return [guard for found in self._guards.values() for guard in found]

    def undo(self) -> str | None:
        """Restores what has changed, in a trace, and returns what it was; None if nothing has."""
        failure = self.failure()
        for guard in self._all() if failure is not None else ():
            guard.undo()
        return failure

    def take_flags(self) -> list[tuple[dict, object, bool]]:
        """Restores the bools in objects that a trace has changed, and returns what they had become."""
        values = [(guard.x, guard.read()) for guard in self._guards[guards.ValueGuard] if guard.is_flag()]
        flags = [(place.holder, place.name, now) for place, now in values]
        for entries, name, now in flags:
            entries[name] = not now
        return flags

    def lasting_failure(self) -> str | None:
        """Returns which guard fails, other than those of bools."""
        flags = self.take_flags()
        failure = self.failure()
        for entries, name, now in flags:
            entries[name] = now
        return failure

    def changed_numbers(self) -> set[Place]:
        """Returns the places of numbers that are others of their kind now, if nothing else has changed."""
        changed = [guard for guard in self._guards[guards.ValueGuard] if guard.failure() is not None]
        is_alone = all([guard.is_number() for guard in changed])
        is_alone = is_alone and all([len(x.x) == len(x.was) for x in self._guards[guards.NamesGuard]])
        others = *self._guards[guards.ItemsGuard], *self._guards[guards.SetGuard]
        return {guard.x for guard in changed} if is_alone and not any(map(_failure, others)) else set()


def _failure(guard: Guard) -> str | None:
    return guard.failure()
