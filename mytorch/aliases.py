"""Modules under PyTorch's names whose contents lie elsewhere: `nn.modules.conv` is `nn.layers.conv`; names
that are imported at their first use; and what `dir` shows of a module."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def alias(name: str, *sources: ModuleType) -> None:
    """Makes a module of this name, with the names of the sources, and an attribute of its package.

    Args:
        name: with its package, which has been imported or is being imported.
        sources: of a name in several of them, the first counts.
    """
    module = ModuleType(name, f"PyTorch's name for {', '.join(source.__name__ for source in sources)}.")
    for source in reversed(sources):
        module.__dict__.update({key: x for key, x in vars(source).items() if not key.startswith("__")})
    sys.modules[name] = module
    package, _, child = name.rpartition(".")
    setattr(sys.modules[package], child, module)


Table = Mapping[str, str | None]
ABOVE: dict[str, Table] = {}  # by module: names in it that are defined in layers above it; `mytorch` fills it


def lazily(names: dict[str, Any], *tables: Table) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a module that imports names at their first use.

    Those of the tables, and those that lie above the module.

    Args:
        names: the module's `globals()`.
        tables: where a name is defined, below `mytorch`; None for a module in this one.
    """
    here = names["__name__"]

    def __getattr__(name: str) -> Any:
        for table in (*tables, ABOVE.get(here, {})):
            if name in table:
                where = table[name]
                module = importlib.import_module(f"mytorch.{where}" if where else f"{here}.{name}")
                if "__dir__" not in vars(module):  # it is new
                    show_own_names()
                return getattr(module, name) if where else module
        raise AttributeError(f"module {here!r} has no attribute {name!r}")

    return __getattr__, _dir_of(names, *tables)


def show_own_names() -> None:
    """Makes `dir` of the modules imported so far show their own public names, without `os`, `np`, `Any`.

    Completion, and Python's "Did you mean", take names from there.
    """
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "mytorch":
            vars(module).setdefault("__dir__", _dir_of(vars(module)))


def _dir_of(names: dict[str, Any], *tables: Table) -> Callable[[], list[str]]:
    def __dir__() -> list[str]:
        public = names.get("__all__", ())
        own = [name for name, x in names.items() if name in public or _is_shown(name, x)]
        return sorted({*own, *itertools.chain(*tables, ABOVE.get(names["__name__"], ()))})

    return __dir__


def _is_shown(name: str, x: object) -> bool:
    """Returns whether it is public, no module outside of the package, and not of Python's library."""
    is_module = isinstance(x, ModuleType)
    home = x.__name__ if is_module else getattr(x, "__module__", None)
    top = home.partition(".")[0] if isinstance(home, str) else ""
    foreign = top != "mytorch" if is_module else top in sys.stdlib_module_names
    return not foreign and (not name.startswith("_") or name.startswith("__"))
