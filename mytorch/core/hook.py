"""Hooks: functions that are called with a gradient, or when a module has run."""

from __future__ import annotations

from collections.abc import Callable


class RemovableHandle:
    """Removes a hook: by `handle.remove()`, or at the end of `with handle:`."""

    _next = 0

    def __init__(self, hooks: dict, hook: Callable):
        self.hooks, self.id = hooks, RemovableHandle._next
        RemovableHandle._next += 1
        hooks[self.id] = hook

    def remove(self) -> None:
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()
