"""New tensors: of a constant, of numbers in sequence, of Python numbers, of somebody else's memory."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from .. import dtypes
from .._array import Array
from ..device import CPU, array_module, as_device, cupy, on
from ..tensor import Tensor, from_raw
from .cast import to
from .op import NUMBERS

_DL_CPU, _DL_CUDA = 1, 2  # DLPack's numbers of device types

__all__ = [
    "zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like",
    "arange", "linspace", "eye", "tensor", "as_tensor", "from_numpy", "from_dlpack",
]  # fmt: skip


def integer(x: Any, name: str) -> int:
    """`x` as an int, if it is an integer of any kind, but not a bool."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(f"{name}(): expected an integer, got {x!r}")
    return operator.index(x)


def size_of(size: tuple, name: str) -> tuple[int, ...]:
    """The shape that a factory was asked for, as numbers or as one tuple: `zeros(2, 3)` is `zeros((2, 3))`.

    Raises:
        TypeError: something that isn't an integer.
        RuntimeError: a negative number.
    """
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        (size,) = size
    if any(isinstance(n, bool) or not hasattr(n, "__index__") for n in size):
        raise TypeError(f"{name}(): the size must be integers, got {', '.join(map(repr, size))}")
    size = tuple(map(operator.index, size))
    if any(n < 0 for n in size):
        raise RuntimeError(f"{name}(): a dimension can't be negative, got size {size}")
    return size


def size_argument(size: tuple, keywords: dict, name: str) -> tuple[int, ...]:
    """`size_of`, from positional arguments or from `size=`, of which there must be one."""
    if "size" in keywords:
        size = (*size, keywords.pop("size"))
    if keywords:
        raise TypeError(f"{name}(): unexpected arguments {sorted(keywords)}")
    if not size:
        raise TypeError(f"{name}(): the size is missing; for a 0-d tensor write {name}(())")
    return size_of(size, name)


def _number(x: Any, name: str) -> Any:
    """A Python number; of a 0-d tensor or a NumPy scalar, its value."""
    if isinstance(x, (Tensor, Array, np.ndarray, np.generic)) and x.ndim == 0:
        return x.item()
    if not isinstance(x, NUMBERS):
        raise TypeError(f"{name}(): expected a number, got {type(x).__name__}")
    return x


def _new(function: str, *args: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """The tensor that NumPy's or CuPy's `function` makes on the device."""
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    where = as_device(device)
    with on(where):
        out = from_raw(getattr(array_module(where), function)(*args, dtype=dtype))
    return out.requires_grad_() if requires_grad else out


def _constant(name: str, what: str) -> tuple:
    """A factory and its two relatives: `zeros(2, 3)`, `zeros_like(x)`, `x.new_zeros(2, 3)`."""

    def make(
        *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **keywords: Any
    ) -> Tensor:
        size = size_argument(size, keywords, name)
        return _new(name, size, dtype=dtype, device=device, requires_grad=requires_grad)

    def like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        kind = same_kind(input, dtype, device, f"{name}_like")
        return make(input.shape, **kind, requires_grad=requires_grad)

    def new(self: Tensor, *size: Any, **keywords: Any) -> Tensor:
        return make(*size, **_same_kind(self, keywords))

    for function, own_name in ((make, name), (like, f"{name}_like"), (new, f"new_{name}")):
        function.__name__ = function.__qualname__ = own_name
    make.__doc__ = f"{what}: `{name}(2, 3)` or `{name}((2, 3))`; float32 unless `dtype` says otherwise."
    like.__doc__ = f"{what} in the shape, dtype and on the device of `input`."
    new.__doc__ = f"{what} with the dtype and on the device of this tensor."
    return make, like, new


def same_kind(input: Any, dtype: Any, device: Any, name: str) -> dict:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): expected a Tensor, got {type(input).__name__}")
    return _same_kind(input, {"dtype": dtype, "device": device})


def _same_kind(x: Tensor, keywords: dict) -> dict:
    given = {name: value for name, value in keywords.items() if value is not None}
    return {"dtype": x.dtype, "device": x.device, **given}


