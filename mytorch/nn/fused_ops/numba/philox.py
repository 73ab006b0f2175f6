"""Random numbers from a seed and a counter: see `functional/philox.py`, which computes the same in NumPy."""

import numpy as np

from ....backends.jit import device
from ...functional.philox import FACTORS, ROUNDS, SCALE, STEPS

_FACTOR_0, _FACTOR_1 = np.uint64(FACTORS[0]), np.uint64(FACTORS[1])
_STEP_0, _STEP_1 = np.uint32(STEPS[0]), np.uint32(STEPS[1])
_SCALE, _ZERO, _32 = np.float32(SCALE), np.uint32(0), np.uint64(32)


@device
def uniform32(k0, k1, counter):
    """A float32 in [0, 1) from the two halves of a seed and a counter of 64 bits, all unsigned."""
    c0, c1, c2, c3 = np.uint32(counter), np.uint32(counter >> _32), _ZERO, _ZERO
    for _ in range(ROUNDS):
        a, b = np.uint64(c0) * _FACTOR_0, np.uint64(c2) * _FACTOR_1
        c0, c1 = np.uint32(np.uint32(b >> _32) ^ c1 ^ k0), np.uint32(b)
        c2, c3 = np.uint32(np.uint32(a >> _32) ^ c3 ^ k1), np.uint32(a)
        k0, k1 = np.uint32(k0 + _STEP_0), np.uint32(k1 + _STEP_1)
    word = np.int32(c0)
    return np.float32(~word if word < np.int32(0) else word) * _SCALE


def halves_of(seed: int) -> tuple[np.uint32, np.uint32]:
    """Returns the low and the high 32 bits of a seed."""
    return np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
