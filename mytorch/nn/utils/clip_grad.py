"""Clipping of gradients, which bounds the step that one bad batch can cause."""

from __future__ import annotations

import functools
import math
import types
import warnings
from collections.abc import Iterable

import numpy as np

from ...backends.device import RawArray, device_of, is_on_host, move, on
from ...backends.door import in_force
from ...backends.dtypes import is_half
from ...core.array import Array
from ...core.op import as_raw
from ...core.tensor import Tensor, from_raw, raw_of
from ..fused_ops import norm


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: bool | None = None,
) -> Tensor:
    """Scales all gradients in place so that the norm of all of them, as one vector, is at most `max_norm`.

        total = (sum |g|^p)^(1/p),  g *= min(1, max_norm / (total + 1e-6))

    Args:
        parameters: those without a gradient are skipped.
        norm_type: p, or inf for the largest |g|.
        error_if_nonfinite: raises if the norm is inf or NaN; the gradients then stay as they are.
        foreach: accepted for PyTorch's sake, without effect.

    Returns:
        The norm before clipping, a 0-d tensor; of half-precision gradients in float32.

    Raises:
        RuntimeError: see `error_if_nonfinite`.

    >>> w = mytorch.zeros(2, requires_grad=True)
    >>> (w * mytorch.tensor([3.0, 4.0])).sum().backward()
    >>> nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.00000)
    >>> w.grad
    Array([0.60000 0.80000], dtype=float32)
    """
    parameters = _listed(parameters)
    clip = functools.partial(clip_grad_norm_, parameters)
    taken = in_force().norm(clip, parameters, max_norm, norm_type, error_if_nonfinite)
    if taken is not None:
        return taken
    joined = float(norm_type) > 0
    vectors = grad_vectors(parameters, joined)
    total = _total_norm(vectors, norm_type, error_if_nonfinite)
    _clip(parameters, max_norm, total, vectors if joined else None)
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales all gradients in place, g *= min(1, max_norm / (total_norm + 1e-6))."""
    _clip(_listed(parameters), max_norm, total_norm)


def _clip(
    parameters: list[Tensor], max_norm: float, total_norm: Tensor, vectors: list[RawArray] | None = None
) -> None:
    """Clips; `vectors` are the joined gradients, if they are known."""
    raw = raw_of(total_norm)
    if is_on_host(raw):
        factor = float(max_norm) / (float(raw) + 1e-6)
        if factor >= 1:
            return
        joined = math.isfinite(factor)  # the padding must stay zero: 0 times NaN is NaN
    else:  # without reading the norm, which would mean waiting for the GPU
        with on(total_norm.device):
            factor = np.minimum(float(max_norm) / (raw + 1e-6), 1)
        joined = norm.keeps_zeros(raw) and all([p.device is total_norm.device for p in parameters])
    if vectors is None or not joined:
        vectors = grad_vectors(parameters, joined)
    for vector in vectors:
        target = device_of(vector)
        with on(target), np.errstate(all="ignore"):
            norm.scale(vector, factor if isinstance(factor, float) else move(factor, target))


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamps each element of the gradients, in place, to [-clip_value, clip_value]."""
    limit = float(clip_value)
    for p in [parameters] if isinstance(parameters, Tensor) else parameters:
        if p.grad is not None:
            p.grad.clamp_(-limit, limit)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor | Array], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Returns the norm of all these tensors as one vector; arguments as for `clip_grad_norm_`."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return _total_norm([raw_of(t) for t in tensors], norm_type, error_if_nonfinite)


def norm_of_grads(parameters: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """Returns `get_total_norm` of the gradients, in few passes if they lie in flat buffers."""
    vectors = grad_vectors(parameters, joined=float(norm_type) > 0)
    return _total_norm(vectors, norm_type, error_if_nonfinite)


def grad_vectors(parameters: Iterable[Tensor], joined: bool = True) -> list[RawArray]:
    """Returns the gradients as raw arrays, to be read or written in few passes.

    Args:
        joined: gradients that are neighbours in a flat buffer are one vector, with its zero padding.
    """
    vectors: list[RawArray] = []
    spans_by_vector: dict[int, tuple[RawArray, list[tuple[int, int]]]] = {}
    for p in parameters:
        grad, slot = p.grad, p.grad_slot
        if grad is not None and joined and slot is not None and slot.holds(grad):
            spans_by_vector.setdefault(id(slot.vector), (slot.vector, []))[1].append(slot.span)
        elif grad is not None:
            vectors.append(raw_of(grad))
    for vector, spans in spans_by_vector.values():
        spans.sort()
        first, last = spans[0]
        for start, stop in spans[1:]:
            if start != last:
                vectors.append(vector[first:last])
                first = start
            last = stop
        vectors.append(vector[first:last])
    return vectors


def _total_norm(raws: list[RawArray], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    if not raws:
        return from_raw(np.zeros((), np.float32))
    target, norm_type = device_of(raws[0]), float(norm_type)
    norms = [move(_norm(raw, norm_type), target) for raw in raws if raw.size]  # max of nothing would raise
    with on(target):
        every = np.zeros(max(len(norms), 1), np.result_type(*(norms or raws[:1])), like=raws[0])
        for i, value in enumerate(norms):  # np.stack of more than eight can't be captured in a CUDA graph
            every[i] = value
        total = from_raw(as_raw(_norm(every, norm_type)))
    if error_if_nonfinite and not total.is_meta and not math.isfinite(total.item()):
        raise RuntimeError(
            f"the total norm of order {norm_type} is {total.item()}, so it cannot be clipped; "
            "error_if_nonfinite=False clips nevertheless"
        )
    return total


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not listed and isinstance(parameters, types.GeneratorType):  # often one that is exhausted already
        warnings.warn("`parameters` is an empty generator: no gradient is clipped", stacklevel=3)
    return listed


def _norm(x: RawArray, p: float) -> RawArray:
    with on(device_of(x)), np.errstate(all="ignore"):
        x = x.reshape(-1)
        if p == 2:
            return as_raw(norm.euclidean_norm(x))
        if is_half(x.dtype):
            x = x.astype(np.float32)
        return as_raw(np.linalg.norm(x, p))
