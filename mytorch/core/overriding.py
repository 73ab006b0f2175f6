"""Whether a class or a mode with `__torch_function__` may override functions: see `ops/torch_function.py`.

Every function that can be overridden begins with

    if overriding and (answer := overriding.dispatch(function, args, kwargs)) is not NotImplemented:
        return answer
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Overriding(list):
    """An entry for each mode in force in any thread, and the first one once a class is known that overrides.

    dispatch: `(function, args, kwargs)`; returns the result, or NotImplemented where nothing overrides it.
    refused: `(function, args, kwargs, error)`; the same, where an argument of an unknown class made it fail.
    """

    dispatch: Callable[..., Any]
    refused: Callable[..., Any]


class _Thread(threading.local):
    modes: tuple = ()  # those entered, outermost first
    ignored = 0  # 1: what classes override, 2: modes, too


overriding, overrides = _Overriding(), _Thread()


class DisableTorchFunctionSubclass:
    """A block in which no class overrides functions in this thread: its tensors are plain ones; modes do.

    >>> with mytorch.overrides.DisableTorchFunctionSubclass():
    ...     mytorch.overrides.has_torch_function([mytorch.ones(2)])
    False
    """

    level = 1

    def __enter__(self) -> None:
        self.before, overrides.ignored = overrides.ignored, max(overrides.ignored, self.level)

    def __exit__(self, *exception: object) -> None:
        overrides.ignored = self.before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A block in which neither classes nor modes override functions in this thread."""

    level = 2
