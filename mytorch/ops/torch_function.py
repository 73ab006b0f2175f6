"""`__torch_function__`: classes and modes that override functions, as in PyTorch.

A call of a function goes to the innermost mode of the thread, then to the classes of the arguments,
subclasses before their bases and else from left to right, until one returns something other than
NotImplemented. Subclasses of Tensor are known from their definition; other classes are from the first call
that would else refuse such an argument. Until then, and while no mode is entered, a function pays for the
question whether a list is empty.

Source: https://docs.pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..backends.door import in_force
from ..core.overriding import overrides, overriding
from ..core.tensor import Tensor

# The functions that ask `overriding`: where they lie, and the names of their code.
ASKING = {
    ("core.op", "call"), ("ops.inplace", "call"), ("ops.out", "call"), ("ops.arrays", "call"),
    ("ops.dims", "call"), ("ops.index", "getitem"), ("ops.index", "setitem"),
    ("ops.torch_function", "call"), ("autograd.gradients", "tensor_backward"),
    ("nn.functional.composite", "__call__"),
}
_OF_MODES = {"tensor", "is_tensor"}  # their result is of no other class


class NoImplementation(TypeError):
    """Raised where all that override a function returned NotImplemented."""


def disabled(*args: object) -> Any:
    """In place of `__torch_function__` in a class that overrides nothing, as Parameter."""
    return NotImplemented


def overloaded(args: Iterable[object]) -> list:
    """Returns the arguments that override functions, one of a class, in the order in which they are asked."""
    found: dict[type, object] = {}
    for a in args:
        kind = type(a)
        if kind is not Tensor and kind not in found and _overrides(kind):
            items = [*found.items()]
            at = next((i for i, (other, _) in enumerate(items) if issubclass(kind, other)), len(items))
            found = dict([*items[:at], (kind, a), *items[at:]])
    return [*found.values()]


def _overrides(kind: type) -> bool:
    """Returns whether a class has `__torch_function__`; that of PyTorch's tensors is for PyTorch."""
    handler = getattr(kind, "__torch_function__", None)
    if handler is None or handler is disabled:
        return False
    return not any(base.__module__ == "torch" for base in kind.__mro__)


def note_class() -> None:
    """Makes all functions ask from now on."""
    if "a class" not in overriding:
        overriding.insert(0, "a class")


def _flat(args: Sequence, kwargs: dict) -> list:
    """Returns the arguments, and the items of those that are lists or tuples."""
    flat = []
    for a in (*args, *kwargs.values()):
        flat.extend(a) if type(a) in (tuple, list) else flat.append(a)
    return flat


def dispatch(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Returns what the modes and classes make of a call; NotImplemented if none overrides it.

    Raises:
        NoImplementation: all of them returned NotImplemented.
        NotImplementedError: while a program is captured.
    """
    if overrides.ignored == 2:
        return NotImplemented
    name = function.__name__
    found = [] if overrides.ignored or name in _OF_MODES else overloaded(_flat(args, kwargs))
    if not found and not overrides.modes:
        return NotImplemented
    if found:
        note_class()
    return handle(function, found, args, kwargs)


def handle(function: Callable, found: list, args: tuple, kwargs: dict) -> Any:
    """As `dispatch`, for arguments that were found to override the function."""
    types = tuple(map(type, found))
    stack = overrides.modes
    in_force().once("__torch_function__ of a class or a mode, which a program would not call again")
    if stack:
        overrides.modes = stack[:-1]
        try:
            result = stack[-1].__torch_function__(function, types, args, kwargs)
        finally:
            overrides.modes = stack
        if result is not NotImplemented:
            return result
    for a in found:
        result = a.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    mode = f" nor in mode {stack[-1]}" if stack else ""
    name = f"{getattr(function, '__module__', type(function).__name__)}.{function.__name__}"
    raise NoImplementation(
        f"no implementation found for '{name}' on types that implement __torch_function__: {[*types]}{mode}"
    )


def overridable(function: Callable) -> Callable:
    """Returns a function, built of others, as one that can be overridden as a whole."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if overriding and (answer := dispatch(call, args, kwargs)) is not NotImplemented:
            return answer
        return function(*args, **kwargs)

    return call


def refused(function: Callable, args: tuple, kwargs: dict, error: Exception) -> Any:
    """As `dispatch`, where a call failed; raises the error if nothing overrides the call.

    The function that the user called is the one that is overridden, not those that it calls.
    """
    if overriding or not overloaded(_flat(args, kwargs)) or _is_called_by_another():
        raise error
    answer = dispatch(function, args, kwargs)
    if answer is NotImplemented:
        raise error
    return answer


def _is_called_by_another() -> bool:
    frame, package = sys._getframe(3), __name__.partition(".")[0]
    while frame is not None:
        module, _, path = frame.f_globals.get("__name__", "").partition(".")
        if module == package and (path, frame.f_code.co_name) in ASKING:
            return True
        frame = frame.f_back
    return False


def asks(function: Callable) -> bool:
    """Returns whether a function asks `overriding` by itself."""
    if not hasattr(function, "__code__"):
        return (type(function).__module__.partition(".")[2], "__call__") in ASKING
    module = function.__globals__["__name__"].partition(".")[2]
    return (module, function.__code__.co_name) in {*ASKING, ("methods", "operation")}


def operate(call: Callable, function: Callable, x: object, y: object, is_known: bool) -> Any:
    """Returns the result of an operator; NotImplemented makes Python ask the other operand."""
    try:
        answer = dispatch(function, (x, y), {})
    except NoImplementation:
        return NotImplemented
    if answer is NotImplemented and is_known:
        return call(x, y)
    return answer


overriding.dispatch, overriding.refused = dispatch, refused
