"""Times and counts as text, and the properties of events that are such text."""

from __future__ import annotations

from typing import Any


class TimeTexts:
    """The times of an event or an average as text with a unit, `cpu_time_str` for `cpu_time` and so on."""

    def __getattr__(self, name: str) -> Any:
        if "cuda" in name:  # PyTorch's older names, `cuda_time_total` for `device_time_total`
            return getattr(self, name.replace("cuda", "device"))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def cpu_time_str(self) -> str:
        return text_of_time(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return text_of_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return text_of_time(self.self_cpu_time_total)

    @property
    def device_time_str(self) -> str:
        return text_of_time(self.device_time)

    @property
    def device_time_total_str(self) -> str:
        return text_of_time(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        return text_of_time(self.self_device_time_total)


def text_of_time(microseconds: float, unit: str | None = None) -> str:
    """Returns a time with a unit.

    >>> from mytorch.profiler.texts import text_of_time
    >>> text_of_time(12.5), text_of_time(1500), text_of_time(1500, "s")
    ('12.500us', '1.500ms', '0.002s')
    """
    if unit is None:
        unit = "s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us"
    return f"{microseconds / {'us': 1, 'ms': 1e3, 's': 1e6}[unit]:.3f}{unit}"


def text_of_number(number: float) -> str:
    """Returns a count with a prefix: 1.500 G."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= size:
            return f"{number / size:.3f} {prefix}"
    return f"{number:.0f}"
