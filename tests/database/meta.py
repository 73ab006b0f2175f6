"""From tensors with values to meta tensors, and what both must have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mytorch
from mytorch.backends.meta.array import MetaArray, new, view
from mytorch.backends.meta.layout import layout_of
from mytorch.core.graph import owner_of
from mytorch.core.tensor import from_raw

from .compare import leaves


def as_meta(x: Any, memo: dict) -> Any:
    """`x` with meta tensors in place of tensors: of the same strides, sharing memory where those do."""
    if isinstance(x, mytorch.Tensor):
        if id(x) not in memo:
            made = from_raw(_raw(x.data._array, memo))
            made = mytorch.nn.Parameter(made) if isinstance(x, mytorch.nn.Parameter) else made
            memo[id(x)] = made.requires_grad_(x.requires_grad)
        return memo[id(x)]
    if isinstance(x, (tuple, list)):
        items = [as_meta(item, memo) for item in x]
        return x._make(items) if hasattr(x, "_make") else type(x)(items)
    if isinstance(x, dict):
        return {key: as_meta(value, memo) for key, value in x.items()}
    if isinstance(x, slice):
        return slice(*[as_meta(item, memo) for item in (x.start, x.stop, x.step)])
    return x


def _raw(raw: np.ndarray, memo: dict) -> MetaArray:
    owner = owner_of(raw)
    if id(owner) not in memo:
        memo[id(owner)] = owner, new(owner.nbytes, np.uint8)
    memory = memo[id(owner)][1]
    if not raw.size:
        return new(raw.shape, raw.dtype)
    offset = raw.ctypes.data - owner.ctypes.data
    return view(memory, layout_of(raw), offset)


def facts_of(x: Any) -> Any:
    """What a tensor shows without its values; anything else as it is."""
    if not isinstance(x, mytorch.Tensor):
        return x
    raw, view = x.data._array, x._view
    steps = [step for step, n in zip(raw.strides, raw.shape, strict=True) if n > 1] if raw.size else []
    base = None if view is None else tuple(view.base.shape)
    return tuple(x.shape), str(x.dtype), steps, base, x._version.count, x.requires_grad


def outcome(call: Callable, arguments: tuple, gradients: int) -> Any:
    """The facts of the results and of the gradients of the inputs; or the class of the error.

    Args:
        gradients: 0 for none, 1 for the first ones, 2 for those of gradients, too.
    """
    inputs = [x for x in leaves(arguments) if isinstance(x, mytorch.Tensor) and x.requires_grad]
    inputs = list({id(x): x for x in inputs}.values())
    try:
        results = list(leaves(call(*arguments[0], **arguments[1])))
        found = list(map(facts_of, results))
        for times in range(gradients, 0, -1):
            results = _gradients(results, inputs, times > 1)
            found += [None if g is None else (tuple(g.shape), str(g.dtype)) for g in results]
        return found
    except Exception as error:
        return type(error)


def _gradients(results: list, inputs: list, create_graph: bool) -> list:
    outs = [x for x in results if isinstance(x, mytorch.Tensor) and x.requires_grad]
    if not outs or not inputs:
        return []
    how = {"create_graph": True} if create_graph else {}
    weights = [mytorch.ones_like(x) for x in outs]
    return list(mytorch.autograd.grad(outs, inputs, weights, allow_unused=True, **how))
