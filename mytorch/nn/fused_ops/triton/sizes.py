"""Sizes of grids and tiles; Triton's functions of these names take 5 µs each when called by Python."""

from __future__ import annotations


def cdiv(n: int, size: int) -> int:
    """Returns n / size, rounded up."""
    return -(-n // size)


def next_power_of_2(n: int) -> int:
    """Returns the smallest power of two that isn't below n; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
