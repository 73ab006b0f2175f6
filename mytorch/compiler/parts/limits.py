"""Limits of memory, as texts and for each device."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ...backends.device import DeviceLike, as_device, device
from ...backends.kinds import GPU
from ...cuda.memory import mem_get_info
from ...utils.reading import is_count

Limit: TypeAlias = int | str  # bytes, or "500MB", "1.5 GiB"

_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def bytes_of(memory: Limit, caller: str) -> float:
    """Returns the number of bytes that a limit says: 1000, "500MB", "1.5 GiB"."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*) *([A-Za-z]+)", memory) if isinstance(memory, str) else None
    if found is not None and found[2] in _UNITS:
        nbytes = float(found[1]) * _UNITS[found[2]]
    else:
        nbytes = memory if is_count(memory) else 0
    if nbytes <= 0:
        raise ValueError(
            f'{caller}(): memory is a positive number of bytes, or text as "500MB" or "1.5 GiB" (a number '
            f"and one of {', '.join(_UNITS)}), got {memory!r}"
        )
    return nbytes


def limits_of(
    devices: Sequence[DeviceLike] | Mapping[DeviceLike, Limit],
    memory: Limit | Mapping[DeviceLike, Limit] | None,
) -> tuple[list[device], list[float]]:
    """Returns devices and the bytes that each may hold: by default what is free on a GPU, infinity on others.

    Raises:
        ValueError: there is no device, or one twice, or a limit of a device that isn't among them.
    """
    if isinstance(devices, Mapping):
        memory = devices
    found = [*map(as_device, devices)]
    if not found or len({*map(id, found)}) < len(found):
        raise ValueError(f"placed(): expected devices that differ, got {[*devices]}")
    given = memory if isinstance(memory, Mapping) else {} if memory is None else dict.fromkeys(found, memory)
    limits = {as_device(name): bytes_of(limit, "placed") for name, limit in given.items()}
    if others := limits.keys() - {*found}:
        raise ValueError(f"placed(): a limit of {', '.join(others)}, which is none of {', '.join(found)}")
    return found, [limits[x] if x in limits else _free(x) for x in found]


def _free(x: device) -> float:
    return mem_get_info(x)[0] if x.kind is GPU else math.inf
