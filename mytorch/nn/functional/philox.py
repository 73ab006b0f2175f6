"""
Philox: random numbers as a function of a seed and a counter, without state. Each thread of a kernel computes
its own, the same on every device.

Source: Salmon, Moraes, Dror & Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011 (Philox-4x32-10),
https://doi.org/10.1145/2063384.2063405
"""

from __future__ import annotations

import numpy as np

from ...backends.device import META, RawArray, array_module, device, on

ROUNDS = 10
FACTORS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)  # of the key, from round to round
SCALE = 4.6566127342e-10  # a little less than 2^-31: the largest int32 times it is below 1
_LOW = 0xFFFFFFFF


def uniform(seed: int, count: int, target: device) -> RawArray:
    """Returns (count,) float32 in [0, 1): `tl.rand(seed, i)` of Triton for i = 0, 1, …"""
    xp = array_module(target)
    if target is META:
        return xp.empty(count, np.float32)
    with on(target):
        number = xp.arange(count, dtype=np.uint64)
        counter = number & _LOW, number >> 32, xp.zeros_like(number), xp.zeros_like(number)
        word = _philox(counter, (seed & _LOW, seed >> 32))[0].astype(np.uint32).view(np.int32)
        return np.where(word < 0, ~word, word).astype(np.float32) * np.float32(SCALE)


def _philox(counter: tuple, key: tuple[int, int]) -> tuple:
    """Returns four random 32-bit words, in uint64, for arrays of counters of four words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        a, b = c0 * FACTORS[0], c2 * FACTORS[1]
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _LOW, (a >> 32) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + STEPS[0]) & _LOW, (k1 + STEPS[1]) & _LOW
    return c0, c1, c2, c3
