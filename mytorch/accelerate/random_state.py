"""Seeds and states of all generators of random numbers: Python's, NumPy's and mytorch's."""

from __future__ import annotations

import random

import numpy as np

from ..random import default_generator, manual_seed, rng_states
from . import world
from .stateful import StateDict


def set_seed(seed: int, device_specific: bool = False) -> None:
    """Seeds Python's, NumPy's and mytorch's random numbers.

    Args:
        device_specific: add the rank, so that each process draws other numbers.
    """
    if device_specific:
        seed += world.rank()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)


def random_states() -> StateDict:
    """Returns the states of the generators of Python, NumPy and mytorch."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "mytorch": {str(device): state for device, state in rng_states().items()},
    }


def set_random_states(states: StateDict) -> None:
    """Restores `random_states`, except those of devices that this machine doesn't have."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    for device, state in states["mytorch"].items():
        try:
            generator = default_generator(device)
        except RuntimeError:
            continue
        generator.set_state(state)
