"""What a function can be seen to use: the tensors of its state, and the Python values that it depends on."""

from __future__ import annotations

import functools
import os
import types
from abc import ABCMeta
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...nn.hooks import Hooks
from ...nn.module import REGISTRIES, Module
from ...optim.lr_scheduler import LRScheduler
from ...optim.optimizer import Optimizer
from ..graph_breaks.code import (
    attributes_in,
    compares_identity,
    gets_at_classes,
    gets_at_others,
    globals_in,
    names_in,
    names_of_class,
    stores_in,
)
from ..graph_breaks.loads import Loads
from ..graph_breaks.opaque import CONTAINERS, WRAPPERS, is_foreign, objects_in, parts_of, why_opaque
from ..graph_breaks.refusals import Refusals
from .kinds import is_followed, is_own, is_users, methods_of, slots_of
from .places import Attributes, Place, content
from .snapshot import Snapshot
from .state_guards import PLAIN

_RATES = {"param_groups", "get_last_lr", "_last_lr", "last_epoch"}
_HELD = {*REGISTRIES, "_non_persistent_buffers_set"}  # a module's own, which are never replaced
_LISTS_BUFFERS = {"state_dict", "load_state_dict"}  # those that aren't persistent excepted
_OF_CLASSES = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__"}
_OF_OPTIMIZERS = {"state", "defaults", "param_groups", "pending_clip", "_group_states", "_hooks", "_stepped"}
_OF_CALLABLES = ("func", "args", "keywords", "__self__", "__func__", "__wrapped__")
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
_DESCRIBE = {"__name__", "__qualname__", "__doc__", "__annotations__", "__module__"}
_MAKES = ("__init__", "__new__", "__post_init__")  # methods that have run for objects which are there
_COMPUTE = {"__getattr__", "__getattribute__"}
_OF_MODULES = {*dir(Module), "forward", "training"}  # names by which the package gets at a module


@dataclass
class _Named:
    """What is followed by the names that functions have.

    Attributes:
        entries: attributes of a module, an object or a class.
        known: those that were followed, or never are.
        owners: the ids of the object, or of those of the class; None for a module.
    """

    entries: Mapping
    known: set[str]
    owners: list[int] | None


