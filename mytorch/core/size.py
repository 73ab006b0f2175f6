"""The shape of a tensor."""

from __future__ import annotations

import math


class Size(tuple):
    """The shape of a tensor: a tuple that also knows its number of elements.

    >>> mytorch.ones(2, 3).shape
    Size([2, 3])
    """

    __slots__ = ()

    def numel(self) -> int:
        return math.prod(self)

    def __repr__(self) -> str:
        return f"Size({list(self)})"
