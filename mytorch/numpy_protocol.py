"""NumPy's functions on Tensors: `np.exp(tensor)` is `mytorch.exp(tensor)`, differentiable.

A function arrives by one of NumPy's two protocols and is looked up in a table, `UFUNCS` or
`FUNCTIONS`. To add one, add a line. What is in no table runs on the Array behind the Tensor, but only
if no gradient is required: none is ever lost silently.

Source: NEP 13 (`__array_ufunc__`) and NEP 18 (`__array_function__`), https://numpy.org/neps/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import linalg, ops
from .core.array import Array
from .core.grad_mode import is_grad_enabled
from .core.op import NUMBERS, common_dtype, shares_memory
from .core.tensor import Tensor, from_raw, raw_of
from .methods import attach
from .ops.shape import unfold
from .ops.svd import svd


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: Any) -> Any:
    """`np.exp(tensor)`, `np.add(array, tensor)`, `np.add.reduce(tensor)`.

    Raises:
        TypeError: a gradient is wanted, but the function has no differentiable counterpart, or an `out=`; or
            it would write into a Tensor.
    """
    name = f"np.{ufunc.__name__}" if method == "__call__" else f"np.{ufunc.__name__}.{method}"
    out = kwargs.get("out", ())
    _refuse_to_write(name, *out, inputs[0] if method == "at" else None)
    op = UFUNCS.get(ufunc) if method == "__call__" else UFUNC_METHODS.get((ufunc, method))
    if op is None or out:
        # `p.data += tensor`: an Array has no history, and p gets none
        is_in_place = isinstance(inputs[0], Array) and bool(out) and out[0] is inputs[0]
        name = f"{name}(out=…)" if out else name
        return _on_arrays(getattr(ufunc, method), inputs, kwargs, name, flat=is_in_place)
    return op(*_as_tensors(inputs, getattr(op, "tensors", 0)), **kwargs)


def _as_tensors(inputs: tuple, count: int) -> Iterator[object]:
    """Numbers among the first `count`, which the op wants as tensors, as such; they promote nothing."""
    for i, x in enumerate(inputs):
        number = i < count and isinstance(x, NUMBERS)
        yield Tensor(np.asarray(x).astype(common_dtype(inputs))) if number else x


def array_function(self: Tensor, function: Callable, types: object, args: tuple, kwargs: dict) -> Any:
    """`np.concatenate([tensor, array])`, `np.where(condition, tensor, 0)`, `np.zeros(3, like=tensor)`.

    Raises:
        TypeError: as `array_ufunc`.
    """
    name = f"{function.__module__.replace('numpy', 'np')}.{function.__name__}"
    _refuse_to_write(name, kwargs.get("out"))
    if function in FUNCTIONS:
        return FUNCTIONS[function](*args, **kwargs)
    if function in WRITERS:
        _refuse_to_write(name, *args[:1], *(kwargs.get(target) for target in ("dst", "arr", "a")))
    if next(_tensors((args, kwargs)), None) is None:  # a factory with like=tensor, which NumPy has taken out
        return _on_arrays(function, args, {**kwargs, "like": self}, name, flat=True)
    return _on_arrays(function, args, kwargs, name, function in WITHOUT_GRADIENT)


def _refuse_to_write(name: str, *targets: object) -> None:
    if any(isinstance(target, Tensor) for target in targets):
        raise TypeError(f"{name}: can't write into a Tensor; use x[index] = value, x.copy_(), x.add_(), …")


def _on_arrays(function: Callable, args: tuple, kwargs: dict, name: str, flat: bool = False) -> Any:
    """Call `function` on the Arrays; it is `flat` if its derivative is zero or doesn't exist."""
    tensors = list(_tensors((args, kwargs)))
    if not flat and is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise TypeError(f"{name} has no derivative here; for the value alone, use tensor.detach()")
    result = function(*_unwrap(args), **_unwrap(kwargs))
    return _wrap(result, tensors) if "out" not in kwargs else result