class Reachable:
    """Walks from a function through its closure, the globals that it names, the object that it is a method
    of, modules and their hooks, containers, dataclasses and instances of the user's classes.

    Of instances of the user's classes, and of these, only attributes count that one of the functions names,
    unless one gets at others by `getattr` or the like. Code of Python, NumPy and mytorch is taken as
    constant; installed packages are followed as the user's own. What is opaque isn't: see `Refusals`.

    Args:
        roots: what a function uses for certain.
        inputs: where values may change.

    Attributes:
        snapshot: the values that it found.
        tensors: those that it found.
        refusals: where something opaque is loaded.
        caches: functions that keep their results (`functools.lru_cache`).
        asks_types: whether a function calls `type`, so that what stands for a number isn't as good as one.
        asks_identity: whether a function asks what is the same object (`x is y`), other than None.
        names: of globals and attributes in the functions that it found.
        seen: all objects that it found, by their ids; may be cleared.
    """

    def __init__(self, *roots: object, inputs: Container[Place] = ()):
        self.snapshot = Snapshot(inputs)
        self.tensors: dict[Tensor, None] = {}
        self.refusals = Refusals()
        self.caches: list[Any] = []
        self.asks_types = self.asks_identity = self._is_dynamic = self._makes = False
        self.names: set[str] = set()
        self._by_name: dict[int, _Named] = {}  # by the ids of modules, objects and classes
        self._accessed: dict[str, set[str]] = {}  # attributes, and of which attributes: see `attributes_in`
        self._found_as: dict[int, set[str]] = {}  # by the ids of objects, the names of entries with them
        self._computed = {*_OF_CALLABLES}  # names of properties and the like
        self._stored: set[str | None] = set()  # names that objects may get; None for any: see `stores_in`
        self._tuned: list[Optimizer | LRScheduler] = []
        self._with_methods: list[Optimizer] = []
        self._kinds: list[type] = []  # of objects
        self.seen = seen = {}  # the ids hold as long as the objects are here
        waiting = list(reversed(roots))
        while waiting or (waiting := [*self._named()]):
            x = waiting.pop()
            if isinstance(x, str):
                self._stored.add(x)  # which may be the name of a field
            if type(x) in PLAIN or id(x) in seen or why_opaque(x) is not None:
                continue
            seen[id(x)] = x
            waiting += reversed([*self._inside(x)])  # parameters shall be found in their order
        described = sorted(_DESCRIBE & self.names)
        for x in [*seen.values(), *self.snapshot.classes] if described else ():
            if isinstance(x, (type, types.FunctionType)) and not is_foreign(x.__module__):
                self._describe(x, described)
        asks = self._is_dynamic or "hasattr" in self.names
        if asks or "getattr" in self.names:  # of what isn't there, perhaps
            for x in seen.values():
                is_named = isinstance(x, (types.FunctionType, types.ModuleType)) and is_users(x)
                is_named = is_named or isinstance(x, functools.partial)
                if is_named or (isinstance(x, Tensor) and hasattr(x, "__dict__")):
                    self.snapshot.keep_names(vars(x))
                elif asks and isinstance(x, Module):
                    for kind in type(x).__mro__[:-1]:
                        self.snapshot.keep_class(kind)
        if self._is_dynamic or not self.names.isdisjoint(_LISTS_BUFFERS):
            for x in seen.values():
                if isinstance(x, Module):
                    self.snapshot.keep_items(x._non_persistent_buffers_set)

    @property
    def reads_rates(self) -> bool:
        """Whether a function names the options of optimizers, or what schedules hold."""
        return not self.names.isdisjoint(_RATES)

    def _describe(self, x: type | types.FunctionType, names: list[str]) -> None:
        """Keeps the name of a function or a class, its docstring or annotations."""
        if isinstance(x, type) and "__annotations__" not in vars(x):  # to ask would make them
            names = [name for name in names if name != "__annotations__"]
        for name in names:
            self.snapshot.keep_entry(Attributes(x, names), name)
        for found in [x.__annotations__] if "__annotations__" in names else []:
            self.snapshot.keep_names(found, True)
            for name in found:
                self.snapshot.keep_entry(found, name)

    def _named(self) -> Iterator[object]:
        """Yields what is found by the names that functions have: in Python's modules, in objects and their
        classes, and the options of optimizers, which need not be the same where `step()` alone reads them."""
        found = [*self._by_names(set().union(*self._accessed.values()))]
        known = set().union(*self._found_as.values())
        yield from found or self._by_names(known)  # at last also attributes of what wasn't found anywhere
        while self.reads_rates and self._tuned:
            x = self._tuned.pop()
            if isinstance(x, Optimizer):  # whose load_state_dict() makes other dicts
                self.snapshot.keep_entry(Attributes(x, ("param_groups",)), "param_groups")
                self.snapshot.keep_items(x.param_groups)
            for options in x.param_groups if isinstance(x, Optimizer) else [x.__dict__]:
                names = [name for name in options if name not in ("params", "optimizer")]
                yield from self._of_dict(options, names)
        while "state" in self.names and self._with_methods:
            yield self._with_methods.pop().state
        while self._makes and self._kinds:
            yield self._kinds.pop()  # with what makes its objects

    def _by_names(self, known: set[str]) -> Iterator[object]:
        """Yields what is found by names.

        Args:
            known: the names of attributes which are other objects than those that weren't found as these: of
                `x.optimizer.step` no object has to have a `step` but what was found as "optimizer", unless
                a function may give an object an attribute `optimizer`.
        """
        known = set() if None in self._stored else known - self._computed - self._stored - {""}
        for named in self._by_name.values():
            names = named.entries.keys() - named.known
            if named.owners is None:
                names &= names if self._is_dynamic else self.names
            elif not self._is_dynamic:
                others = known.difference(*[self._found_as.get(owner, ()) for owner in named.owners])
                names = {name for name in names if not self._accessed.get(name, others) <= others}
            named.known |= names
            yield from self._of_dict(named.entries, sorted(names))

    def _inside(self, x: object) -> Iterator[object]:
        if isinstance(x, Tensor):
            self.tensors[x] = None
            if hasattr(x, "__dict__"):  # a parameter, which may have more attributes
                self._by_name[id(x)] = _Named(x.__dict__, set(), [id(x)])
            if not is_foreign(type(x).__module__):
                yield type(x)
            if x._node is not None and x._node.hooks:
                yield from x._node.hooks.values()
        elif isinstance(x, Optimizer):
            self._tuned.append(x)
            held = Attributes(x, ("state", "defaults"))
            self._by_name[id(x)] = _Named(held, set(), [id(x)])
            for group in x.param_groups:
                self.tensors.update(dict.fromkeys(group["params"]))
            yield from self._of_optimizer(x)
        elif isinstance(x, LRScheduler):
            yield from self._of_scheduler(x)
        elif isinstance(x, types.FunctionType):
            yield from self._of_function(x)
        elif isinstance(x, (types.BuiltinMethodType, types.MethodWrapperType)):
            self.names.add(x.__name__)  # `hasattr`, say, under another name
            self._is_dynamic = self._is_dynamic or x is dir
            yield x.__self__
        elif isinstance(x, types.ModuleType):
            if is_users(x):
                self._by_name[id(x)] = _Named(vars(x), set(), None)
                yield from self._of_dict(Attributes(x, ("__class__",)), ("__class__",))
        elif isinstance(x, (functools.partial, types.MethodType, *WRAPPERS)):
            for name in ("func", "args", "keywords") if isinstance(x, functools.partial) else ():
                self.snapshot.keep_entry(Attributes(x, (name,)), name)  # `__setstate__` replaces them
            yield from parts_of(x)
        elif isinstance(x, CONTAINERS):
            yield from self._of_container(x)
        elif isinstance(x, np.ndarray):
            self.snapshot.keep_array(x)
            yield from objects_in(x)
        elif isinstance(x, os._Environ):
            yield x._data
        elif isinstance(x, type):
            yield from self._of_class(x)
        elif isinstance(x, Module):
            for registry in REGISTRIES:
                yield from self._of_container(x.__dict__[registry], is_ordered=registry == "_modules")
            yield from self._of_object(x, [name for name in x.__dict__ if name not in _HELD])
        elif isinstance(x, Hooks) or is_followed(x):
            yield from self._of_object(x, x.__dict__)
        if isinstance(x, CONTAINERS) and is_followed(x):
            yield from self._of_object(x, x.__dict__)
        if names := slots_of(x):
            yield from self._of_dict(Attributes(x, names), names)
            yield from self._of_class(type(x))
        if "__wrapped__" in getattr(x, "__dict__", ()) and not isinstance(x, (Tensor, Module)):
            if hasattr(x, "cache_clear"):
                self.caches.append(x)
            yield x.__wrapped__  # a compiled or a cached function

    def _of_container(
        self, x: list | tuple | Mapping | set | frozenset | deque, is_ordered: bool = True
    ) -> Iterator[object]:
        if isinstance(x, (list, set, deque)):
            self.snapshot.keep_items(x)
        if isinstance(x, Mapping):
            self.snapshot.keep_names(x, is_ordered)
        for name, item in zip(getattr(x, "_fields", ()), x, strict=False):
            self._found_as.setdefault(id(item), set()).add(name)
        yield from x  # also the keys of a dict
        if isinstance(x, Mapping):
            yield from self._of_dict(x, x)

    def _of_object(self, x: object, names: Iterable[str]) -> Iterator[object]:
        """Yields attributes of an object: of a user's class only those that functions name."""
        kind = type(x)
        self.snapshot.keep_names(x.__dict__)
        if not is_foreign(kind.__module__):
            self.snapshot.keep_entry(Attributes(x, ("__class__",)), "__class__")
        if not is_own(kind):
            if not is_foreign(kind.__module__):
                self._computed |= {name for base in kind.__mro__ for name in vars(base)}
            yield from self._of_dict(x.__dict__, names)
            yield from self._of_class(kind)
            return
        self._kinds.append(kind)
        implicit = _OF_MODULES if isinstance(x, Module) else set()
        yield from self._of_names(x, x, x.__dict__, [*names], implicit)
        for base in kind.__mro__:
            if not is_foreign(base.__module__):
                found = self.snapshot.keep_class(base)
                names = [name for name in found if name not in (*_OF_CLASSES, *_MAKES)]
                self._computed |= {name for name in names if hasattr(found[name], "__get__")}
                self._is_dynamic = self._is_dynamic or not _COMPUTE.isdisjoint(names)
                implicit = implicit | {name for name in names if name.startswith("__")}
                yield from self._of_names(base, x, found, names, implicit)

    def _of_names(
        self, key: object, owner: object, entries: Mapping, names: list[str], implicit: set[str]
    ) -> Iterator[object]:  # fmt: skip
        """Yields those attributes of an object, or of its class, that needn't be named; others as soon as a
        function names them."""
        if id(key) in self._by_name:
            self._by_name[id(key)].owners.append(id(owner))
            return
        self._by_name[id(key)] = _Named(entries, {*entries} - {*names} | implicit, [id(owner)])
        yield from self._of_dict(entries, [name for name in names if name in implicit])

    def _of_optimizer(self, x: Optimizer) -> Iterator[object]:
        """Yields methods that an optimizer has got, and what those of a user's may use."""
        self.snapshot.keep_parameters(x)
        self.snapshot.keep_names(x.__dict__)
        self.snapshot.keep_names(x._hooks)
        if is_foreign(type(x).__module__):
            yield from self._of_dict(x.__dict__, methods_of(x))
            return
        self._with_methods.append(x)
        yield from self._of_dict(x.__dict__, [name for name in x.__dict__ if name not in _OF_OPTIMIZERS])
        yield from self._of_class(type(x))

    def _of_scheduler(self, x: LRScheduler) -> Iterator[object]:
        """Yields methods that a schedule has got, and its optimizer; methods of its class run as they are."""
        self._tuned.append(x)
        self.snapshot.keep_names(x.__dict__)
        yield from self._of_dict(x.__dict__, methods_of(x))
        for base in type(x).__mro__:
            if not is_foreign(base.__module__):
                found = self.snapshot.keep_class(base)
                for name in found.keys() - _OF_CLASSES:
                    self.snapshot.keep_entry(found, name)
        yield x.optimizer

    def _of_class(self, kind: type) -> Iterator[object]:
        """Yields the attributes of a user's class and its bases."""
        if kind is type:
            self.asks_types = self._is_dynamic = self._makes = True
        if isinstance(kind, ABCMeta):
            self.snapshot.keep_registrations()
        if not is_foreign(type(kind).__module__):
            yield type(kind)
        left_out = {*_OF_CLASSES, "step"} if issubclass(kind, Optimizer) else _OF_CLASSES  # it runs as it is
        for base in kind.__mro__:
            if is_foreign(base.__module__):
                self._stored |= names_of_class(base)
            else:
                found = self.snapshot.keep_class(base)
                yield from self._of_dict(found, [name for name in found if name not in left_out])

    def _of_dict(self, entries: Mapping, names: Iterable[str]) -> Iterator[object]:
        for name in names:
            if name in entries and self.snapshot.keep_entry(entries, name):
                self.refusals.note_attribute(name, entries[name])
                yield self._found(name, entries[name])

    def _found(self, name: str, x: object) -> object:
        self._found_as.setdefault(id(x), set()).add(name)
        return x

    def _of_function(self, function: types.FunctionType) -> Iterator[object]:
        if function is os.getenv:
            yield os.environ
        if is_foreign(function.__module__) and not function.__module__.startswith("namedtuple_"):
            self._stored |= names_in(function.__code__)
            return
        for cell in function.__closure__ or ():
            if self.snapshot.keep_variable(cell):
                yield content(cell)
        yield from self._of_dict(Attributes(function, _OF_FUNCTIONS), _OF_FUNCTIONS)
        code = function.__code__
        names = names_in(code)
        if function.__dict__ or function.__name__ in {*names, *code.co_freevars}:  # which may give it some
            self.snapshot.keep_names(function.__dict__)
            is_ours = is_users(function)
            attributes = [x for x, y in function.__dict__.items() if is_ours or why_opaque(y) is None]
            yield from self._of_dict(function.__dict__, attributes)
        if not is_users(function):  # a user's in a wrapper of the package
            return
        self.refusals.note_function(function)
        for load in Loads(function, self.snapshot):
            self.refusals.note_load(load)
            yield self._found(load.name.rpartition(".")[2], load.value)
        self.names |= names
        self._stored |= stores_in(code)
        for name, before in attributes_in(code):
            self._accessed.setdefault(name, set()).add(before)
        self._is_dynamic = self._is_dynamic or gets_at_others(code, self.refusals.modules)
        self._makes = self._makes or gets_at_classes(code)
        self.asks_types = self.asks_types or "type" in globals_in(code)
        self.asks_identity = self.asks_identity or compares_identity(code)
