"""What a function can be seen to use: the tensors of its state, and the Python values that it depends on."""

from __future__ import annotations

import dis
import functools
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...nn.hooks import Hooks
from ...nn.module import REGISTRIES, Module
from ...optim.optimizer import Optimizer
from .places import MISSING, Comparison, Place, Slots, content

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_KINDS = (*_PLAIN, list, tuple, dict, Tensor, Module, types.FunctionType)  # of attributes of classes
KINDS = (float, int)  # of numbers that may be inputs
_HELD = {*REGISTRIES, "_non_persistent_buffers_set"}  # a module's own, which are never replaced
_LONGEST = 10_000  # what has more items isn't searched
_WRITABLE = (dict, types.CellType, Slots)  # holders, which the namespace of a class isn't
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions of Python that load a global
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


class Reachable:
    """Walks from a function through its closure, the globals that it names, the object that it is a method
    of, modules and their hooks, containers, dataclasses and instances of the user's classes.

    Code of Python, NumPy, mytorch and installed packages is taken as constant.

    Args:
        roots: what a function uses for certain.
        inputs: where values may change.

    Attributes:
        tensors: what it found.
        iterators: the places of iterators that aren't objects of a user's class.
        asks_types: whether a function calls `type`, so that what stands for a number isn't as good as one.
        names: of globals and attributes in the functions that it found.
        seen: all objects that it found, by their ids; may be cleared.
    """

    def __init__(self, *roots: object, inputs: Container[Place] = ()):
        self._inputs = inputs
        self.tensors: dict[Tensor, None] = {}
        self.iterators: list[Place] = []
        self.asks_types = False
        self.names: set[str] = set()
        self._entries: tuple[list[Mapping], list[object], list] = [], [], []  # with a name, what it was
        self._cells: tuple[list[types.CellType], list[object]] = [], []
        self._lists: list[tuple[Any, tuple]] = []  # and sets and deques
        self._arrays: list[tuple[np.ndarray, bytes]] = []  # with their elements
        self._classes: dict[int, type] = {}  # by the ids of their attributes
        self._whole: tuple[list[object], list[int], list[frozenset]] = [], [], []  # with length and names
        self._is_same: Callable[[], bool] | None = None
        self.seen = seen = {}  # the ids hold as long as the objects are here
        waiting = list(roots)
        while waiting:
            x = waiting.pop()
            if isinstance(x, _PLAIN) or id(x) in seen:
                continue
            seen[id(x)] = x
            waiting += self._inside(x)

    def change(self) -> str | None:
        """Returns what of it has changed since, as "x is 3, was 2"; None if nothing has."""
        if self._is_same is None:
            self._is_same = self._comparison()
        try:  # most often nothing has
            same = self._is_same()
        except (KeyError, ValueError):
            same = False
        if not same and (change := self._first_change()) is not None:
            return change
        for items, was in self._lists:
            if not _same(tuple(items), was):
                return f"the items of a {type(items).__name__} have changed"
        if any([x.tobytes() != was for x, was in self._arrays]):
            return "the elements of a NumPy array have changed"
        return None

    def forget(self, used: Iterable[np.ndarray]) -> None:
        """Leaves out NumPy arrays whose memory the program itself reads, each time it runs."""
        used = [x for x in used if isinstance(x, np.ndarray)]
        read = [any([np.may_share_memory(x, y) for y in used]) for x, _ in self._arrays]
        self._arrays = [found for found, is_read in zip(self._arrays, read, strict=True) if not is_read]

    def _comparison(self) -> Callable[[], bool]:
        """Returns whether all of it, without the items of lists, is the same objects."""
        comparison = Comparison()
        name = comparison.name
        for entries, key, was in zip(*self._entries, strict=True):
            comparison.terms.append(f"{name(entries)}[{name(key)}] is {name(was)}")
        for cell, was in zip(*self._cells, strict=True):
            comparison.terms.append(f"{name(cell)}.cell_contents is {name(was)}")
        for x, count, _ in zip(*self._whole, strict=True):
            comparison.terms.append(f"len({name(x)}) == {count}")
        return comparison.compiled()

    def undo(self) -> str | None:
        """Restores what has changed, in a capture, and returns what it was; None if nothing has."""
        change = self.change()
        if change is None:
            return None
        for entries, name, was in zip(*self._entries, strict=True):
            if entries.get(name, MISSING) is was:
                continue
            if isinstance(entries, (dict, Slots)):
                entries[name] = was
            else:
                setattr(self._classes[id(entries)], name, was)
        for cell, was in zip(*self._cells, strict=True):
            if was is not MISSING:
                cell.cell_contents = was
        for items, was in self._lists:
            if isinstance(items, list):
                items[:] = was
            else:
                items.clear()
                (items.update if isinstance(items, set) else items.extend)(was)
        for x, was in self._arrays:
            if x.tobytes() != was:
                x[...] = np.frombuffer(was, x.dtype).reshape(x.shape)
        for entries, _, names in zip(*self._whole, strict=True):
            for name in entries.keys() - names if isinstance(entries, dict) else ():
                del entries[name]
        return change

    def _first_change(self) -> str | None:
        for entries, name, was in zip(*self._entries, strict=True):
            now = entries.get(name, MISSING)
            if not _same(now, was):
                return _described(name, now, was)
        for cell, was in zip(*self._cells, strict=True):
            now = content(cell)
            if not _same(now, was):
                return _described("a variable of a closure", now, was)
        if any([len(x) != count for x, count, _ in zip(*self._whole, strict=True)]):
            return "an object has other attributes, or a dict other keys"
        return None

    def changed_numbers(self) -> set[Place]:
        """Returns the places of numbers that are others of their kind now, if nothing else has changed."""
        changed = [
            (Place(entries, name), now, was, isinstance(entries, dict))
            for entries, name, was in zip(*self._entries, strict=True)
            if not _same(now := entries.get(name, MISSING), was)
        ]
        cells = zip(*self._cells, strict=True)
        changed += [(Place(x), now, was, True) for x, was in cells if not _same(now := content(x), was)]
        only = all([type(now) is type(was) and type(now) in KINDS and ours for _, now, was, ours in changed])
        only = only and all([len(x) == count for x, count, _ in zip(*self._whole, strict=True)])
        only = only and all([_same(tuple(items), was) for items, was in self._lists])
        return {place for place, *_ in changed} if only else set()

    def _inside(self, x: object) -> Iterator[object]:
        if isinstance(x, Tensor):
            self.tensors[x] = None
        elif isinstance(x, Optimizer):
            for group in x.param_groups:
                self.tensors.update(dict.fromkeys(group["params"]))
        elif isinstance(x, types.FunctionType):
            yield from self._of_function(x)
        elif isinstance(x, types.MethodType):
            yield from (x.__self__, x.__func__)
        elif isinstance(x, functools.partial):
            yield from (x.func, x.args, x.keywords)
        elif isinstance(x, (list, tuple, dict, set, frozenset, deque)):
            yield from self._of_container(x)
        elif isinstance(x, np.ndarray):
            if x.size <= _LONGEST and x.dtype.kind in "biufc":
                self._arrays.append((x, x.tobytes()))
        elif isinstance(x, type):
            yield from self._of_class(x)
        elif isinstance(x, Module):
            for registry in REGISTRIES:
                yield from self._of_container(x.__dict__[registry])
            yield from self._of_object(x, x.__dict__.keys() - _HELD)
        elif isinstance(x, Hooks) or _is_users(x):
            yield from self._of_object(x, x.__dict__)
        if names := _slots_of(x):
            yield from self._of_dict(Slots(x, names), names)
            yield from self._of_class(type(x))
        if "__wrapped__" in getattr(x, "__dict__", ()) and not isinstance(x, (Tensor, Module)):
            yield x.__wrapped__  # a compiled or a cached function

    def _of_container(self, x: list | tuple | dict | set | frozenset | deque) -> Iterator[object]:
        if isinstance(x, dict):
            self._keep_names(x)
        if len(x) > _LONGEST:  # data
            return
        if isinstance(x, dict):
            yield from self._of_dict(x, x)
            return
        if isinstance(x, (list, set, deque)):
            self._lists.append((x, tuple(x)))
        yield from x

    def _of_object(self, x: object, names: Iterable[str]) -> Iterator[object]:
        self._keep_names(x.__dict__)
        yield from self._of_dict(x.__dict__, names)
        yield from self._of_class(type(x))

    def _of_class(self, kind: type) -> Iterator[object]:
        """Yields the functions, and other attributes, of a user's class and its bases."""
        for base in kind.__mro__:
            if not is_foreign(base.__module__):
                found = vars(base)
                self._classes[id(found)] = base
                yield from self._of_dict(found, [name for name in found if isinstance(found[name], _KINDS)])
                for x in found.values():
                    yield from filter(None, (getattr(x, "__func__", None), getattr(x, "fget", None)))

    def _of_dict(self, entries: Mapping, names: Iterable[str]) -> Iterator[object]:
        for name in names:
            if name in entries and not (self._inputs and Place(entries, name) in self._inputs):
                for kept, x in zip(self._entries, (entries, name, entries[name]), strict=True):
                    kept.append(x)
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
            if self._inputs and Place(cell) in self._inputs:
                continue
            self._cells[0].append(cell)
            self._cells[1].append(content(cell))
            self._note_iterator(content(cell), cell)
            yield content(cell)
        yield from (function.__defaults__ or (), function.__kwdefaults__ or {})
        if function.__dict__:
            self._keep_names(function.__dict__)
            yield from self._of_dict(function.__dict__, function.__dict__)
        names = names_in(function.__code__)
        self.names |= names
        self.asks_types = self.asks_types or ("type" in names and _calls_type(function.__code__))
        for x in [*self._of_dict(function.__globals__, globals_in(function.__code__))]:
            if isinstance(x, types.ModuleType):
                yield from () if is_foreign(x.__name__) else self._of_dict(vars(x), names)
            else:
                yield x

    def _keep_names(self, entries: dict) -> None:
        for kept, x in zip(self._whole, (entries, len(entries), frozenset(entries)), strict=True):
            kept.append(x)


