"""Hooks of modules: functions called before and after `forward`, and when its gradients are there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.op import op
from ..core.tensor import RemovableHandle, Tensor, from_raw, raw_of


class Hooks:
    """The hooks of one module, made when the first is registered: a module without any pays nothing."""

    def __init__(self):
        self.before: dict[int, tuple[Callable, bool]] = {}  # each with whether it wants the keyword arguments
        self.after: dict[int, tuple[Callable, bool]] = {}
        self.backward: dict[int, Callable] = {}

    def call(self, module: Any, args: tuple, kwargs: dict) -> Any:
        """module.forward(*args, **kwargs) with all hooks."""
        for hook, with_kwargs in list(self.before.values()):
            changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if changed is not None:
                if with_kwargs:
                    args, kwargs = changed
                else:
                    args = changed if isinstance(changed, tuple) else (changed,)
        seen = Gradients(module, list(self.backward.values())) if self.backward else None
        if seen is not None:
            args = seen.watch_inputs(args)
        result = module.forward(*args, **kwargs)
        for hook, with_kwargs in list(self.after.values()):
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            if changed is not None:
                result = changed
        return result if seen is None else seen.watch_outputs(result)


def add(hooks: dict, hook: Any, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if prepend:
        rest = {key: hooks[key] for key in hooks if key != handle.id}
        hooks.clear()
        hooks.update({handle.id: hook, **rest})
    return handle


@op(view=True, outputs=True)
def _pass_through(*tensors, saw):
    """The same arrays; on the way back `saw` gets the gradients of all of them together."""
    return tensors, lambda grads: tuple(saw(grads))


class Gradients:
    """Collects the gradients of one call's outputs and inputs, and shows them to the hooks.

    Tensors among the positional arguments and in the result go through an op that sees all their gradients.
    """

    def __init__(self, module: Any, hooks: list[Callable]):
        self.module, self.hooks = module, hooks
        self.of_outputs: tuple = ()
        self.watches_inputs = False

    def watch_inputs(self, args: tuple) -> tuple:
        self.watches_inputs = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return self._passed(args, self._saw_inputs) if self.watches_inputs else args

    def watch_outputs(self, result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(self._passed(result, self._saw_outputs))
        return self._passed((result,), self._saw_outputs)[0] if isinstance(result, Tensor) else result

    def _passed(self, values: Any, saw: Callable) -> tuple:
        values = list(values)
        where = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
        if where:
            tensors = [values[i] for i in where]
            passed = _pass_through(*tensors, saw=functools.partial(saw, where, len(values)))
            for i, tensor in zip(where, passed, strict=True):
                tensor._version = values[i]._version  # it is the same memory
                values[i] = tensor
        return tuple(values)

    def _saw_outputs(self, where: list[int], count: int, grads: list) -> list:
        self.of_outputs = _spread(where, count, grads)
        if not self.watches_inputs:
            self._run_hooks((None,))
        return grads

    def _saw_inputs(self, where: list[int], count: int, grads: list) -> list:
        changed = self._run_hooks(_spread(where, count, grads))
        return [None if changed[i] is None else raw_of(changed[i]) for i in where]

    def _run_hooks(self, of_inputs: tuple) -> tuple:
        for hook in self.hooks:
            changed = hook(self.module, of_inputs, self.of_outputs)
            if changed is not None:
                of_inputs = changed if isinstance(changed, tuple) else (changed,)
        return of_inputs


def _spread(where: list[int], count: int, grads: list) -> tuple:
    """The gradients of the tensors at these positions, None at the others."""
    spread: list = [None] * count
    for i, grad in zip(where, grads, strict=True):
        spread[i] = None if grad is None else from_raw(grad)
    return tuple(spread)
