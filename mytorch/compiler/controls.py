"""What programs tell the compiler, and ask it: PyTorch's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..backends.device import thread
from ..backends.door import in_force


def is_compiling() -> bool:
    """Returns whether a program is being captured in this thread."""
    return thread.tracer is not None


is_dynamo_compiling = is_compiling


def disable(fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Returns a function that runs eagerly, and so does each compiled function that calls it; without `fn`, a
    decorator."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        because = f" ({reason})" if reason else ""
        in_force().once(f"{fn.__name__}, for which compilation is disabled{because}")
        return fn(*args, **kwargs)

    return call


def allow_in_graph(fn: Any) -> Any:
    """Returns the function itself."""
    return fn


assume_constant_result = allow_in_graph


def cudagraph_mark_step_begin() -> None:
    """Has no effect."""
