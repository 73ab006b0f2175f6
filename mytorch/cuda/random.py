"""The default generators of random numbers on the GPUs, see `mytorch.random`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from ..backends.device import device, device_count, is_available
from ..core.tensor import Tensor
from ..random import default_generator
from .devices import index_of


def manual_seed(seed: int) -> None:
    """Seeds the default generator of the current GPU; does nothing without a GPU."""
    if is_available():
        default_generator("cuda").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the default generators of all GPUs."""
    for index in range(device_count()):
        default_generator(index).manual_seed(seed)


def seed() -> None:
    """Seeds the default generator of the current GPU with a random number."""
    manual_seed(secrets.randbits(64))


def seed_all() -> None:
    """Seeds the default generators of all GPUs with one random number."""
    manual_seed_all(secrets.randbits(64))


def initial_seed() -> int:
    """Returns the initial seed of the current GPU's default generator."""
    return default_generator("cuda").initial_seed()


def get_rng_state(device: device | str | int = "cuda") -> Tensor:
    """Returns the state of a GPU's default generator, as a uint8 tensor on the CPU."""
    return default_generator(index_of(device)).get_state()


def set_rng_state(new_state: Tensor, device: device | str | int = "cuda") -> None:
    """Sets the state of a GPU's default generator to one that `get_rng_state` returned."""
    default_generator(index_of(device)).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Returns the states of the default generators of all GPUs."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Sets the states of the default generators of the GPUs, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
