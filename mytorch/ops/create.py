"""New tensors: of a constant, of Python numbers, of another library's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.device import (
    CPU,
    DeviceLike,
    array_module,
    as_device,
    default_device_of_data,
    device_of_new,
    on,
    thread,
)
from ..backends.dtypes import DTypeLike
from ..backends.kinds import cupy
from ..core.array import Array
from ..core.op import NUMBERS, index_of, stands_for_number
from ..core.tensor import Tensor, from_raw
from .cast import to
from .memory_formats import check_format, memory_format
from .scalars import Number, as_number, number

_DL_CPU, _DL_CUDA = 1, 2  # DLPack's numbers of device types

__all__ = [
    "zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like",
    "eye", "tensor", "as_tensor", "from_numpy", "frombuffer", "from_dlpack",
]


def size_of(size: tuple, name: str) -> tuple[int, ...]:
    """Returns the shape, given as numbers or as one tuple: `zeros(2, 3)` is `zeros((2, 3))`.

    Raises:
        TypeError: something that isn't an integer.
        RuntimeError: a negative number.
    """
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        (size,) = size
    if any(isinstance(n, bool) or not hasattr(n, "__index__") for n in size):
        raise TypeError(f"{name}(): the size must be integers, got {', '.join(map(repr, size))}")
    size = tuple(map(index_of, size))
    if any(n < 0 for n in size):
        raise RuntimeError(f"{name}(): a dimension can't be negative, got size {size}")
    return size


def size_argument(size: tuple, keywords: dict, name: str) -> tuple[int, ...]:
    """`size_of`, from positional arguments or from `size=`."""
    if "size" in keywords:
        size = (*size, keywords.pop("size"))
    if keywords:
        raise TypeError(f"{name}(): unexpected arguments {sorted(keywords)}")
    if not size:
        raise TypeError(f"{name}(): the size is missing; for a 0-d tensor write {name}(())")
    return size_of(size, name)


def new_array(function: str, *args: Any, dtype: DTypeLike, device: DeviceLike, requires_grad: bool) -> Tensor:
    """The tensor that NumPy's or CuPy's `function` makes on the device."""
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    target = device_of_new(device)
    with on(target):
        out = from_raw(getattr(array_module(target), function)(*args, dtype=dtype))
    return out.requires_grad_() if requires_grad else out


def _constant(name: str, what: str) -> tuple:
    """A factory and its two relatives: `zeros(2, 3)`, `zeros_like(x)`, `x.new_zeros(2, 3)`."""

    def make(
        *size: int | Sequence[int], dtype: DTypeLike = None, device: DeviceLike = None,
        requires_grad: bool = False, **keywords,
    ) -> Tensor:
        size = size_argument(size, keywords, name)
        return new_array(name, size, dtype=dtype, device=device, requires_grad=requires_grad)

    def like(
        input: Tensor, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False,
        memory_format: memory_format | None = None,
    ) -> Tensor:
        kind = same_kind(input, dtype, device, f"{name}_like")
        check_format(memory_format, input.ndim, f"{name}_like")
        return make(input.shape, **kind, requires_grad=requires_grad)

    def new(self: Tensor, *size: int | Sequence[int], **keywords) -> Tensor:
        return make(*size, **_same_kind(self, keywords))

    for function, own_name in ((make, name), (like, f"{name}_like"), (new, f"new_{name}")):
        function.__name__ = function.__qualname__ = own_name
    make.__doc__ = f"{what}: `{name}(2, 3)` or `{name}((2, 3))`; float32 by default.\n\n" + _shape_of(name)
    like.__doc__ = f"{what} in the shape, dtype and on the device of `input`.\n\n" + _shape_of(
        f"{name}_like", "mytorch.ones(2, 3)"
    )
    new.__doc__ = f"{what} with the dtype and on the device of this tensor."
    return make, like, new


def _shape_of(name: str, arguments: str = "2, 3") -> str:
    """Returns the example of a factory."""
    return f">>> mytorch.{name}({arguments}).shape\nSize([2, 3])\n"


def same_kind(input: object, dtype: DTypeLike, device: DeviceLike, name: str) -> dict:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): expected a Tensor, got {type(input).__name__}")
    return _same_kind(input, {"dtype": dtype, "device": device})


def _same_kind(x: Tensor, keywords: dict) -> dict:
    given = {name: value for name, value in keywords.items() if value is not None}
    return {"dtype": x.dtype, "device": x.device, **given}


zeros, zeros_like, new_zeros = _constant("zeros", "Zeros")
ones, ones_like, new_ones = _constant("ones", "Ones")
empty, empty_like, new_empty = _constant("empty", "Uninitialized memory")


def full(
    size: Sequence[int], fill_value: Tensor | Number, *, dtype: DTypeLike = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor filled with `fill_value`.

    Args:
        size: a tuple.
        fill_value: a number or a 0-d tensor; its kind is the default dtype: bool, int64, float32.

    Raises:
        RuntimeError: the dtype can't hold the value.

    >>> mytorch.full((2,), 7)
    tensor([7 7])
    """
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): the size must be a tuple of integers, got {size!r}")
    value = number(fill_value, "full")
    dtype = dtypes.dtype_of_number(value) if dtype is None else dtypes.as_dtype(dtype)
    value = as_number(value, dtype, "full")
    return new_array(
        "full", size_of((size,), "full"), value, dtype=dtype, device=device, requires_grad=requires_grad
    )


