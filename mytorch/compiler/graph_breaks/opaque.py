"""What a program may depend on: all other state is *opaque*.

A program holds as long as what its function has used is the same. Of what is on the short list here that can
be told: it never changes, or it is compared in each call. A function that loads anything else, as a clock, a
lock, a file or an iterator, is split where it does, or runs eagerly.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import enum
import functools
import operator
import os
import sys
import types
import typing
from argparse import Namespace
from collections.abc import Iterable, Mapping
from importlib.machinery import EXTENSION_SUFFIXES

import numpy as np

from ...backends.device import device
from ...core.array import Array
from ...core.tensor import Tensor
from ...random import Generator
from ..guards.state_guards import LONGEST, PLAIN

# Modules of Python whose functions and classes only compute.
_PURE = {
    "__future__", "_abc", "_collections", "_collections_abc", "_functools", "_operator", "_py_abc", "_sre",
    "_typing", "_warnings",
    "abc", "cmath", "collections", "contextlib", "copy", "copyreg", "dataclasses", "enum", "functools",
    "itertools", "keyword", "math", "numbers", "operator", "re", "reprlib", "string", "types", "typing",
    "typing_extensions", "warnings",
}  # fmt: skip
_EFFECTS = {  # builtins that do more, or that know of more than their arguments
    "__import__", "breakpoint", "compile", "eval", "exec", "globals", "id", "input", "locals", "open",
    "print", "vars",
}  # fmt: skip
_OF_NUMPY = {  # functions of NumPy that read files or settings
    "fromfile", "genfromtxt", "geterr", "geterrcall", "getbufsize", "get_printoptions", "load", "loadtxt",
    "memmap", "save", "savetxt", "savez", "savez_compressed", "set_printoptions", "seterr", "seterrcall",
    "setbufsize", "show_config", "show_runtime",
}  # fmt: skip
_OF_PACKAGE = {  # and of mytorch: settings that may change, and what sets them
    "autograd.anomaly.is_anomaly_enabled", "autograd.anomaly.set_detect_anomaly",
    "backends.cublas.get_float32_matmul_precision", "backends.cublas.set_float32_matmul_precision",
    "backends.device.set_default_device", "backends.dtypes.set_default_dtype",
    "backends.cuda._Products", "backends.determinism.are_deterministic_algorithms_enabled",
    "backends.determinism.is_deterministic_algorithms_warn_only_enabled",
    "backends.determinism.use_deterministic_algorithms", "backends.threads.get_num_threads",
    "backends.threads.set_num_threads", "core.printing.set_printoptions", "random.Generator.get_state",
    "random.Generator.initial_seed", "random.Generator.seed", "random.Generator.set_state",
    "random.get_rng_state", "random.initial_seed", "random.seed", "random.set_rng_state",
    "serialization.load", "serialization.save", "utils.data.dataset.get_worker_info",
}  # fmt: skip
_OF_DEVICES = {"mytorch.cuda.devices.current_device", "mytorch.cuda.devices.set_device"}
_SETTINGS = {f"mytorch.{name}" for name in _OF_PACKAGE} | _OF_DEVICES
_STATEFUL = (  # modules of theirs, with all that is in them
    "mytorch.cuda.memory", "mytorch.cuda.random", "mytorch.cuda.streams", "mytorch.distributed",
    "numpy.random", "numpy.ctypeslib",
)  # fmt: skip
_CONSTANT = (  # types whose objects never change, or are arrays and the like
    type(Ellipsis), type(NotImplemented), range, enum.Enum, np.dtype, np.generic, np.ufunc, Tensor,
    Array, Generator, device, types.CodeType, types.GenericAlias, types.UnionType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, type(collections.namedtuple("Pair", "x").x),
)  # fmt: skip
CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, types.MappingProxyType)
WRAPPERS = (  # of functions, in classes
    property, staticmethod, classmethod, functools.cached_property, functools.partialmethod,
    functools.singledispatchmethod,
)  # fmt: skip
HOLDERS = (  # classes of Python whose objects are what is in their `__dict__`
    types.SimpleNamespace, Namespace, collections.UserDict, collections.UserList, collections.UserString,
    collections.ChainMap, contextlib.nullcontext,
)  # fmt: skip
_BASES = {object, typing.Generic, *CONTAINERS, *HOLDERS, collections.defaultdict, collections.OrderedDict,
          collections.Counter, *PLAIN}  # fmt: skip
DYNAMIC = {  # the ids of functions that get at any attribute: fine if called by their names, see `code`
    id(x)
    for x in (getattr, setattr, delattr, operator.attrgetter, operator.methodcaller, object.__getattribute__)
}
OF_ENVIRONMENT = {  # the ids of code with which functions read variables of the environment
    id(x.__code__) for x in (os.getenv, *vars(os._Environ).values()) if isinstance(x, types.FunctionType)
}  # fmt: skip
_HEAP = 1 << 9  # the flag of a class that isn't built in


@functools.cache
def is_foreign(module: str | None) -> bool:
    """Whether a module is Python's, NumPy's or the package's; also if it has no name, but a descriptor."""
    if not isinstance(module, str | None):
        return True
    root = (module or "").partition(".")[0]
    is_made = root.startswith("namedtuple_")  # where the code of a named tuple is
    return root in ("numpy", "mytorch") or root in sys.stdlib_module_names or is_made


