"""The random numbers of a sample: a function of the loader's seed, the epoch and the sample's index.

So random augmentation has the same values in the main process, in one worker and in ten.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ...backends.device import CPU
from ...random import Generator, _default, default_generator

_WORD = 2**64


def mix(*numbers: int) -> int:
    """Returns one number of 64 bits; each bit of the arguments changes about half of its bits.

    Source: Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64).
    """
    z = 0
    for number in numbers:
        z = (z + number + 0x9E3779B97F4A7C15) % _WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % _WORD
        z ^= z >> 31
    return z


class _LazyGenerator(Generator):
    """A generator that makes its NumPy generator at the first draw after `restart`."""

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
        seed: of the loader.
        epoch: of the pass.
        is_random: False where neither the dataset nor collate_fn draws: then `sample` does nothing.
    """

    def __init__(self, seed: int, epoch: int, is_random: bool = True):
        self._key, self._is_random = mix(seed, epoch), is_random
        self._generator, self._bits = _LazyGenerator(), np.random.MT19937(0)

    def sample(self, index: object, number: int = 0, place: int = -1) -> None:
        """Seeds all three by `index`; by the place in the pass instead if that is no integer.

        Args:
            number, place: of a batch, and in it; or of a stream's copy, and in that.
        """
        if not self._is_random:
            return
        is_integer = isinstance(index, (int, np.integer))
        seed = mix(self._key, int(index)) if is_integer else mix(self._key, number, place)
        random.seed(seed)
        np.random.seed(seed >> 32)
        self._generator.restart(seed)

    def install(self) -> None:
        """Makes the generators that are seeded here the default ones: in a worker."""
        _default[CPU] = self._generator
        np.random.set_bit_generator(self._bits)  # the user's may be of a kind that `np.random.seed` refuses

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Restores the user's default generators afterwards: in the main process."""
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
            np.random.set_bit_generator(bits)  # which forgets the second half of a pair of normal numbers
            if numpy["has_gauss"]:
                np.random.set_state(numpy)
            _default[CPU] = generator
