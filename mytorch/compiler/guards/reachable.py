"""What a function can be seen to use: the tensors of its state, and the Python values that it depends on."""

from __future__ import annotations

import functools
import os
import types
from abc import ABCMeta
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...nn.hooks import Hooks
from ...nn.module import REGISTRIES, Module
from ...optim.lr_scheduler import LRScheduler
from ...optim.optimizer import Optimizer
from .allowed import CONTAINERS, MAPPINGS, WRAPPERS, objects_in, parts_of, why_opaque
from .array_reads import ArrayReads
from .bytecode import Uses, names_in, names_of_class
from .loads import Load, Loads
from .modules import is_foreign, is_numeric, is_users
from .named_attributes import NamedAttributes, has_own_attributes, is_followed, methods_of, slots_of
from .places import Attributes, Place, Variable, content
from .snapshot import Snapshot
from .state_guards import PLAIN

_RATES = {"param_groups", "get_last_lr", "_last_lr", "last_epoch"}
_HELD = {*REGISTRIES, "_non_persistent_buffers_set"}  # containers of a module that are never replaced
_LISTS_BUFFERS = {"state_dict", "load_state_dict"}  # which leave out the buffers that aren't persistent
_OF_CLASSES = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__"}
_OF_OPTIMIZERS = {"state", "defaults", "param_groups", "pending_clip", "_group_states", "_hooks", "_stepped"}
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
_DESCRIBE = {"__name__", "__qualname__", "__doc__", "__annotations__", "__module__"}
_MAKES = ("__init__", "__new__", "__post_init__")  # methods that have run for objects which are there
_COMPUTE = {"__getattr__", "__getattribute__"}
_OF_MODULES = {*dir(Module), "forward", "training"}  # names by which the package gets at a module


