"""
The door: what mytorch asks of a kind of raw arrays, and the kinds that are in force in a thread.

Ops are written in NumPy's functions, so whatever answers to them can be a raw array: NumPy's and CuPy's
arrays, meta arrays, those that note a program, and kinds of your own (see `holding`). What ops can't ask
NumPy's functions for they ask the array's `Kind`, which its device names: `device_of(x).kind`.

A kind may also be *in force* in a thread, within `with kind:`. Then factories make its arrays, ops lift the
arrays of other kinds that they meet, and mytorch tells it what it does outside of NumPy's functions: that
Python reads a number, steps a schedule, draws. `in_force()` is the innermost one; without any it is PLAIN,
which does nothing. So no code asks which kind that is, or whether there is one.

    with Counting() as kind:          # a kind of your own
        model(x).sum().backward()
    print(kind.calls)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from .device import device

RawArray: TypeAlias = Any  # a NumPy or CuPy array, or another that answers to NumPy's functions
NO_CONTEXT = nullcontext()
DEVICES: dict[str, device] = {}  # "cpu" and "meta", which every machine has; `device` fills it


class Kind:
    """What mytorch asks of a kind of raw arrays; the answers of arrays of which only NumPy's functions know.

    Attributes:
        name: of the kind, beside that of the device; "" for what the device's name says.
        kernels: the fused variants of composites that take such arrays, "cpu" or "cuda"; another name: none.
        has_values: Python may read elements; without, what depends on them takes the general way.
        is_host: its arrays lie in NumPy's memory: they have an address there, Python reads an element without
            waiting for a device, and passes over a cacheful at a time are faster than whole ones.
        ranks: how many ranks have a part in one of its arrays, in each process.
    """

    name = ""
    kernels = "other"
    has_values = True
    is_host = False
    ranks = 1

    # Of its arrays.

    def functions(self) -> Any:
        """Returns the module whose factories make such arrays, in place of NumPy."""
        raise NotImplementedError(f"{type(self).__name__} has no factories")

    def on(self, target: device) -> AbstractContextManager:
        """Returns a context in which new arrays and kernels use this device."""
        return NO_CONTEXT

    def take(self, raw: RawArray, target: device) -> RawArray:
        """Returns an array of another kind as one of this kind on the device."""
        raise NotImplementedError(f"{type(self).__name__} takes no array on {target}")

    def give(self, raw: RawArray) -> RawArray:
        """Returns such an array as one of NumPy.

        Raises:
            TypeError: no NumPy array says the same.
        """
        raise TypeError(f"an array of {type(self).__name__} can't become one of NumPy")

    def as_writable(self, view: RawArray, x: RawArray) -> RawArray:
        """Returns a view of `x` that may be written to if `x` may: NumPy marks some read-only."""
        return view

    def group(self, raw: RawArray) -> Hashable:
        """Returns what arrays have in common that may lie in one flat vector, beside dtype and device."""
        return None

    def product(self, x: RawArray, y: RawArray) -> RawArray:
        """Returns x @ y in the dtype of x, half precision accumulated in float32: see `blas.product`."""
        return np.matmul(x, y).astype(x.dtype, copy=False)

    def add_product(self, x: RawArray, y: RawArray, out: RawArray, beta: float) -> None:
        """Computes out = x @ y + beta out, beta being 0 or 1: see `blas.add_product`."""
        total = self.product(x, y)
        out[...] = total + out if beta else total

    def collectives(self, group: Any) -> Any:
        """Returns what moves such arrays between the ranks of a process group: an object with the methods of
        `distributed.backends`. One that has done all when it returns may return None, and no request to wait
        for.

        Args:
            group: a `ProcessGroup`; it has a `cpu_backend` and a `gpu_backend`.
        """
        raise NotImplementedError(f"arrays of {type(self).__name__} have no collectives")

    # In force.

    def __enter__(self) -> Kind:
        thread.kinds = (*thread.kinds, self)
        forces.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        if self not in thread.kinds:
            raise RuntimeError(f"{self!r} isn't in force in this thread")
        if (last := thread.kinds[-1]) is not self:
            raise RuntimeError(f"{last!r} is in force within {self!r}, and has to be left first")
        thread.kinds = thread.kinds[:-1]
        forces.remove(self)
        self.left()

    def left(self) -> None:
        """Called when it is in force no more: what remains of its arrays is as it says."""

    lasts = False  # what is made may be kept for calls after the block
    draws = False  # it makes random numbers itself: `generator` and `kept` return something
    answers = False  # Python may read elements of arrays that have none
    takes_launches = False  # it takes the calls of compiled kernels

    def choose(self, ask: Callable[[], bool]) -> bool:
        """Returns the answer to which of two ways to compute the same is taken."""
        return ask()

    def lift(self, raw: RawArray, owner: Any = None) -> RawArray:
        """Returns what an op takes in place of an array that it meets, the owner's if a tensor holds it."""
        return raw

    def stand_in(self, found: device) -> device:
        """Returns the device on which new arrays lie that a caller wants on `found`."""
        return found

    def place(self, found: device) -> device:
        """Returns the device that computes with arrays on `found`."""
        return found

    def moved(self, raw: RawArray, target: device) -> RawArray | None:
        """Returns an array as it is on another device; None if it is to be moved."""
        return None

    def once(self, what: str) -> None:
        """Called before something happens in Python that a program would not repeat: it raises."""

    def checks(
        self, x: Any, low: int, high: int, text: str, error: type[Exception], ignored: int | None
    ) -> bool:
        """Returns whether it sees to it that an error is raised unless low <= x < high: see `ops.bounds`."""
        return False

    def generator(self, generator: Any) -> Any:
        """Returns what draws in place of a generator's numbers."""
        return None

    def kept(self, draw: Any, x: RawArray, p: float) -> RawArray | None:
        """Returns the mask of a dropout: see `functional.dropout.Draw`."""
        return None

    def composite(self, composite: Any, args: tuple, kernels: bool) -> Any:
        """Returns the result of a composite for which no variant is demanded; None for the usual choice.

        Args:
            kernels: its kernels may run.
        """
        return None

    def launch(self, kernel: Callable, args: tuple) -> Any:
        """Takes the call of a compiled kernel, if it `takes_launches`."""

    def takes_call(self, method: Callable, args: tuple, kwargs: dict) -> bool:
        """Returns whether it takes the call of a method that changes what Python holds, as a schedule's."""
        return False

    def norm(self, function: Callable, parameters: list, *options: Any) -> Any:
        """Returns the norm of gradients that `function(*options)` clips, if it takes the call; else None."""
        return None

    def zeroes_grads(self, optimizer: Any, parameters: list) -> bool:
        """Returns whether it takes the filling of gradients with zeros."""
        return False

    def reads_history(self, x: Any) -> None:
        """Called before Python reads the node of a tensor."""

    def reads_grad(self, x: Any) -> None:
        """Called before Python reads that a tensor has no gradient."""

    def sets_grad(self, x: Any) -> None:
        """Called before Python sets the gradient of a tensor."""

    def picked(self, x: Any, y: Any) -> None:
        """Called with a tensor `y`, which is `x` at an index of arrays without dims."""

    def takes_index(self, raw: RawArray) -> bool:
        """Returns whether an integer array without dims is an index as it is, without its element."""
        return False


