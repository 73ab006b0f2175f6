"""The state of `autocast`, and the casts of products and losses within it; see `mytorch.amp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..backends.dtypes import is_half
from ..core.grad_mode import _state
from ..core.tensor import Tensor
from ..core.upcast import FLOAT32
from .cast import to

F = TypeVar("F", bound=Callable[..., Any])


def in_half(args: Sequence[Any]) -> list[Any]:
    """Returns the arguments of a product: Tensors of float32 and of half precision in autocast's dtype."""
    return [_cast(x, _state.autocast.get(x.device.type)) if isinstance(x, Tensor) else x for x in args]


def in_float32(args: Sequence[Any]) -> list[Any]:
    """Returns the arguments of a loss: half Tensors as float32, on a device with autocast."""
    return [
        _cast(x, FLOAT32) if isinstance(x, Tensor) and x.device.type in _state.autocast else x for x in args
    ]


def loss_in_float32(args: Sequence[Any]) -> list[Any]:
    """Returns the arguments of a loss that reads half logits, and whose last argument is its dtype."""
    logits, *others, dtype = args
    if dtype is None and is_half(logits.dtype) and logits.device.type in _state.autocast:
        dtype = FLOAT32
    return [logits, *in_float32(others), dtype]


def autocasts(casts: Callable[[Sequence[Any]], list[Any]]) -> Callable[[F], F]:
    """Makes a function cast its arguments within autocast, by `in_half` or `in_float32`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _state.autocast is not None:
                args, kwargs = casts(args), dict(zip(kwargs, casts(list(kwargs.values())), strict=True))
            return function(*args, **kwargs)

        return call

    return decorate


def _cast(x: Tensor, dtype: np.dtype | None) -> Tensor:
    floating = x.is_floating_point() and x.dtype != np.float64
    return to(x, dtype=dtype) if dtype is not None and floating and x.dtype != dtype else x
