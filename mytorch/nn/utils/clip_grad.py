"""Clipping gradients, so that a bad batch can't throw the parameters far away."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..._array import Array
from ...device import device_of, move, on
from ...ops.op import as_raw
from ...tensor import Tensor, from_raw, raw_of


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
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """The second half of `clip_grad_norm_`: g *= min(1, max_norm / (total_norm + 1e-6)), in place."""
    raw = total_norm.data._array
    if isinstance(raw, np.ndarray):
        scale = float(max_norm) / (float(raw) + 1e-6)
        if scale >= 1:
            return
    else:  # without looking at the number, which would mean waiting for the GPU
        with on(total_norm.device):
            scale = np.minimum(float(max_norm) / (raw + 1e-6), 1)
    for grad in _grads(parameters):
        with on(grad.device), np.errstate(all="ignore"):
            factor = scale if isinstance(scale, float) else move(scale, grad.device).astype(grad.dtype)
            grad._array[...] *= factor


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
    if not tensors:
        return from_raw(np.zeros((), np.float32))
    where, norm_type = tensors[0].device, float(norm_type)
    raws = [raw_of(t) for t in tensors]
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
        if x.dtype == np.float16:
            x = x.astype(np.float32)
        return as_raw(np.sqrt(np.vdot(x, x)) if p == 2 else np.linalg.norm(x, p))