class OtherArray:
    """What the classes of raw arrays derive from, all but NumPy's and CuPy's."""

    __slots__ = ()


class ReadsItem:
    """The conversions of an array without dims to a number of Python: all ask for its `item()`."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())


class _Plain(Kind):
    """What is in force without any kind."""

    lasts = True


PLAIN = _Plain()
forces: list[Kind] = []  # in any thread: while it is empty, no op asks which are in force here


class _Thread(threading.local):
    kinds: tuple[Kind, ...] = ()  # in force, the innermost last
    tracer: Any = None  # what captures a program, see `compiler`
    is_capturing = False  # a CUDA graph, see backends/graphs.py
    default_device: device | None = None  # None: the CPU, and where the data is
    former_defaults: tuple = ()  # of the blocks around this one


thread = _Thread()


class _Processes:
    """The processes that train together.

    Attributes:
        group: of all of them, once `distributed` has made it; it has a method `share_flag`.
    """

    group: Any = None


processes = _Processes()


def in_force() -> Kind:
    """Returns the innermost kind in force in this thread; PLAIN without any."""
    return thread.kinds[-1] if thread.kinds else PLAIN


def stand_in(found: device) -> device:
    """Returns the device on which new arrays lie that a caller wants on `found`: each kind in force takes
    what the one around it has made of it."""
    for kind in thread.kinds:
        found = kind.stand_in(found)
    return found


def lifted(raw: RawArray, owner: Any = None) -> RawArray:
    """Returns an array as one of the innermost kind in force, each of them lifting what the one around it has
    made."""
    for kind in thread.kinds:
        raw = kind.lift(raw, owner)
    return raw
