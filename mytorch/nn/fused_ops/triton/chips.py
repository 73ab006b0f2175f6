"""Properties of GPUs that kernels depend on."""

from __future__ import annotations

from typing import NamedTuple


class Chip(NamedTuple):
    """The properties of a GPU: shared memory is the maximum of one block, in bytes."""

    capability: int
    multiprocessors: int
    shared_memory: int


CHIPS = {
    80: Chip(80, 108, 163 * 1024),  # A100
    90: Chip(90, 132, 227 * 1024),  # H100, H200
    100: Chip(100, 148, 227 * 1024),  # B200
}