def _tensors(x: object) -> Iterator[Tensor]:
    """The Tensors among (nested) arguments."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (tuple, list)):
        for item in x:
            yield from _tensors(item)
    elif isinstance(x, dict):
        yield from _tensors(list(x.values()))


def _unwrap(x: object) -> object:
    if isinstance(x, Tensor):
        return x.data
    if type(x) in (tuple, list):
        return type(x)(map(_unwrap, x))
    return {name: _unwrap(value) for name, value in x.items()} if isinstance(x, dict) else x


def _wrap(x: object, inputs: list[Tensor]) -> Any:
    """Arrays as Tensors; one that is a view of an input counts the writes with it.

    Objects, text and dates, which a function may have got beside a Tensor, stay in NumPy's arrays.
    """
    if isinstance(x, Array) and x._array.dtype.kind in "OSUMm":
        return x._array
    if isinstance(x, Array):
        out = from_raw(x._array)
        for tensor in inputs:
            if shares_memory(x._array, raw_of(tensor)):
                out._version = tensor._version
        return out
    if isinstance(x, tuple) and hasattr(x, "_make"):
        return x._make(_wrap(item, inputs) for item in x)
    return type(x)(_wrap(item, inputs) for item in x) if type(x) in (tuple, list) else x


# The name of the op for NumPy's name, where it is another one.
RENAMED = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow", "negative": "neg",
    "absolute": "abs", "rint": "round", "invert": "bitwise_not", "equal": "eq", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
    "fabs": "abs", "conjugate": "conj", "degrees": "rad2deg", "radians": "deg2rad",
}
UNCHANGED = [
    "add", "floor_divide", "remainder", "maximum", "minimum", "positive", "exp", "log", "sqrt", "square",
    "reciprocal", "sin", "cos", "tan", "tanh", "sign", "floor", "ceil", "logical_not", "logical_and",
    "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "isnan", "isinf", "isfinite",
    "exp2", "expm1", "log2", "log10", "log1p", "logaddexp", "logaddexp2", "sinh", "cosh", "hypot",
    "deg2rad", "rad2deg", "trunc", "fmod", "float_power", "fmax", "fmin", "copysign", "signbit", "matmul",
]
UFUNCS: dict[np.ufunc, Callable] = {
    getattr(np, name): getattr(ops, RENAMED.get(name, name)) for name in (*RENAMED, *UNCHANGED)
}
UFUNC_METHODS: dict[tuple[np.ufunc, str], Callable] = {
    (np.add, "reduce"): lambda x, axis=0, **how: FUNCTIONS[np.sum](x, axis, **how),
    (np.multiply, "reduce"): lambda x, axis=0, **how: FUNCTIONS[np.prod](x, axis, **how),
    (np.maximum, "reduce"): lambda x, axis=0, **how: FUNCTIONS[np.max](x, axis, **how),
    (np.minimum, "reduce"): lambda x, axis=0, **how: FUNCTIONS[np.min](x, axis, **how),
    (np.add, "accumulate"): lambda x, axis=0, **how: FUNCTIONS[np.cumsum](x, axis, **how),
}


def _tensor(x: object) -> Tensor:
    """A Tensor for an op of Tensors; NumPy's function may get an array, as in `np.dot(array, tensor)`."""
    return x if isinstance(x, Tensor) else Tensor(Array(x))


def _flat_or_along(x: object, axis: int | None) -> tuple[Tensor, int]:
    """NumPy flattens where no axis is given."""
    return (ops.ravel(_tensor(x)), 0) if axis is None else (_tensor(x), axis)


def _concatenate(arrays, axis=0):
    if axis is None:
        arrays, axis = [ops.ravel(_tensor(x)) for x in arrays], 0
    return ops.cat([_tensor(x) for x in arrays], axis)


def _split(x, indices_or_sections, axis=0):
    count = x.shape[axis]
    if isinstance(indices_or_sections, int) and count % indices_or_sections:
        raise ValueError(f"np.split: {count} elements can't be split into {indices_or_sections} equal parts")
    return list(ops.tensor_split(x, indices_or_sections, axis))


