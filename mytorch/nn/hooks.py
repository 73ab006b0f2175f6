"""Hooks of modules: functions called before and after `forward`, and after its backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..core.hook import require_same
from ..core.op import op
from ..core.tensor import RemovableHandle, Tensor, from_raw, raw_of

if TYPE_CHECKING:
    from .module import Module


class Hooks:
    """The hooks of one module, created when the first is registered: other modules have no overhead.

    Attributes:
        around: `around(module, args, kwargs)` is called instead of `forward`, and calls it.
    """

    around: Callable | None = None

    def __init__(self):
        self.before: dict[int, tuple[Callable, bool]] = {}  # with whether it takes the keyword arguments
        self.after: dict[int, tuple[Callable, bool]] = {}
        self.backward: dict[int, Callable] = {}

    def call(self, module: Module, args: tuple, kwargs: dict) -> Any:
        """Returns module.forward(*args, **kwargs), called with all hooks."""
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
        around = self.around
        result = module.forward(*args, **kwargs) if around is None else around(module, args, kwargs)
        for hook, with_kwargs in list(self.after.values()):
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            if changed is not None:
                result = changed
        return result if seen is None else seen.watch_outputs(result)


def add(hooks: dict, hook: Callable | tuple, prepend: bool = False) -> RemovableHandle:
    """Registers a hook in a dict of hooks."""
    handle = RemovableHandle(hooks, hook)
    if prepend:
        rest = {key: hooks[key] for key in hooks if key != handle.id}
        hooks.clear()
        hooks.update({handle.id: hook, **rest})
    return handle


class Hooked:
    """The part of `Module` that registers hooks."""

    _hooks: Hooks | None = None

    def _with_hooks(self) -> Hooks:
        if self._hooks is None:
            self._hooks = Hooks()
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before `forward`; a result other than None replaces the arguments.

        Args:
            prepend: call it before the existing hooks.
            with_kwargs: call `hook(module, args, kwargs)`; it may return both.

        >>> layer = nn.ReLU()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
        >>> layer(mytorch.ones(2))
        tensor([3.00000 3.00000])
        """
        return add(self._with_hooks().before, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args, result)` after `forward`; a result other than None replaces the result.

        Args:
            prepend: call it before the existing hooks.
            with_kwargs: call `hook(module, args, kwargs, result)`.

        >>> layer = nn.ReLU()
        >>> handle = layer.register_forward_hook(lambda module, args, output: output + 1)
        >>> layer(mytorch.ones(2))
        tensor([2.00000 2.00000])
        >>> handle.remove()
        """
        return add(self._with_hooks().after, (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when both gradients are computed.

        They are tuples, for the positional arguments and for the result. A result other than None replaces
        `grad_input`: each of its tensors has the shape, dtype and device of the one that it replaces.

        Raises (in the backward pass):
            RuntimeError: it has another number of gradients, or one that is unlike the one that it replaces.
            TypeError: a gradient is no tensor.
        """
        return add(self._with_hooks().backward, hook, prepend)


@op(view=True, outputs=True)
def _pass_through(*tensors, saw):
    """Returns the same arrays; in the backward pass `saw` gets the gradients of all of them."""
    return tensors, lambda grads: tuple(saw(grads))


class Gradients:
    """Collects the gradients of one call's outputs and inputs, and calls the hooks with them.

    Tensors among the positional arguments and in the result pass through an op whose vjp gets all gradients.
    """

    def __init__(self, module: Module, hooks: list[Callable]):
        self.module, self.hooks = module, hooks
        self.grad_outputs: tuple | None = None  # until the hooks have got them
        self.watches_inputs, self.count = False, 0

    def watch_inputs(self, args: tuple) -> tuple:
        self.count = len(args)
        self.watches_inputs = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return self._passed(args, self._saw_inputs) if self.watches_inputs else args

    def watch_outputs(self, result: object) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(self._passed(result, self._saw_outputs))
        return self._passed((result,), self._saw_outputs)[0] if isinstance(result, Tensor) else result

    def _passed(self, values: Iterable, saw: Callable) -> tuple:
        values = list(values)
        positions = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
        if positions:
            tensors = [values[i] for i in positions]
            passed = _pass_through(*tensors, saw=functools.partial(saw, positions, len(values)))
            for i, tensor in zip(positions, passed, strict=True):
                tensor._version = values[i]._version  # shares its memory
                values[i] = tensor
        return tuple(values)

    def _saw_outputs(self, positions: list[int], count: int, grads: list) -> list:
        self.grad_outputs = _by_position(positions, count, grads)
        if not self.watches_inputs:
            changed = self._run_hooks((None,) * self.count)
            if any([g is not None for g in changed]):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or "
                    "None for all gradients."
                )
        return grads

    def _saw_inputs(self, positions: list[int], count: int, grads: list) -> list:
        if self.grad_outputs is None:  # a second derivative reaches the input by another way
            return grads
        changed = self._run_hooks(_by_position(positions, count, grads))
        with_graph = any([isinstance(g, Tensor) for g in grads])
        return [g if g is None or with_graph else raw_of(g) for g in map(changed.__getitem__, positions)]

    def _run_hooks(self, grad_inputs: tuple) -> tuple:
        for hook in self.hooks:
            changed = hook(self.module, grad_inputs, self.grad_outputs)
            if changed is not None:
                changed = tuple(changed) if isinstance(changed, (tuple, list)) else (changed,)
                _check(changed, grad_inputs, hook)
                grad_inputs = changed
        self.grad_outputs = None
        return grad_inputs


def _check(changed: tuple, grad_inputs: tuple, hook: Callable) -> None:
    """Raises unless each gradient that a hook returns is None or like the one that it got."""
    if len(changed) != len(grad_inputs):
        raise RuntimeError(
            f"Backward hook returned an invalid number of grad_input, got {len(changed)}, but expected "
            f"{len(grad_inputs)}"
        )
    for new, grad in zip(changed, grad_inputs, strict=True):
        if new is not None and grad is not None:
            require_same(new, raw_of(grad), hook)


def _by_position(positions: list[int], count: int, grads: list) -> tuple:
    """The gradients of the tensors at these positions, None at the others."""
    result: list = [None] * count
    for i, grad in zip(positions, grads, strict=True):
        result[i] = grad if grad is None or isinstance(grad, Tensor) else from_raw(grad)
    return tuple(result)
