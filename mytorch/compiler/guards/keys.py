"""Keys: what a program depends on of a function's arguments, and of modes."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence

import numpy as np

from ...backends.device import CPU, RawArray, device, device_of, is_raw
from ...backends.meta.layout import layout, memory_order
from ...core.array import Array
from ...core.tensor import Tensor, raw_of
from ..tracing.capture import attributes_of, slots_of
from .modes import MODES, modes
from .snapshot import KINDS


def key_of(
    x: object, tensors: list[Tensor], raws: list[RawArray], numbers: list[float | int],
    inputs: Container[int],
) -> object:
    """Returns what a program depends on of arguments; adds the tensors in them, their arrays, and, if any are
    inputs, numbers to lists.

    For a tensor that is ("tensor", dtype, shape, strides, requires_grad); on a GPU (device, strides) is in
    the place of strides, and those of another class, as parameters, add this and their attributes. For a
    number it is (kind, value), or (kind, ANY) at the positions of inputs.
    """
    if type(x) is tuple:
        return tuple([
            _key_of_tensor(y, tensors, raws) if type(y) is Tensor
            else key_of(y, tensors, raws, numbers, inputs) for y in x
        ])
    if isinstance(x, Tensor):
        key = _key_of_tensor(x, tensors, raws)
        return key if type(x) is Tensor else (*key, type(x), *_attributes(x))
    if isinstance(x, (tuple, list)):
        return (type(x), *_attributes(x), *[key_of(item, tensors, raws, numbers, inputs) for item in x])
    kind = type(x)
    if kind in _PLAIN or isinstance(x, _NUMPYS):
        if inputs and kind in KINDS:
            numbers.append(x)
            if len(numbers) - 1 in inputs:
                return kind, ANY
        return kind, x or str(x)  # 0.0 equals -0.0
    if isinstance(x, dict):
        items = [key_of(item, tensors, raws, numbers, inputs) for item in x.values()]
        return (type(x), *_attributes(x), *_names(x), *items)
    if isinstance(x, slice):
        return slice, key_of((x.start, x.stop, x.step), tensors, raws, numbers, inputs)
    if isinstance(x, (Array, np.ndarray)) or is_raw(x):
        raw = raw_of(x)
        tensors.append(x), raws.append(raw)
        return "tensor", raw.dtype, raw.shape, raw.strides if type(raw) is np.ndarray else _place(raw), False
    return _Same(x)


def _names(x: dict) -> list[tuple]:
    return [(type(name).__name__, name or str(name)) for name in x]  # 1 equals True, 0.0 equals -0.0


def key_of_call(
    args: tuple, kwargs: dict, tensors: list[Tensor], raws: list[RawArray], numbers: list[float | int],
    inputs: Container[int],
) -> tuple:
    """Returns what a program depends on of a call; adds to lists as `key_of` does."""
    arguments = key_of(args, tensors, raws, numbers, inputs)
    named = key_of(kwargs, tensors, raws, numbers, inputs) if kwargs else ()
    return arguments, named, modes(), repeated(tensors) if len(tensors) > 1 else ()


def _attributes(x: object) -> Sequence[tuple]:
    """Returns the attributes of a tensor or a container of a user's class, and what they are."""
    if type(x) in _BARE or not (getattr(x, "__dict__", None) or slots_of(type(x))):
        return ()
    found = attributes_of(x)
    return [(name, key_of(y, [], [], [], ()) if type(y) in _PLAIN else _Same(y)) for name, y in found.items()]


def _key_of_tensor(x: Tensor, tensors: list[Tensor], raws: list[RawArray]) -> tuple:
    raw = x._data._array
    tensors.append(x), raws.append(raw)
    strides = raw.strides if type(raw) is np.ndarray else _place(raw)
    needs_grad = x._node is not None or (x._view is not None and x.requires_grad)
    return "tensor", raw.dtype, raw.shape, strides, needs_grad


def repeated(tensors: list[Tensor]) -> tuple[int, ...]:
    """Returns for each tensor where the same object comes first; nothing if all are different."""
    ids = [*map(id, tensors)]
    return () if len({*ids}) == len(ids) else tuple(map(ids.index, ids))


def _place(raw: RawArray) -> tuple:
    if type(raw) is np.ndarray:
        return CPU, raw.strides
    found = device_of(raw)
    return found, found.kind, raw.strides  # devices of several kinds may have one name


