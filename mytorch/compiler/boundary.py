"""What compiled functions get and return besides tensors: what of it a program can't give as they do.

A program returns new lists, dicts and dataclasses in each call, and the same other objects. An object that is
in two places, or was changed, would be neither in what it returns: then the graph breaks.
"""

from __future__ import annotations

import enum
import types
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from ..backends.device import device
from ..core.array import Array
from ..core.size import Size
from ..core.tensor import Tensor, raw_of
from ..nn.module import Module
from ..utils.nested import Made, leaves, mapped
from .graph_breaks.break_points import graph_break
from .guards.state_guards import PLAIN
from .tracing.capture import Traced, attributes_of

_LASTING = (
    *PLAIN, type, types.ModuleType, types.BuiltinFunctionType, types.EllipsisType, np.dtype, np.generic,
    np.ufunc, device, enum.Enum, range,
)
"""Types whose objects are equal, or the same, in each call."""


def own_attributes(x: object) -> list[object]:
    """Returns the classes, and the attributes, of containers and tensors of other classes: see `key_of`."""
    own = [c for c in _containers(x) if type(c) not in (tuple, list, dict)]
    own += [y for y in leaves(x) if isinstance(y, Tensor) and type(y) is not Tensor]
    return [part for c in own for part in (type(c), [*attributes_of(c).values()])]


def check_arguments(found: Traced) -> None:
    """Raises an error if a function has changed a list or a dict that it got, or the history, or the
    `.data`, of a tensor."""
    if not _is_equal(found.given, found.before):
        raise graph_break("what it does to a list or a dict that it gets")
    for x, attributes in zip(found.arguments, found.attributes, strict=True):
        now = attributes_of(x)
        if now.keys() != attributes.keys() or any([now[k] is not attributes[k] for k in now]):
            raise graph_break("an attribute that it gives to an argument")
    for x, node, data in zip(found.arguments, found.nodes, found.datas, strict=True):
        if isinstance(x, Tensor):
            _check_tensor(x, node, data)


def _check_tensor(x: Tensor, node: Any, data: Array) -> None:
    if x._data is not data:  # also `unsqueeze_` and other views in place
        raise graph_break("an assignment to `.data`")
    if x._node is not node:
        raise NotImplementedError("a program can't give an argument a history, or take it")
    if node is not None and node.retain:
        raise graph_break("the retain_grad() of an argument")
    if node is not None and node.hooks:
        raise graph_break("a hook that it gives to an argument")


def check_result(found: Traced, known: Collection[int]) -> None:
    """Raises an error if a function returns an object that it has made, other than a dataclass: each call
    would return this one.

    Args:
        known: the ids of objects that were there before.
    """
    _check_objects(found.result, {id(x) for x in _containers(found.given)}, known)


def _check_objects(result: object, seen: set[int], known: Collection[int]) -> None:
    for x in _containers(result):
        _check_container(x, seen, known)
    for x in leaves(result):
        if isinstance(x, (*_LASTING, Tensor, Array, np.ndarray)) or id(x) in known:
            continue
        if not _is_plain_dataclass(x) or id(x) in seen:
            raise _made(x)
        seen.add(id(x))
        _check_objects([*vars(x).values()], seen, known)


def _check_container(x: object, seen: set[int], known: Collection[int]) -> None:
    is_tuple = isinstance(x, tuple)
    if type(x) not in (tuple, Size, list, dict, OrderedDict) and not (is_tuple and hasattr(x, "_fields")):
        raise _made(x)
    if not is_tuple:
        if id(x) in seen or id(x) in known:
            raise NotImplementedError(f"it returns a {type(x).__name__} that was there before, or twice")
        seen.add(id(x))


def _made(x: object) -> NotImplementedError:
    return NotImplementedError(f"it returns an object that it makes: a {type(x).__name__}")


def _is_plain_dataclass(x: object) -> bool:
    """Returns whether another object can be made of the class and the attributes of one."""
    is_object = is_dataclass(x) and not isinstance(x, (type, Module))
    return is_object and hasattr(x, "__dict__") and type(x).__new__ is object.__new__


def with_made(result: object, known: Collection[int]) -> object:
    """Returns what a function returned, with a `Made` for each dataclass that it has made."""

    def leaf(x: object) -> object:
        is_old = id(x) in known or not _is_plain_dataclass(x)
        return x if is_old else Made(type(x), mapped(leaf, vars(x)))

    return mapped(leaf, result)


def check_views(found: Traced) -> None:
    """Raises an error if a part returns a view of what it got, or of another result: in what follows, that
    would be a tensor of its own."""
    arguments = {id(x) for x in found.arguments}
    results = {id(x): x for x in leaves(found.result) if isinstance(x, Tensor) and id(x) not in arguments}
    value = found.tracer.value
    taken = {value(raw_of(x)).storage for x in found.arguments} | {*found.tracer.state}
    for x in results.values():
        storage = value(found.tracer.held(raw_of(x), x)).storage
        if storage in taken or storage in found.tracer.state:
            raise NotImplementedError("a part of a function can't return a view of what it got or returns")
        taken.add(storage)


def _containers(x: object) -> Iterator[Any]:
    if isinstance(x, (tuple, list, dict)):
        yield x
        for item in x.values() if isinstance(x, dict) else x:
            yield from _containers(item)


def _is_equal(x: object, y: object) -> bool:
    """Returns whether two structures hold the same objects in the same places."""
    if isinstance(x, dict) and isinstance(y, dict):
        return [*x] == [*y] and _is_equal([*x.values()], [*y.values()])
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and all(map(_is_equal, x, y))
    return x is y or (isinstance(x, slice) and isinstance(y, slice))
