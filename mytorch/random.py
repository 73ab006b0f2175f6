"""Random number generators: one for each device, with a seed and a state that can be saved.

    mytorch.manual_seed(0)                                  # the default generators of all devices
    mytorch.rand(3, generator=mytorch.Generator().manual_seed(0))

On the CPU it is the PCG64 of NumPy, on a GPU the XORWOW of CuPy: the numbers are not the same on both.
"""

from __future__ import annotations

import operator
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .backends.device import CPU, META, DeviceLike, as_device, is_users, on
from .backends.door import in_force
from .backends.kinds import cupy, meta
from .core.tensor import Tensor, from_raw

DEFAULT_SEED = 67280421310721  # PyTorch's


class Generator:
    """A stream of random numbers, which depend on the seed only.

    Args:
        device: where the numbers are made.

    >>> generator = mytorch.Generator().manual_seed(0)
    >>> mytorch.rand(2, generator=generator).shape
    Size([2])
    """

    def __init__(self, device: DeviceLike = "cpu"):
        if is_users(sys._getframe(1)):
            in_force().once("a generator that it makes")
        self.device = as_device(device).base
        self.manual_seed(DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Seeds the generator, and returns it.

        Raises:
            TypeError: `seed` isn't an integer.
            ValueError: it doesn't fit in 64 bits.
        """
        if not hasattr(seed, "__index__"):
            raise TypeError(f"manual_seed(): the seed must be an integer, got {seed!r}")
        seed = operator.index(seed)
        if is_users(sys._getframe(1)):
            in_force().once("manual_seed()")
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"manual_seed(): the seed must fit in 64 bits, got {seed}")
        self._seed, self._seeds = seed % 2**64, 0
        self._rng = np.random.default_rng(self._seed) if self.device is CPU else None
        return self

    @property
    def rng(self) -> Any:
        """The NumPy or CuPy generator, for code that works on raw arrays."""
        if (taken := in_force().generator(self)) is not None:
            return taken
        if self._rng is None:  # seeding all devices doesn't wait for a GPU; its first draw does
            if self.device is META:
                self._rng = meta().MetaRandom()
                return self._rng
            with on(self.device):
                self._rng = cupy().random.default_rng(self._seed)
        return self._rng

    def next_seed(self) -> int:
        """A seed of 63 bits for a kernel that makes its random numbers itself: the same on every device.

        Source: Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64),
            https://doi.org/10.1145/2660193.2660195
        """
        in_force().once("a seed")
        self._seeds += 1
        z = (self._seed + self._seeds * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) >> 1

    def seed(self) -> int:
        """Seeds the generator with a random number, and returns that."""
        self.manual_seed(secrets.randbits(64))
        return self._seed

    def initial_seed(self) -> int:
        """Returns the last seed."""
        return self._seed

    def get_state(self) -> Tensor:
        """Returns the state as a uint8 tensor on the CPU: the seed, the count of `next_seed`, and the
        state of the bit generator."""
        in_force().once("the state of a generator")
        if self.device is META:
            state = b""
        elif self.device is CPU:
            state = _pack(self.rng.bit_generator.state)
        else:
            with on(self.device):
                state = self.rng.bit_generator._state.get().tobytes()
        numbers = self._seed.to_bytes(8, "little") + self._seeds.to_bytes(8, "little")
        return from_raw(np.frombuffer(numbers + state, np.uint8).copy())

    def set_state(self, state: Tensor) -> Generator:
        """Restores a state that `get_state` returned, on the same kind of device.

        Raises:
            TypeError: not a uint8 tensor.
            RuntimeError: its size is not that of a state of this device.
        """
        in_force().once("the state of a generator")
        if not isinstance(state, Tensor) or state.dtype != np.uint8:
            found = getattr(state, "dtype", type(state).__name__)
            raise TypeError(f"set_state(): expected a uint8 Tensor, got {found}")
        expected = self.get_state().shape
        if state.shape != expected:
            raise RuntimeError(
                f"set_state(): a state on {self.device} has shape {expected}, got {state.shape}"
            )
        data = state.cpu().numpy().tobytes()
        self.manual_seed(int.from_bytes(data[:8], "little"))
        self._seeds = int.from_bytes(data[8:16], "little")
        if self.device is CPU:
            self.rng.bit_generator.state = _unpack(data[16:])
        elif self.device is not META:
            with on(self.device):
                self.rng.bit_generator._state = cupy().asarray(np.frombuffer(data[16:], np.int8))
        return self

    def __repr__(self) -> str:
        return f"Generator(device={str(self.device)!r}, initial_seed={self._seed})"


# PCG64 has two numbers of 128 bits, and the half of a 64-bit draw that a 32-bit one left over.
_PCG64 = (("state", 16), ("inc", 16), ("has_uint32", 1), ("uinteger", 4))


def _pack(state: dict) -> bytes:
    state = {**state, **state["state"]}
    return b"".join(state[name].to_bytes(size, "little") for name, size in _PCG64)


def _unpack(data: bytes) -> dict:
    state = {}
    for name, size in _PCG64:
        state[name], data = int.from_bytes(data[:size], "little"), data[size:]
    inner = {"state": state.pop("state"), "inc": state.pop("inc")}
    return {"bit_generator": "PCG64", "state": inner, **state}


_default: dict[str, Generator] = {}
_seed = secrets.randbits(64)


def default_generator(device: DeviceLike = "cpu") -> Generator:
    """Returns the default generator of a device."""
    device = as_device(device).base
    if device not in _default:
        _default[device] = Generator(device).manual_seed(_seed)
    return _default[device]


def generator_on(device: DeviceLike, generator: Generator | None) -> Generator:
    """Returns the generator that is given, or the default one of the device.

    On the device "meta", where nothing is drawn, one of any device may be given.

    Raises:
        TypeError: not a Generator.
        RuntimeError: it is on another device.
    """
    if generator is None:
        return default_generator(device)
    if not isinstance(generator, Generator):
        raise TypeError(f"expected a mytorch.Generator, got {type(generator).__name__}")
    if generator.device != device and not in_force().draws:
        if device == META:
            return default_generator(META)
        raise RuntimeError(f"expected a generator on '{device}', got one on '{generator.device}'")
    return generator


def manual_seed(seed: int) -> Generator:
    """Seeds the default generators of all devices, also of those that are used later; returns the CPU's.

    >>> _ = mytorch.manual_seed(1)
    >>> x = mytorch.rand(2)
    >>> _ = mytorch.manual_seed(1)
    >>> mytorch.equal(x, mytorch.rand(2))
    True
    """
    global _seed
    in_force().once("manual_seed()")
    default_generator().manual_seed(seed)
    _seed = default_generator().initial_seed()
    for generator in _default.values():
        generator.manual_seed(_seed)
    return default_generator()


def seed() -> int:
    """Seeds the default generators with a random number, and returns that."""
    return manual_seed(secrets.randbits(64)).initial_seed()


def initial_seed() -> int:
    """Returns the last seed of the CPU's default generator."""
    return default_generator().initial_seed()