class Reachable:
    """Walks from a function through its closure, the globals that it names, the object that it is a method
    of, modules and their hooks, containers, dataclasses and instances of the user's classes.

    Of the user's classes and their instances only the attributes count that a function names, unless one gets
    at attributes by `getattr` or the like. Code of Python, NumPy and mytorch is taken as
    constant; installed packages are followed as the user's own code. Opaque objects aren't: see `allowed`.

    Args:
        roots: the objects that a function uses for certain.
        inputs: the places where values may change.

    Attributes:
        snapshot: the guards of the values that were found.
        tensors: the tensors that were found.
        functions: the user's functions that may run.
        loads: what they load by names.
        modules: where they load modules whose functions compute, by the id of the code, and the offset.
        opaque: the opaque attributes of objects, by name.
        caches: functions that keep their results (`functools.lru_cache`).
        uses: what the code of the functions uses.
        seen: all objects that were found, by their ids; may be cleared.
    """

    def __init__(self, *roots: object, inputs: Container[Place] = ()):
        self.snapshot = Snapshot(inputs)
        self.tensors: dict[Tensor, None] = {}
        self.functions: list[types.FunctionType] = []
        self.loads: list[Load] = []
        self.modules: set[tuple[int, int]] = set()
        self.opaque: dict[str, str] = {}
        self.caches: list[Any] = []
        self.uses = Uses()
        self._attributes, self._array_reads = NamedAttributes(self.uses), ArrayReads()
        self._tuned: list[Optimizer | LRScheduler] = []
        self._with_methods: list[Optimizer] = []
        self._kinds: list[type] = []  # of objects
        self.seen: dict[int, object] = {}  # the ids hold as long as the objects are here
        self._walk([*reversed(roots)])
        self._guard_descriptions()
        self._guard_absent_names()

    @property
    def reads_rates(self) -> bool:
        """Whether a function names the options of optimizers, or what schedules hold."""
        return not self.uses.names.isdisjoint(_RATES)

    def _walk(self, waiting: list[object]) -> None:
        while waiting or (waiting := [*self._later()]):
            x = waiting.pop()
            if isinstance(x, str):
                self.uses.stored.add(x)  # which may be the name of a field
            if type(x) in PLAIN or id(x) in self.seen or why_opaque(x) is not None:
                continue
            self.seen[id(x)] = x
            waiting += reversed([*self._inside(x)])  # parameters shall be found in their order

    def _later(self) -> Iterator[object]:
        """Yields what is found by the names that functions have: in Python's modules, in objects and their
        classes, and the options of optimizers, which need not be the same where `step()` alone reads them."""
        found = [x for named in self._attributes.unfollowed() for x in self._of_dict(*named)]
        yield from found
        for named in self._attributes.unfollowed_elsewhere() if not found else ():
            yield from self._of_dict(*named)
        while self.reads_rates and self._tuned:
            yield from self._of_rates(self._tuned.pop())
        while "state" in self.uses.names and self._with_methods:
            yield self._with_methods.pop().state
        while self.uses.gets_at_classes and self._kinds:
            yield self._kinds.pop()  # with what makes its objects

    def _inside(self, x: object) -> Iterator[object]:
        """Yields the objects of which one consists, and guards them."""
        for kinds, follow in _FOLLOW:
            if isinstance(x, kinds):
                yield from follow(self, x)
                break
        if names := slots_of(x):
            for name in names:
                self.snapshot.guard_attribute(x, name)  # or that it has no value
            yield from self._of_dict(Attributes(x, names), names)
            yield from self._of_class(type(x))
        if "__wrapped__" in getattr(x, "__dict__", ()) and not isinstance(x, (Tensor, Module)):
            if hasattr(x, "cache_clear"):
                self.caches.append(x)
            yield x.__wrapped__  # a compiled or a cached function

    # What is inside of an object, for each kind of objects.

    def _of_tensor(self, x: Tensor) -> Iterator[object]:
        self.tensors[x] = None
        if hasattr(x, "__dict__"):  # a parameter, which may have more attributes
            self._attributes.add(x, x.__dict__, x.__dict__, (), x)
        if not is_foreign(type(x).__module__):
            yield type(x)
        if x._node is not None and x._node.hooks:
            yield from x._node.hooks.values()

    def _of_bound(self, x: types.BuiltinMethodType | types.MethodWrapperType) -> Iterator[object]:
        self.uses.names.add(x.__name__)  # `hasattr`, say, under another name
        self.uses.is_dynamic = self.uses.is_dynamic or x is dir
        yield x.__self__

    def _of_python_module(self, x: types.ModuleType) -> Iterator[object]:
        if is_users(x):
            self._attributes.add(x, vars(x), vars(x))
            yield from self._of_dict(Attributes(x, ("__class__",)), ("__class__",))

    def _of_wrapper(self, x: object) -> Iterator[object]:
        for name in ("func", "args", "keywords") if isinstance(x, functools.partial) else ():
            self.snapshot.guard_attribute(x, name)  # `__setstate__` replaces them
        yield from parts_of(x)

    def _of_array(self, x: np.ndarray) -> Iterator[object]:
        self.snapshot.guard_array(x)
        yield from objects_in(x)

    def _of_environment(self, x: os._Environ) -> Iterator[object]:
        yield x._data

    def _of_container(self, x: Any) -> Iterator[object]:
        yield from self._of_items(x)
        yield from self._of_instance(x)

    def _of_items(self, x: Any, is_ordered: bool = True) -> Iterator[object]:
        is_mapping = isinstance(x, MAPPINGS)
        if is_mapping:
            self.snapshot.guard_names(x, is_ordered)
        elif not isinstance(x, (tuple, frozenset)):
            self.snapshot.guard_items(x)
        for name, item in zip(getattr(x, "_fields", ()), x, strict=False):
            self._attributes.found(name, item)
        self._array_reads.add_items(x.values() if is_mapping else x)
        yield from x  # also the keys of a dict
        if is_mapping:
            yield from self._of_dict(x, x)

    def _of_module(self, x: Module) -> Iterator[object]:
        for registry in REGISTRIES:
            yield from self._of_items(x.__dict__[registry], is_ordered=registry == "_modules")
        yield from self._of_object(x, [name for name in x.__dict__ if name not in _HELD])

    def _of_instance(self, x: object) -> Iterator[object]:
        if isinstance(x, Hooks) or is_followed(x):
            yield from self._of_object(x, x.__dict__)

    def _of_object(self, x: object, names: Iterable[str]) -> Iterator[object]:
        """Yields attributes of an object: of a user's class only the attributes that functions name."""
        kind = type(x)
        self.snapshot.guard_names(x.__dict__)
        if not is_foreign(kind.__module__):
            self.snapshot.guard_attribute(x, "__class__")
        if has_own_attributes(kind):
            yield from self._of_own_attributes(x, [*names])
            return
        if not is_foreign(kind.__module__):
            self._attributes.add_computed(name for base in kind.__mro__ for name in vars(base))
        yield from self._of_dict(x.__dict__, names)
        yield from self._of_class(kind)

    def _of_own_attributes(self, x: object, names: list[str]) -> Iterator[object]:
        self._kinds.append(type(x))
        implicit = _OF_MODULES if isinstance(x, Module) else set()
        yield from self._of_names(x, x, x.__dict__, names, implicit)
        for base in type(x).__mro__:
            if not is_foreign(base.__module__):
                found = self.snapshot.guard_class(base)
                names = [name for name in found if name not in (*_OF_CLASSES, *_MAKES)]
                self._attributes.add_computed(name for name in names if hasattr(found[name], "__get__"))
                self.uses.is_dynamic = self.uses.is_dynamic or not _COMPUTE.isdisjoint(names)
                implicit = implicit | {name for name in names if name.startswith("__")}
                yield from self._of_names(base, x, found, names, implicit)

    def _of_names(
        self, key: object, owner: object, entries: Mapping, names: list[str], implicit: set[str]
    ) -> Iterator[object]:
        """Yields those attributes of an object, or of its class, that needn't be named; others as soon as a
        function names them."""
        if self._attributes.add(key, entries, names, implicit, owner):
            yield from self._of_dict(entries, [name for name in names if name in implicit])

    def _of_optimizer(self, x: Optimizer) -> Iterator[object]:
        """Yields methods that an optimizer has got, and what those of a user's may use."""
        self._tuned.append(x)
        held = Attributes(x, ("state", "defaults"))
        self._attributes.add(x, held, held, (), x)
        for group in x.param_groups:
            self.tensors.update(dict.fromkeys(group["params"]))
        self.snapshot.guard_parameters(x)
        self.snapshot.guard_names(x.__dict__)
        self.snapshot.guard_names(x._hooks)
        if is_foreign(type(x).__module__):
            yield from self._of_dict(x.__dict__, methods_of(x))
            return
        self._with_methods.append(x)
        yield from self._of_dict(x.__dict__, [name for name in x.__dict__ if name not in _OF_OPTIMIZERS])
        yield from self._of_class(type(x))

    def _of_scheduler(self, x: LRScheduler) -> Iterator[object]:
        """Yields methods that a schedule has got, and its optimizer; methods of its class run as they are."""
        self._tuned.append(x)
        self.snapshot.guard_names(x.__dict__)
        yield from self._of_dict(x.__dict__, methods_of(x))
        for base in type(x).__mro__:
            if not is_foreign(base.__module__):
                found = self.snapshot.guard_class(base)
                for name in found.keys() - _OF_CLASSES:
                    self.snapshot.guard(Place(found, name))
        yield x.optimizer

    def _of_rates(self, x: Optimizer | LRScheduler) -> Iterator[object]:
        """Yields the options of an optimizer, or what a schedule holds."""
        if isinstance(x, Optimizer):  # whose load_state_dict() makes other dicts
            self.snapshot.guard_attribute(x, "param_groups")
            self.snapshot.guard_items(x.param_groups)
        for options in x.param_groups if isinstance(x, Optimizer) else [x.__dict__]:
            yield from self._of_dict(options, [x for x in options if x not in ("params", "optimizer")])

    def _of_class(self, kind: type) -> Iterator[object]:
        """Yields the attributes of a user's class and its bases."""
        if kind is type:
            self.uses.add_type()
        if isinstance(kind, ABCMeta):
            self.snapshot.guard_registrations()
        if not is_foreign(type(kind).__module__):
            yield type(kind)
        left_out = {*_OF_CLASSES, "step"} if issubclass(kind, Optimizer) else _OF_CLASSES  # it runs as it is
        for base in kind.__mro__:
            if is_foreign(base.__module__):
                self.uses.stored |= names_of_class(base)
            else:
                found = self.snapshot.guard_class(base)
                yield from self._of_dict(found, [name for name in found if name not in left_out])

    def _of_dict(self, entries: Mapping, names: Iterable[str]) -> Iterator[object]:
        for name in names:
            if name in entries and self.snapshot.guard(Place(entries, name)):
                x = self._attributes.found(name, entries[name])
                if isinstance(name, str) and (text := why_opaque(x)) is not None:
                    self.opaque[name] = text
                yield x

    def _of_function(self, function: types.FunctionType) -> Iterator[object]:
        if function is os.getenv:
            yield os.environ
        if is_foreign(function.__module__) and not function.__module__.startswith("namedtuple_"):
            self.uses.stored |= names_in(function.__code__)
            return
        for cell in function.__closure__ or ():
            if self.snapshot.guard(Variable(cell)):
                yield content(cell)
        yield from self._of_dict(Attributes(function, _OF_FUNCTIONS), _OF_FUNCTIONS)
        yield from self._of_attributes(function)
        if is_users(function):  # and none of a wrapper of the package
            yield from self._of_code(function)

    def _of_attributes(self, function: types.FunctionType) -> Iterator[object]:
        names = {*function.__code__.co_freevars, *names_in(function.__code__)}
        if function.__dict__ or function.__name__ in names:  # which may give it some
            self.snapshot.guard_names(function.__dict__)
            found = {x: y for x, y in function.__dict__.items() if is_users(function) or not why_opaque(y)}
            yield from self._of_dict(function.__dict__, found)

    def _of_code(self, function: types.FunctionType) -> Iterator[object]:
        """Yields what the instructions of a function load."""
        self.functions.append(function)
        loads = [*Loads(function, self.snapshot)]
        for load in loads:
            if isinstance(load.value, types.ModuleType) and is_numeric(load.value):
                self.modules.add((id(load.code), load.offset))
            yield self._attributes.found(load.name.rpartition(".")[2], load.value)
        self.loads += loads
        self.uses.add(function.__code__, self.modules)
        self._array_reads.add_loads(function.__code__, loads)

    def forget_shared_arrays(self, used: Iterable[object]) -> None:
        """Leaves out the guards of NumPy arrays that functions only make tensors of, whose memory the program
        itself reads, each time that it runs."""
        found = [x for x in self.seen.values() if isinstance(x, np.ndarray) and not self.uses.is_dynamic]
        shared = [x for x in found if self._array_reads.only_shares(x, self._attributes.names_of(x))]
        used = [x for x in used if isinstance(x, np.ndarray)]
        self.snapshot.forget_arrays([x for x in shared if any([np.may_share_memory(x, y) for y in used])])

    # What is guarded at the end, when it is known what functions name.

    def _guard_descriptions(self) -> None:
        """Guards the names of functions and classes, their docstrings and annotations, if functions ask."""
        names = sorted(_DESCRIBE & self.uses.names)
        for x in [*self.seen.values(), *self.snapshot.classes] if names else ():
            if isinstance(x, (type, types.FunctionType)) and not is_foreign(x.__module__):
                self._guard_description(x, names)

    def _guard_description(self, x: type | types.FunctionType, names: list[str]) -> None:
        if isinstance(x, type) and "__annotations__" not in vars(x):  # to ask would make them
            names = [name for name in names if name != "__annotations__"]
        for name in names:
            self.snapshot.guard_attribute(x, name)
        for found in [x.__annotations__] if "__annotations__" in names else []:
            self.snapshot.guard_names(found, True)
            for name in found:
                self.snapshot.guard(Place(found, name))

    def _guard_absent_names(self) -> None:
        """Guards which attributes objects have, if functions may ask for some that aren't there."""
        asks = self.uses.is_dynamic or "hasattr" in self.uses.names
        lists_buffers = self.uses.is_dynamic or not self.uses.names.isdisjoint(_LISTS_BUFFERS)
        if asks or "getattr" in self.uses.names:
            for x in filter(_has_names, self.seen.values()):
                self.snapshot.guard_names(vars(x))
        for x in [x for x in self.seen.values() if isinstance(x, Module)]:
            for kind in type(x).__mro__[:-1] if asks else ():
                self.snapshot.guard_class(kind)
            if lists_buffers:
                self.snapshot.guard_items(x._non_persistent_buffers_set)


# Kinds of objects, and what follows one: the first that fits.
_FOLLOW: tuple[tuple[Any, Callable[[Reachable, Any], Iterator[object]]], ...] = (
    (Tensor, Reachable._of_tensor),
    (Optimizer, Reachable._of_optimizer),
    (LRScheduler, Reachable._of_scheduler),
    (types.FunctionType, Reachable._of_function),
    ((types.BuiltinMethodType, types.MethodWrapperType), Reachable._of_bound),
    (types.ModuleType, Reachable._of_python_module),
    ((functools.partial, types.MethodType, *WRAPPERS), Reachable._of_wrapper),
    (CONTAINERS, Reachable._of_container),
    (np.ndarray, Reachable._of_array),
    (os._Environ, Reachable._of_environment),
    (type, Reachable._of_class),
    (Module, Reachable._of_module),
    (object, Reachable._of_instance),
)


def _has_names(x: object) -> bool:
    """Returns whether functions may ask an object for attributes that aren't guarded otherwise."""
    if isinstance(x, (types.FunctionType, types.ModuleType)):
        return is_users(x)
    return isinstance(x, functools.partial) or (isinstance(x, Tensor) and hasattr(x, "__dict__"))
