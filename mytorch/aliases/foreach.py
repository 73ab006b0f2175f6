"""The functions on lists of tensors that optimizers of users call: `_foreach_add_(params, updates)`.

Each is a loop over the list, generated from a table: argument i is an item of every list given, and every
other argument as it is. Tensors and Arrays mix, as in `_foreach_mul_([p.grad for p in params], 0.9)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mytorch import ops
from mytorch.backends.dtypes import DTypeLike
from mytorch.backends.float_errors import IGNORE, errors
from mytorch.core.array import Array
from mytorch.core.tensor import Tensor, increment_version, raw_of
from mytorch.ops.inplace import recorded

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg "
    "reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
BINARY = "add sub mul div pow maximum minimum clamp_max clamp_min lerp"  # of tensors and tensors or numbers
SCALED = "addcmul addcdiv"  # with `value`, a number or one for each

# In place these are one pass over memory, if they are what an optimizer does (see `_update`).
UFUNCS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "sqrt": np.sqrt}
FULL_PRECISION = frozenset(map(np.dtype, ("float32", "float64")))

Tensors = Sequence[Tensor]


def _items(tensors: Tensors, args: tuple) -> list[tuple]:
    """Returns the arguments of each call."""
    lists = [a if isinstance(a, (list, tuple)) else [a] * len(tensors) for a in args]
    for other in lists:
        if len(other) != len(tensors):
            raise RuntimeError(
                "Tensor lists must have the same number of tensors, "
                f"got {len(tensors)} and {len(other)}"
            )
    return list(zip(tensors, *lists, strict=True))


def _call(name: str, x: Tensor, args: Sequence, kwargs: dict[str, object]) -> Tensor:
    """Returns `x.name(…)`; of a method in place that doesn't exist, `maximum_`, what it would do."""
    if hasattr(x, name):
        return getattr(x, name)(*args, **kwargs)
    return x.copy_(getattr(x, name[:-1])(*args, **kwargs))


def _update(ufunc: np.ufunc, x: Tensor, args: Sequence, alpha: object) -> bool:
    """Computes x = ufunc(x, …) in place, and returns True, if that is plain arithmetic.

    So it is if nothing is recorded, x is contiguous, in float32 or float64 on the CPU, and the others are
    alike or numbers. The methods take three times as long for small tensors.
    """
    if recorded((x, *args)):
        return False
    raws = [raw_of(a) if isinstance(a, (Tensor, Array)) else a for a in (x, *args)]
    raw = raws[0]
    if type(raw) is not np.ndarray or raw.dtype not in FULL_PRECISION or not raw.flags.carray:
        return False
    for a in raws[1:]:
        is_alike = type(a) is type(raw) and a.dtype == raw.dtype and a.shape == raw.shape
        if not is_alike and type(a) not in (int, float):
            return False
    ufunc(*raws[:-1], raws[-1] if alpha == 1 else raws[-1] * alpha, out=raw)
    if isinstance(x, Tensor):
        increment_version(x)
    return True


def _each(name: str) -> Callable:
    ufunc = UFUNCS.get(name[:-1]) if name.endswith("_") else None

    def call(self: Tensors, *args, **kwargs) -> list[Tensor]:
        args = (*args, *(kwargs.pop(key) for key in ("other", "exponent", "weight", "src") if key in kwargs))
        rows = _items(self, args)
        if ufunc is None or not kwargs.keys() <= {"alpha"}:
            return [_call(name, x, rest, kwargs) for x, *rest in rows]
        alpha, token = kwargs.get("alpha", 1), errors.set(IGNORE)
        try:
            return [
                x if _update(ufunc, x, rest, alpha) else _call(name, x, rest, kwargs) for x, *rest in rows
            ]
        finally:
            errors.reset(token)

    return call


def _each_scaled(name: str) -> Callable:
    def call(
        self: Tensors, tensor1: Tensors, tensor2: Tensors, value: Any = 1, *, scalars: Any = None
    ) -> list[Tensor]:
        values = value if scalars is None else scalars
        values = values.tolist() if hasattr(values, "tolist") else values
        rows = _items(self, (tensor1, tensor2, values))
        return [_call(name, x, (y, z), {"value": v}) for x, y, z, v in rows]

    return call


def _foreach_norm(self: Tensors, ord: float = 2, dtype: DTypeLike = None) -> list[Tensor]:
    """Returns the norm of each tensor, of all its elements."""
    return [ops.norm(x, ord, dtype=dtype) for x in self]


def _foreach_max(self: Tensors) -> list[Tensor]:
    """Returns the largest element of each tensor."""
    return [ops.amax(x) for x in self]


def _functions() -> dict[str, Callable]:
    found = {}
    for names, make in ((UNARY, _each), (BINARY, _each), (SCALED, _each_scaled)):
        for name in (form for n in names.split() for form in (n, f"{n}_")):
            found[f"_foreach_{name}"] = make(name)
    for name in ("clone", "copy_", "zero_"):
        found[f"_foreach_{name}"] = _each(name)
    for name, function in found.items():
        function.__name__ = function.__qualname__ = name
        function.__doc__ = f"Calls `x.{name.removeprefix('_foreach_')}(…)` for each tensor."
    return found


globals().update(_functions())
