"""
Writing into a tensor: `write` is the one place where memory that a graph may know about changes.

Every in-place form (`x += y`, `x.exp_()`, `x[i] = v`) computes its result as the ordinary op does and writes
it. Three things must hold. Backward notices if it needs the old values, by the version counter. A tensor that
is a view writes into its base, so the history of the base goes through the write, and with it that of all its
other views (`View.origin`). A leaf that collects a gradient can't be overwritten while recording.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..backends.device import CPU, RawArray, is_raw, move, on
from ..backends.dtypes import as_dtype, can_cast, is_half, is_inexact
from ..backends.float_errors import IGNORE, errors
from ..core.grad_mode import _state, is_grad_enabled
from ..core.graph import Node, new_recompute
from ..core.op import NUMBERS, as_raw
from ..core.overriding import overriding
from ..core.tensor import Tensor, from_raw, increment_version, raw_of, replay_views
from .cast import clone
from .scalars import as_number


def inplace(function: Callable, name: str | None = None) -> Callable:
    """The in-place form of an op: `inplace(add)(x, y)` makes `x += y`.

    Raises (when called):
        RuntimeError: `x` is a leaf that requires grad, or a view of one, or has elements that share memory;
            the result has another shape than `x`, or a dtype of a higher kind.
    """
    name = name or f"{function.__name__}_"

    @functools.wraps(function)
    def call(x: Tensor, *args, **kwargs) -> Tensor:
        if overriding and (answer := overriding.dispatch(call, (x, *args), kwargs)) is not NotImplemented:
            return answer
        dtype = kwargs.get("dtype")
        if dtype is not None and as_dtype(dtype) != x.dtype:
            raise RuntimeError(f"{name}(): the provided dtype {dtype} must match the tensor's, {x.dtype}")
        wanted = recorded((x, *args))
        check_writable(x, name, wanted)
        out = function(clone(x) if wanted else x, *args, **kwargs)  # the vjp may need the old values
        if out.data.shape != x.data.shape:
            raise RuntimeError(
                f"{name}(): output with shape {list(x.data.shape)} doesn't match the broadcast shape "
                f"{list(out.data.shape)}"
            )
        if out.dtype != x.dtype and not can_cast(out.dtype, x.dtype):
            raise RuntimeError(
                f"{name}(): result type {out.dtype} can't be cast to the tensor's type {x.dtype}"
            )
        return _write(x, out, ..., name)

    call.__name__ = call.__qualname__ = name
    return call


def write(x: Tensor, value: object, index: object = ..., name: str = "copy_") -> Tensor:
    """x[index] = value, broadcast, cast and moved to x's device; differentiable in both.

    Args:
        index: whatever indexes the raw array.
        value: a Tensor, an Array, a raw array or a number.

    Raises:
        RuntimeError: see `check_writable`; the value can't be broadcast to x[index].
    """
    check_writable(x, name, False)
    return _write(x, value, index, name)


def _write(x: Tensor, value: object, index: object, name: str) -> Tensor:
    """As `write`, into memory that can be written."""
    wanted = recorded((x, value)) and is_inexact(x.dtype)
    if wanted:
        check_history(x, name)
    target, device = raw_of(x), x.device
    if isinstance(value, NUMBERS):  # half precision gets an infinity for what is too large
        source = as_number(value, np.dtype(np.float64) if is_half(x.dtype) else x.dtype, name).item()
    else:
        source = move(raw_of(value), device)
    token = errors.set(IGNORE)
    try:
        with on(device):
            if device is not CPU and is_raw(source) and np.may_share_memory(target, source):
                source = source.copy()  # CuPy, unlike NumPy, copies overlapping memory as it comes
            if (stream := _state.stream) is None:
                target[index] = source
            else:
                stream.write(name, target, index, source)
    except (ValueError, OverflowError) as error:
        raise RuntimeError(
            f"{name}(): can't write shape {np.shape(source)} into {np.shape(target[index])}: {error}"
        ) from None
    finally:
        errors.reset(token)
    increment_version(x)
    if wanted:
        _record_write(x, value, index, name)
    return x


def _record_write(x: Tensor, value: object, index: object, name: str) -> None:
    """Records the write in the history of `x`, or of the tensor that it is a view of."""
    owner, replay = (x, ()) if x._view is None else (x._view.base, x._view.replay)
    raw, before = raw_of(owner), owner._node
    parents = (before, value.node if isinstance(value, Tensor) else None)
    order, value_ndim = _memory_order(raw), getattr(value, "ndim", 0)
    value_wanted = parents[1] is not None

    def vjp(g):
        """Returns the gradients of the tensor, 0 where it was overwritten, and of the value."""
        if isinstance(g, Tensor):
            return vjp_with_graph(g)
        g = _copy_in_order(g, order)
        part = replay_views(replay, from_raw(g)).data._array
        to_value = None
        if value_wanted:
            to_value = as_raw(part[index]).copy()
            if to_value.ndim < value_ndim:  # leading dims of size 1 were dropped
                to_value = to_value.reshape((1,) * (value_ndim - to_value.ndim) + to_value.shape)
        part[index] = 0
        return g, to_value

    def vjp_with_graph(g):
        """The same in ops, where a graph of the gradient is wanted."""
        g = clone(g.permute(order)).permute(_inverse(order))
        part = replay_views(replay, g)
        to_value = clone(part[index]) if value_wanted else None
        write(part, 0, index)
        return g, to_value

    if before is not None:
        before.tensor = None
    node = Node(name, parents, vjp, raw.shape, raw.dtype, owner.device)
    node.recompute = new_recompute((None, (raw,), {}, [(owner._version, owner._version.count)]))
    if _state.tape is not None:
        _state.tape.append(node)
    if (stream := _state.stream) is not None:
        stream.connect(node)
    owner._watch(node)


def _memory_order(raw: RawArray) -> list[int]:
    """The dims from the one with the longest stride to the one with the shortest."""
    return sorted(range(raw.ndim), key=lambda d: -abs(raw.strides[d]))


def _copy_in_order(g: RawArray, order: list[int]) -> RawArray:
    """A copy of `g`, in memory its dims in this order: then views of the tensor are views of its gradient."""
    return np.transpose(np.transpose(g, order).copy(), _inverse(order))


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def check_writable(x: Tensor, name: str, recorded: bool) -> None:
    """Raises if `x` can't be written in place: overlapping or read-only memory; under autograd a leaf that
    collects a gradient, a view of one, or one of the several views that one op returned."""
    raw = raw_of(x)
    if 0 in raw.strides and raw.size and any(
        step == 0 and n > 1 for step, n in zip(raw.strides, raw.shape, strict=True)
    ):
        raise RuntimeError(
            f"{name}(): more than one element of the written-to tensor (shape {raw.shape}, strides "
            f"{x.stride()}) refers to a single memory location; clone() it first"
        )
    if x.device is CPU and not raw.flags.writeable:
        raise RuntimeError(
            f"{name}(): the memory of this tensor of shape {raw.shape} is read-only; clone() it first"
        )
    if recorded:
        check_history(x, name)


def check_history(x: Tensor, name: str) -> None:
    """Raises if autograd can't record an in-place op on `x`: a leaf, a view of one, one of several views."""
    view = x._view
    owner = x if view is None or (x.node is not None and not x.node.parents) else view.base
    if owner.node is not None and not owner.node.parents:
        what = "a leaf tensor" if owner is x else "a view of a leaf tensor"
        raise RuntimeError(
            f"{name}(): {what} that requires grad is being used in an in-place operation; "
            "use no_grad() or clone()"
        )
    if view is not None and view.multiple:
        raise RuntimeError(
            f"{name}(): this tensor is one of several views that one function returned (split, unbind, …); "
            "under autograd they can't be written in place; index the tensor or clone() it instead"
        )


def recorded(inputs: tuple) -> bool:
    """Tests whether autograd records an operation on these."""
    return is_grad_enabled() and any(isinstance(t, Tensor) and t.node is not None for t in inputs)
