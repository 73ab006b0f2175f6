"""Random numbers that cost nothing and advance nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array import MetaArray, new


class MetaRandom:
    """NumPy's `Generator` for meta arrays: its draws have a shape and a dtype."""

    def integers(self, low: Any, high: Any = None, size: Any = (), dtype: Any = np.int64) -> MetaArray:
        """Returns integers."""
        return new(size, dtype)


def _draw(*parameters: str) -> Callable[..., MetaArray]:
    """A method whose arguments are these numbers or arrays, then the size and the dtype."""

    def draw(self: MetaRandom, *args: Any, size: Any = None, dtype: Any = np.float64) -> MetaArray:
        given, rest = args[: len(parameters)], args[len(parameters) :]
        size = rest[0] if rest else size
        return new(np.broadcast_shapes(*map(np.shape, given)) if size is None else size, dtype)

    return draw


for _name, _parameters in {
    "random": (), "standard_normal": (), "standard_exponential": (), "standard_gamma": ("shape",),
    "poisson": ("lam",), "binomial": ("n", "p"),
}.items():  # fmt: skip
    setattr(MetaRandom, _name, _draw(*_parameters))
