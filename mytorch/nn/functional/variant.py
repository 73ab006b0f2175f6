"""
Which variants of composites run, and whether kernels do: chosen in two ways.

`auto=` and `fused=` say it for a call, or for all that a layer's `forward` calls (see `layers.variants`);
`use_fused(...)` says it for the rest, from now on or within a block. `variant()` is what holds at present.

    F.gelu(x, auto=True)           # the reference; fused=True: the kernel or an error; fused=False: no kernel
    nn.GELU(auto=True)(x)          # the same
    with use_fused(auto=True):     # the references of all calls in the block that say nothing else
        F.gelu(x)
    with use_fused(False):         # no kernels
        F.gelu(x)
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ...autograd.checkpoint import restored


class _Thread(threading.local):
    variant: tuple[bool, bool | None] | None = None  # a layer's or a block's; None: as `use_fused` says
    kernel_ran = False  # one that was demanded, since the innermost choice


thread = _Thread()
_BY_MODE = (False, False), (False, None)


def variant() -> tuple[bool, bool | None]:
    """Returns `auto` and `fused` of the calls in this thread that say neither.

    `fused` is True where a kernel is demanded, None where one may run, False where none may.
    """
    return thread.variant or _BY_MODE[use_fused.default]


def uses_kernels() -> bool:
    """Returns whether what says neither `auto` nor `fused` may run kernels in this thread."""
    auto, fused = variant()
    return not auto and fused is not False


@contextmanager
def choosing(auto: bool, fused: bool | None) -> Iterator[None]:
    """Context in which `variant()` is this one, in this thread."""
    before = thread.variant
    thread.variant = auto, fused
    try:
        yield
    finally:
        thread.variant = before


@restored
def _present() -> Callable[[], AbstractContextManager]:
    return functools.partial(choosing, *variant())


class use_fused:  # noqa: N801 - used like a function
    """Enables or disables fused kernels: from now on as a plain call, within a block as a context.

    The mode holds for the whole process, for calls and layers without a choice of their own. The environment
    variable USE_FUSED_OPS (0 or 1) sets the initial one; without it kernels are enabled.

    Args:
        mode: True to enable them.
        auto: run the references instead, in this thread, whatever the mode, which it leaves as it is; False
            ends that.

    >>> with F.use_fused(False):
    ...     F.relu(mytorch.tensor([-1.0, 2.0]))
    tensor([0.00000 2.00000])
    >>> with F.use_fused(auto=True):
    ...     F.silu(mytorch.tensor([1.0], requires_grad=True)).grad_fn
    <mul (1,)>
    """

    default: bool  # the mode

    def __init__(self, mode: bool = True, *, auto: bool | None = None):
        if not isinstance(mode, bool):
            raise TypeError(f"use_fused(): expected True or False, got {mode!r}")
        if auto is not None and not isinstance(auto, bool):
            raise TypeError(f"use_fused(): auto must be True or False, got {auto!r}")
        if auto is not None and not mode:
            raise ValueError("use_fused(): auto= leaves the mode as it is: say it without the mode False")
        self.auto, self.before = auto, (use_fused.default if auto is None else thread.variant)
        self.value = mode if auto is None else (True, None) if auto else None
        self._set(self.value)

    def _set(self, value: bool | tuple[bool, bool | None] | None) -> None:
        if self.auto is None:
            use_fused.default = value
        else:
            thread.variant = value

    def __enter__(self) -> use_fused:
        self._set(self.value)  # again, for one that is entered later or twice
        return self

    def __exit__(self, *exception: object) -> None:
        self._set(self.before)


def _from_environment() -> bool:
    value = os.environ.get("USE_FUSED_OPS", "1")
    if value not in ("0", "1"):
        raise ValueError(f"the environment variable USE_FUSED_OPS is 0 or 1, got {value!r}")
    return value == "1"


use_fused.default = _from_environment()
