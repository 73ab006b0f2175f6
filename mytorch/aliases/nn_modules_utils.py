"""Sizes for layers of one, two or three dims, as `nn.modules.utils` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat


def _ntuple(n: int, name: str = "parse") -> Callable[[object], tuple]:
    """Returns the function that makes a tuple: of an iterable its items, of a number n copies."""

    def parse(x: object) -> tuple:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (
    _ntuple(n + 1, name) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"))
)


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """Returns the items from the last to the first, n times each: paddings as `F.pad` takes them."""
    return tuple(x for x in reversed(t) for _ in range(n))
