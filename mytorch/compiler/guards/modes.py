"""The modes of a thread that a program depends on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...backends import dtypes
from ...backends.device import thread
from ...core.grad_mode import _state
from ...core.overriding import overrides, overriding
from ...nn.functional.variant import use_fused, uses_kernels

MODES = (
    "grad mode", "autocast", "use_fused", "the default dtype", "the default device",
    "the number of modes with __torch_function__",
)


def modes() -> tuple:
    """Returns the modes of this thread that a program depends on."""
    autocast = None if _state.autocast is None else str(_state.autocast)
    count = len(overrides.modes) if overriding else 0
    return _state.recording, autocast, uses_kernels(), dtypes._default, thread.default_device, count


@contextmanager
def same_modes() -> Iterator[None]:
    """Context in which a function is traced, and after which the modes are what they were before.

    Raises:
        NotImplementedError: the function leaves others.
    """
    before, default = modes(), use_fused.default
    given = _state.recording, _state.autocast
    try:
        yield
        left = zip((*MODES, "use_fused"), (*before, default), (*modes(), use_fused.default), strict=True)
        if changed := [name for name, was, now in left if was != now]:
            raise NotImplementedError(f"a program can't hold that {changed[0]} is another one after it")
    finally:
        (_state.recording, _state.autocast), use_fused.default = given, default