ANY = "any"  # in place of the value of a number that is an input
_PLAIN = (bool, int, float, str, type(None))  # not classes derived of them, whose objects hold more
_BARE = (dict, list, tuple)
_NUMPYS = (np.integer, np.floating, np.bool_)


class _Same:
    """An object that equals itself only, and stays alive."""

    def __init__(self, target: object):
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.target is self.target

    def __hash__(self) -> int:
        return id(self.target)

    def __repr__(self) -> str:
        name = getattr(self.target, "__qualname__", None)
        return name if isinstance(name, str) else f"one {type(self.target).__name__}"


def difference(before: tuple | None, now: tuple) -> str:
    """Returns in what two keys differ."""
    if before is None:
        return "first call"
    for k, (name, was, mode) in enumerate(zip(MODES, before[2], now[2], strict=True)):
        if was != mode:
            return f"{name} is {now[2][k]}, was {was}"
    if before[3] != now[3]:
        return "other arguments are the same tensor"
    pairs = [_leaves(key[:2], with_kinds=True) for key in (before, now)]
    if len(pairs[0]) == len(pairs[1]):
        for was, is_now in zip(*pairs, strict=True):
            if was != is_now:
                described = _described(is_now), _described(was)
                if described[0] == described[1]:  # two objects
                    return f"an argument is another object: {described[0]}"
                return f"an argument is {described[0]}, was {described[1]}"
    return "the arguments have another structure"


def shapes_of(key: tuple) -> list[tuple]:
    """Returns the shapes of the tensors in a key."""
    return [x[2] for x in _leaves(key[:2]) if isinstance(x, tuple)]


def kind_of(key: tuple, static: Iterable[Collection[int]]) -> tuple:
    """Returns a key without the sizes of tensors that may be symbolic: those other than 0 and 1, of dims that
    aren't marked as static.

    Args:
        static: these dims, for each tensor.
    """
    marks = iter(static)
    return (*[_kind_of(part, marks) for part in key[:2]], *key[2:])


def _kind_of(key: object, marks: Iterator[Collection[int]]) -> object:
    if not isinstance(key, tuple):
        return key
    if key[:1] != ("tensor",):
        return tuple([_kind_of(x, marks) for x in key])
    (name, dtype, shape, strides, *more), static = key, next(marks)
    *place, steps = strides if strides and isinstance(strides[0], device) else (strides,)
    sizes = tuple([n if n < 2 or d in static else None for d, n in enumerate(shape)])
    found = layout(shape, steps, dtype)
    signs = tuple([(step > 0) - (step < 0) for step in steps])
    order = *memory_order(found), found.flags.c_contiguous, found.flags.f_contiguous
    return (name, dtype, sizes, *place, order, signs, *more)


def changed_numbers(before: tuple, now: tuple) -> set[int]:
    """Returns the positions of numbers in which two keys differ, if they differ in nothing else."""
    pairs = [_leaves(key) for key in (before, now)]
    found, position = set(), -1
    if len(pairs[0]) != len(pairs[1]):
        return found
    kind = None
    for was, is_now in zip(*pairs, strict=True):
        position += kind in KINDS
        if was != is_now:
            if kind not in KINDS:
                return set()
            found.add(position)
        kind = is_now
    return found


def _leaves(key: object, with_kinds: bool = False) -> list[object]:
    """Returns what a key holds; a number and its kind one after the other, or, with kinds, as a pair."""
    if not isinstance(key, tuple) or key[:1] == ("tensor",) or (with_kinds and _is_plain(key)):
        return [key]
    return [x for item in key for x in _leaves(item, with_kinds)]


def _is_plain(key: tuple) -> bool:
    return len(key) == 2 and key[0] in _PLAIN


def _described(key: object) -> str:
    if not isinstance(key, tuple):
        return str(key)
    if _is_plain(key):
        return repr(key[1]) if key[0] is str else str(key[1])
    _, dtype, shape, strides, requires_grad, *more = key
    where = f" on {strides[0]}" if strides and isinstance(strides[0], device) else ""
    kind = f"{more[0].__name__} of " if more else ""
    return f"{kind}{dtype}{list(shape)}{where}{' with requires_grad' if requires_grad else ''}"