zeros, zeros_like, new_zeros = _constant("zeros", "Zeros")
ones, ones_like, new_ones = _constant("ones", "Ones")
empty, empty_like, new_empty = _constant("empty", "Memory that nobody has written to yet")


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`fill_value` everywhere.

    Args:
        size: a tuple.
        fill_value: a number or a 0-d tensor; its kind decides where no dtype is given: bool, int64, float32.

    Raises:
        RuntimeError: the dtype can't hold the value.
    """
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): the size must be a tuple of integers, got {size!r}")
    value = _number(fill_value, "full")
    dtype = dtypes.dtype_of_number(value) if dtype is None else dtypes.as_dtype(dtype)
    value = _held_by(dtype, value, "full")
    return _new(
        "full", size_of((size,), "full"), value, dtype=dtype, device=device, requires_grad=requires_grad
    )


def _held_by(dtype: np.dtype, value: Any, name: str) -> Any:
    """`value` as the dtype has it (2.5 is 2 as an integer), if it is within the dtype's range."""
    try:
        if dtype.kind in "iu":
            value = int(value)
            if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
                raise OverflowError
        elif dtype.kind == "f":
            value = float(value)
            if math.isfinite(value) and abs(value) > float(np.finfo(dtype).max):
                raise OverflowError
    except (ValueError, OverflowError, TypeError):
        raise RuntimeError(f"{name}(): {value!r} can't be a number of dtype {dtype}") from None
    return value


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`fill_value` everywhere, in the shape, dtype and on the device of `input`."""
    kind = same_kind(input, dtype, device, "full_like")
    return full(input.shape, fill_value, **kind, requires_grad=requires_grad)


def new_full(self: Tensor, size: Any, fill_value: Any, **keywords: Any) -> Tensor:
    """`fill_value` everywhere, with the dtype and on the device of this tensor."""
    return full(size, fill_value, **_same_kind(self, keywords))


def arange(
    *bounds: Any, start: Any = None, end: Any = None, step: Any = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, start + 2 step, … below `end`: `arange(end)` or `arange(start, end, step=1)`.

    The dtype is int64 if all three are integers, else the default float; floats are computed in float64.

    Raises:
        RuntimeError: `step` is 0, or leads away from `end`; a bound isn't finite.
    """
    start, end, step = _range_arguments(bounds, {"start": start, "end": end, "step": step})
    values = (start, end, step)
    if dtype is None:
        dtype = dtypes.int64 if all(isinstance(v, int) for v in values) else dtypes.get_default_dtype()
    dtype = dtypes.as_dtype(dtype)
    if dtype.kind not in "iuf":
        raise NotImplementedError(f"arange(): not implemented for dtype {dtype}")
    if any(not math.isfinite(v) for v in values):
        raise RuntimeError(f"arange(): unsupported range: {start} -> {end} in steps of {step}")
    if dtype.kind in "iu":
        start, end, step = map(int, values)
    if step == 0:
        raise RuntimeError(f"arange(): step must be nonzero, got {values[2]} for dtype {dtype}")
    if (end - start) * step < 0:
        raise RuntimeError(f"arange(): no step of {step} leads from {start} to {end}: its sign is wrong")
    if dtype.kind in "iu":
        return _new("arange", start, end, step, dtype=dtype, device=device, requires_grad=requires_grad)
    count = math.ceil((end - start) / step)
    return _line(lambda i: start + step * i, count, dtype, device, requires_grad)


def _range_arguments(bounds: tuple, given: dict) -> list:
    """start, end and step from `arange`'s positional arguments and keywords."""
    names = ("start", "end", "step")
    if given["start"] is not None:
        names = ("end", "step")
    elif len(bounds) == 1 and given["end"] is None:
        names = ("end",)
    if len(bounds) > len(names) or any(given[name] is not None for name in names[: len(bounds)]):
        raise TypeError(f"arange() takes (end), (start, end) or (start, end, step), got {bounds} and {given}")
    given.update(zip(names, bounds, strict=False))
    if given["end"] is None:
        raise TypeError(f"arange(): the end is missing, got {bounds} and {given}")
    default = {"start": 0, "step": 1}
    return [_number(default[k] if v is None else v, "arange") for k, v in given.items()]


