"""The shape of a tensor."""

from __future__ import annotations

import math


class Size(tuple):
    """The shape of a tensor: a tuple that also knows its number of elements."""

    __slots__ = ()

    def numel(self) -> int:
        return math.prod(self)

    def __repr__(self) -> str:
        return f"Size({list(self)})"
