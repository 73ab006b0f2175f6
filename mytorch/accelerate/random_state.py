"""Seeds and states of all generators of random numbers: Python's, NumPy's and mytorch's."""

from __future__ import annotations

import random

import numpy as np

from ..core.tensor import Tensor
from ..random import default_generator, manual_seed, rng_states
from ..utils.reading import is_count
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


def check_random_states(states: StateDict) -> None:
    """Raises ValueError unless `states` has the form of `random_states`.

    NumPy checks neither the array nor the position in it, and a wrong one ends the process.
    """
    try:
        random.Random().setstate(states["python"])
        kind, state = states["numpy"]["bit_generator"], states["numpy"]["state"]
        key, position = state["key"], state["pos"]
        is_valid = kind == "MT19937" and key.dtype == np.uint32 and key.shape == (624,)
        if not is_valid or not is_count(position) or position > 624:
            raise ValueError(f"no state of NumPy's {kind!r} with position {position!r}")
        np.random.RandomState().set_state(states["numpy"])
        for device, tensor in states["mytorch"].items():
            if not isinstance(device, str) or not isinstance(tensor, Tensor) or tensor.dtype != np.uint8:
                raise ValueError(f"no state of the generator of {device!r}")
    except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"no random states: {error!r}") from error


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
