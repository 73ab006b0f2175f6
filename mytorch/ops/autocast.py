"""The state of `autocast`, and the casts of products and losses within it; see `mytorch.amp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..backends.device import computes
from ..backends.dtypes import is_half
from ..core.grad_mode import _state
from ..core.tensor import Tensor, raw_of
from ..core.upcast import FLOAT32
from .cast import to

F = TypeVar("F", bound=Callable[..., Any])


def _kind(x: Tensor) -> str:
    """Returns the kind of the device that computes with a tensor."""
    return computes(raw_of(x)).type


def in_half(args: Sequence[object], kinds: tuple[str, ...] = ("cpu", "cuda")) -> list:
    """Returns the arguments of a product: Tensors of float32 and of half precision in autocast's dtype.

    Args:
        kinds: the devices whose tensors are cast.
    """
    wanted = {kind: _state.autocast.get(kind) for kind in kinds}
    return [_cast(x, wanted.get(_kind(x))) if isinstance(x, Tensor) else x for x in args]


def in_half_on_a_gpu(args: Sequence[object]) -> list:
    """Returns the arguments of a product that PyTorch's autocast leaves as it is on the CPU."""
    return in_half(args, ("cuda",))


def in_widest(args: Sequence[object]) -> list:
    """Returns the arguments of a sum of products: on a GPU half Tensors as float32, beside one of float32."""
    if "cuda" not in _state.autocast or not any(
        isinstance(x, Tensor) and _kind(x) == "cuda" and x.dtype == np.float32 for x in args
    ):
        return list(args)
    return in_float32(args)


def sum_in_widest(args: Sequence[object]) -> list:
    """Returns the arguments of a function that adds the first two, of which a half one becomes float32 beside
    one of float32, as in any sum; on a device with autocast."""
    x, y, *others = args
    return [*in_float32((x, y)), *others] if np.float32 in (x.dtype, y.dtype) else list(args)


def in_float32(args: Sequence[object]) -> list:
    """Returns the arguments of a loss: half Tensors as float32, on a device with autocast."""
    return [
        _cast(x, FLOAT32) if isinstance(x, Tensor) and _kind(x) in _state.autocast else x for x in args
    ]


def loss_in_float32(args: Sequence[object]) -> list:
    """Returns the arguments of a loss that reads half logits, and whose last argument is its dtype."""
    logits, *others, dtype = args
    if dtype is None and is_half(logits.dtype) and _kind(logits) in _state.autocast:
        dtype = FLOAT32
    return [logits, *in_float32(others), dtype]


def autocasts(casts: Callable[[Sequence[object]], list]) -> Callable[[F], F]:
    """Makes a function cast its arguments within autocast, by `in_half` or `in_float32`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args, **kwargs):
            if _state.autocast is not None:
                args, kwargs = casts(args), dict(zip(kwargs, casts(list(kwargs.values())), strict=True))
            return function(*args, **kwargs)

        return call

    return decorate


def _cast(x: Tensor, dtype: np.dtype | None) -> Tensor:
    floating = x.is_floating_point() and x.dtype != np.float64
    return to(x, dtype=dtype) if dtype is not None and floating and x.dtype != dtype else x
