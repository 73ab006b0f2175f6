"""
Arrays that hold arrays of another kind: a kind of your own in a few lines.

    class Counting(HoldingKind):
        calls = 0

        def call(self, name, function, args, kwargs):
            self.calls += 1
            return super().call(name, function, args, kwargs)

    with Counting() as kind:
        loss = model(x)

Each call of a NumPy function, of an array's method or operator comes to `call`, which runs it on the parts of
the arrays: on one, or, with `count = 2`, on the first parts and on the second ones. A part may itself be an
array of a kind that holds others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import blas, functions
from .address import Pointer, address_of
from .device import CPU, RawArray, array_module, device, device_of, is_raw, known, move, on
from .door import Kind, OtherArray, ReadsItem

_METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "conj", "copy", "cumprod", "cumsum",
    "diagonal", "dot", "flatten", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "reshape",
    "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take", "trace", "transpose", "var", "view",
    "fill", "sort",
)

_FACTORIES = {
    np.arange, np.array, np.asanyarray, np.asarray, np.ascontiguousarray, np.empty, np.eye, np.full,
    np.identity, np.ones, np.tri, np.zeros,
}


class HoldingArray(ReadsItem, OtherArray, np.lib.mixins.NDArrayOperatorsMixin):
    """An array of a kind that holds arrays: all of one shape, dtype and memory order.

    Attributes:
        parts: the arrays that it holds.
        kind: its kind, a `HoldingKind`.
    """

    __slots__ = ("parts", "kind", "__weakref__")
    __hash__ = None
    __array_priority__ = 50.0  # below an Array's

    def __init__(self, parts: Sequence[RawArray], kind: HoldingKind):
        self.parts, self.kind = tuple(parts), kind
        if kind.count > 1 or len(self.parts) != 1:
            kind.require_alike(self.parts)

    shape = property(lambda self: self.parts[0].shape)
    strides = property(lambda self: self.parts[0].strides)
    dtype = property(lambda self: self.parts[0].dtype)
    ndim = property(lambda self: self.parts[0].ndim)
    size = property(lambda self: self.parts[0].size)
    itemsize = property(lambda self: self.parts[0].itemsize)
    nbytes = property(lambda self: self.parts[0].nbytes)
    flags = property(lambda self: self.parts[0].flags)
    base = property(lambda self: _owner(self.parts[0]))
    device = property(lambda self: self.kind.device)
    T = property(lambda self: self.kind.call(".T", lambda x: x.T, (self,), {}))
    mT = property(lambda self: self.kind.call(".mT", lambda x: x.mT, (self,), {}))

    @property
    def data(self) -> Pointer:
        first = self.parts[0]
        return Pointer(address_of(first)) if isinstance(first, np.ndarray) else first.data

    @property
    def real(self) -> HoldingArray:
        return self.kind.call(".real", lambda x: x.real, (self,), {})

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> HoldingArray:
        return self.kind.call(".imag", lambda x: x.imag, (self,), {})

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if not all([isinstance(x, _OPERANDS) or is_raw(x) for x in inputs]):
            return NotImplemented  # a Tensor's or an Array's call
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return _outermost((inputs, kwargs)).call(name, getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        if any(map(_outranks, types)):
            return NotImplemented  # a Tensor's or an Array's call
        if function in _FACTORIES:  # whose `like`, which is this array, NumPy has taken out
            kwargs = {**kwargs, "like": self}
        return _outermost((args, kwargs), self).call(function.__name__, function, args, kwargs)

    def __getitem__(self, index):
        return self.kind.call(".getitem", _getitem, (self, index), {})

    def __setitem__(self, index, value):
        self.kind.call(".setitem", _setitem, (self, index, value), {})

    def __len__(self) -> int:
        return len(self.parts[0])

    def __iter__(self):
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # What needs elements.

    def item(self, *index: int) -> Any:
        return self.kind.value([part.item(*index) for part in self.parts])

    def tolist(self) -> Any:
        return self.kind.value([part.tolist() for part in self.parts])

    def __index__(self) -> int:
        return self.kind.value([part.__index__() for part in self.parts])

    def __array__(self, dtype=None, copy=None):
        raise TypeError(f"an array of {type(self.kind).__name__} can't become one of NumPy by itself")

    def __repr__(self) -> str:
        return f"{type(self.kind).__name__}({', '.join(map(repr, self.parts))})"


_OPERANDS = (HoldingArray, np.ndarray, np.generic, bool, int, float, complex, list, tuple, type(None))


def _method(name: str) -> Callable:
    def of_part(x, *args, **kwargs):
        return getattr(x, name)(*args, **kwargs)

    def method(self, *args, **kwargs):
        return self.kind.call(f".{name}", of_part, (self, *args), kwargs)

    return method


for _name in _METHODS:
    setattr(HoldingArray, _name, _method(_name))


def _outranks(kind: type) -> bool:
    priority = getattr(kind, "__array_priority__", 0)  # of NumPy's own classes it is a descriptor
    return isinstance(priority, (int, float)) and priority > HoldingArray.__array_priority__


def _getitem(x: RawArray, index: Any) -> RawArray:
    return x[index]


def _setitem(x: RawArray, index: Any, value: Any) -> None:
    x[index] = value


class HoldingKind(Kind):
    """A kind whose arrays hold `count` arrays of another kind; a subclass says what it does with each call.

    Args:
        inner: the device of the parts.

    Attributes:
        device: that of its arrays; it has the name of the inner one.
    """

    count = 1

    def __init__(self, inner: device = CPU):
        inner = known(inner)
        self.inner, self.name = inner, type(self).__name__
        self.kernels = f"arrays of {self.name}"
        self.device, self.has_values = inner.of_kind(self), inner.kind.has_values
        self.depth = 1 + getattr(inner.kind, "depth", 0)  # of the kinds that hold arrays

    def call(self, name: str, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Returns what a function gives of the arguments; each array among them is one of this kind, or is
        the same for all parts.

        Args:
            name: of the function in NumPy, "add", "add.reduce"; of a method with a dot, ".astype".
        """
        self.require_own(name, args, kwargs)
        results = [function(*self.part(args, i), **self.part(kwargs, i)) for i in range(self.count)]
        return self.hold(results, kwargs.get("out"))

    def require_own(self, name: str, args: tuple, kwargs: dict) -> None:
        """Raises TypeError if an array of another kind would be written: all parts would go into it."""
        out = kwargs.get("out")
        written = [*out] if type(out) is tuple else [out]
        written += args[:1] if functions.writes(name) else []
        for x in written:
            if x is not None and not (isinstance(x, HoldingArray) and x.kind is self):
                kind = x.kind.name if isinstance(x, HoldingArray) else type(x).__name__
                raise TypeError(f"{name}: an array of {self.name} can't be written to one of {kind}")

    def require_alike(self, parts: Sequence[RawArray]) -> None:
        """Raises RuntimeError unless there are `count` parts of one shape and dtype."""
        found = [(*x.shape, str(x.dtype)) for x in parts]
        if len(found) != self.count or len({*found}) > 1:
            raise RuntimeError(
                f"an array of {self.name} holds {self.count} of one shape and dtype, got those of {found}"
            )

    def part(self, x: Any, i: int) -> Any:
        """Returns arguments with the i-th parts in place of arrays of this kind."""
        if isinstance(x, HoldingArray):
            return x.parts[i] if x.kind is self else x
        if type(x) is dict:
            return {key: self.part(value, i) for key, value in x.items()}
        if type(x) is slice:
            return slice(*[self.part(value, i) for value in (x.start, x.stop, x.step)])
        return type(x)([self.part(item, i) for item in x]) if type(x) in (tuple, list) else x

    def hold(self, results: Sequence[Any], out: Any = None) -> Any:
        """Returns the results for all parts as one: arrays of this kind, or what all have in common."""
        first = results[0]
        if out is not None:
            return out[0] if type(out) is tuple and len(out) == 1 else out
        if isinstance(first, (tuple, list)):
            made = [self.hold(each) for each in zip(*results, strict=True)]
            return first._make(made) if hasattr(first, "_make") else type(first)(made)
        if isinstance(first, np.generic) or is_raw(first):
            return HoldingArray([np.asarray(x) if isinstance(x, np.generic) else x for x in results], self)
        return first if first is None else self.value(results)

    def value(self, values: Sequence[Any]) -> Any:
        """Returns the one value of all parts, which Python needs.

        Raises:
            RuntimeError: they have different ones.
        """
        if any([repr(x) != repr(values[0]) for x in values]):  # NaN is like NaN
            raise RuntimeError(
                f"Python needs one value, and the parts of {type(self).__name__} have {values}"
            )
        return values[0]

    # As a kind.

    def functions(self) -> Functions:
        return Functions(self)

    def on(self, target: device) -> Any:
        return on(self.inner)

    def take(self, raw: RawArray, target: device) -> HoldingArray:
        raw = move(raw, self.inner)
        return HoldingArray([raw, *[raw.copy() for _ in range(self.count - 1)]], self)

    def give(self, raw: HoldingArray) -> RawArray:
        parts = [move(part, CPU) for part in raw.parts]
        if not all([np.array_equal(part, parts[0], equal_nan=part.dtype.kind in "fcV") for part in parts]):
            raise TypeError(f"the parts of {type(self).__name__} differ: no one array says the same")
        return parts[0]

    def only_part(self, raw: HoldingArray) -> RawArray:
        """Returns the array that it holds; of several, which have to be equal, the first."""
        if self.count > 1:
            self.give(raw)
        return raw.parts[0]

    def as_writable(self, view: HoldingArray, x: HoldingArray) -> HoldingArray:
        for part, whole in zip(view.parts, x.parts, strict=True):
            self.inner.kind.as_writable(part, whole)
        return view

    def product(self, x: RawArray, y: RawArray) -> RawArray:
        return _outermost((x, y)).call("matmul", blas.product, (x, y), {})

    def add_product(self, x: RawArray, y: RawArray, out: RawArray, beta: float) -> None:
        kind = _outermost((x, y, out))
        kind.require_own("matmul", (), {"out": out})
        kind.call("matmul", blas.add_product, (x, y, out, beta), {})

    def collectives(self, group: Any) -> Any:
        if self.count > 1:
            return super().collectives(group)  # what its parts are to each other is for a subclass to say
        return _OfParts(self, self.inner.kind.collectives(group))

    def stand_in(self, found: device) -> device:
        return self.device if found is self.inner else found

    def lift(self, raw: RawArray, owner: Any = None) -> RawArray:
        is_own = isinstance(raw, HoldingArray) and raw.kind is self
        if is_own or device_of(raw) is not self.inner:
            return raw
        if self.count > 1 and isinstance(raw, np.ndarray):  # a write to a view would keep the first part
            raw = raw.view()
            raw.flags.writeable = False
        return self.take(raw, self.device)


