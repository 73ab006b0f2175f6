"""Random numbers of Python and NumPy that a function draws in a capture: a program would repeat the same."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


class Draws:
    """The states of generators of Python and NumPy: the default ones, and those that a function uses.

    Args:
        known: objects that it can be seen to use.
    """

    def __init__(self, known: Iterable[object]):
        self._found: list[tuple[Callable, Callable, Any]] = []
        for read, write in [(random.getstate, random.setstate), (np.random.get_state, np.random.set_state)]:
            self._found.append((read, write, read()))
        for x in known:
            self._keep(x)

    def _keep(self, x: object) -> None:
        if isinstance(x, random.Random) and not isinstance(x, random.SystemRandom):
            self._found.append((x.getstate, x.setstate, x.getstate()))
        elif isinstance(x, np.random.RandomState):
            self._found.append((x.get_state, x.set_state, x.get_state()))
        elif isinstance(x, np.random.Generator):
            bits = x.bit_generator

            def write(state: dict) -> None:
                bits.state = state

            self._found.append((lambda: bits.state, write, bits.state))

    def undo(self) -> bool:
        """Restores the states; returns whether one has changed."""
        has_changed = False
        for read, write, state in self._found:
            if pickle.dumps(read()) != pickle.dumps(state):
                write(state)
                has_changed = True
        return has_changed
