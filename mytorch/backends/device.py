"""Devices: "cpu", "cuda:0", "cuda:1", …; CuPy is imported when the first GPU is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .door import DEVICES, NO_CONTEXT, Kind, OtherArray, RawArray, in_force, stand_in, thread
from .kinds import GPU, KINDS, cupy

if TYPE_CHECKING:
    pass

DeviceLike: TypeAlias = str | int | None  # what `as_device` reads; None for the CPU


class device(str):  # noqa: N801 - PyTorch's name
    """The device of an array. It is a string, so that `x.device == "cuda:0"` is True.

    Args:
        name: "cpu", "cuda" (the current GPU), "cuda:N", "meta" (tensors without data), another device, or the
            number of a GPU.
        index: the number of the GPU, if the name has none.

    >>> mytorch.device("cpu").type
    'cpu'
    """

    __slots__ = ("type", "index", "kind")

    def __new__(cls, name: DeviceLike, index: int | None = None) -> device:
        if isinstance(name, device):
            return name
        kind, number = _parse(name, index)
        text = kind if number is None or kind != "cuda" else f"{kind}:{number}"
        self = super().__new__(cls, text)
        self.type, self.index, self.kind = kind, number, KINDS[kind]
        return self

    def of_kind(self, kind: Kind) -> device:
        """Returns another device of this name, whose arrays are of this kind."""
        found = super().__new__(device, str(self))
        found.type, found.index, found.kind = self.type, self.index, kind
        return found

    @property
    def kernels(self) -> str:
        """The name of the fused variants that take arrays on it, "cpu" or "cuda"; another name: none do."""
        return self.kind.kernels

    @property
    def full_name(self) -> str:
        """The name, with the kind of arrays if that isn't the usual one: 'cpu', 'cpu (Counting)'."""
        return str(self) + (f" ({self.kind.name})" if self.kind.name else "")

    @property
    def base(self) -> device:
        """The device on which the arrays lie that arrays of this one hold: itself for the usual kinds."""
        inner = getattr(self.kind, "inner", None)
        return self if inner is None else inner.base

    def __enter__(self) -> device:
        """Makes it the device of new tensors, in this thread, within the block."""
        default = as_device(self)  # before anything has changed: it may raise
        thread.former_defaults = (*thread.former_defaults, thread.default_device)
        thread.default_device = default
        return self

    def __exit__(self, *exception: object) -> None:
        *former, thread.default_device = thread.former_defaults
        thread.former_defaults = tuple(former)

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __reduce__(self):
        return device, (str(self),)

    def __copy__(self) -> device:
        return self

    def __deepcopy__(self, memo: dict) -> device:
        return self  # there is one of each kind


def _parse(name: str | int | None, index: int | None) -> tuple[str, int | None]:
    if isinstance(name, int) and not isinstance(name, bool):
        name, index = "cuda", name
    if not isinstance(name, str):
        raise TypeError(f"a device is 'cpu', 'cuda', 'cuda:N' or 'meta', got {name!r}")
    kind, colon, number = name.partition(":")
    if colon:
        if index is not None:
            raise RuntimeError(f"device {name!r} has a number already, got index={index} as well")
        if not number.isdecimal():
            raise RuntimeError(f"device {name!r}: expected a number after the colon")
        index = int(number)
    if kind not in ("cpu", "cuda", "meta") or (kind != "cuda" and index):
        raise RuntimeError(f"a device is 'cpu', 'cuda', 'cuda:N' or 'meta', got {name!r}")
    return kind, index


CPU = DEVICES["cpu"] = device("cpu")
META = DEVICES["meta"] = device("meta")  # of arrays that hold nothing
_CUDA: dict[int, device] = {}
_RAW_TYPES = (np.ndarray, OtherArray)  # CuPy's is looked up


def device_count() -> int:
    """Returns the number of GPUs; 0 without CuPy or without a driver."""
    try:
        module = cupy()
    except RuntimeError:
        return 0
    try:
        return module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        return 0


def is_available() -> bool:
    return device_count() > 0


def as_device(name: DeviceLike) -> device:
    """Returns the device called `name`, with its index if it is a GPU; None means the CPU.

    While a program is captured, what will lie on its device is on the meta device, `META` itself; a user's
    "meta" is refused, as the program would make tensors with data.
    """
    if name is None:
        return CPU
    found = known(name)
    if found is META and name is not META:
        in_force().once("tensors of the device meta")
    return found if found is META or found.base is not found else stand_in(found)


def known(name: DeviceLike) -> device:
    """Returns the one device object of this name, whatever is in force; a device of another kind as it is."""
    found = device("cpu" if name is None else name)
    if found.kind is not KINDS[found.type]:
        return found
    return DEVICES.get(found.type) or _gpu(found)


def _gpu(found: device) -> device:
    """Returns the one device object of this name, with its index."""
    if found is _CUDA.get(found.index):
        return found
    module, count = cupy(), device_count()
    if count <= (found.index or 0):
        raise RuntimeError(f"device '{found}' does not exist: there are {count} GPUs")
    return cuda_device(module.cuda.Device().id if found.index is None else found.index)


def cuda_device(index: int) -> device:
    if index not in _CUDA:
        _CUDA[index] = device("cuda", index)
    return _CUDA[index]


