"""Subclasses of Tensor: `as_subclass`, results of the same class, and methods that `__torch_function__` gets.

Functions ask for `__torch_function__` by themselves; properties and the methods that are no op don't, since
they would cost each tensor something. A subclass gets its own, which do, when it is defined.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..core.op import op
from ..core.overriding import DisableTorchFunction, DisableTorchFunctionSubclass
from ..core.tensor import Tensor
from .torch_function import asks, disabled, dispatch, note_class

_OWN = {"node", "as_subclass"}
_SPECIAL = """
    __getitem__ __setitem__ __len__ __bool__ __int__ __float__ __index__ __invert__ __repr__ __format__
    __deepcopy__
""".split()  # noqa: SIM905
_set = Tensor.__init__


def torch_function(
    cls: type[Tensor], func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None
) -> Any:
    """Calls the function as for plain tensors, and returns tensors as ones of this class.

    A class that overrides functions defines its own `__torch_function__`, which calls this one by `super()`.

    Args:
        func: what was called: a function, a method as `Tensor.sum`, or `Tensor.shape.__get__`.
        types: the classes of the arguments that override it.
        args, kwargs: its arguments.
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return converted(func(*args, **(kwargs or {})), cls)


def converted(result: object, cls: type[Tensor]) -> Any:
    """Returns the tensors of a result as ones of a class, and anything else as it is."""
    if cls is Tensor:
        return result
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else as_subclass(result, cls)
    if isinstance(result, (tuple, list)):
        items = [converted(item, cls) for item in result]
        return result._make(items) if hasattr(result, "_make") else type(result)(items)
    return result


@op(view=True)
def alias(x):
    """The same elements in the same memory."""
    return x, lambda g: g


def as_subclass(x: Tensor, cls: type[Tensor]) -> Tensor:
    """Returns a tensor of a subclass that shares the memory and the history of this one.

    `cls.__init__` isn't called.

    >>> class Marked(mytorch.Tensor):
    ...     pass
    >>> type(mytorch.ones(2).as_subclass(Marked) + 1).__name__
    'Marked'
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass(): cls must be a subclass of Tensor, got {cls!r}")
    with DisableTorchFunction():
        return _retyped(alias(x), cls)


def make_subclass(cls: type[Tensor], data: Tensor, require_grad: bool = False) -> Tensor:
    """Returns a leaf of a class with the memory of `data`; for the `__new__` of a subclass."""
    with DisableTorchFunction():
        return _retyped(data.detach(), cls).requires_grad_(require_grad)


def _retyped(x: Tensor, cls: type[Tensor]) -> Tensor:
    """Returns a new tensor, which no other object holds, as one of a class."""
    out = object.__new__(cls)
    for name in ("_data", "_grad", "_version", "_view", "grad_slot", "_post_hooks"):
        setattr(out, name, getattr(x, name))
    out._watch(x._node)
    return out


def _new(cls: type[Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.__new__`, from the definition of a subclass with a `__new__` that calls it: as PyTorch's, it
    makes the tensor."""
    out = object.__new__(cls)
    if cls.__new__ is not _new:
        _first_init(cls)(out, *args, **kwargs)
    return out


def _new_for_init(cls: type[Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """`__new__` of a subclass that has only an `__init__`: makes the tensor of the arguments, if they are a
    tensor's, for an `__init__` that calls `super().__init__()` without any, or not at all."""
    out = object.__new__(cls)
    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # `__init__` passes on others
        _first_init(cls)(out, *args, **kwargs)
    return out


def _first_init(cls: type[Tensor]) -> Callable:
    """Returns the `__init__` of the first of its bases that is ours: Tensor's, or a Parameter's."""
    return next(vars(base)["__init__"] for base in cls.__mro__ if _is_ours(base) and "__init__" in vars(base))


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "mytorch"


@functools.wraps(_set)
def _init(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """`Tensor.__init__`, from then on: called as `super().__init__()` it keeps what `__new__` has made."""
    if args or kwargs or not hasattr(self, "_data"):
        if not (args or kwargs) and type(self).__new__ is _new_for_init:
            name = type(self).__name__
            raise TypeError(f"{name}: the arguments make no tensor, and super().__init__() got no others")
        _set(self, *args, **kwargs)


def _keep(self: Tensor, *args: object, **kwargs: object) -> None:
    """In place of `__init__`, where a subclass has only a `__new__`."""


def _attributes(x: Tensor) -> dict[str, Any]:
    """Returns the attributes that a subclass adds."""
    slots = [name for name in copyreg._slotnames(type(x)) if name not in Tensor.__slots__]
    return {**getattr(x, "__dict__", {}), **{name: getattr(x, name) for name in slots if hasattr(x, name)}}


def _copies_attributes(deepcopy: Callable) -> Callable:
    @functools.wraps(deepcopy)
    def __deepcopy__(self: Tensor, memo: dict) -> Tensor:
        out = deepcopy(self, memo)
        for name, value in _attributes(self).items():
            setattr(out, name, copy.deepcopy(value, memo))
        return out

    return __deepcopy__


def reduced_with_attributes(self: Tensor) -> tuple:
    """`__reduce__`, for copies and pickles, with what a class or a user adds."""
    return *Tensor.__reduce__(self), (None, _attributes(self))


def prepare_subclass(cls: type[Tensor], **kwargs: Any) -> None:
    """Notes a subclass when it is defined, and makes the methods forward that don't ask `overriding`.

    Properties forward in a class with a `__torch_function__` of its own: the default one changes none.
    """
    super(Tensor, cls).__init_subclass__(**kwargs)
    if "__new__" in vars(cls):
        if cls.__init__ is _first_init(cls):
            cls.__init__ = _keep
        Tensor.__new__, Tensor.__init__ = _new, _init
    elif "__init__" in vars(cls) and cls.__new__ in (object.__new__, _new) and not _is_ours(cls):
        cls.__new__, Tensor.__init__ = _new_for_init, _init
    copies = cls.__deepcopy__ is Tensor.__deepcopy__ and not _is_ours(cls)  # a Parameter's copy has none
    if cls.__torch_function__ is not disabled:
        _forward_methods(cls)
    if copies:
        cls.__deepcopy__ = _copies_attributes(cls.__deepcopy__)
    if cls.__reduce__ is Tensor.__reduce__:
        cls.__reduce__ = reduced_with_attributes


def _forward_methods(cls: type[Tensor]) -> None:
    note_class()
    is_default = getattr(cls.__torch_function__, "__func__", None) is torch_function
    for name, x in vars(Tensor).items():
        if getattr(cls, name) is not x or (name.startswith("_") and name not in _SPECIAL) or name in _OWN:
            continue
        if isinstance(x, property):
            if not is_default:
                setattr(cls, name, _forwarding_property(x))
        elif hasattr(x, "__code__") and not asks(x):
            setattr(cls, name, _forwarding(x))


def _forwarding(function: Callable) -> Callable:
    @functools.wraps(function)
    def method(*args, **kwargs):
        answer = dispatch(function, args, kwargs)
        return function(*args, **kwargs) if answer is NotImplemented else answer

    return method


def _forwarding_property(x: property) -> property:
    """Returns a property whose getter is overridden as `Tensor.name.__get__`, its setter as `__set__`."""
    get, set_ = x.__get__, x.__set__
    return property(_forwarding_slot(get), None if x.fset is None else _forwarding_slot(set_), doc=x.__doc__)


def _forwarding_slot(slot: Callable) -> Callable:
    def access(*args):
        answer = dispatch(slot, args, {})
        return slot(*args) if answer is NotImplemented else answer

    return access
