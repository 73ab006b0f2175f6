"""From PyTorch's objects to ours: tensors, dtypes, nested arguments, and the functions of the same name."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mytorch
from tests.oracle import numpy_of

DTYPES = {
    getattr(torch, name): getattr(mytorch, name)
    for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"
    )
}
# Where a function of PyTorch may be, and where ours is then.
NAMESPACES = [
    (torch, mytorch),
    (torch.nn.functional, mytorch.nn.functional),
    (torch.Tensor, mytorch.Tensor),
    *((getattr(torch, n), getattr(mytorch, n, None)) for n in ("linalg", "special", "fft")),
]


class Foreign(Exception):
    """An argument that mytorch doesn't have on purpose: a complex or sparse tensor, a memory format."""


def ours(x: Any, memo: dict[int, Any] | None = None) -> Any:
    """`x` with every PyTorch object in it replaced by its counterpart, sharing nothing; the same tensor twice
    becomes the same tensor twice."""
    memo = {} if memo is None else memo
    if id(x) in memo:
        return memo[id(x)]
    if isinstance(x, torch.Tensor):
        if id(x) not in memo:
            memo[id(x)] = _tensor(x, memo)
        return memo[id(x)]
    if isinstance(x, torch.dtype):
        if x not in DTYPES:
            raise Foreign(x)
        return DTYPES[x]
    if isinstance(x, torch.device):
        return str(x)
    if x is torch.preserve_format or x is torch.contiguous_format:
        return None
    if isinstance(x, (torch.memory_format, torch.layout, torch.Generator)):
        raise Foreign(x)
    if isinstance(x, complex):
        raise Foreign(x)
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, (tuple, list)):
        return type(x)(ours(v, memo) for v in x)
    if isinstance(x, dict):
        return {k: ours(v, memo) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(*(ours(v, memo) for v in (x.start, x.stop, x.step)))
    return counterpart(x) if callable(x) else x


def _tensor(x: torch.Tensor, memo: dict) -> mytorch.Tensor:
    if x.dtype not in DTYPES or x.layout is not torch.strided or x.ndim > 64:  # as many as NumPy can
        raise Foreign(f"{x.dtype}, {x.layout}, {x.ndim} dims")
    raw, storage = array(x), x.untyped_storage()
    if x.numel() == 0:
        copy = np.empty_like(raw)
    else:
        where = ("storage", storage.data_ptr())  # what shares memory there does so here
        if where not in memo:
            memo[where] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy()
        copy = np.ndarray(
            raw.shape, raw.dtype, memo[where], raw.ctypes.data - storage.data_ptr(), raw.strides
        )
    if isinstance(x, torch.nn.Parameter):
        return mytorch.nn.Parameter(mytorch.Tensor(copy), requires_grad=x.requires_grad)
    return mytorch.Tensor(copy, requires_grad=x.requires_grad)


def array(x: Any) -> np.ndarray:
    """PyTorch's tensor, or ours, as a NumPy array on its memory."""
    return numpy_of(x) if isinstance(x, torch.Tensor) else np.asarray(getattr(x, "data", x))


def counterpart(function: Callable) -> Callable:
    """Our function of this name; a function that somebody wrote in terms of `torch` gets mytorch instead."""
    if getattr(function, "__module__", None) == "_operator":
        return function
    if isinstance(function, functools.partial):
        return functools.partial(counterpart(function.func), *ours(function.args), **ours(function.keywords))
    for theirs, mine in NAMESPACES:
        name = getattr(function, "__name__", "")
        if name and getattr(theirs, name, None) is function and hasattr(mine, name):
            return getattr(mine, name)
    for theirs, mine in NAMESPACES:
        for name in dir(theirs):
            if not name.startswith("_") and getattr(theirs, name, None) is function:
                return getattr(mine, name)
    if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
        return getattr(mytorch.Tensor, function.__name__)
    if isinstance(function, types.FunctionType):
        return _with_mytorch(function)
    raise AttributeError(f"mytorch has no counterpart of {function}")


def _with_mytorch(function: types.FunctionType) -> Callable:
    scope = {**function.__globals__, "torch": mytorch, "F": mytorch.nn.functional, "np": np}
    if "wrapper_set_seed" in scope:  # it would seed PyTorch
        scope["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)
    cells = tuple(
        types.CellType(counterpart(c.cell_contents) if callable(c.cell_contents) else c.cell_contents)
        for c in function.__closure__ or ()
    )
    copy = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
