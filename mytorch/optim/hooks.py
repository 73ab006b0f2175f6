"""Hooks of optimizers: functions called before and after a step, or when the state is saved or loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import RemovableHandle


class Hooked:
    """The hooks of an optimizer; one that wraps another need not call `Optimizer.__init__()`."""

    _hooks: dict[str, dict[int, Callable]] = {}
    _stepped = False  # whether step() was ever called: schedules check it

    def _forget_hooks(self) -> None:
        self._hooks, self._stepped = {}, False

    def _register(self, when: str, hook: Callable, prepend: bool = False) -> RemovableHandle:
        if "_hooks" not in self.__dict__:
            self._forget_hooks()
        hooks = self._hooks.setdefault(when, {})
        others = dict(hooks)
        if prepend:
            hooks.clear()
        handle = RemovableHandle(hooks, hook)
        if prepend:
            hooks.update(others)
        return handle

    def _run_hooks(self, when: str, *args: Any) -> Any:
        """Calls the hooks with (optimizer, *args); what one returns replaces the last argument."""
        for hook in list(self._hooks.get(when, {}).values()):
            changed = hook(self, *args)
            if changed is not None and args:
                args = (*args[:-1], changed)
        return args[-1] if args else None

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before each step; it may return other (args, kwargs).

        As in PyTorch, `args` are all of `step`, so the first of them is the optimizer.
        """
        return self._register("before step", hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        return self._register("after step", hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` before `state_dict()`."""
        return self._register("before saving", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` on the result of `state_dict()`; it may return another one."""
        return self._register("after saving", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` on a copy of the state; it may return another one."""
        return self._register("before loading", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` after `load_state_dict()`."""
        return self._register("after loading", hook, prepend)