def names_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in a function and in those that are defined in it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names


def _calls_type(code: types.CodeType) -> bool:
    """Whether it is the function `type` that is named, and no attribute."""
    if any([i.argval == "type" and i.opname.startswith(_LOADS) for i in dis.get_instructions(code)]):
        return True
    return any([_calls_type(x) for x in code.co_consts if isinstance(x, types.CodeType)])


def globals_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals alone: `optimizer.step` isn't a global function `step`."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = [globals_in(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return names.union(*inner)


@functools.cache
def is_foreign(module: str | None) -> bool:
    """Whether a module is Python's, the package's, or that of an installed package."""
    root = (module or "").partition(".")[0]
    if root in ("argparse", "types"):  # their namespaces hold options
        return False
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return root in ("numpy", "mytorch") or root in sys.stdlib_module_names or file.startswith(_INSTALLED)


def _is_users(x: object) -> bool:
    """Whether it is a dataclass, or an instance of a user's class."""
    has_attributes = hasattr(x, "__dict__") and not isinstance(x, types.ModuleType)
    return has_attributes and (is_dataclass(x) or not is_foreign(type(x).__module__))


def _slots_of(x: object) -> list[str]:
    """Returns the names of the attributes for which a user's class, or a base of it, has slots."""
    bases = [base for base in type(x).__mro__ if not is_foreign(base.__module__)]
    slots = [vars(base).get("__slots__", ()) for base in bases]
    names = [name for found in slots for name in ((found,) if isinstance(found, str) else found)]
    return [name for name in names if not name.startswith("__")]


def _same(now: object, was: object) -> bool:
    if now is was:
        return True
    if type(now) is not type(was):
        return False
    if isinstance(now, tuple):
        return len(now) == len(was) and all(map(_same, now, was))
    if isinstance(now, (float, complex)):
        return repr(now) == repr(was)  # -0.0 is another number than 0.0
    return isinstance(now, _PLAIN) and now == was


def _described(name: object, now: object, was: object) -> str:
    if isinstance(now, _PLAIN) and isinstance(was, _PLAIN):
        return f"{name} is {now!r}, was {was!r}"
    return f"{name} is another object"
