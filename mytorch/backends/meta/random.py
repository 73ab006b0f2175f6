"""Random numbers that cost nothing and advance nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dtypes import DTypeLike
from .array import MetaArray, new
from .layout import Shape


class MetaRandom:
    """NumPy's `Generator` for meta arrays: its draws have a shape and a dtype."""

    def integers(
        self, low: object, high: object = None, size: int | Shape = (), dtype: DTypeLike = np.int64
    ) -> MetaArray:
        """Returns integers."""
        return new(size, dtype)

    def permutation(self, n: int) -> MetaArray:
        """Returns the numbers below n."""
        return new((n,), np.int64)


def _draw(*parameters: str) -> Callable[..., MetaArray]:
    """A method whose arguments are these numbers or arrays, then the size and the dtype."""

    def draw(
        self: MetaRandom, *args: object, size: int | Shape | None = None, dtype: DTypeLike = np.float64
    ) -> MetaArray:
        given, rest = args[: len(parameters)], args[len(parameters) :]
        size = rest[0] if rest else size
        return new(np.broadcast_shapes(*map(np.shape, given)) if size is None else size, dtype)

    return draw


for _name, _parameters in {
    "random": (), "standard_normal": (), "standard_exponential": (), "standard_gamma": ("shape",),
    "poisson": ("lam",), "binomial": ("n", "p"),
}.items():
    setattr(MetaRandom, _name, _draw(*_parameters))
