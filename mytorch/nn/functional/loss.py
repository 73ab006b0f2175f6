"""Helpers of the losses: reductions and checks of arguments."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...backends.device import RawArray, is_on_gpu
from ...backends.dtypes import is_floating_point, promote_types
from ...core.tensor import Tensor, raw_of
from ...ops import where
from .composite import Composite

Function = TypeVar("Function", bound=Callable[..., Any])
Loss: TypeAlias = Tensor | RawArray
REDUCTIONS = ("mean", "sum", "none")
_ANY_WAY = inspect.Parameter.POSITIONAL_OR_KEYWORD


def legacy_reduction(function: Function | None = None, *, before: str = "reduction") -> Function:
    """Adds PyTorch's deprecated parameters `size_average` and `reduce` to a loss, by position, too.

    The loss itself has `reduction` alone, which it gets from them.

    Args:
        before: the parameter that follows `size_average`; `reduce` is followed by `reduction`.
    """
    if function is None:
        return functools.partial(legacy_reduction, before=before)
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()]
    for name, following in (("size_average", before), ("reduce", "reduction")):
        at = [p.name for p in parameters].index(following)
        parameters.insert(at, inspect.Parameter(name, _ANY_WAY, default=None, annotation="bool | None"))
    signature, names = signature.replace(parameters=parameters), [p.name for p in parameters]
    first = names.index("size_average")

    def modern(args: tuple, kwargs: dict[str, object]) -> tuple[tuple, dict[str, object]]:
        """Returns the arguments without the two."""
        if len(args) <= first and "size_average" not in kwargs and "reduce" not in kwargs:
            return args, kwargs
        given = dict(zip(names[first:], args[first:], strict=False))
        if len(args) > len(names) or not given.keys().isdisjoint(kwargs):
            try:
                signature.bind(*args, **kwargs)  # raises with the reason
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
        given |= kwargs
        meant = from_legacy(given.pop("size_average", None), given.pop("reduce", None))
        return args[:first], given if meant is None else {**given, "reduction": meant}

    if isinstance(function, Composite):
        return function.accept(modern, signature)

    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs or len(args) > first:
            args, kwargs = modern(args, kwargs)
        return function(*args, **kwargs)

    call.__signature__ = signature
    return call


def from_legacy(size_average: bool | None, reduce: bool | None) -> str | None:
    """Returns the reduction that the deprecated arguments mean; None if neither was given."""
    if size_average is None and reduce is None:
        return None
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def check_reduction(name: str, reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """Raises ValueError unless the reduction is an allowed one."""
    if reduction not in allowed:
        raise ValueError(
            f"{name}(): {reduction} is not a valid value for reduction; valid are {str(allowed)[1:-1]}"
        )


def reduced(loss: Loss, reduction: str, count: Loss | float | None = None) -> Loss:
    """Returns the loss of each element, their sum, or the sum divided by `count`, by default their number."""
    if reduction == "none":
        return loss
    if reduction == "mean" and count is None and isinstance(loss, Tensor):
        return loss.mean()
    total = loss.sum()
    return total if reduction == "sum" else total / (loss.size if count is None else count)


def one_dtype(*tensors: Tensor) -> list[Tensor]:
    """Returns the tensors in their promoted dtype, if that is floating-point."""
    dtype = functools.reduce(promote_types, [t.dtype for t in tensors])
    return [t.to(dtype) for t in tensors] if is_floating_point(dtype) else list(tensors)


def check_broadcast(name: str, **tensors: Tensor) -> None:
    """Raises TypeError unless they are Tensors, RuntimeError unless their shapes broadcast."""
    for key, t in tensors.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): {key} must be a Tensor, got {type(t).__name__}")
    try:
        np.broadcast_shapes(*(t.data.shape for t in tensors.values()))
    except ValueError:
        shapes = ", ".join(f"{key} {t.data.shape}" for key, t in tensors.items())
        raise RuntimeError(f"{name}(): the shapes can't be broadcast together: {shapes}") from None


def warn_if_broadcast(name: str, input: Tensor, target: Tensor, stacklevel: int = 5) -> None:
    """Warns if the shapes differ, which is rarely intended; raises unless they broadcast."""
    if input.data.shape == target.data.shape:
        return
    shapes = f"{target.data.shape} is different from the input's, {input.data.shape}"
    warnings.warn(f"{name}(): the target's shape {shapes}; the two are broadcast", stacklevel=stacklevel)
    check_broadcast(name, target=target, input=input)


def same_shape(name: str, what: str, other: Tensor, input: Tensor) -> None:
    """Raises ValueError unless `other` has the input's shape."""
    if other.data.shape != input.data.shape:
        raise ValueError(
            f"{name}(): {what} {other.data.shape} and input {input.data.shape} must have the same size"
        )


def at_least(x: Tensor, low: float) -> Tensor:
    """Returns max(x, low), with a gradient of 1 everywhere."""
    return where(x < low, x - x.detach() + low, x)


def is_visible(x: Tensor) -> bool:
    """Returns whether its values can be read without synchronizing with a GPU."""
    return not is_on_gpu(raw_of(x))