def full_like(
    input: Tensor, fill_value: Tensor | Number, *, dtype: DTypeLike = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor filled with `fill_value`, in the shape, dtype and on the device of `input`.

    >>> mytorch.full_like(mytorch.arange(3), 7)
    tensor([7 7 7])
    """
    kind = same_kind(input, dtype, device, "full_like")
    return full(input.shape, fill_value, **kind, requires_grad=requires_grad)


def new_full(self: Tensor, size: Sequence[int], fill_value: Tensor | Number, **keywords: Any) -> Tensor:
    """A tensor filled with `fill_value`, with the dtype and on the device of this tensor.

    >>> mytorch.arange(2).new_full((3,), 7)
    tensor([7 7 7])
    """
    return full(size, fill_value, **_same_kind(self, keywords))


def eye(
    n: int, m: int | None = None, *, dtype: DTypeLike = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """The (n, m) matrix with ones on its diagonal; m = n if it isn't given.

    >>> mytorch.eye(2)
    tensor([[1.00000 0.00000]
            [0.00000 1.00000]])
    """
    size = size_of((n, n if m is None else m), "eye")
    return new_array("eye", *size, dtype=dtype, device=device, requires_grad=requires_grad)


def tensor(
    data: Any, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """A tensor with a copy of `data`, without history.

    Args:
        data: a number, nested lists of numbers, an array or a tensor.
        dtype: defaults to that of `data`; Python floats get the default dtype, Python ints int64.

    >>> mytorch.tensor([[1, 2], [3, 4]])
    tensor([[1 2]
            [3 4]])
    >>> mytorch.tensor([1.0, 2.0], requires_grad=True)
    tensor([1.00000 2.00000], requires_grad=True)
    """
    source = data.data if isinstance(data, Tensor) else data
    if stands_for_number(data):
        source = data.as_array(dtypes.dtype_of_number(data) if dtype is None else dtypes.as_dtype(dtype))
    default = thread.default_device if isinstance(data, Tensor) else default_device_of_data()
    made = Array(source, dtype, default if device is None else device)
    out = Tensor(made if isinstance(source, (list, tuple, *NUMBERS)) else made.copy())
    return out.requires_grad_() if requires_grad else out


def new_tensor(self: Tensor, data: Any, **keywords: Any) -> Tensor:
    """A copy of `data` with the dtype and on the device of this tensor.

    >>> mytorch.ones(2).new_tensor([1, 2])
    tensor([1.00000 2.00000])
    """
    return tensor(data, **_same_kind(self, keywords))


def as_tensor(data: Any, dtype: DTypeLike = None, device: DeviceLike = None) -> Tensor:
    """`data` as a tensor, copied only if it must be: a tensor keeps its history, an array its memory.

    >>> mytorch.as_tensor(np.ones(2))
    tensor([1.00000 1.00000], dtype=float64)
    """
    device = thread.default_device if device is None else device
    if isinstance(data, Tensor):
        return to(data, dtype=dtype, device=device)
    if stands_for_number(data):
        return tensor(data, dtype=dtype, device=device)
    return Tensor(Array(data, dtype, device))


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: writing to one writes to the other.

    Raises:
        TypeError: not a NumPy array, or of a dtype that tensors don't have.

    >>> mytorch.from_numpy(np.arange(3))
    tensor([0 1 2])
    """
    if type(array) is np.ndarray and array.dtype in dtypes._KNOWN:
        return from_raw(array)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy(): expected a np.ndarray, got {type(array).__name__}")
    return Tensor(Array(array))  # raises, if there is no such tensor


def frombuffer(
    buffer: Any, *, dtype: DTypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """Returns the memory of a buffer (bytes, bytearray, mmap, …) as a tensor with one dim, not a copy.

    Args:
        count: how many elements; -1 for all.
        offset: where they begin, in bytes.

    Raises:
        ValueError: the buffer is too small, or its size is no multiple of the dtype's.

    Example: `mytorch.frombuffer(bytearray(b"abcd"), dtype=mytorch.uint8)`

    >>> mytorch.frombuffer(bytearray([1, 2]), dtype=mytorch.uint8)
    tensor([1 2], dtype=uint8)
    """
    out = from_raw(np.frombuffer(buffer, dtypes.as_dtype(dtype), count, offset))
    return out.requires_grad_() if requires_grad else out


def from_dlpack(x: Any) -> Tensor:
    """A tensor on the memory of any array that has DLPack: of NumPy, CuPy, PyTorch, JAX.

    Raises:
        TypeError: `x` doesn't have DLPack, requires grad, or has a dtype that tensors don't have.
        RuntimeError: its memory is neither the CPU's nor a CUDA GPU's.
    Source: https://dmlc.github.io/dlpack/latest/python_spec.html

    >>> mytorch.from_dlpack(np.arange(3))
    tensor([0 1 2])
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
    device = CPU if kind == _DL_CPU else as_device(f"cuda:{index}")
    try:
        with on(device):
            raw = np.from_dlpack(x) if device is CPU else cupy().from_dlpack(x)
    except (BufferError, RuntimeError) as error:  # what NumPy and PyTorch raise for a dtype
        raise TypeError(f"from_dlpack(): a {type(x).__name__} of dtype {x.dtype}: {error}") from error
    return Tensor(raw)
