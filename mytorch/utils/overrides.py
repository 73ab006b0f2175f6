"""`mytorch.overrides`: PyTorch's functions and modes for `__torch_function__` (see `ops/torch_function.py`).

    class Counting(mytorch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            print(mytorch.overrides.resolve_name(func))
            return func(*args, **(kwargs or {}))

    with Counting():
        model(x)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .. import fft, linalg
from ..core.overriding import DisableTorchFunction, DisableTorchFunctionSubclass, overrides, overriding
from ..core.tensor import Tensor
from ..nn import functional
from ..nn.functional.composite import Composite
from ..ops.torch_function import asks, disabled, handle, overloaded

_disabled_torch_function_impl = disabled
_PACKAGE = sys.modules[__name__.partition(".")[0]]


class TorchFunctionMode:
    """A block in which a method sees the calls of functions in this thread, and may change them.

    Within `__torch_function__` the mode is off: what it calls goes to the mode around it, then to the
    classes of the arguments. Modes can be nested; one that is entered twice sees each call twice.

    >>> class Names(mytorch.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(mytorch.overrides.resolve_name(func))
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = F.relu(mytorch.ones(2)) + 1
    mytorch.ones
    mytorch.nn.functional.relu
    mytorch.Tensor.add
    """

    def __torch_function__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Returns the result of a call; `func(*args, **kwargs)` is what it would be."""
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        overriding.append("a mode")
        overrides.modes = (*overrides.modes, self)
        return self

    def __exit__(self, *exception: object) -> None:
        overrides.modes = overrides.modes[:-1]
        overriding.pop()  # classes are noted at the other end

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """Returns a mode: the old name of the constructor."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """The mode that changes nothing."""

    def __torch_function__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Returns whether an argument, or a mode in force, overrides functions.

    >>> mytorch.overrides.has_torch_function((mytorch.ones(2), 3))
    False
    """
    if overrides.ignored == 2:
        return False
    return bool(overrides.modes) or (not overrides.ignored and bool(overloaded(relevant_args)))


def has_torch_function_unary(x: object) -> bool:
    """Returns `has_torch_function((x,))`."""
    return has_torch_function((x,))


def has_torch_function_variadic(*args: object) -> bool:
    """Returns `has_torch_function(args)`."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable, relevant_args: Iterable[object], *args: Any, **kwargs: Any
) -> Any:
    """Returns what the modes and the classes of the relevant arguments make of `public_api(*args, **kwargs)`.

    Raises:
        TypeError: none overrides it.

    >>> def double(x):
    ...     if mytorch.overrides.has_torch_function_unary(x):
    ...         return mytorch.overrides.handle_torch_function(double, (x,), x)
    ...     return x * 2
    """
    return handle(public_api, [] if overrides.ignored else overloaded(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable) -> Callable[[Callable], Callable]:
    """Returns a decorator that makes a function one that can be overridden.

    Args:
        dispatcher: returns the relevant arguments of those of the function.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def is_tensor_like(inp: object) -> bool:
    """Returns whether it is a Tensor or has `__torch_function__`.

    >>> mytorch.overrides.is_tensor_like(3)
    False
    """
    return hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Returns whether it is a method of Tensor, or the getter of a property."""
    return func.__name__ == "__get__" or func in get_overridable_functions()[Tensor]


def get_overridable_functions() -> dict[object, list[Callable]]:
    """Returns the functions that a mode or a class may override, by module, and those of Tensor."""
    found: dict[object, list[Callable]] = {}
    for function, (where, _) in _named().items():
        found.setdefault(where, []).append(function)
    return found


def resolve_name(f: Callable) -> str | None:
    """Returns the name of a function that can be overridden; None for any other.

    >>> mytorch.overrides.resolve_name(mytorch.Tensor.add)
    'mytorch.Tensor.add'
    """
    getter_of = getattr(f, "__self__", None)
    if isinstance(getter_of, property):
        names = [name for name, x in vars(Tensor).items() if x is getter_of]
        return f"{_PACKAGE.__name__}.Tensor.{names[0]}.{f.__name__}" if names else None
    found = _named().get(f)
    return None if found is None else found[1]


@functools.cache
def _named() -> dict[Callable, tuple[object, str]]:
    """Returns each function that can be overridden, with where it lies and its name; the first one counts."""
    found: dict[Callable, tuple[object, str]] = {}
    homes = {"": _PACKAGE, "nn.functional.": functional, "linalg.": linalg, "fft.": fft, "Tensor.": Tensor}
    for prefix, home in homes.items():
        for name, x in sorted(vars(home).items(), key=lambda item: item[0].startswith("_")):
            public = not name.startswith("_") or isinstance(home, type)
            if public and (isinstance(x, Composite) or hasattr(x, "__code__")):
                if isinstance(home, ModuleType) and not asks(x):
                    continue
                found.setdefault(x, (home, f"{_PACKAGE.__name__}.{prefix}{name}"))
    return found


__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "get_overridable_functions", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]
