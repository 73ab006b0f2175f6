"""Clipping gradients, so that a bad batch can't throw the parameters far away."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...backends.device import device_of, move, on
from ...backends.dtypes import is_half
from ...core.array import Array
from ...core.op import as_raw
from ...core.tensor import Tensor, from_raw, raw_of
from ..fused_ops import norm


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients, in place, so that their norm, taken together as one vector, is at most `max_norm`.

        total = (sum |g|^p)^(1/p),  g *= min(1, max_norm / (total + 1e-6))

    Args:
        parameters: those without a gradient are passed over.
        norm_type: p, or inf for the largest |g|.
        error_if_nonfinite: raise if the norm is inf or NaN; the gradients then stay as they are.
        foreach: accepted as PyTorch's, and not needed.

    Returns:
        The norm before clipping, a 0-d tensor; of half-precision gradients in float32.

    Raises:
        RuntimeError: see `error_if_nonfinite`.
    """
    parameters = _listed(parameters)
    total = norm_of_grads(parameters, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """The second half of `clip_grad_norm_`: g *= min(1, max_norm / (total_norm + 1e-6)), in place."""
    parameters = _listed(parameters)
    raw = total_norm.data._array
    if isinstance(raw, np.ndarray):
        factor = float(max_norm) / (float(raw) + 1e-6)
        if factor >= 1:
            return
        pieces = _pieces(parameters, together=math.isfinite(factor))  # 0 times NaN in a gap would be NaN
    else:  # without looking at the number, which would mean waiting for the GPU
        with on(total_norm.device):
            factor = np.minimum(float(max_norm) / (raw + 1e-6), 1)
        there = all([p.device is total_norm.device for p in parameters])
        pieces = _pieces(parameters, together=there and norm.keeps_zeros(raw))
    for piece in pieces:
        where = device_of(piece)
        with on(where), np.errstate(all="ignore"):
            norm.scale(piece, factor if isinstance(factor, float) else move(factor, where))


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit each element of the gradients, in place, to ± `clip_value`."""
    limit = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(-limit, limit)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor | Array],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all these tensors together, as one vector; arguments as for `clip_grad_norm_`."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return _total_norm([raw_of(t) for t in tensors], norm_type, error_if_nonfinite)


def norm_of_grads(parameters: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """`get_total_norm` of the gradients of parameters, in few passes if they lie in flat vectors."""
    return _total_norm(_pieces(parameters, together=float(norm_type) > 0), norm_type, error_if_nonfinite)


def _total_norm(raws: list, norm_type: float, error_if_nonfinite: bool) -> Tensor:
    if not raws:
        return from_raw(np.zeros((), np.float32))
    where, norm_type = device_of(raws[0]), float(norm_type)
    norms = [move(_norm(raw, norm_type), where) for raw in raws if raw.size]  # nothing has no largest element
    norms = norms or [np.zeros((), raws[0].dtype, like=raws[0])]
    with on(where):
        total = from_raw(as_raw(_norm(np.stack(norms), norm_type)))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"the total norm of order {norm_type} is {total.item()}, so it cannot be clipped; "
            "error_if_nonfinite=False clips nevertheless"
        )
    return total


def _pieces(parameters: list[Tensor], together: bool) -> list:
    """The gradients as raw arrays.

    Args:
        together: those that are neighbours in an optimizer's flat vector are one, with gaps of zeros in it.
    """
    pieces, spans = [], {}
    for p in parameters:
        if p._grad is None:
            continue
        if together and p.grad_slot is not None and p.grad_slot.holds(p._grad):
            vector = p.grad_slot.vector
            spans.setdefault(id(vector), (vector, []))[1].append(p.grad_slot.span)
        else:
            pieces.append(p._grad._array)
    for vector, places in spans.values():
        places.sort()
        first, last = places[0]
        for start, stop in places[1:]:
            if start != last:
                pieces.append(vector[first:last])
                first = start
            last = stop
        pieces.append(vector[first:last])
    return pieces


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not listed and isinstance(parameters, types.GeneratorType):  # often one that was used up before
        warnings.warn("`parameters` is an empty generator: no gradient is clipped", stacklevel=3)
    return listed


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Array]:
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in parameters if p.grad is not None]


def _norm(x: Any, p: float) -> Any:
    with on(device_of(x)), np.errstate(all="ignore"):
        x = x.reshape(-1)
        if p == 2:
            return as_raw(norm.euclidean_norm(x))
        if is_half(x.dtype):
            x = x.astype(np.float32)
        return as_raw(np.linalg.norm(x, p))