def get_rng_state(device: DeviceLike = "cpu") -> Tensor:
    """The state of a device's default generator, as a uint8 tensor.

    >>> state = mytorch.get_rng_state()
    >>> x = mytorch.rand(2)
    >>> mytorch.set_rng_state(state)
    >>> mytorch.equal(x, mytorch.rand(2))
    True
    """
    return default_generator(device).get_state()


def set_rng_state(new_state: Tensor, device: DeviceLike = "cpu") -> None:
    """Restores the state of a device's default generator that `get_rng_state` returned.

    >>> mytorch.set_rng_state(mytorch.get_rng_state())
    """
    default_generator(device).set_state(new_state)


def rng_states() -> dict[str, Tensor]:
    """The state of the default generator of every device that has one."""
    return {device: generator.get_state() for device, generator in _default.items()}


@contextmanager
def replayed(states: dict[str, Tensor]) -> Iterator[None]:
    """Restores `states = rng_states()` inside, so that draws repeat, and at the end the current states."""
    with fork_rng():
        for device, state in states.items():
            default_generator(device).set_state(state)
        yield


@contextmanager
def fork_rng() -> Iterator[None]:
    """Restores the states of the default generators at the end.

    >>> with mytorch.fork_rng():
    ...     x = mytorch.rand(1)
    >>> mytorch.equal(x, mytorch.rand(1))
    True
    """
    global _seed
    seed = _seed
    before = rng_states()
    try:
        yield
    finally:
        _seed = seed
        for device, generator in _default.items():
            if device in before:
                generator.set_state(before[device])
            else:  # it was made inside
                generator.manual_seed(seed)
