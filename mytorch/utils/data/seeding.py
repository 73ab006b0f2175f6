"""The random numbers of a sample: a function of the loader's seed, the epoch and the sample's index.

So random augmentation gives the same values in the main process, in one worker and in ten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...backends.device import CPU
from ...random import Generator, _default, default_generator
from .shared_generators import SharedGenerators

_WORD = 2**64

T = TypeVar("T")


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
    def is_new(self) -> bool:
        """Has nobody drawn from it?"""
        return self._rng is None and not self._seeds

    @property
    def rng(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        return self._rng


class Seeder:
    """Seeds `random`, `np.random` and mytorch's default generator of the CPU for one sample after the other.

    That takes longer than to load a small sample, and most data draw nothing. So only the first batch is
    seeded in any case. If nothing was drawn in it, the next ones are loaded as they come, and the generators
    looked at afterwards. A batch in which something was drawn after all is loaded again, seeded, as is
    everything after it.

    `with seeder:`, in the user's own process, sets the generators to where they were at the end.

    Args:
        seed: of the loader.
        epoch: of the pass.
    """

    def __init__(self, seed: int, epoch: int):
        self._key, self._shared, self._generator = mix(seed, epoch), SharedGenerators(), _SampleGenerator()
        self._generator.restart(0)
        self.is_seeding, self._is_first = True, True
        self._is_learning = False  # in the first batch, as long as nothing is drawn
        self._is_as_before = False  # nothing was drawn since `__enter__`

    def sample(self, index: Any, number: int = 0, place: int = -1) -> None:
        """Begin the sample `index`; one that is no integer is known by its place in the pass instead.

        Args:
            number, place: of a batch, and in it; or of a stream's copy, and in that.
        """
        if not self.is_seeding:
            return
        if self._is_learning:
            self._is_learning = not self._is_drawn()
        is_number = isinstance(index, (int, np.integer))
        seed = mix(self._key, int(index)) if is_number else mix(self._key, number, place)
        self._shared.seed(seed)
        self._generator.restart(seed)
        if self._is_learning:
            self._look = self._shared.look()

    def batch(self, load: Callable[..., T], *args: Any) -> T:
        """`load(*args)`, which calls `sample` before each sample; it may be called twice."""
        if not self.is_seeding:
            try:
                batch = load(*args)
                if not self._is_drawn():
                    self._is_as_before = True
                    return batch
            except Exception:
                if not self._is_drawn():
                    raise
            self.is_seeding = True
            return load(*args)
        self._is_learning = self._is_first
        batch = load(*args)
        if self._is_learning:
            self.is_seeding = self._is_drawn()
        self._is_first = self._is_learning = False
        return batch

    def _is_drawn(self) -> bool:
        """Was something drawn since `_look`?"""
        return not self._generator.is_new or self._shared.look() != self._look

    def install(self) -> None:
        """Make mytorch's default generator the one that is seeded here, for good: in a worker."""
        _default[CPU], self._look = self._generator, self._shared.look()

    def __enter__(self) -> None:
        self._look, self._users = self._shared.save(), default_generator(CPU)
        _default[CPU], self._is_as_before = self._generator, False

    def __exit__(self, *error: Any) -> None:
        _default[CPU] = self._users
        if not self._is_as_before:  # nobody knows if something was drawn
            self._shared.restore()
