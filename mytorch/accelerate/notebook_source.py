"""The source of a function of a notebook, and of what it uses there: a file for other processes."""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import symtable
import sys
import textwrap
from types import ModuleType
from typing import Any

from ..serialization import save

MAIN = "__main__"  # the module of a notebook's cells, and of a script
_FIRST = "from __future__ import annotations"  # so that names in annotations aren't needed


def source_of(name: str) -> tuple[str, dict[str, Any]]:
    """Returns a file that defines a function or class of `__main__`, and the values of its global variables.

    The file has the imports, functions and classes of `__main__` that it uses, directly or in another of
    them. Other cells, or lines of a script, aren't run.

    Raises:
        ValueError: there is no source, or a global variable is of a type that can't be saved.
    """
    found = _Found()
    found.add(name)
    return "\n".join([_FIRST, *found.statements, ""]), found.values


class _Found:
    """What a function uses, in an order in which it can be defined.

    Attributes:
        statements: imports and definitions.
        values: of global variables.
    """

    def __init__(self):
        self.statements: list[str] = []
        self.values: dict[str, Any] = {}
        self._names: set[str] = set()
        self._globals = vars(sys.modules[MAIN])

    def add(self, name: str) -> None:
        """Adds a global variable, unless it is there already, after all that it uses."""
        if name in self._names:
            return
        self._names.add(name)
        if name not in self._globals:
            raise ValueError(f"there is no {name}")
        value = self._globals[name]
        statement = _import_of(name, value)
        is_defined = getattr(value, "__module__", None) == MAIN and hasattr(value, "__qualname__")
        if statement is None and is_defined:
            statement = _definition_of(name, value)
            for used in filter(self._globals.__contains__, _globals_of(statement)):
                self.add(used)
        if statement is not None:
            self.statements.append(statement)
            return
        try:
            save(value, io.BytesIO())
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} can't be sent to them ({error}): make it in the function") from None
        self.values[name] = value


def _import_of(name: str, value: object) -> str | None:
    """Returns the statement that imports a module, or what can be found in one by its name."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if path and module != MAIN and getattr(sys.modules.get(module), path, None) is value:
        return f"from {module} import {path} as {name}"
    return None


def _definition_of(name: str, value: object) -> str:
    """Returns the source of a function or class of `__main__`."""
    original = inspect.unwrap(value)
    defined = original.__qualname__
    try:
        is_class = isinstance(original, type)
        source = _source_of_class(original) if is_class else textwrap.dedent(inspect.getsource(original))
        source += "" if defined == name else f"\n{name} = {defined}"
        symtable.symtable(source, name, "exec")  # raises if it is a lambda's
    except (OSError, TypeError, SyntaxError):
        raise ValueError(f"{name} has no source: put it into a file and import it") from None
    return source


def _source_of_class(cls: type) -> str:
    """Returns a class statement. (`inspect.getsource` finds that of a script only.)"""
    for method in filter(inspect.isfunction, vars(cls).values()):
        text = "".join(linecache.getlines(method.__code__.co_filename))
        for node in ast.parse(text).body[::-1]:
            if isinstance(node, ast.ClassDef) and node.name == cls.__qualname__:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise OSError(f"no source of {cls}")


def _globals_of(source: str) -> list[str]:
    """Returns the names of global variables that a definition refers to."""
    names, tables = set(), [symtable.symtable(f"{_FIRST}\n{source}", "", "exec")]
    for table in tables:
        at_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or at_top):
                names.add(symbol.get_name())
        tables += table.get_children()
    return sorted(names)
