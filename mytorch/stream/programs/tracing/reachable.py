"""What a function can be seen to use: the tensors of its state, and the Python values that it depends on."""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
import types
import weakref
from abc import ABC
from array import array
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import is_dataclass
from typing import Any, Generic

import numpy as np

from ....core.tensor import Tensor
from ....nn.hooks import Hooks
from ....nn.module import REGISTRIES, Module
from ....optim.lr_scheduler import LRScheduler
from ....optim.optimizer import Optimizer
from .places import Attributes, Place, content
from .snapshot import LONGEST, PLAIN, Snapshot

_RATES = {"param_groups", "get_last_lr", "_last_lr", "last_epoch"}
_HELD = {*REGISTRIES, "_non_persistent_buffers_set"}  # a module's own, which are never replaced
_OF_CLASSES = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__"}
_OF_OPTIMIZERS = {"state", "defaults", "param_groups", "pending_clip", "_group_states", "_hooks", "_stepped"}
_WRITABLE = (dict, types.CellType, Attributes)  # holders, which the namespace of a class isn't
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions of Python that load a global
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
_DYNAMIC = {  # with these a function gets at attributes without naming them
    "__class__", "__delattr__", "__dict__", "__getattr__", "__getattribute__", "__init__", "__setattr__",
    "asdict", "astuple", "attrgetter", "copy", "deepcopy", "delattr", "fields", "getattr", "methodcaller",
    "replace", "setattr",
}  # fmt: skip
_DYNAMIC_GLOBALS = {"dir", "eval", "exec", "type", "vars"}  # and these, which are also names of methods
_MAKES = ("__init__", "__new__", "__post_init__")  # methods that have run for objects which are there
_OF_MODULES = {*dir(Module), "forward", "training"}  # names by which the package gets at a module
_WRAPPERS = (  # of methods
    property, staticmethod, classmethod, functools.cached_property, functools.partialmethod,
    functools.singledispatchmethod,
)  # fmt: skip
_HOLDERS = ("_thread", "argparse", "collections", "os", "queue", "types")  # modules of Python
_OPAQUE = (ContextVar, bytearray, array)
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


