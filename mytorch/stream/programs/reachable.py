"""What a function can be seen to use: the tensors of its state, and the Python values that it depends on."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from operator import attrgetter, getitem, is_
from typing import Any

from ...core.tensor import Tensor
from ...nn.module import REGISTRIES, Module
from ...optim.optimizer import Optimizer

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_HELD = {*REGISTRIES, "_non_persistent_buffers_set"}  # a module's own, which are never replaced
_LONGEST = 10_000  # what has more items isn't searched
_MISSING = object()
_cell_content = attrgetter("cell_contents")


class Reachable:
    """Walks from a function through its closure, the globals that it names, the object that it is a method
    of, modules, containers, dataclasses and instances of classes outside of mytorch.

    Attributes:
        tensors: what it found.
    """

    def __init__(self, *roots: Any):
        self.tensors: dict[Tensor, None] = {}
        self._dicts: list[dict] = []  # with a name in each, and what it was
        self._names: list[Any] = []
        self._values: list[Any] = []
        self._cells: list[types.CellType] = []
        self._contents: list[Any] = []
        self._lists: list[tuple[list, tuple]] = []
        self._whole: list[tuple[dict, frozenset]] = []  # with all names in each
        seen: dict[int, Any] = {}  # by their ids, which hold as long as the objects are here
        waiting = list(roots)
        while waiting:
            x = waiting.pop()
            if isinstance(x, _PLAIN) or id(x) in seen:
                continue
            seen[id(x)] = x
            waiting += self._inside(x)

    def change(self) -> str | None:
        """Returns what of it has changed since, as "x is 3, was 2"; None if nothing has."""
        try:  # most often nothing has
            same = all(map(is_, map(getitem, self._dicts, self._names), self._values))
            same = same and all(map(is_, map(_cell_content, self._cells), self._contents))
        except (KeyError, ValueError):
            same = False
        if not same and (change := self._first_change()) is not None:
            return change
        for items, was in self._lists:
            if len(items) != len(was) or not all(map(_same, items, was)):
                return "the items of a list have changed"
        return None

    def undo(self) -> str | None:
        """Restores what has changed, in a capture, and returns what it was; None if nothing has."""
        change = self.change()
        for entries, name, was in zip(self._dicts, self._names, self._values, strict=True):
            entries[name] = was
        for cell, was in zip(self._cells, self._contents, strict=True):
            if was is not _MISSING:
                cell.cell_contents = was
        for items, was in self._lists:
            items[:] = was
        for entries, names in self._whole:
            for name in entries.keys() - names:
                change = change or f"{name} is new"
                del entries[name]
        return change

    def _first_change(self) -> str | None:
        for entries, name, was in zip(self._dicts, self._names, self._values, strict=True):
            now = entries.get(name, _MISSING)
            if not _same(now, was):
                return _described(name, now, was)
        for cell, was in zip(self._cells, self._contents, strict=True):
            now = _content(cell)
            if not _same(now, was):
                return _described("a variable of a closure", now, was)
        return None

    def _inside(self, x: Any) -> Iterator[Any]:
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
        elif isinstance(x, (list, tuple, dict)) and len(x) > _LONGEST:
            return  # data
        elif isinstance(x, (list, tuple)):
            if isinstance(x, list):
                self._lists.append((x, tuple(x)))
            yield from x
        elif isinstance(x, dict):
            yield from self._of_dict(x, x)
            self._whole.append((x, frozenset(x)))
        elif isinstance(x, Module):
            yield from self._of_dict(x.__dict__, x.__dict__.keys() - _HELD)
            self._whole.append((x.__dict__, frozenset(x.__dict__)))
            for registry in REGISTRIES:
                yield from self._of_dict(x.__dict__[registry], x.__dict__[registry])
        elif _is_users(x):
            yield from self._of_dict(x.__dict__, x.__dict__)
            self._whole.append((x.__dict__, frozenset(x.__dict__)))

    def _of_dict(self, entries: dict, names: Any) -> Iterator[Any]:
        for name in names:
            if isinstance(name, (str, int)) and name in entries:
                self._dicts.append(entries)
                self._names.append(name)
                self._values.append(entries[name])
                yield entries[name]

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        if (function.__module__ or "").partition(".")[0] in ("mytorch", "numpy"):
            return
        for cell in function.__closure__ or ():
            self._cells.append(cell)
            self._contents.append(_content(cell))
            yield _content(cell)
        yield from (function.__defaults__ or (), function.__kwdefaults__ or {})
        yield from self._of_dict(function.__globals__, names_in(function.__code__))


def names_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in a function and in those that are defined in it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


def _is_users(x: Any) -> bool:
    """Whether it is a dataclass, or an instance of a class that is neither Python's nor the package's."""
    if isinstance(x, (type, types.ModuleType)) or not hasattr(x, "__dict__"):
        return False
    root = type(x).__module__.partition(".")[0]
    return is_dataclass(x) or root not in ("builtins", "numpy", "mytorch", "functools")


def _same(now: Any, was: Any) -> bool:
    return now is was or (type(now) is type(was) and isinstance(now, (*_PLAIN, tuple)) and now == was)


def _described(name: Any, now: Any, was: Any) -> str:
    if isinstance(now, _PLAIN) and isinstance(was, _PLAIN):
        return f"{name} is {now!r}, was {was!r}"
    return f"{name} is another object"
