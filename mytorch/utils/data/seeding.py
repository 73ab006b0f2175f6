"""The random numbers of a sample: a function of the loader's seed, the epoch and the sample's index.

So random augmentation gives the same values in the main process, in one worker and in ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...device import CPU
from ...random import Generator, _default, default_generator
from .twisters import WORDS, NumPyTwister, PythonTwister

_WORD = 2**64
_MIXING = 16  # numbers until a fresh state of SFC64 is well mixed; its author's are 12


def mix(*numbers: int) -> int:
    """One number of 64 bits from several; each of their bits changes about half of its bits.

    Source: Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64).
    """
    z = 0
    for number in numbers:
        z = (z + number + 0x9E3779B97F4A7C15) % _WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % _WORD
        z ^= z >> 31
    return z


class _SampleGenerator(Generator):
    """A generator that is seeded for every sample, but made only when one draws from it."""

    def restart(self, seed: int) -> None:
        self._seed, self._seeds, self._rng = seed, 0, None

    @property
    def rng(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        return self._rng


class Seeder:
    """Seeds `random`, `np.random` and mytorch's default generator of the CPU for one sample after the other.

    All three states are numbers of one small generator (SFC64), whose state is (seed and epoch, index).

    Args:
        seed: of the loader.
        epoch: of the pass.
        is_idle: do nothing, for data that draw nothing.
    """

    def __init__(self, seed: int, epoch: int, is_idle: bool = False):
        self._is_idle, self._generator = is_idle, _SampleGenerator()
        if is_idle:
            return
        self._python, self._numpy = PythonTwister(), NumPyTwister()
        self._source = np.random.SFC64(0)
        self._state = self._source.state
        self._key = self._state["state"]["state"]
        self._key[0] = mix(seed, epoch)

    def sample(self, index: Any, number: int = 0, place: int = -1) -> None:
        """Begin the sample `index`; one that is no integer is known by its place in the pass instead.

        Args:
            number, place: of a batch, and in it; or of a stream's copy, and in that.
        """
        if self._is_idle:
            return
        key = self._key
        if isinstance(index, (int, np.integer)):
            key[1], key[2], key[3] = int(index) % _WORD, 0, 0
        else:
            key[1], key[2], key[3] = number, place % _WORD, 1
        self._source.state = self._state
        numbers = self._source.random_raw(_MIXING + WORDS)
        words = numbers.view(np.uint32)
        self._python.set(words[2 * _MIXING : -WORDS])
        self._numpy.set(words[-WORDS:])
        self._generator.restart(int(numbers[_MIXING - 1]))

    def install(self) -> None:
        """Make mytorch's default generator the one that is seeded here, for good: in a worker."""
        _default[CPU] = self._generator

    @contextmanager
    def apart(self) -> Iterator[None]:
        """As `install`, but at the end all generators are where they were: in the user's own process."""
        if self._is_idle:
            yield
            return
        python, legacy, ours = self._python.save(), self._numpy.save(), default_generator()
        self.install()
        try:
            yield
        finally:
            self._python.restore(python)
            self._numpy.restore(legacy)
            _default[CPU] = ours
