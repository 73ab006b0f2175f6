"""Philox, in NumPy and in the CPU's kernels, against plain Python and the published test vectors."""

import numpy as np
import pytest

from mytorch.backends.device import CPU, as_device
from mytorch.nn.functional import philox

M, W, LOW = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 2**32 - 1


def words(counter, key):
    """Philox-4x32-10 as in the paper."""
    for _ in range(10):
        a, b = M[0] * counter[0], M[1] * counter[2]
        counter = b >> 32 ^ counter[1] ^ key[0], b & LOW, a >> 32 ^ counter[3] ^ key[1], a & LOW
        key = key[0] + W[0] & LOW, key[1] + W[1] & LOW
    return counter


def uniform(seed, number):
    """What `tl.rand(seed, number)` gives."""
    word = words((number & LOW, number >> 32, 0, 0), (seed & LOW, seed >> 32))[0]
    word = word - 2**32 if word >= 2**31 else word
    return np.float32(~word if word < 0 else word) * np.float32(4.6566127342e-10)


# Random123, tests/kat_vectors: philox 4x32 10.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((LOW,) * 4, (LOW,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_known_answers(counter, key, want):
    assert words(counter, key) == want
    arrays = tuple(np.array([c], np.uint64) for c in counter)
    assert tuple(int(c[0]) for c in philox._philox(arrays, key)) == want


SEEDS = [0, 1, 2**32 - 1, 2**32, 0x0123456789ABCDEF, 2**63 - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform(seed, fake_cuda):
    want = np.array([uniform(seed, i) for i in range(300)])
    got = philox.uniform(seed, 300, CPU)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(philox.uniform(seed, 300, as_device("cuda:0")).get(), want)


def test_uniform_is_uniform():
    drawn = philox.uniform(7, 200_000, CPU)
    assert 0 <= drawn.min() < 1e-4 and 1 - 1e-4 < drawn.max() < 1
    counts = np.histogram(drawn, 100, (0, 1))[0]
    assert (
        np.sum((counts - 2000) ** 2 / 2000) < 150
    )  # chi squared of 99: below 150 but once in a thousand times
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(drawn, philox.uniform(8, 200_000, CPU))[0, 1]) < 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernels_numbers(seed):
    """Also of elements whose number takes more than 32 bits, in vector registers and alone."""
    pytest.importorskip("numba")
    from tests.nn.fused_ops.kernels import uniform_of

    starts = [0, 2**31 - 20, 2**32 - 20, 2**40 + 5, 2**63]
    numbers = np.array([s + i for s in starts for i in range(37)], np.uint64)
    got = np.empty(numbers.size, np.float32)
    uniform_of(numbers, np.uint32(seed & LOW), np.uint32(seed >> 32), got)
    np.testing.assert_array_equal(got, np.array([uniform(seed, int(n)) for n in numbers]))
