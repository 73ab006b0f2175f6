"""Types of arguments that many functions and layers take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

IntOrInts: TypeAlias = int | Sequence[int]  # one for all dims, or one for each
DeviceLike: TypeAlias = str | int | None  # a device, its name or the number of a GPU; None: the default
DTypeLike: TypeAlias = np.dtype | type | str | None  # None: the default