def _line(value: Any, count: int, dtype: np.dtype, device: Any, requires_grad: bool) -> Tensor:
    """value(0), …, value(count - 1), computed in float64."""
    where = as_device(device)
    with on(where):
        out = from_raw(value(array_module(where).arange(count, dtype="float64")).astype(dtype))
    return out.requires_grad_() if requires_grad else out


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`steps` numbers from `start` to `end`, both included, evenly spaced.

    Each half is counted from its own end, in float64: start + i * delta, end - (steps - 1 - i) * delta.

    Raises:
        RuntimeError: `steps` is negative.
    """
    start, end, steps = _number(start, "linspace"), _number(end, "linspace"), integer(steps, "linspace")
    if steps < 0:
        raise RuntimeError(f"linspace(): number of steps must be non-negative, got {steps}")
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if dtype.kind not in "iuf":
        raise NotImplementedError(f"linspace(): not implemented for dtype {dtype}")
    if steps == 1:
        return _line(lambda i: i + start, 1, dtype, device, requires_grad)
    delta = (end - start) / (steps - 1)
    return _line(
        lambda i: np.where(i < steps // 2, start + delta * i, end - delta * (steps - 1 - i)),
        steps, dtype, device, requires_grad,
    )  # fmt: skip


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The (n, m) matrix with ones on its diagonal; m = n if it isn't given."""
    size = size_of((n, n if m is None else m), "eye")
    return _new("eye", *size, dtype=dtype, device=device, requires_grad=requires_grad)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data`, without history.

    Args:
        data: a number, nested lists of numbers, an array or a tensor.
        dtype: defaults to that of `data`; Python floats get the default dtype, Python ints int64.
    """
    source = data.data if isinstance(data, Tensor) else data
    made = Array(source, dtype, device)
    out = Tensor(made if isinstance(source, (list, tuple, *NUMBERS)) else made.copy())
    return out.requires_grad_() if requires_grad else out


def new_tensor(self: Tensor, data: Any, **keywords: Any) -> Tensor:
    """A copy of `data` with the dtype and on the device of this tensor."""
    return tensor(data, **_same_kind(self, keywords))


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, copied only if it must be: a tensor keeps its history, an array its memory."""
    if isinstance(data, Tensor):
        return to(data, dtype=dtype, device=device)
    return Tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: writing to one writes to the other.

    Raises:
        TypeError: not a NumPy array, or of a dtype that tensors don't have.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy(): expected a np.ndarray, got {type(array).__name__}")
    return Tensor(array)


def from_dlpack(x: Any) -> Tensor:
    """A tensor on the memory of any array that speaks DLPack: of NumPy, CuPy, PyTorch, JAX.

    Raises:
        TypeError: `x` doesn't speak DLPack, requires grad, or has a dtype that tensors don't have.
        RuntimeError: its memory is neither the CPU's nor a CUDA GPU's.
    Source: https://dmlc.github.io/dlpack/latest/python_spec.html
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"from_dlpack(): expected an array with __dlpack__, got {type(x).__name__}")
    if isinstance(x, Tensor) and not x.requires_grad:
        return x.detach()
    kind, index = x.__dlpack_device__()
    if kind not in (_DL_CPU, _DL_CUDA):
        raise RuntimeError(
            f"from_dlpack(): the memory is neither the CPU's nor a CUDA GPU's (type {int(kind)})"
        )
    where = CPU if kind == _DL_CPU else as_device(f"cuda:{index}")
    try:
        with on(where):
            raw = np.from_dlpack(x) if where is CPU else cupy().from_dlpack(x)
    except (BufferError, RuntimeError) as error:  # what NumPy and PyTorch raise for a dtype
        raise TypeError(f"from_dlpack(): a {type(x).__name__} of dtype {x.dtype}: {error}") from error
    return Tensor(raw)