@functools.cache
def is_pure(module: str | None) -> bool:
    """Whether a foreign module only computes, but for what is named here."""
    name = module if isinstance(module, str) else ""
    root = name.partition(".")[0]
    if root in ("numpy", "mytorch"):
        return not name.startswith(_STATEFUL)
    return root in _PURE or root.startswith("namedtuple_") or name in ("builtins", "collections.abc")


def is_computing(module: types.ModuleType) -> bool:
    """Whether what a module has computes with numbers and tensors; functions of `operator` get at others."""
    return module.__name__.partition(".")[0] in ("cmath", "math", "mytorch", "numpy")


def why_opaque(x: object, _around: frozenset[int] = frozenset()) -> str | None:
    """Returns what it is about an object, or what it holds, that can't be compared, as "a lock of _thread";
    None if nothing is: it is on the list, or what it consists of is found by names."""
    if id(x) in DYNAMIC:
        return f"{x.__name__}() under another name"
    if isinstance(x, np.void):
        return "a void of numpy"  # it may be a view of an array
    if type(x) in PLAIN or isinstance(x, _CONSTANT) or id(x) in _around:
        return None
    around = _around | {id(x)}
    if isinstance(x, np.ndarray):
        if type(x) is not np.ndarray:
            return _a(f"{type(x).__qualname__} of {type(x).__module__}")  # which may have attributes
        text = f"{x.size:,} elements" if x.size > LONGEST else _first(objects_in(x), around)
        return text and f"an array with {text}"
    if isinstance(x, CONTAINERS):
        if len(x) > LONGEST:
            return _a(f"{type(x).__name__} of {len(x):,} items")
        items = [*x, *x.values()] if isinstance(x, Mapping) else x
        items = [*items, x.default_factory] if isinstance(x, collections.defaultdict) else items
        text = _first(items, around)
        return _of_instance(x) if text is None else _a(f"{type(x).__name__} with {text}")
    if isinstance(x, os._Environ):
        return None  # its entries are compared
    if isinstance(x, slice):
        return _first((x.start, x.stop, x.step), around)
    if isinstance(x, (functools.partial, *WRAPPERS, types.MethodType, functools._lru_cache_wrapper)):
        return _first(parts_of(x), around)
    if isinstance(x, types.ModuleType):
        return None if not is_foreign(x.__name__) or is_pure(x.__name__) else f"the module {x.__name__}"
    if isinstance(x, (types.FunctionType, type)):
        return _of_function(x)
    if isinstance(x, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return _of_builtin(x, around)
    return _of_instance(x)


def _first(items: Iterable[object], around: frozenset[int]) -> str | None:
    return next(filter(None, [why_opaque(item, around) for item in items]), None)


def objects_in(x: np.ndarray) -> list[object]:
    """Returns the objects of Python in an array."""
    return x.ravel().tolist() if x.dtype.hasobject else []


def parts_of(x: object) -> list[object]:
    """Returns what a method, a partial function, or an attribute of a class that is made of functions,
    consists of."""
    if isinstance(x, (functools.partial, functools.partialmethod)):
        return [x.func, x.args, x.keywords]
    names = ("fget", "fset", "fdel", "__self__", "__func__", "func", "dispatcher", "__wrapped__")
    if isinstance(x, (staticmethod, classmethod)):
        names = ("__func__",)
    return [getattr(x, name) for name in names if hasattr(x, name)]


def _of_function(x: types.FunctionType | type) -> str | None:
    """Returns why a function or a class is opaque: it is foreign, and not on the list."""
    module = x.__module__
    is_function = isinstance(x, types.FunctionType)
    if is_function and (x is os.getenv or not is_foreign(x.__globals__.get("__name__"))):
        return None
    if isinstance(x, type) and _is_of_python(x):
        return next(filter(None, [_of_base(base) for base in x.__mro__]), None)
    is_known = is_pure(module) if is_foreign(module) else is_function
    return None if is_known and not is_setting(x) else f"{module}.{x.__qualname__}"


def is_setting(x: types.FunctionType | type) -> bool:
    """Whether a function of mytorch or NumPy reads or sets what may change."""
    module, name = x.__module__ or "", x.__qualname__
    return f"{module}.{name}" in _SETTINGS or (module.startswith("numpy") and name in _OF_NUMPY)


def setting_of(code: types.CodeType, namespace: dict) -> str | None:
    """Returns the name of a function of mytorch's, given its code and globals, that is about settings."""
    if not is_mytorchs(namespace.get("__name__")):
        return None
    if not is_pure(namespace["__name__"]):
        return f"{namespace['__name__']}.{code.co_name}"
    names = f"{namespace['__name__']}.{code.co_name}", f"{namespace['__name__']}.Generator.{code.co_name}"
    return next((name for name in names if name in _SETTINGS), None)


def _of_base(base: type) -> str | None:
    """Returns why a class among the bases of a user's is opaque: its objects hold what can't be seen."""
    if base in _BASES or _is_of_python(base) or not base.__flags__ & _HEAP and base.__module__ == "builtins":
        return None
    is_known = is_foreign(base.__module__) and (is_pure(base.__module__) or not _is_compiled(base))
    return None if is_known else f"{base.__module__}.{base.__qualname__}"


def _is_of_python(kind: type) -> bool:
    """Whether a class is that of a user or an installed package, and written in Python."""
    return not is_foreign(kind.__module__) and not _is_compiled(kind)


def _is_compiled(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_built_in = file is None and kind.__module__ in sys.builtin_module_names
    return not kind.__flags__ & _HEAP or is_built_in or (file or "").endswith(tuple(EXTENSION_SUFFIXES))


def _of_builtin(x: types.BuiltinFunctionType | types.MethodWrapperType, around: frozenset[int]) -> str | None:
    """Returns why a function that is written in C is opaque, or what it is a method of."""
    owner = x.__self__
    if owner is builtins:
        return None if x.__name__ not in _EFFECTS else f"{x.__name__}()"
    if owner is not None and not isinstance(owner, types.ModuleType):
        return why_opaque(owner, around)
    module = x.__module__ or getattr(owner, "__name__", None)
    is_read = x.__name__ in _OF_NUMPY and (module or "").startswith("numpy")
    return None if is_foreign(module) and is_pure(module) and not is_read else f"{module}.{x.__name__}"


def is_mytorchs(module: str | None) -> bool:
    """Whether a module is the package's."""
    return isinstance(module, str) and module.partition(".")[0] == __name__.partition(".")[0]


def _of_instance(x: object) -> str | None:
    """Returns why an object of some other class is opaque."""
    kind = type(x)
    module = kind.__module__
    text = _a(kind.__qualname__ if module == "builtins" else f"{kind.__qualname__} of {module}")
    if _is_of_python(kind):
        return None if _of_function(kind) is None and not isinstance(x, BaseException) else text
    if kind in _BASES:
        return None
    is_iterator = hasattr(kind, "__next__")
    if not isinstance(module, str):
        return text
    root = module.partition(".")[0]
    if root in ("dataclasses", "mytorch", "numpy", "re", "typing", "typing_extensions"):
        return None if is_pure(module) and not is_iterator and not is_setting(kind) else text
    return text


def _a(text: str) -> str:
    return f"{'an' if text[0] in 'AEIOUaeiou' else 'a'} {text}"
