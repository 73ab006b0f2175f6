"""Types of arguments that many functions and layers take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ...backends.device import DeviceLike
from ...backends.dtypes import DTypeLike

__all__ = ["DTypeLike", "DeviceLike", "IntOrInts"]

IntOrInts: TypeAlias = int | Sequence[int]  # one for all dims, or one for each
