"""What the interpreted kernels found in half precision: files for the process that has PyTorch (peers.py)."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from mytorch.nn.functional.dropout import Draw


def save(name: str, row: int, dtype: str, **lists: list) -> None:
    """Keep the arrays of each list, by their place in it, of a dropout the seed: in the folder that
    MYTORCH_TEST_RESULTS names, if it does."""
    folder = os.environ.get("MYTORCH_TEST_RESULTS")
    if not folder or dtype == "float32":
        return
    arrays = {}
    for kind, values in lists.items():
        for place, value in enumerate(values):
            draw = value[0] if isinstance(value, tuple) and value else value
            if isinstance(draw, Draw):
                arrays["seed 0 uint64"] = np.array(draw.seed, np.uint64)
            elif isinstance(value, np.ndarray):
                bits = value.view(np.uint16) if value.dtype.name == "bfloat16" else value
                arrays[f"{kind} {place} {value.dtype}"] = bits
    np.savez(Path(folder) / f"{name} {row} {dtype}.npz", **arrays)


def load(path: Path) -> tuple[str, int, str, dict[str, dict[int, tuple[str, Any]]]]:
    """The reverse: the kernel, the number of its row, the dtype, and for each list (dtype, bits) by place."""
    name, row, dtype = path.stem.rsplit(maxsplit=2)
    lists: dict[str, dict] = {}
    with np.load(path) as arrays:
        for key, bits in arrays.items():
            kind, place, kept = key.split()
            lists.setdefault(kind, {})[int(place)] = kept, bits
    return name, int(row), dtype, lists
