"""Dtypes and devices: the ops that copy a tensor into another kind of memory."""

from __future__ import annotations

from typing import Any

from ..backends import dtypes
from ..backends.device import CPU, DeviceLike, as_device, move
from ..backends.device import device as Device
from ..backends.dtypes import DTypeLike
from ..core.array import Array
from ..core.op import op
from ..core.tensor import Tensor
from .memory_formats import check_format

DEVICES = ("cpu", "cuda", "meta")
__all__ = ["clone", "to", "type_as"]

OLD_NAMES = {
    "float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor",
    "uint8": "ByteTensor", "int8": "CharTensor", "int16": "ShortTensor", "int32": "IntTensor",
    "int64": "LongTensor", "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor", "complex128": "ComplexDoubleTensor",
    "uint16": "UInt16Tensor", "uint32": "UInt32Tensor", "uint64": "UInt64Tensor",
}


class TensorType(type):
    """The class of `FloatTensor`, `LongTensor`, …: they make tensors, and test for their dtype and device."""

    dtype: str
    device: str

    def __call__(cls, *args: Any) -> Tensor:
        """Returns a tensor of this dtype, of sizes or values as `Tensor(2, 3)` and `Tensor([2, 3])`.

        Raises:
            TypeError: a tensor of another dtype, which isn't cast.
        """
        if args and isinstance(args[0], (Tensor, Array)) and args[0].ndim and not isinstance(args[0], cls):
            raise TypeError(
                f"{cls.__qualname__}(): expected a tensor of dtype {cls.dtype} on {cls.device}, got "
                f"{args[0].dtype} on {args[0].device}; use x.to(…)"
            )
        return Tensor(*args, dtype=cls.dtype, device=cls.device)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, (Tensor, Array)) and str(x.dtype) == cls.dtype and x.device.type == cls.device


def typed(device: str) -> dict[str, TensorType]:
    """Returns the classes of tensors on "cpu" or "cuda", by name."""
    prefix = "" if device == "cpu" else f"{device}."
    return {
        name: TensorType(name, (), {
            "dtype": dtype, "device": device, "__qualname__": prefix + name,
            "__doc__": f"The tensors of dtype {dtype} on {device}; called with sizes or values, a new one.",
        })
        for dtype, name in OLD_NAMES.items()
        if not name.startswith(("UInt", "Complex"))
    }


@op(half=True)
def _cast(x, dtype):
    return x.astype(dtype), lambda g: g  # the engine casts it back


@op(half=True)
def clone(x, *, memory_format=None):
    """A copy with memory of its own; the gradient passes.

    >>> x = mytorch.ones(2)
    >>> y = x.clone()
    >>> x[0] = 5
    >>> y
    tensor([1.00000 1.00000])
    """
    check_format(memory_format, x.ndim, "clone")
    return x.copy(), lambda g: g


@op(half=True)
def _move(x, target):
    return move(x, target), lambda g: g  # the engine moves it back


