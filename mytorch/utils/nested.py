"""Nested arguments and results: tuples, lists, dicts and slices of arrays, numbers and other objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Made:
    """A dataclass among the results of a function that makes it: each call of a program makes another."""

    kind: type
    fields: dict[str, Any]

    def mapped(self, function: Callable) -> Any:
        """Returns a new object, with `function` applied to what its fields hold."""
        made = object.__new__(self.kind)
        made.__dict__.update(mapped(function, self.fields))
        return made


def leaves(x: object) -> Iterator[Any]:
    """Yields what nested tuples, lists, dicts and slices hold."""
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from leaves(item)
    elif isinstance(x, dict):
        yield from leaves(list(x.values()))
    elif isinstance(x, slice):
        yield from leaves((x.start, x.stop, x.step))
    elif type(x) is Made:
        yield from leaves(x.fields)
    else:
        yield x


def mapped(function: Callable, x: object) -> Any:
    """Returns the nested structure with `function` applied to its leaves."""
    if isinstance(x, tuple):
        items = [mapped(function, item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, list):
        items = [mapped(function, item) for item in x]
        return items if type(x) is list else _with_items(x, items)
    if isinstance(x, dict):
        entries = {name: mapped(function, item) for name, item in x.items()}
        return entries if type(x) is dict else _with_items(x, entries)
    if isinstance(x, slice):
        return slice(*[mapped(function, item) for item in (x.start, x.stop, x.step)])
    return function(x)


def _with_items(x: object, items: Iterable) -> Any:
    """Returns a copy of a list or dict of another class, as OrderedDict, with other items."""
    made = copy.copy(x)
    if isinstance(x, list):
        made[:] = items
    else:
        made.update(items)
    return made


def text(x: object) -> str:
    """Returns an argument as it is printed."""
    if isinstance(x, (tuple, list)):
        items = ", ".join(map(text, x))
        return f"[{items}]" if isinstance(x, list) else f"({items},)" if len(x) == 1 else f"({items})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{name!r}: {text(item)}' for name, item in x.items())}}}"
    if isinstance(x, slice):
        parts = ["" if part is None else text(part) for part in (x.start, x.stop, x.step)]
        return ":".join(parts[: 2 if x.step is None else 3])
    return "..." if x is Ellipsis else str(x) if isinstance(x, np.dtype) else repr(x)
