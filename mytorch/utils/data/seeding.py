"""Seeding of the default generators by the loader's seed, the epoch and the sample's index.

Random augmentation is therefore the same for every number of workers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ... import random as of_mytorch
from ...backends.device import CPU
from ...random import Generator, default_generator

_WORD = 2**64


def mix(*numbers: int) -> int:
    """Returns a 64-bit hash of integers.

    Source: Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64),
        https://doi.org/10.1145/2660193.2660195
    """
    z = 0
    for number in numbers:
        z = (z + number + 0x9E3779B97F4A7C15) % _WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % _WORD
        z ^= z >> 31
    return z


class _LazyGenerator(Generator):
    """A generator that creates its NumPy generator at the first draw after `restart`."""

    def restart(self, seed: int) -> None:
        self._seed, self._seeds, self._rng = seed, 0, None

    @property
    def rng(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        return self._rng


class Seeder:
    """Seeds `random`, `np.random` and mytorch's default generator of the CPU before each sample.

    Args:
        seed: seed of the loader.
        epoch: epoch of the pass.
        is_random: False if neither the dataset nor collate_fn draws random numbers: `sample` does nothing.
    """

    def __init__(self, seed: int, epoch: int, is_random: bool = True):
        self._key, self._is_random = mix(seed, epoch), is_random
        self._generator, self._bits = _LazyGenerator(), np.random.MT19937(0)

    def sample(self, index: object, number: int = 0, position: int = -1) -> None:
        """Seeds the generators by `index`, or by (number, position) if `index` is not an integer.

        Args:
            number: number of the batch, or of the copy of the stream.
            position: position in the batch, or in the stream.
        """
        if not self._is_random:
            return
        is_integer = isinstance(index, (int, np.integer))
        seed = mix(self._key, int(index)) if is_integer else mix(self._key, number, position)
        random.seed(seed)
        np.random.seed(seed >> 32)
        self._generator.restart(seed)

    def install(self) -> None:
        """Replaces the default generators by those of this seeder."""
        of_mytorch._default[CPU] = self._generator
        np.random.set_bit_generator(self._bits)  # `np.random.seed` supports MT19937 only

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Context that replaces the default generators, and restores them at its end."""
        if not self._is_random:
            yield
            return
        python, bits, generator = random.getstate(), np.random.get_bit_generator(), default_generator(CPU)
        numpy = np.random.get_state(legacy=False)
        self.install()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_bit_generator(bits)  # discards the second of a pair of normal numbers
            if numpy["has_gauss"]:
                np.random.set_state(numpy)
            of_mytorch._default[CPU] = generator
