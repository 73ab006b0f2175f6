"""Seeding everything that draws random numbers."""

from __future__ import annotations

import random

import numpy as np

from ..random import manual_seed
from . import process


def set_seed(seed: int, device_specific: bool = False) -> None:
    """Seed Python's, NumPy's and mytorch's random numbers.

    Args:
        device_specific: add the number of the process, so that each draws others.
    """
    if device_specific:
        seed += process.rank()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)
