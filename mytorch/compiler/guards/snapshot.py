"""Python values that a program depends on, as they were in its capture: are they still, and which has the
function itself changed?"""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Container, Iterable, Mapping
from operator import is_
from typing import Any

import numpy as np

from .places import MISSING, Attributes, Comparison, Place, content

PLAIN = (bool, int, float, complex, str, bytes, type(None))
KINDS = (float, int)  # of numbers that may be inputs
LONGEST = 10_000  # more items of a container aren't compared in each call
LASTING = ("_parameters", "_buffers", "_modules", "_hooks", "_non_persistent_buffers_set")  # of modules


class Snapshot:
    """Entries of dicts, attributes, variables of closures, and the items of lists and arrays.

    Args:
        inputs: where values may change.

    Attributes:
        classes: those whose attributes are kept, with these.
    """

    def __init__(self, inputs: Container[Place] = ()):
        self._inputs = inputs
        self._entries: tuple[list[Mapping], list[object], list] = [], [], []  # with a name, what it was
        self._kept: set[tuple[int, object]] = set()  # by the ids of the mappings, and names
        self._cells: tuple[list[types.CellType], list[object]] = [], []
        self._lists: list[tuple[Any, tuple]] = []  # and deques
        self._sets: list[tuple[set, tuple]] = []
        self._optimizers: list[tuple[Any, list[dict], list[list]]] = []  # with groups, and their parameters
        self._arrays: list[tuple[np.ndarray, np.ndarray, bytes]] = []  # with a copy, and its elements
        self._layouts: list[tuple[np.ndarray, tuple]] = []  # of all arrays
        self.classes: dict[type, Mapping] = {}
        self._mros: list[tuple[type, tuple]] = []
        self._has_abstract, self._token = False, abc.get_cache_token()  # counts what is registered
        self._whole: list[tuple[Mapping, tuple, bool]] = []  # with names, and whether their order matters
        self._is_same: Callable[[], bool] | None = None

    # What is kept.

    def keep_entry(self, entries: Mapping, name: object) -> bool:
        """Keeps an entry, or that there is none, unless it is an input; returns whether it did."""
        if self._inputs and Place(entries, name) in self._inputs:
            return False
        key = id(entries.owner if isinstance(entries, Attributes) else entries), type(name), name
        if key not in self._kept:
            self._kept.add(key)
            for kept, x in zip(self._entries, (entries, name, entries.get(name, MISSING)), strict=True):
                kept.append(x)
        return True

    def keep_cell(self, cell: types.CellType) -> bool:
        """Keeps a variable of a closure, unless it is an input; returns whether it did."""
        if self._inputs and Place(cell) in self._inputs:
            return False
        self._cells[0].append(cell)
        self._cells[1].append(content(cell))
        return True

    def keep_class(self, kind: type) -> Mapping:
        """Keeps the bases of a class, and which attributes it has; returns these, which can then be kept."""
        if kind not in self.classes:
            self._mros.append((kind, kind.__mro__))
            self.classes[kind] = vars(kind)
            self.keep_names(self.classes[kind])
        return self.classes[kind]

    def keep_registrations(self) -> None:
        """Keeps which classes are registered as subclasses of abstract ones."""
        self._has_abstract = True

    def keep_names(self, entries: Mapping, is_ordered: bool = False) -> None:
        """Keeps which entries there are, and in which order."""
        self._whole.append((entries, tuple(entries), is_ordered and 1 < len(entries) <= LONGEST))

    def keep_items(self, x: Any) -> None:
        """Keeps the items of a list, set or deque."""
        (self._sets if isinstance(x, set) else self._lists).append((x, tuple(x)))

    def keep_parameters(self, optimizer: Any) -> None:
        """Keeps which parameters an optimizer has; the dicts of its groups may become others."""
        groups = [*optimizer.param_groups]
        self._optimizers.append((optimizer, groups, [group["params"] for group in groups]))
        for group in groups:
            self.keep_items(group["params"])

    def keep_array(self, x: np.ndarray) -> None:
        """Keeps the elements of an array, unless it is long, and how they lie."""
        self._layouts.append((x, _layout(x)))
        if x.size <= LONGEST:
            self._arrays.append((x, x.copy(), x.tobytes()))

    # What has changed.

    def change(self) -> str | None:
        """Returns what of it has changed since, as "x is 3, was 2"; None if nothing has."""
        if self._is_same is None:
            self._is_same = self._comparison()
        try:  # most often nothing has
            same = self._is_same()
        except (AttributeError, KeyError, IndexError, ValueError):
            same = False
        if not same and (change := self._first_change()) is not None:
            return change
        for items, was in self._sets if same else (*self._lists, *self._sets):
            if not _same(tuple(items), was):
                return f"the items of a {type(items).__name__} have changed"
        if self._layouts and any([_layout(x) != was for x, was in self._layouts]):
            return "a NumPy array has another shape, dtype or layout"
        if self._arrays and any([x.tobytes() != elements for x, _, elements in self._arrays]):
            return "the elements of a NumPy array have changed"
        return None

    def _comparison(self) -> Callable[[], bool]:
        """Returns whether all of it, without the items of sets and arrays, is the same objects."""
        comparison = Comparison()
        name = comparison.name
        for entries, key, was in zip(*self._entries, strict=True):
            is_attribute = isinstance(entries, Attributes)
            where = f"{name(entries.owner)}.{key}" if is_attribute else f"{name(entries)}[{name(key)}]"
            is_there = f"{where} is {name(was)}"
            comparison.terms.append(f"{name(key)} not in {name(entries)}" if was is MISSING else is_there)
        for cell, was in zip(*self._cells, strict=True):
            comparison.terms.append(f"{name(cell)}.cell_contents is {name(was)}")
        if self._has_abstract:
            comparison.terms.append(f"{name(abc.get_cache_token)}() == {self._token}")
        for kind, was in self._mros:
            comparison.terms.append(f"{name(kind)}.__mro__ is {name(was)}")
        for x, names, is_ordered in self._whole:
            entries = name(x)
            others = self._not_kept(x, names)
            if (is_ordered or len(others) > 4) and all([type(key) is str for key in names]):
                comparison.terms.append(f"(*{entries},) == {name(names)}")
                continue
            comparison.terms += [f"{name(key)} in {entries}" for key in others]
            is_empty = type(x) is dict and not names  # for which `not` takes a third of the time of `len`
            comparison.terms.append(f"not {entries}" if is_empty else f"len({entries}) == {len(names)}")
            if is_ordered:
                comparison.terms.append(f"all(map({name(is_)}, {entries}, {name(names)}))")
        for x, groups, lists in self._optimizers:
            found = f"{name(x)}.param_groups"
            comparison.terms.append(f"len({found}) == {len(groups)}")
            comparison.terms += [f"{found}[{k}]['params'] is {name(was)}" for k, was in enumerate(lists)]
        for items, was in self._lists:
            comparison.terms.append(f"len({name(items)}) == {len(was)}")
            comparison.terms.append(f"all(map({name(is_)}, {name(items)}, {name(was)}))")
        return comparison.compiled()

    def _not_kept(self, x: Mapping, names: tuple) -> list[object]:
        """Returns the names of entries that may be gone, while there are as many, and all that are kept."""
        return [key for key in names if key not in LASTING and (id(x), type(key), key) not in self._kept]

    def _first_change(self) -> str | None:
        for entries, name, was in zip(*self._entries, strict=True):
            now = entries.get(name, MISSING)
            if not _same(now, was):
                return _described(name, now, was)
        for cell, was in zip(*self._cells, strict=True):
            now = content(cell)
            if not _same(now, was):
                return _described("a variable of a closure", now, was)
        if self._has_abstract and abc.get_cache_token() != self._token:
            return "a class was registered"
        for kind, bases in self._mros:
            if kind.__mro__ is not bases:
                return f"{kind.__name__} has other bases"
        for x, names, is_ordered in self._whole:
            if len(x) != len(names) or {*x} != {*names}:
                return "an object has other attributes, or a dict other keys"
            if is_ordered and not all(map(is_, x, names)):
                return "the keys of a dict have another order"
        for x, _, lists in self._optimizers:
            now = [group.get("params") for group in x.param_groups]
            if len(now) != len(lists) or not all(map(is_, now, lists)):
                return "an optimizer has other groups of parameters"
        return None

    def take_flags(self) -> list[tuple[dict, object, bool]]:
        """Restores the bools in objects that a capture has changed, and returns what they had become."""
        entries = [x for x in zip(*self._entries, strict=True) if type(x[2]) is bool and type(x[0]) is dict]
        found = [(x, name, x.get(name)) for x, name, was in entries if x.get(name) is not was]
        flags = [(x, name, now) for x, name, now in found if type(now) is bool]
        for x, name, now in flags:
            x[name] = not now
        return flags

    def lasting_change(self) -> str | None:
        """Returns what has changed, other than bools."""
        flags = self.take_flags()
        change = self.change()
        for x, name, now in flags:
            x[name] = now
        return change

    def undo(self) -> str | None:
        """Restores what has changed, in a capture, and returns what it was; None if nothing has."""
        change = self.change()
        if change is not None:
            self._restore()
        return change

    def _restore(self) -> None:
        for entries, name, was in zip(*self._entries, strict=True):
            if entries.get(name, MISSING) is was:
                continue
            if not isinstance(entries, (dict, Attributes)):
                kind = next(kind for kind, found in self.classes.items() if found is entries)
                delattr(kind, name) if was is MISSING else setattr(kind, name, was)
            elif was is MISSING:
                del entries[name]
            else:
                entries[name] = was
        for cell, was in zip(*self._cells, strict=True):
            if was is not MISSING:
                cell.cell_contents = was
        for items, was in (*self._lists, *self._sets):
            _set_items(items, was)
        for x, (shape, dtype, _, is_writeable) in self._layouts:
            if x.dtype != dtype or x.shape != shape:
                x.dtype, x.shape = dtype, shape
            if x.flags.writeable != is_writeable:
                x.setflags(write=is_writeable)
        for x, groups, lists in self._optimizers:
            x.param_groups[:] = groups
            for group, params in zip(groups, lists, strict=True):
                group["params"] = params
        for x, was, _ in self._arrays:
            if x.flags.writeable:
                x[...] = was
        for entries, names, _ in self._whole:
            for name in entries.keys() - {*names} if isinstance(entries, dict) else ():
                del entries[name]

    def forget_arrays(self, used: Iterable[object]) -> None:
        """Leaves out NumPy arrays whose memory the program itself reads, each time that it runs."""
        used = [x for x in used if isinstance(x, np.ndarray)]
        read = [any([np.may_share_memory(x, y) for y in used]) for x, *_ in self._arrays]
        self._arrays = [found for found, is_read in zip(self._arrays, read, strict=True) if not is_read]

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
        only = only and all([len(x) == len(names) for x, names, _ in self._whole])
        items = *self._lists, *self._sets
        only = only and all([_same(tuple(found), was) for found, was in items])
        return {place for place, *_ in changed} if only else set()


def _layout(x: np.ndarray) -> tuple:
    return x.shape, x.dtype, x.strides, x.flags.writeable


def _set_items(x: Any, was: Any) -> None:
    if isinstance(x, list):
        x[:] = was
    else:
        x.clear()
        (x.extend if hasattr(x, "extend") else x.update)(was)


def _same(now: object, was: object) -> bool:
    if now is was:
        return True
    if type(now) is not type(was):
        return False
    if isinstance(now, tuple) and not hasattr(now, "__dict__"):
        return len(now) == len(was) and all(map(_same, now, was))
    if type(now) in (float, complex):
        return repr(now) == repr(was)  # -0.0 is another number than 0.0
    if isinstance(now, np.generic) and not isinstance(now, np.void):
        return now.dtype == was.dtype and now.tobytes() == was.tobytes()
    return type(now) in PLAIN and now == was


def _described(name: object, now: object, was: object) -> str:
    if now is MISSING or was is MISSING:
        return f"{name} is gone" if now is MISSING else f"{name} is there now"
    if isinstance(now, PLAIN) and isinstance(was, PLAIN):
        return f"{name} is {now!r}, was {was!r}"
    return f"{name} is another object"
