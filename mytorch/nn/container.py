"""Containers of modules: Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from .module import Module, check_module, indented

if TYPE_CHECKING:
    from typing import Self


class _Ordered(Module):
    """Base of the containers whose modules are numbered."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return self._like(dict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._modules)
        for key in keys[index] if isinstance(index, slice) else [self._key(index)]:
            del self._modules[key]
        self._renumber(list(self._modules.values()))

    def _like(self, modules: dict[str, Module]) -> Module:
        """Returns a container of this type with some of its modules."""
        return type(self)(modules.values())

    def _key(self, index: SupportsIndex) -> str:
        index, count = operator.index(index), len(self)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of range for {count} modules")
        return list(self._modules)[index]

    def _renumber(self, modules: list[Module]) -> None:
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def append(self, module: Module) -> Self:
        """Appends a module."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Appends modules."""
        if isinstance(modules, (str, bytes)) or not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend should be called with an iterable, got {modules!r}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Inserts a module before this index."""
        check_module(module)
        modules = list(self)
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"index {index} is out of range for {len(modules)} modules")
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, index: int) -> Module:
        """Removes and returns a module."""
        module = self[index]
        del self[index]
        return module

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class Sequential(_Ordered):
    """Modules called in sequence, each with the result of the previous one.

    Args:
        modules: the modules, or one dict of them by name.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> model(mytorch.ones(4, 2)).shape
    Size([4, 1])
    """

    def __init__(self, *modules: Module | Mapping[str, Module]):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], (OrderedDict, dict)):
            named: Iterable = modules[0].items()
        else:
            named = ((str(i), module) for i, module in enumerate(modules))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def _like(self, modules: dict[str, Module]) -> Sequential:
        return type(self)(OrderedDict(modules))

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self).__iadd__(other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                f"add operator supports only objects of Sequential class, got {type(other).__name__}"
            )
        return self.extend(other)


class ModuleList(_Ordered):
    """A list of registered modules; it has no `forward`.

    Args:
        modules: an iterable of modules.

    >>> len(nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]))
    3
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        lines, first = [], 0
        for text, alike in itertools.groupby(map(repr, self)):
            count = len(list(alike))
            last = first + count - 1
            label = f"({first}): " if count == 1 else f"({first}-{last}): {count} x "
            lines.append(indented(f"\n{label}{text}"))
            first = last + 1
        body = "".join(lines)
        return f"{self._get_name()}({body}{body and chr(10)})"


class ModuleDict(Module):
    """A dict of registered modules; it has no `forward`.

    Args:
        modules: a mapping, or an iterable of (key, module) pairs.

    >>> nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})["tanh"]
    Tanh()
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Removes and returns a module."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules, replacing those with the same keys."""
        if isinstance(modules, (Mapping, ModuleDict)):
            modules = modules.items()
        elif not isinstance(modules, Iterable):
            raise TypeError(f"ModuleDict.update should be called with a mapping or pairs, got {modules!r}")
        for i, pair in enumerate(modules):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ValueError(
                    f"ModuleDict update sequence element {i} must be a (key, module) pair, got {pair!r}"
                )
            self[pair[0]] = pair[1]
