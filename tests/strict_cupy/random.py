"""`cupy.random`: NumPy's generators behind CuPy's smaller set of methods. The numbers are not CuPy's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from . import graph
from .array import is_number, ndarray, raw, wrap
from .names import NAMES, Name


class BitGenerator:
    def __init__(self, seed: Any = None):
        graph.refuse_waiting()  # CuPy's would be seeded again in every replay
        self._numpy = np.random.PCG64(seed)

    @property
    def _state(self) -> ndarray:
        """The state as bytes on the GPU; to give CuPy's generators another one is to replace this array."""
        return wrap(np.frombuffer(json.dumps(self._numpy.state).ljust(256).encode(), np.int8).copy())

    @_state.setter
    def _state(self, state: ndarray) -> None:
        self._numpy.state = json.loads(raw(state).tobytes())


class XORWOW(BitGenerator):
    pass


class MRG32k3a(BitGenerator):
    pass


class Philox4x3210(BitGenerator):
    pass


class Generator:
    """`cupy.random.default_rng(seed)`: no normal, permutation, choice or shuffle."""

    def __init__(self, bit_generator: BitGenerator):
        if not isinstance(bit_generator, BitGenerator):
            raise TypeError(f"expected a cupy.random.BitGenerator, got {type(bit_generator)}")
        self.bit_generator = bit_generator
        self._random = np.random.Generator(bit_generator._numpy)


class RandomState:
    """The older generator, with the functions of `cupy.random` as methods."""

    def __init__(self, seed: Any = None, method: Any = None):
        self._random = np.random.RandomState(seed)

    def seed(self, seed: Any = None) -> None:
        self._random.seed(seed)

    def rand(self, *size: int, dtype: Any = float) -> ndarray:
        return wrap(self._random.random_sample(size).astype(dtype))

    def randn(self, *size: int, dtype: Any = float) -> ndarray:
        return wrap(np.asarray(self._random.standard_normal(size), dtype))

    def permutation(self, a: int | ndarray) -> ndarray:
        return wrap(self._random.permutation(a if is_number(a) else raw(a)))

    def shuffle(self, a: ndarray) -> None:
        self._random.shuffle(raw(a))


def default_rng(seed: Any = None) -> Generator:
    return Generator(seed if isinstance(seed, BitGenerator) else XORWOW(seed))


_state = RandomState()


def get_random_state() -> RandomState:
    return _state


def seed(seed: Any = None) -> None:
    get_random_state().seed(seed)


def bytes(length: int) -> Any:
    return get_random_state()._random.bytes(length)


def multinomial(n: int, pvals: Any, size: Any = None) -> ndarray:
    return wrap(get_random_state()._random.multinomial(n, pvals, size))


def _method(owner: str, name: str, entry: Name) -> Callable:
    """A method that takes what CuPy's takes, draws with NumPy's and converts the result to `dtype`."""
    signature = entry.signature("self")

    @graph.taped
    def method(*args, **kwargs):
        try:
            given = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"cupy.random.{owner}.{name}: {error}") from None
        random, out = given.pop("self")._random, given.pop("out", None)
        dtype = given.pop("dtype", None)
        given = {key: _parameter(value) for key, value in given.items()}
        if name in ("integers", "randint"):
            given["dtype"] = dtype or np.int64
        if out is not None:
            given["size"] = out.shape
        drawn = wrap(np.asarray(getattr(random, name)(**given), dtype))
        if out is None:
            return drawn
        out[...] = drawn
        return out

    method.__name__ = name
    return method


def _parameter(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}: a parameter is a number or a cupy.ndarray")
    return raw(value) if isinstance(value, ndarray) else value


for _class in (Generator, RandomState):
    for _name, _entry in NAMES[f"cupy.random.{_class.__name__}"].items():
        if not hasattr(_class, _name) and hasattr(np.random, _class.__name__):
            setattr(_class, _name, _method(_class.__name__, _name, _entry))


def function(name: str) -> Callable | None:
    """`cupy.random.<name>`: a method of the global RandomState."""
    name = {"random": "random_sample", "ranf": "random_sample", "sample": "random_sample"}.get(name, name)
    return (lambda *a, **k: getattr(_state, name)(*a, **k)) if hasattr(RandomState, name) else None