class Reachable:
    """Walks from a function through its closure, the globals that it names, the object that it is a method
    of, modules and their hooks, containers, dataclasses and instances of the user's classes.

    Of instances of the user's classes, and of these, only attributes count that one of the functions names,
    unless one gets at others by `getattr` or the like. Code of Python, NumPy, mytorch and installed packages
    is taken as constant.

    Args:
        roots: what a function uses for certain.
        inputs: where values may change.

    Attributes:
        snapshot: the values that it found.
        tensors: those that it found.
        iterators: the places of iterators that aren't objects of a user's class.
        opaque: objects whose contents can't be compared.
        caches: functions that keep their results (`functools.lru_cache`).
        asks_types: whether a function calls `type`, so that what stands for a number isn't as good as one.
        asks_identity: whether a function asks what is the same object (`x is y`), other than None.
        names: of globals and attributes in the functions that it found.
        seen: all objects that it found, by their ids; may be cleared.
    """

    def __init__(self, *roots: object, inputs: Container[Place] = ()):
        self.snapshot = Snapshot(inputs)
        self.tensors: dict[Tensor, None] = {}
        self.iterators: list[Place] = []
        self.opaque: list[object] = []
        self.caches: list[Any] = []
        self.asks_types = self.asks_identity = self._is_dynamic = False
        self.names: set[str] = set()
        # Attributes of modules, objects and classes, the names that were followed, and whether all may be.
        self._by_name: list[tuple[Mapping, set[str], bool]] = []
        self._tuned: list[Optimizer | LRScheduler] = []
        self._with_methods: list[Optimizer] = []
        self.seen = seen = {}  # the ids hold as long as the objects are here
        waiting = list(reversed(roots))
        while waiting or (waiting := [*self._named()]):
            x = waiting.pop()
            if isinstance(x, PLAIN) or id(x) in seen:
                continue
            seen[id(x)] = x
            waiting += reversed([*self._inside(x)])  # parameters shall be found in their order

    @property
    def reads_rates(self) -> bool:
        """Whether a function names the options of optimizers, or what schedules hold."""
        return not self.names.isdisjoint(_RATES)

    def _named(self) -> Iterator[object]:
        """Yields what is found by the names that functions have: in Python's modules, in objects and their
        classes, and the options of optimizers, which need not be the same where `step()` alone reads them."""
        for entries, known, is_object in self._by_name:
            names = entries.keys() - known
            if not (is_object and self._is_dynamic):
                names &= self.names
            known |= names
            yield from self._of_dict(entries, sorted(names))
        while self.reads_rates and self._tuned:
            x = self._tuned.pop()
            for options in x.param_groups if isinstance(x, Optimizer) else [x.__dict__]:
                names = [name for name in options if name not in ("params", "optimizer")]
                yield from self._of_dict(options, names)
        while "state" in self.names and self._with_methods:
            yield self._with_methods.pop().state

    def _inside(self, x: object) -> Iterator[object]:
        if isinstance(x, Tensor):
            self.tensors[x] = None
            if x._node is not None and x._node.hooks:
                yield from x._node.hooks.values()
        elif isinstance(x, Optimizer):
            self._tuned.append(x)
            for group in x.param_groups:
                self.tensors.update(dict.fromkeys(group["params"]))
            if not is_foreign(type(x).__module__):
                yield from self._of_optimizer(x)
        elif isinstance(x, LRScheduler):
            self._tuned.append(x)
            yield x.optimizer
        elif isinstance(x, types.FunctionType):
            yield from self._of_function(x)
        elif isinstance(x, types.MethodType):
            yield from (x.__self__, x.__func__)
        elif isinstance(x, (types.BuiltinMethodType, types.MethodWrapperType)):
            yield x.__self__
        elif isinstance(x, types.ModuleType):
            if x is os and not self.names.isdisjoint(("environ", "getenv")):
                yield os.environ
            if not is_foreign(x.__name__):
                self._by_name.append((vars(x), set(), False))
        elif isinstance(x, (functools.partial, *_WRAPPERS)):
            yield from _parts_of(x)
        elif isinstance(x, (list, tuple, dict, set, frozenset, deque, types.MappingProxyType)):
            yield from self._of_container(x)
        elif isinstance(x, np.ndarray):
            self.snapshot.keep_array(x)
        elif isinstance(x, weakref.ref):
            yield x()
        elif isinstance(x, _OPAQUE):
            self.opaque.append(x)
        elif isinstance(x, type):
            yield from self._of_class(x)
        elif isinstance(x, Module):
            for registry in REGISTRIES:
                yield from self._of_container(x.__dict__[registry], is_ordered=registry == "_modules")
            yield from self._of_object(x, [name for name in x.__dict__ if name not in _HELD])
        elif isinstance(x, Hooks) or _is_users(x):
            yield from self._of_object(x, x.__dict__)
        if isinstance(x, (list, tuple, dict, set, deque)) and _is_users(x):
            yield from self._of_object(x, x.__dict__)
        if names := _slots_of(x):
            yield from self._of_dict(Attributes(x, names), names)
            yield from self._of_class(type(x))
        if "__wrapped__" in getattr(x, "__dict__", ()) and not isinstance(x, (Tensor, Module)):
            if hasattr(x, "cache_clear"):
                self.caches.append(x)
            yield x.__wrapped__  # a compiled or a cached function

    def _of_container(
        self, x: list | tuple | Mapping | set | frozenset | deque, is_ordered: bool = True
    ) -> Iterator[object]:
        if isinstance(x, (list, set, deque)) or (isinstance(x, dict) and len(x) > LONGEST):
            self.snapshot.keep_items(x)
        if isinstance(x, Mapping):
            self.snapshot.keep_names(x, is_ordered)
        if len(x) <= LONGEST:  # else data
            yield from self._of_dict(x, x) if isinstance(x, Mapping) else x

    def _of_object(self, x: object, names: Iterable[str]) -> Iterator[object]:
        """Yields attributes of an object: of a user's class only those that functions name."""
        kind = type(x)
        self.snapshot.keep_names(x.__dict__)
        if not is_foreign(kind.__module__):
            self.snapshot.keep_entry(Attributes(x, ("__class__",)), "__class__")
        if not _is_own(kind):
            yield from self._of_dict(x.__dict__, names)
            yield from self._of_class(kind)
            return
        implicit = _OF_MODULES if isinstance(x, Module) else set()
        yield from self._of_names(x.__dict__, [*names], implicit)
        for base in kind.__mro__:
            if not is_foreign(base.__module__):
                found = self.snapshot.keep_class(base)
                names = [name for name in found if name not in (*_OF_CLASSES, *_MAKES)]
                implicit |= {name for name in names if name.startswith("__")}
                yield from self._of_names(found, names, implicit)

    def _of_names(self, entries: Mapping, names: list[str], implicit: set[str]) -> Iterator[object]:
        """Yields those attributes that needn't be named; others as soon as a function names them."""
        yield from self._of_dict(entries, [name for name in names if name in implicit])
        self._by_name.append((entries, {*entries} - {*names} | implicit, True))

    def _of_optimizer(self, x: Optimizer) -> Iterator[object]:
        """Yields what the methods of a user's optimizer may use."""
        self._with_methods.append(x)
        self.snapshot.keep_names(x.__dict__)
        yield from self._of_dict(x.__dict__, [name for name in x.__dict__ if name not in _OF_OPTIMIZERS])
        yield from self._of_class(type(x))

    def _of_class(self, kind: type) -> Iterator[object]:
        """Yields the attributes of a user's class and its bases."""
        left_out = {*_OF_CLASSES, "step"} if issubclass(kind, Optimizer) else _OF_CLASSES  # it runs as it is
        for base in kind.__mro__:
            if not is_foreign(base.__module__):
                found = self.snapshot.keep_class(base)
                yield from self._of_dict(found, [name for name in found if name not in left_out])

    def _of_dict(self, entries: Mapping, names: Iterable[str]) -> Iterator[object]:
        for name in names:
            if name in entries and self.snapshot.keep_entry(entries, name):
                self._note_iterator(entries[name], entries, name)
                yield entries[name]

    def _note_iterator(self, x: object, *place: Any) -> None:
        is_iterator = hasattr(type(x), "__next__") and is_foreign(type(x).__module__)
        if is_iterator and isinstance(place[0], _WRITABLE):
            self.iterators.append(Place(*place))

    def _of_function(self, function: types.FunctionType) -> Iterator[object]:
        if is_foreign(function.__module__):
            return
        for cell in function.__closure__ or ():
            if self.snapshot.keep_cell(cell):
                self._note_iterator(content(cell), cell)
                yield content(cell)
        yield from self._of_dict(Attributes(function, _OF_FUNCTIONS), _OF_FUNCTIONS)
        code = function.__code__
        names = names_in(code)
        if function.__dict__ or function.__name__ in {*names, *code.co_freevars}:  # which may give it some
            self.snapshot.keep_names(function.__dict__)
            yield from self._of_dict(function.__dict__, function.__dict__)
        self.names |= names
        self._is_dynamic = self._is_dynamic or _is_dynamic(code, names)
        self.asks_types = self.asks_types or ("type" in names and _calls_type(code))
        self.asks_identity = self.asks_identity or _compares_identity(code)
        yield from self._of_dict(function.__globals__, sorted(globals_in(code)))
        yield from imports_in(code, function.__globals__.get("__package__") or "")


