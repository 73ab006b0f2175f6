"""The generators that everybody draws from, of `random` and of `np.random`: has somebody, and back to before.

Their states go in and out as Python numbers, which takes 10 and 60 µs, too long for every batch. But they lie
within the generators' objects: a look at the memory of these takes 0.5 µs. It is read only, never written.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_PYTHON: random.Random = random.seed.__self__
_NUMPY: np.random.RandomState = np.random.mtrand._rand
_IN_ONE_PIECE = (random.Random, np.random.RandomState, np.random.MT19937)  # nothing is behind a pointer
_SEEDED = np.random.MT19937(0)  # takes the place of the user's, which may be of a kind without `seed`
_HEADER = object.__basicsize__


@functools.lru_cache(maxsize=8)
def _reader(generator: Any) -> Callable[[], bytes]:
    """What returns bytes that change when a number is drawn."""
    kind = type(generator)
    if kind not in _IN_ONE_PIECE or sys.implementation.name != "cpython":
        return lambda: pickle.dumps(generator)  # the same, more slowly
    size = kind.__basicsize__ - _HEADER
    memory = (ctypes.c_char * size).from_address(id(generator) + _HEADER)
    return lambda: memory.raw


class SharedGenerators:
    """What is behind `random.random()`, `np.random.rand()` and the like."""

    def __init__(self) -> None:
        self._saved: Any = None
        self._read_python, self._read_numpy = _reader(_PYTHON), _reader(_NUMPY)

    def look(self) -> tuple:
        """Something to compare: it differs once a number was drawn, or the state was set."""
        bits = np.random.get_bit_generator()
        return self._read_python(), _PYTHON.gauss_next, self._read_numpy(), _reader(bits)()

    def seed(self, number: int) -> None:
        """Begin the streams of a number of 64 bits; NumPy takes 32 of them."""
        random.seed(number)
        np.random.set_bit_generator(_SEEDED)
        np.random.seed(number % 2**32)

    def save(self) -> tuple:
        """Keep where they are, for `restore`: what `look` returns."""
        look = self.look()
        if look != self._saved:
            self._saved, self._users = look, np.random.get_bit_generator()
            self._python, self._numpy = random.getstate(), np.random.get_state(legacy=False)
        return look

    def restore(self) -> None:
        """Go back to where `save` was called."""
        if self.look() == self._saved:
            return
        random.setstate(self._python)
        np.random.set_bit_generator(self._users)  # which forgets the second half of a pair of normal numbers
        if self._numpy["has_gauss"] or _reader(self._users)() != self._saved[-1]:
            np.random.set_state(self._numpy)
        self._saved = self.look()
