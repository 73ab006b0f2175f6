"""
The tiles of the attention kernels: as large as possible without spilling registers, which hold the sums of a
tile's rows.
"""

from __future__ import annotations

from collections.abc import Callable

from .chips import Chip
from .tune import Config

NAMES = ("BLOCK_Q", "BLOCK_K", "num_warps", "num_stages", "STEP")
Tile = tuple[int, int, int, int, int]

# By kernel, bytes of an element, and maximal features of a head: the lowest compute capability for which a
# tile fits, and the tile.
TILES: dict[str, dict[int, dict[int, list[tuple[int, Tile]]]]] = {
    "forward": {
        2: {
            64: [(80, (128, 64, 8, 3, 64)), (90, (128, 64, 4, 3, 64)), (90, (128, 128, 8, 3, 64))],
            128: [(80, (128, 64, 8, 3, 128))],
            256: [(90, (128, 32, 8, 2, 256)), (80, (64, 32, 8, 2, 256))],
        },
        4: {
            64: [(80, (64, 32, 8, 1, 64))],
            128: [(80, (64, 32, 8, 1, 32))],
            256: [(80, (32, 32, 8, 1, 32))],
        },
    },
    "queries": {
        2: {
            64: [(80, (128, 64, 8, 3, 64))],
            128: [(90, (128, 64, 8, 2, 128)), (80, (64, 64, 8, 2, 128))],
            256: [(80, (64, 32, 8, 2, 256))],
        },
        4: {
            64: [(80, (32, 32, 4, 1, 32))],
            128: [(90, (64, 32, 8, 1, 32)), (80, (32, 32, 8, 1, 32))],
            256: [(80, (32, 16, 8, 1, 32))],
        },
    },
    "keys": {
        2: {
            64: [(90, (64, 128, 8, 3, 64)), (80, (32, 64, 8, 2, 64))],
            128: [(80, (64, 64, 8, 2, 64)), (90, (32, 64, 8, 2, 128))],
            256: [(80, (32, 32, 8, 2, 256))],
        },
        4: {
            64: [(80, (32, 32, 4, 1, 32))],
            128: [(80, (32, 32, 8, 1, 32))],
            256: [(80, (16, 32, 8, 1, 32))],
        },
    },
    "head": {2: {64: [(90, (64, 128, 8, 3, 64))]}},  # in others there aren't registers for 128 keys
}

# The same for calls with a mask, dropout or a window, and for keys shared by several heads of queries, which
# need more registers. Tensor cores of compute capability 90 take 64 rows of queries, or of keys, at a time.
SMALL: dict[str, dict[int, dict[int, list[tuple[int, Tile]]]]] = {
    "forward": {
        2: {
            64: [(90, (64, 32, 4, 2, 64)), (80, (64, 32, 8, 2, 64))],
            128: [(90, (64, 32, 4, 2, 128)), (80, (64, 32, 8, 2, 128))],
            256: [(80, (32, 16, 8, 1, 64))],
        },
        4: {
            64: [(80, (32, 32, 8, 1, 32))],
            128: [(80, (32, 32, 8, 1, 32))],
            256: [(80, (32, 16, 8, 1, 32))],
        },
    },
    "queries": {
        2: {
            64: [(90, (64, 32, 4, 2, 64)), (80, (32, 32, 8, 2, 64))],
            128: [(90, (64, 32, 8, 2, 128)), (80, (32, 32, 8, 1, 32))],
            256: [(80, (32, 32, 8, 2, 256))],
        },
        4: {
            64: [(80, (32, 32, 8, 1, 32))],
            128: [(80, (32, 16, 8, 1, 32))],
            256: [(80, (16, 16, 8, 1, 32))],
        },
    },
    "keys": {
        2: {
            64: [(90, (32, 64, 8, 1, 64)), (80, (32, 32, 8, 2, 64))],
            128: [(90, (16, 64, 8, 1, 64)), (80, (16, 32, 8, 1, 32))],
            256: [(80, (16, 32, 8, 1, 64))],
        },
        4: {
            64: [(80, (16, 32, 8, 1, 32))],
            128: [(80, (16, 32, 8, 1, 32))],
            256: [(80, (16, 16, 8, 1, 16))],
        },
    },
    "head": {2: {64: [(90, (32, 128, 8, 2, 64))]}},
}


def configs_of(kernel: str) -> Callable[[dict, Chip], list[Config]]:
    """Returns the function of a call that returns its configurations, for `tuned`."""

    def configs(call: dict, chip: Chip) -> list[Config]:
        features = max(call["BLOCK_E"], call["BLOCK_EV"])
        width = 64 if features <= 64 else 128 if features <= 128 else 256
        size = call["q_ptr"].dtype.itemsize
        small = any(call.get(name) is not None for name in ("mask_ptr", "seed", "window"))
        table = SMALL if small or (kernel in ("keys", "head") and call["group"] > 1) else TILES
        tiles = [tile for oldest, tile in table[kernel][size][width] if chip.capability >= oldest]
        return [dict(zip(NAMES, tile, strict=True)) for tile in tiles]

    return configs