def _expand_dims(x, axis):
    axes = axis if isinstance(axis, tuple) else (axis,)
    for i in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = ops.unsqueeze(x, i)
    return x


def _take(x, indices, axis=None):
    x, axis = _flat_or_along(x, axis)
    return x[(slice(None),) * (axis % x.ndim) + (indices,)]


def _repeat(x, repeats, axis=None):
    x, axis = _flat_or_along(x, axis)
    counts = repeats if isinstance(repeats, int) else _tensor(np.asarray(repeats))
    return ops.repeat_interleave(x, counts, axis)


def _reshape(x, shape, order="C"):
    if order != "C":
        raise TypeError(f"np.reshape: a Tensor is reshaped in order 'C', got {order!r}")
    return ops.reshape(x, shape)


def _windows(x, window_shape, axis=None, **how):
    dims = [dim % x.ndim for dim in _dims(x, axis)]
    for size, dim in zip(np.atleast_1d(window_shape).tolist(), dims, strict=True):
        x = unfold(x, dim, size, 1)
    return x


def _dot(x, y):
    x, y = _tensor(x), _tensor(y)
    if y.ndim > 2 and x.ndim:
        raise TypeError(f"np.dot: the second operand has {y.ndim} dims; use np.matmul or np.einsum")
    return ops.matmul(x, y) if x.ndim and y.ndim else ops.mul(x, y)


def _svd(x, full_matrices=True):
    return svd(x, full_matrices)


def _solve(a, b):
    return linalg.solve(_tensor(a), _tensor(b))


def _clip(x, a_min=None, a_max=None, *, min=None, max=None):
    return ops.clamp(_tensor(x), min if a_min is None else a_min, max if a_max is None else a_max)


def _dims(x, axis):
    return range(x.ndim) if axis is None else np.atleast_1d(axis).tolist()


def _sorted(x, axis=-1):
    return ops.sort(*_flat_or_along(x, axis))[0]


