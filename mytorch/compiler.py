"""PyTorch's `compiler`: what programs ask and tell it; nothing is compiled (see `jit`)."""

from __future__ import annotations

from typing import Any

from .jit import compile, is_scripting

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "reset",
]  # fmt: skip

is_compiling = is_dynamo_compiling = is_scripting


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Returns the function itself; without one, a decorator that does."""
    return compile(fn)


def allow_in_graph(fn: Any) -> Any:
    """Returns the function itself."""
    return fn


assume_constant_result = allow_in_graph


def reset() -> None:
    """Has no effect."""


cudagraph_mark_step_begin = reset