def to(
    x: Tensor, *args: Any, dtype: DTypeLike = None, device: DeviceLike = None, copy: bool = False,
    **ignored: object,
) -> Tensor:
    """`x` in another dtype, on another device: `to("cuda")`, `to(float16)`, `to(other)`, `to(device, dtype)`.

    Args:
        args: a dtype, a device, both, or a tensor (for both of it); after them non_blocking, which has no
            effect, and copy.
        copy: copy also if nothing changes; else `x` itself is returned.
        ignored: non_blocking and memory_format, which change nothing.

    Raises:
        TypeError: an argument that is neither a dtype nor a device nor a tensor; two of a kind.

    >>> mytorch.ones(2).to(mytorch.int64)
    tensor([1 1])
    """
    flags = [a for a in args if isinstance(a, bool)]
    if len(flags) > 2:
        raise TypeError(f"to(): expected at most non_blocking and copy as flags, got {flags}")
    copy = flags[1] if len(flags) == 2 else copy
    unknown = ignored.keys() - {"non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"to(): unexpected arguments {sorted(unknown)}")
    check_format(ignored.get("memory_format"), x.ndim, "to")
    dtype, device = read_target(args, dtype, device)
    out = x
    if dtype is not None and (dtype := dtypes.as_dtype(dtype)) != x.dtype:
        out = _cast(out, dtype)
    if device is not None and (target := as_device(device)) is not x.device:
        out = _move(out, target)
    return clone(out) if copy and out is x else out


def read_target(
    args: tuple, dtype: DTypeLike = None, device: DeviceLike = None
) -> tuple[DTypeLike, DeviceLike]:
    """(dtype, device) that the positional arguments of a `to` mean; None where they say nothing."""
    for a in args:
        if isinstance(a, Tensor):
            found = {"dtype": a.dtype, "device": a.device}
        elif a is None or isinstance(a, bool):  # non_blocking and copy by position, as PyTorch has them
            continue
        elif isinstance(a, (Device, int)) or (isinstance(a, str) and a.partition(":")[0] in DEVICES):
            found = {"device": a}
        else:
            found = {"dtype": _dtype_or_refuse(a)}
        if ("dtype" in found and dtype is not None) or ("device" in found and device is not None):
            raise TypeError(f"to(): two dtypes or two devices, got {args}")
        dtype, device = found.get("dtype", dtype), found.get("device", device)
    return dtype, device


def _dtype_or_refuse(a: object) -> object:
    """Returns the dtype that a positional argument of `to` means.

    Raises:
        RuntimeError: a string that is neither a dtype nor a device.
    """
    try:
        return dtypes.as_dtype(a)
    except TypeError as error:
        if not isinstance(a, str):
            raise
        raise RuntimeError(
            f"to(): {a!r} is not a device, which is 'cpu', 'cuda', 'cuda:N' or 'meta'; and {error}"
        ) from None


def astype(x: Tensor, dtype: DTypeLike, copy: bool = False) -> Tensor:
    """`x` in another dtype, under NumPy's name: what an op's body calls runs on Tensors, too."""
    return to(x, dtype=dtype, copy=copy)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """Returns `x` in the dtype of `other`.

    >>> mytorch.ones(2).type_as(mytorch.arange(3))
    tensor([1 1])
    """
    return to(x, other.dtype)


def type(x: Tensor, dtype: DTypeLike = None, non_blocking: bool = False) -> Tensor | str:
    """`x` in another dtype, which may have an old name ("torch.FloatTensor"); without one, its own old name.

    A name with "cuda" ("torch.cuda.FloatTensor") moves it to the GPU, one without to the CPU.

    Raises:
        ValueError: the name is unknown.
    """
    if dtype is None:
        return f"torch.{'cuda.' if x.is_cuda else ''}{OLD_NAMES[str(x.dtype)]}"
    if isinstance(dtype, (str, TensorType)):
        name = dtype if isinstance(dtype, str) else f"torch.{dtype.__qualname__}"
        old = {f"torch.{name}": new for new, name in OLD_NAMES.items()}
        if (on_cpu := name.replace("cuda.", "")) not in old:
            raise ValueError(f"type(): invalid type {name!r}; there are {', '.join(old)}")
        if on_cpu == name:
            return to(x, old[on_cpu], CPU)
        return to(x, old[on_cpu], x.device if x.is_cuda else "cuda")
    return to(x, dtype)


def caster(dtype: DTypeLike):
    """`x.half()`, `x.long()`, …"""

    def cast(x: Tensor, memory_format: object = None) -> Tensor:
        return to(x, dtype)

    cast.__doc__ = f"`x` as {dtype}."
    return cast


def cpu(x: Tensor) -> Tensor:
    """Returns `x` on the CPU; itself if it is there."""
    return to(x, device="cpu")


def cuda(x: Tensor, device: DeviceLike = None) -> Tensor:
    """Returns `x` on a GPU, the current one unless a device is given; itself if it is there."""
    return to(x, device="cuda" if device is None else device)