FUNCTIONS: dict[Callable, Callable] = {
    np.sum: lambda x, axis=None, dtype=None, *, keepdims=False: ops.sum(x, axis, keepdims, dtype=dtype),
    np.prod: lambda x, axis=None, dtype=None, *, keepdims=False: ops.prod(x, axis, keepdims, dtype=dtype),
    np.mean: lambda x, axis=None, dtype=None, *, keepdims=False: ops.mean(x, axis, keepdims, dtype=dtype),
    np.var: lambda x, axis=None, *, ddof=0, keepdims=False: ops.var(x, axis, None, keepdims, correction=ddof),
    np.std: lambda x, axis=None, *, ddof=0, keepdims=False: ops.std(x, axis, None, keepdims, correction=ddof),
    np.max: lambda x, axis=None, *, keepdims=False: ops.amax(x, axis, keepdims),
    np.min: lambda x, axis=None, *, keepdims=False: ops.amin(x, axis, keepdims),
    np.cumsum: lambda x, axis=None, dtype=None: ops.cumsum(*_flat_or_along(x, axis), dtype=dtype),
    np.cumprod: lambda x, axis=None, dtype=None: ops.cumprod(*_flat_or_along(x, axis), dtype=dtype),
    np.linalg.norm: lambda x, ord=None, axis=None, keepdims=False: linalg.norm(x, ord, axis, keepdims),
    np.linalg.svd: _svd,
    np.linalg.inv: lambda a: linalg.inv(a),
    np.linalg.solve: _solve,
    np.linalg.det: lambda a: linalg.det(a),
    np.linalg.slogdet: lambda a: linalg.slogdet(a),
    np.linalg.cholesky: lambda a, upper=False: linalg.cholesky(a, upper),
    np.linalg.qr: lambda a, mode="reduced": linalg.qr(a, mode),
    np.linalg.eigh: lambda a, UPLO="L": linalg.eigh(a, UPLO),
    np.linalg.eigvalsh: lambda a, UPLO="L": linalg.eigvalsh(a, UPLO),
    np.linalg.matrix_power: lambda a, n: linalg.matrix_power(a, n),
    np.clip: _clip,
    np.round: lambda x, decimals=0: ops.round(x, decimals=decimals),
    np.where: lambda condition, *xy: ops.where(ops.to(_tensor(condition), dtype=bool), *xy),
    np.reshape: _reshape,
    np.ravel: lambda x: ops.ravel(x),
    np.transpose: lambda x, axes=None: ops.permute(x, range(x.ndim)[::-1] if axes is None else axes),
    np.swapaxes: lambda x, axis1, axis2: ops.transpose(x, axis1, axis2),
    np.moveaxis: lambda x, source, destination: ops.movedim(x, source, destination),
    np.lib.stride_tricks.sliding_window_view: _windows,
    np.squeeze: lambda x, axis=None: ops.squeeze(x) if axis is None else ops.squeeze(x, axis),
    np.expand_dims: _expand_dims,
    np.broadcast_to: lambda x, shape: ops.broadcast_to(x, shape),
    np.concatenate: _concatenate,
    np.stack: lambda arrays, axis=0: ops.stack([_tensor(x) for x in arrays], axis),
    np.hstack: lambda arrays: ops.hstack([_tensor(x) for x in arrays]),
    np.vstack: lambda arrays: ops.vstack([_tensor(x) for x in arrays]),
    np.split: _split,
    np.array_split: lambda x, sections, axis=0: list(ops.tensor_split(x, sections, axis)),
    np.tile: lambda x, reps: ops.tile(x, *np.atleast_1d(reps).tolist()),
    np.repeat: _repeat,
    np.flip: lambda x, axis=None: ops.flip(x, *_dims(x, axis)),
    np.roll: lambda x, shift, axis=None: ops.roll(x, shift, axis),
    np.tril: lambda x, k=0: ops.tril(x, k),
    np.triu: lambda x, k=0: ops.triu(x, k),
    np.diag: lambda x, k=0: ops.diag(x, k),
    np.diagonal: lambda x, offset=0, axis1=0, axis2=1: ops.diagonal(x, offset, axis1, axis2),
    np.trace: lambda x, offset=0, axis1=0, axis2=1: ops.sum(ops.diagonal(x, offset, axis1, axis2), -1),
    np.copy: lambda x: ops.clone(x),
    np.full_like: lambda x, fill_value, dtype=None: ops.fill(ops.to(_tensor(x), dtype=dtype), fill_value),
    np.take: _take,
    np.take_along_axis: lambda x, indices, axis: ops.take_along_dim(_tensor(x), _tensor(indices), axis),
    np.sort: _sorted,
    np.diff: lambda x, n=1, axis=-1: ops.diff(x, n, axis),
    np.dot: _dot,
    np.outer: lambda x, y: ops.outer(ops.ravel(_tensor(x)), ops.ravel(_tensor(y))),
    np.einsum: lambda equation, *operands, optimize=True: ops.einsum(equation, *map(_tensor, operands)),
}
for _alias, _function in ((np.amax, np.max), (np.amin, np.min), (np.around, np.round)):
    FUNCTIONS[_alias] = FUNCTIONS[_function]
for _function, _ours in FUNCTIONS.items():
    _ours.__qualname__ = f"np.{_function.__name__}"  # what a wrong argument's TypeError calls it

# Their results are indices, bools, shapes or text, or constant almost everywhere: without a derivative.
WITHOUT_GRADIENT = {
    getattr(np, name)
    for name in (
        "shape", "ndim", "size", "iscomplexobj", "isrealobj", "result_type", "can_cast",
        "min_scalar_type", "may_share_memory", "shares_memory", "array2string", "array_repr", "array_str",
        "zeros_like", "ones_like", "empty_like", "any", "all", "argmax", "argmin", "argsort",
        "argpartition", "lexsort", "nonzero", "argwhere", "flatnonzero", "count_nonzero", "searchsorted",
        "digitize", "bincount", "isclose", "allclose", "array_equal", "array_equiv", "isin", "isneginf",
        "isposinf",
    )
}

# They write into their first argument.
WRITERS = {np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal}

attach("__array_ufunc__", array_ufunc)
attach("__array_function__", array_function)
