"""Containers of parameters: ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from ..core.tensor import Tensor
from .module import Module
from .parameter import Parameter


class _Parameters(Module):
    """Base of both: each value is an attribute, so a Parameter is registered; a Tensor becomes one."""

    def _put(self, name: str, value: object) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, name, value)

    def extra_repr(self) -> str:
        lines = []
        for name, value in self._named():
            text = f"Object of type: {type(value).__name__}"
            if isinstance(value, Parameter):
                size = "x".join(map(str, value.shape))
                text = f"Parameter containing: [{value.dtype} of size {size}]"
            lines.append(f"({name}): {text}")
        return "\n".join(lines)

    def _named(self) -> Iterator[tuple[str, Any]]:
        raise NotImplementedError

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{type(self).__name__} should not be called")


class ParameterList(_Parameters):
    """A list of registered parameters; it has no `forward`.

    Args:
        values: an iterable; Tensors in it become Parameters, other values are unchanged.

    Raises:
        TypeError: `values` is not iterable.
        IndexError: an index out of range.

    >>> len(nn.ParameterList([mytorch.ones(2), mytorch.ones(3)]))
    2
    """

    def __init__(self, values: Iterable[object] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: object) -> None:
        self._put(self._key(index), value)

    def _key(self, index: SupportsIndex) -> str:
        index, count = operator.index(index), len(self)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of range for {count} values")
        return str(index % count)

    def append(self, value: object) -> ParameterList:
        """Appends a value."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[object]) -> ParameterList:
        """Appends values."""
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(
                f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[object]) -> ParameterList:
        return self.extend(values)

    def _named(self) -> Iterator[tuple[str, Any]]:
        return ((str(i), value) for i, value in enumerate(self))


class ParameterDict(_Parameters):
    """A dict of registered parameters, in order of insertion; it has no `forward`.

    Args:
        parameters: a mapping, or an iterable of (key, value) pairs; Tensors in it become Parameters.

    Raises:
        AttributeError: no such key.
        TypeError, ValueError: neither a mapping nor pairs; a key that is not a string.

    >>> list(nn.ParameterDict({"scale": mytorch.ones(2)}))
    ['scale']
    """

    def __init__(self, parameters: Mapping | Iterable | None = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise AttributeError(f"the ParameterDict has no key {key!r}, only {list(self._keys)}")
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        if not isinstance(key, str):
            raise TypeError(f"a ParameterDict's keys are strings, got {key!r}")
        if key not in self._keys and hasattr(self, key):
            raise KeyError(f"attribute {key!r} already exists")
        self._keys[key] = None
        self._put(key, value)

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def keys(self) -> Iterable[str]:
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        return (self[key] for key in self._keys)

    def get(self, key: str, default: object = None) -> Any:
        """Returns the value of a key, or the default."""
        return getattr(self, key) if key in self._keys else default

    def setdefault(self, key: str, default: object = None) -> Any:
        """Returns the value of a key, set to the default if the key is new."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Removes and returns a value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes and returns the last key and value."""
        if not self._keys:
            raise KeyError("popitem(): the ParameterDict is empty")
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """Returns another ParameterDict with the same values."""
        return type(self)(dict(self.items()))

    def fromkeys(self, keys: Iterable[str], default: object = None) -> ParameterDict:
        """Returns a new ParameterDict with these keys and one value."""
        return type(self)(dict.fromkeys(keys, default))

    def update(self, parameters: Mapping | Iterable) -> None:
        """Adds values, replacing those with the same keys."""
        if isinstance(parameters, (Mapping, ParameterDict)):
            parameters = parameters.items()
        elif not isinstance(parameters, Iterable):
            raise TypeError(
                f"ParameterDict.update should be called with a mapping or pairs, got {parameters!r}"
            )
        for i, pair in enumerate(parameters):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ValueError(f"ParameterDict update sequence element {i} must be a pair, got {pair!r}")
            self[pair[0]] = pair[1]

    def __or__(self, other: ParameterDict) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def _named(self) -> Iterator[tuple[str, Any]]:
        return iter(self.items())
