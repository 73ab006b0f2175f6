"""Memory formats, by PyTorch's names: they are checked, and the memory stays in row-major order.

The values are the same in every format; what differs is the order of the elements in memory, and with it the
speed of PyTorch's convolutions.
"""

from __future__ import annotations

__all__ = [
    "channels_last", "channels_last_3d", "contiguous_format", "memory_format", "preserve_format",
]


class memory_format:  # noqa: N801 - PyTorch's name
    """The order of a tensor's elements in memory.

    Args:
        name: of the format.
        ndim: the number of dims that a tensor of it has; None for any.

    >>> mytorch.channels_last
    mytorch.channels_last
    """

    def __init__(self, name: str, ndim: int | None = None):
        self.name, self.ndim = name, ndim

    def __repr__(self) -> str:
        return f"mytorch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last", 4)
channels_last_3d = memory_format("channels_last_3d", 5)


def check_format(format: object, ndim: int, name: str) -> None:
    """Raises unless `format` is None or a format of tensors with this number of dims."""
    if format is None:
        return
    if not isinstance(format, memory_format):
        raise TypeError(
            f"{name}(): argument 'memory_format' must be mytorch.memory_format, not {type(format).__name__}"
        )
    if format.ndim not in (None, ndim):
        raise RuntimeError(
            f"{name}(): required rank {format.ndim} tensor to use {format.name} format, got rank {ndim}"
        )