def _parts_of(x: Any) -> tuple:
    """Returns what a partial function, or an attribute of a class that is made of functions, calls."""
    if isinstance(x, (functools.partial, functools.partialmethod)):
        return x.func, x.args, x.keywords
    names = ("fget", "fset", "fdel", "__func__", "func", "dispatcher")
    return tuple([getattr(x, name) for name in names if hasattr(x, name)])


def names_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in a function and in those that are defined in it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names


def _is_dynamic(code: types.CodeType, names: set[str]) -> bool:
    """Whether a function gets at attributes that it doesn't name."""
    if code.co_filename == "<string>":  # of a dataclass: `__eq__` names `__class__`
        return False
    matches = any([i.opname == "MATCH_CLASS" for i in dis.get_instructions(code)])
    return matches or not (names.isdisjoint(_DYNAMIC) and globals_in(code).isdisjoint(_DYNAMIC_GLOBALS))


def _calls_type(code: types.CodeType) -> bool:
    """Whether it is the function `type` that is named, and no attribute."""
    if any([i.argval == "type" and i.opname.startswith(_LOADS) for i in dis.get_instructions(code)]):
        return True
    return any([_calls_type(x) for x in code.co_consts if isinstance(x, types.CodeType)])


def _compares_identity(code: types.CodeType) -> bool:
    before: Any = None
    for i in dis.get_instructions(code):
        if i.opname == "IS_OP" and not (before.opname == "LOAD_CONST" and before.argval is None):
            return True
        before = i
    return any([_compares_identity(x) for x in code.co_consts if isinstance(x, types.CodeType)])


def globals_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals alone: `optimizer.step` isn't a global function `step`."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = [globals_in(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return names.union(*inner)


def imports_in(code: types.CodeType, package: str) -> Iterator[types.ModuleType]:
    """Yields the modules that a function of a package imports itself, if they are loaded."""
    for i in dis.get_instructions(code):
        if i.opname == "IMPORT_NAME":
            names = i.argval, f"{package}.{i.argval}".strip("."), i.argval.partition(".")[0]
            yield from [sys.modules[name] for name in names if name in sys.modules]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from imports_in(constant, package)


@functools.cache
def is_foreign(module: str | None) -> bool:
    """Whether a module is Python's, the package's, or that of an installed package."""
    root = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return root in ("numpy", "mytorch") or root in sys.stdlib_module_names or file.startswith(_INSTALLED)


def _is_own(kind: type) -> bool:
    """Whether no methods but the user's know of attributes of a class, those of a module excepted."""
    known = {object, ABC, Generic, *Module.__mro__}
    return all([x in known or not is_foreign(x.__module__) for x in kind.__mro__])


def _is_users(x: object) -> bool:
    """Whether it is a dataclass, or an instance of a user's class, or of one of Python's with values."""
    if not hasattr(x, "__dict__") or isinstance(x, types.ModuleType):
        return False
    module = type(x).__module__
    return is_dataclass(x) or module in _HOLDERS or not is_foreign(module)


def _slots_of(x: object) -> list[str]:
    """Returns the names of the attributes for which a user's class, or a base of it, has slots."""
    bases = [base for base in type(x).__mro__ if not is_foreign(base.__module__)]
    slots = [vars(base).get("__slots__", ()) for base in bases]
    names = [name for found in slots for name in ((found,) if isinstance(found, str) else found)]
    return [name for name in names if not name.startswith("__")]