class Functions:
    """NumPy's factories, which make arrays of a kind that holds others."""

    def __init__(self, kind: HoldingKind):
        self._kind, self._inner = kind, array_module(kind.inner)

    def __getattr__(self, name: str) -> Callable:
        function = getattr(self._inner, name)
        return lambda *args, **kwargs: self._kind.call(name, function, args, kwargs)


class _OfParts:
    """The collectives of arrays that hold one array each: those of these."""

    def __init__(self, kind: HoldingKind, inner: Any):
        self._kind, self._inner = kind, inner

    def __getattr__(self, name: str) -> Callable:
        start = getattr(self._inner, name)
        return lambda *args: start(*self._kind.part(args, 0))


def _outermost(x: Any, like: HoldingArray | None = None) -> HoldingKind:
    """Returns the kind of arrays that hold those of all other kinds among the arguments."""
    found = [] if like is None else [like.kind]

    def visit(x):
        if isinstance(x, HoldingArray):
            found.append(x.kind)
        elif type(x) in (tuple, list):
            for item in x:
                visit(item)
        elif type(x) is dict:
            visit([*x.values()])

    visit(x)
    return max(found, key=lambda kind: kind.depth)


def _owner(x: RawArray) -> RawArray:
    """Returns the array that owns the memory of a part: of an array, by which views of it are known."""
    base = getattr(x, "base", None)
    return x if base is None else base
