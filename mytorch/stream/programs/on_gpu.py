"""Runs programs on a GPU."""

from __future__ import annotations

from typing import Any

from ...backends.device import RawArray, on
from .execution import Executable


class OnGPU(Executable):
    """A program on a GPU as a function of raw arrays."""

    def __call__(self, *raws: RawArray) -> Any:
        with on(self._device):
            return super().__call__(*raws)
