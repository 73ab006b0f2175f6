"""Random numbers on the GPUs: the default generators, see `mytorch.random`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from ..backends.device import device_count, is_available
from ..core.tensor import Tensor
from ..random import default_generator
from .devices import index_of


def manual_seed(seed: int) -> None:
    """Seed the default generator of the current GPU; without a GPU nothing happens."""
    if is_available():
        default_generator("cuda").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all GPUs."""
    for index in range(device_count()):
        default_generator(index).manual_seed(seed)


def seed() -> None:
    """Seed the default generator of the current GPU with a number that nobody can foresee."""
    manual_seed(secrets.randbits(64))


def seed_all() -> None:
    """Seed the default generators of all GPUs with one number that nobody can foresee."""
    manual_seed_all(secrets.randbits(64))


def initial_seed() -> int:
    """The seed that the default generator of the current GPU began with."""
    return default_generator("cuda").initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a GPU's default generator, as a uint8 tensor on the CPU."""
    return default_generator(index_of(device)).get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Put a GPU's default generator into a state that `get_rng_state` returned."""
    default_generator(index_of(device)).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of the default generators of all GPUs."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Put the default generators of the GPUs into these states, in their order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
