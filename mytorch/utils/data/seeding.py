"""The random numbers of a sample: a function of the loader's seed, the epoch and the sample's index.

So random augmentation gives the same values in the main process, in one worker and in ten.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...device import CPU
from ...random import Generator, _default, default_generator

_WORD = 2**64


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

    Args:
        seed: of the loader.
        epoch: of the pass.
        is_idle: do nothing, for data that draw nothing: seeding takes some 10 µs a sample.
    """

    def __init__(self, seed: int, epoch: int, is_idle: bool = False):
        self._start, self._is_idle = mix(seed, epoch), is_idle
        self._generator = _SampleGenerator()

    def sample(self, index: Any, *place: int) -> None:
        """Begin the sample `index`; one that is no integer is known by its place in the pass instead."""
        if self._is_idle:
            return
        is_integer = isinstance(index, (int, np.integer))
        seed = mix(self._start + int(index)) if is_integer else mix(self._start, *place)
        random.seed(seed)
        np.random.seed(seed >> 32)  # quicker than from all bits
        self._generator.restart(seed)

    def install(self) -> None:
        """Make mytorch's default generator the one that is seeded here, for good: in a worker."""
        _default[CPU] = self._generator

    @contextmanager
    def apart(self) -> Iterator[None]:
        """As `install`, but at the end all generators are where they were: in the user's own process."""
        if self._is_idle:
            yield
            return
        python, legacy, ours = random.getstate(), np.random.get_state(legacy=False), default_generator()
        self.install()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)
            _default[CPU] = ours
