"""What a program may depend on: what never changes, and what guards compare. All other state is *opaque*.

Guards allow, they don't deny: an object that is not on the list here, as a clock, a lock, a file or an
iterator, is opaque, and a function that loads it has a graph break there, or runs eagerly.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import enum
import functools
import operator
import os
import types
import typing
from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...backends.device import device
from ...core.array import Array
from ...core.tensor import Tensor
from ...random import Generator
from .modules import is_built_in, is_compiled, is_foreign, is_of_python, is_pure, is_setting, root_of
from .state_guards import LONGEST, PLAIN

_CONSTANT = (  # types whose objects never change, or are arrays and the like
    type(Ellipsis), type(NotImplemented), range, enum.Enum, np.dtype, np.generic, np.ufunc, Tensor,
    Array, Generator, device, types.CodeType, types.GenericAlias, types.UnionType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, type(collections.namedtuple("Pair", "x").x),
)
MAPPINGS = (dict, types.MappingProxyType)
CONTAINERS = (list, tuple, set, frozenset, collections.deque, *MAPPINGS)
WRAPPERS = (  # of functions, in classes
    property, staticmethod, classmethod, functools.cached_property, functools.partialmethod,
    functools.singledispatchmethod,
)
HOLDERS = (  # classes of Python whose objects are what is in their `__dict__`
    types.SimpleNamespace, Namespace, collections.UserDict, collections.UserList, collections.UserString,
    collections.ChainMap, contextlib.nullcontext,
)
_BASES = {object, typing.Generic, *CONTAINERS, *HOLDERS, collections.defaultdict, collections.OrderedDict,
          collections.Counter, *PLAIN}
_EFFECTS = {  # builtins that do more, or that know of more than their arguments
    "__import__", "breakpoint", "compile", "eval", "exec", "globals", "id", "input", "locals", "open",
    "print", "vars",
}
_DYNAMIC = {  # the ids of functions that get at any attribute: fine if called by their names, see `bytecode`
    id(x)
    for x in (getattr, setattr, delattr, operator.attrgetter, operator.methodcaller, object.__getattribute__)
}
_COMPUTING = ("dataclasses", "mytorch", "numpy", "re", "typing", "typing_extensions")  # as do their objects
Around = frozenset[int]  # the ids of the objects that hold one


def why_opaque(x: object, around: Around = frozenset()) -> str | None:
    """Returns what it is about an object, or what it holds, that can't be compared, as "a lock of _thread";
    None if nothing is: the object is on the list, or the objects that it consists of are found by names."""
    if is_dynamic(x):
        return f"{x.__name__}() under another name"  # type: ignore[attr-defined]
    if isinstance(x, np.void):
        return "a void of numpy"  # it may be a view of an array
    if type(x) in PLAIN or isinstance(x, _CONSTANT) or id(x) in around:
        return None
    for kinds, why in _COMPARED:
        if isinstance(x, kinds):
            return why(x, around | {id(x)})
    return None


def is_dynamic(x: object) -> bool:
    """Returns whether an object is a function that gets at any attribute, as `getattr`."""
    return id(x) in _DYNAMIC


def _first(items: Iterable[object], around: Around) -> str | None:
    return next(filter(None, [why_opaque(item, around) for item in items]), None)


def _of_array(x: np.ndarray, around: Around) -> str | None:
    if type(x) is not np.ndarray:
        return _named(type(x))  # which may have attributes
    text = f"{x.size:,} elements" if x.size > LONGEST else _first(objects_in(x), around)
    return text and f"an array with {text}"


def _of_container(x: Any, around: Around) -> str | None:
    if len(x) > LONGEST:
        return _a(f"{type(x).__name__} of {len(x):,} items")
    items = [*x, *x.values()] if isinstance(x, MAPPINGS) else x
    items = [*items, x.default_factory] if isinstance(x, collections.defaultdict) else items
    text = _first(items, around)
    return _of_instance(x, around) if text is None else _a(f"{type(x).__name__} with {text}")


def _of_parts(x: object, around: Around) -> str | None:
    return _first(parts_of(x), around)


def _of_module(x: types.ModuleType, around: Around) -> str | None:
    return None if not is_foreign(x.__name__) or is_pure(x.__name__) else f"the module {x.__name__}"


def _of_function(x: types.FunctionType, around: Around) -> str | None:
    if x is os.getenv or not is_foreign(x.__globals__.get("__name__")):
        return None
    is_known = is_pure(x.__module__) or not is_foreign(x.__module__)
    is_known = is_known and not is_setting(x.__module__, x.__qualname__)
    return None if is_known else f"{x.__module__}.{x.__qualname__}"


def _of_class(x: type, around: Around) -> str | None:
    if is_of_python(x):
        return next(filter(None, map(_of_base, x.__mro__)), None)
    is_known = is_foreign(x.__module__) and is_pure(x.__module__)
    is_known = is_known and not is_setting(x.__module__, x.__qualname__)
    return None if is_known else f"{x.__module__}.{x.__qualname__}"


def _of_base(base: type) -> str | None:
    """Returns why a class among the bases of a user's is opaque: its objects hold what can't be seen."""
    if base in _BASES or is_of_python(base) or is_built_in(base):
        return None
    is_known = is_foreign(base.__module__) and (is_pure(base.__module__) or not is_compiled(base))
    return None if is_known else f"{base.__module__}.{base.__qualname__}"


def _of_builtin(x: types.BuiltinFunctionType | types.MethodWrapperType, around: Around) -> str | None:
    """Returns why a function that is written in C is opaque, or the object whose method it is."""
    owner = x.__self__
    if owner is builtins:
        return None if x.__name__ not in _EFFECTS else f"{x.__name__}()"
    if owner is not None and not isinstance(owner, types.ModuleType):
        return why_opaque(owner, around)
    module = getattr(x, "__module__", None) or getattr(owner, "__name__", None)
    is_known = is_foreign(module) and is_pure(module) and not is_setting(module, x.__name__)
    return None if is_known else f"{module}.{x.__name__}"


def _of_instance(x: object, around: Around) -> str | None:
    kind = type(x)
    if is_of_python(kind):
        is_known = _of_class(kind, around) is None and not isinstance(x, BaseException)
    else:
        is_known = kind in _BASES or (root_of(kind.__module__) in _COMPUTING and _computes(kind))
    return None if is_known else _named(kind)


def _computes(kind: type) -> bool:
    module = kind.__module__
    return is_pure(module) and not hasattr(kind, "__next__") and not is_setting(module, kind.__qualname__)


# What guards compare, or find by names: kinds of objects, and why one of these is opaque.
_COMPARED: tuple[tuple[Any, Callable[[Any, Around], str | None]], ...] = (
    (np.ndarray, _of_array),
    (CONTAINERS, _of_container),
    (os._Environ, lambda x, around: None),  # its entries are compared
    ((slice, functools.partial, *WRAPPERS, types.MethodType, functools._lru_cache_wrapper), _of_parts),
    (types.ModuleType, _of_module),
    (types.FunctionType, _of_function),
    (type, _of_class),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _of_builtin),
    (object, _of_instance),
)


def objects_in(x: np.ndarray) -> list[object]:
    """Returns the objects of Python in an array."""
    return x.ravel().tolist() if x.dtype.hasobject else []


def parts_of(x: object) -> list[object]:
    """Returns the objects that a slice, a method, a partial function, or an attribute of a class that is made
    of functions consists of."""
    if isinstance(x, slice):
        return [x.start, x.stop, x.step]
    if isinstance(x, (functools.partial, functools.partialmethod)):
        return [x.func, x.args, x.keywords]
    names = ("fget", "fset", "fdel", "__self__", "__func__", "func", "dispatcher", "__wrapped__")
    if isinstance(x, (staticmethod, classmethod)):
        names = ("__func__",)
    return [getattr(x, name) for name in names if hasattr(x, name)]


def _named(kind: type) -> str:
    """Returns what an object of a class is called, as "a lock of _thread"."""
    module = kind.__module__
    return _a(kind.__qualname__ if module == "builtins" else f"{kind.__qualname__} of {module}")


def _a(text: str) -> str:
    return f"{'an' if text[0] in 'AEIOUaeiou' else 'a'} {text}"
