"""Hooks: functions that are called with a gradient, or when a module has run."""

from __future__ import annotations

from collections.abc import Callable

from ..backends.device import RawArray, device_of, in_kind_of, is_raw


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


def require_same(changed: object, grad: RawArray, hook: Callable) -> RawArray:
    """Returns the raw array of what a hook returns in place of a gradient, which has to be like it.

    Raises:
        RuntimeError: the shape, the dtype or the device is another one; PyTorch's messages.
        TypeError: it is no tensor.
    """
    name = getattr(hook, "__name__", type(hook).__name__)
    raw = getattr(changed, "_data", changed)  # a Tensor's Array
    raw = getattr(raw, "_array", raw)
    if not is_raw(raw):
        raise TypeError(f"hook '{name}' must return a Tensor or None, got {type(changed).__name__}")
    if raw.shape != grad.shape:
        shapes = f"was {list(grad.shape)}, got {list(raw.shape)}"
        raise RuntimeError(f"hook '{name}' has changed the size of value ({shapes})")
    raw = in_kind_of(raw, device_of(grad))
    if raw.dtype != grad.dtype or device_of(raw) is not device_of(grad):
        types = ", got ".join([f"{x.dtype} on {device_of(x).full_name}" for x in (grad, raw)])
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {types})")
    return raw
