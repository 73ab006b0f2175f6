"""PyTorch's choice between kernels of attention. Here `scaled_dot_product_attention` chooses by itself."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """The kernels that PyTorch chooses from."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(
    backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False
) -> Iterator[dict[str, object]]:
    """Has no effect: attention has one kernel for each device, and all variants compute the same.

    Args:
        backends: those that PyTorch could choose from.
        set_priority: whether their order counts.

    Raises:
        AssertionError: something else than an `SDPBackend`, or a list of them.
    """
    backends = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(backends, (list, tuple)) or not all(isinstance(b, SDPBackend) for b in backends):
        raise AssertionError(
            f"Backend must be an instance of SDPBackend or a list of SDPBackend, got {backends!r}"
        )
    yield {}
