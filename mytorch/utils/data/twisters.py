"""The generators that everybody draws from, of `random` and of `np.random`, set by copying their state.

Both are Mersenne Twisters: 624 words, and a position in them. Their `seed` functions work the words out one
after the other (5 µs), and their states go in and out as Python numbers (20 and 60 µs), too long for every
sample. But both keep the words in one piece of memory, and a copy of that takes 0.3 µs.

Source: Matsumoto & Nishimura, "Mersenne Twister", 1998.
"""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any

import numpy as np

WORDS = 624


class PythonTwister:
    """The generator behind `random.random()` and the like.

    CPython keeps it behind the object's header: the position, then the words. Where they don't lie there,
    `random.setstate` does the same, more slowly.
    """

    def __init__(self) -> None:
        self._memory = _memory_of(random._inst)
        self._words = None if self._memory is None else self._memory[1:]

    def set(self, words: np.ndarray) -> None:
        """Make the state (624,) uint32, of which the first number is drawn next."""
        if self._memory is None:
            random.setstate((3, (*words.tolist(), 0), None))
            return
        self._words[:], self._memory[0] = words, 0
        random._inst.gauss_next = None

    def save(self) -> Any:
        """The state as it is, for `restore`."""
        if self._memory is None:
            return random.getstate()
        return self._memory.copy(), random._inst.gauss_next

    def restore(self, state: Any) -> None:
        """Go back to where `save` was called."""
        if self._memory is None:
            random.setstate(state)
        else:
            self._memory[:], random._inst.gauss_next = state


class NumPyTwister:
    """The generator behind `np.random.rand()` and the like: one of our own, in the place of the user's."""

    def __init__(self) -> None:
        self._bits = np.random.MT19937(0)
        self._memory = _memory_at(self._bits.ctypes.state_address)
        self._words = self._memory[:-1]
        self._users: Any = None

    def set(self, words: np.ndarray) -> None:
        """Make the state (624,) uint32, of which the first number is drawn next."""
        self._words[:], self._memory[-1] = words, 0
        np.random.set_bit_generator(self._bits)  # which forgets the second half of a pair of normal numbers

    def save(self) -> tuple[Any, float | None]:
        """The user's generator, and the normal number that `np.random` has in store; ours takes its place."""
        users = np.random.get_bit_generator()
        state = users, self._in_store(users)
        np.random.set_bit_generator(self._bits)
        return state

    def restore(self, state: tuple[Any, float | None]) -> None:
        """Go back to where `save` was called."""
        users, stored = state
        np.random.set_bit_generator(users)
        if stored is not None:
            np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 1, "gauss": stored})

    def _in_store(self, users: Any) -> float | None:
        """Normal numbers come in pairs. It takes 60 µs to ask if one is left; to draw and look is quicker."""
        if type(users) is not np.random.MT19937:
            state = np.random.get_state(legacy=False)
            return state["gauss"] if state["has_gauss"] else None
        if self._users is None or self._users[0] is not users:
            self._users = users, _memory_at(users.ctypes.state_address)
        memory = self._users[1]
        before = memory.copy()
        number = np.random.standard_normal()
        if memory[-1] == before[-1]:
            return number
        memory[:] = before  # it was a new one: as if it had not been drawn
        return None


def _memory_at(address: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint32 * (WORDS + 1)).from_address(address), np.uint32)


def _memory_of(generator: random.Random) -> np.ndarray | None:
    """Position and words of one of Python's generators, (625,) uint32; None where they lie elsewhere."""
    header, size = object.__basicsize__, 4 * (WORDS + 1)
    if sys.implementation.name != "cpython" or type(generator).__basicsize__ < header + size:
        return None
    memory = _memory_at(id(generator) + header)
    *words, position = generator.getstate()[1]
    return memory if memory.tolist() == [position, *words] else None
