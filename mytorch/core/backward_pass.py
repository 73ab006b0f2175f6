"""What hooks may know of the backward pass that called them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .grad_mode import _state


class BackwardPass(NamedTuple):
    """A backward pass that is under way.

    nodes:  those below the roots: it will come to all of them.
    at_end: functions to be called once, when it has.
    """

    nodes: Container[Any]
    at_end: list[Callable[[], None]]


def current_backward_pass() -> BackwardPass | None:
    """The backward pass that this thread is in, the innermost one."""
    return _state.walk


@contextmanager
def under_way(nodes: Container[Any]) -> Iterator[None]:
    """Around a backward pass."""
    outer, _state.walk = _state.walk, BackwardPass(nodes, [])
    try:
        yield
        for call in _state.walk.at_end:
            call()
    finally:
        _state.walk = outer