def device_of(raw: RawArray) -> device:
    """Returns the device of a raw array."""
    if isinstance(raw, np.ndarray):
        return CPU
    found = raw.device
    if type(found) is device:
        return found
    index = found.id
    return _CUDA.get(index) or cuda_device(index)


def shown_device(raw: RawArray) -> device:
    """Returns what a property shows its caller: the device of an array. A user's function that is captured
    sees the program's device, where its arrays will lie; mytorch has to know that they hold nothing."""
    found = device_of(raw)
    return in_force().place(found) if found is META and is_users(sys._getframe(2)) else found


def is_users(frame: FrameType) -> bool:
    """Returns whether the code of a frame isn't mytorch's own."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] != __name__.partition(".")[0]


def computes(raw: RawArray) -> device:
    """Returns the device that computes with an array: of a program that is captured, where it will run."""
    return in_force().place(device_of(raw))


def array_module(target: device) -> Any:
    """Returns the module whose arrays are on this device: NumPy, CuPy or the one of meta arrays."""
    return np if target is CPU else target.kind.functions()


def on(target: device) -> AbstractContextManager:
    """Returns a context in which new arrays and kernels use this device; it does something for a GPU."""
    return NO_CONTEXT if target is CPU else target.kind.on(target)


def set_default_device(name: DeviceLike) -> None:
    """Sets the device of new tensors, in this thread; None means the CPU.

    It holds for `zeros`, `randn`, `tensor`, … without `device=`; `with mytorch.device("cuda"):` sets it for a
    block.

    Raises:
        RuntimeError: the device does not exist.
    """
    thread.default_device = None if name is None else as_device(name)


def get_default_device() -> device:
    """Returns the device of new tensors.

    >>> mytorch.get_default_device()
    device('cpu')
    """
    default = thread.default_device or stand_in(CPU)
    return in_force().place(default) if default is META and is_users(sys._getframe(1)) else default


def default_device_of_data() -> device | None:
    """Returns the device of a tensor of Python's numbers; None for the CPU."""
    if thread.default_device is not None or not thread.kinds:
        return thread.default_device
    return found if (found := stand_in(CPU)).base is CPU else None


def device_of_new(name: DeviceLike) -> device:
    """Returns the device called `name`; None means the default device."""
    return get_default_device() if name is None else as_device(name)


def copied(raw: RawArray) -> RawArray:
    """Returns a copy with the same order of dims in memory.

    On a GPU contiguous arrays are assigned, which copies memory as it is: CuPy's `copy` is a kernel with a
    thread for each element.
    """
    if isinstance(raw, np.ndarray):
        return np.array(raw)
    if not is_on_gpu(raw) or not raw.flags.c_contiguous:
        return raw.copy(order="K")
    out = np.empty_like(raw)
    out[...] = raw
    return out


def copied_as(raw: RawArray, like: RawArray) -> RawArray:
    """Returns a copy whose dims lie in memory in the order of those of another array."""
    out = np.empty_like(like, raw.dtype)
    out[...] = raw
    return out


def join(arrays: Sequence[RawArray], axis: int = 0) -> RawArray:
    """Returns `np.concatenate(arrays, axis)`.

    CuPy joins more than eight arrays by a kernel that gets their addresses from the CPU, which a CUDA graph
    would not repeat: while one is captured, they are joined eight at a time.
    """
    while thread.is_capturing and len(arrays) > 8:
        arrays = [np.concatenate(arrays[i : i + 8], axis) for i in range(0, len(arrays), 8)]
    return np.concatenate(arrays, axis)


def is_raw(x: object) -> bool:
    """Returns whether `x` is a raw array: NumPy's, CuPy's, or one of another kind."""
    if isinstance(x, _RAW_TYPES):
        return True
    module = sys.modules.get("cupy")
    return module is not None and isinstance(x, getattr(module, "ndarray", ()))


def is_on_gpu(raw: RawArray) -> bool:
    """Returns whether a raw array is CuPy's: Python would have to wait for what it holds."""
    return device_of(raw).kind is GPU


def is_on_host(x: object) -> bool:
    """Returns whether `x` is a raw array whose elements lie in NumPy's memory: see `Kind`."""
    return isinstance(x, _RAW_TYPES) and device_of(x).kind.is_host


def is_readable(raw: RawArray) -> bool:
    """Returns whether Python may read elements: they are there, or the kind in force answers."""
    return has_values(raw) or in_force().answers


def has_values(raw: RawArray) -> bool:
    """Returns whether a raw array holds elements; without, what depends on them takes the general way."""
    return isinstance(raw, (np.ndarray, np.generic)) or device_of(raw).kind.has_values


def is_meta(x: object) -> bool:
    """Returns whether `x`, a raw array, an Array, a Tensor or a number, has a shape but no elements."""
    return getattr(x, "device", None) is META


def in_kind_of(raw: RawArray, target: device) -> RawArray:
    """Returns an array as one of the target's kind, if both lie on one device; else as it is."""
    source = device_of(raw)
    return move(raw, target) if source is not target and source.base is target.base else raw


def move(raw: RawArray, target: device) -> RawArray:
    """Returns the raw array on a device; not copied if it is on it already."""
    source = device_of(raw)
    if source is target:
        return raw
    if (moved := in_force().moved(raw, target)) is not None:
        return moved
    if target is CPU:
        return source.kind.give(raw)
    if source.base is not source and target.base is target:  # first out of the kind that holds it
        return move(source.kind.only_part(raw), target)
    return target.kind.take(raw, target)
