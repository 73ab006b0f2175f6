"""Effects that the source shows: which calls do more than to compute, which `with` may hide errors."""

from __future__ import annotations

import ast
import builtins
import sys
import types

from ..programs.tracing.reachable import is_foreign
from .syntax import cells_of
from .variables import Names

_EFFECTS = ("breakpoint", "exec", "input", "next", "open", "print")  # builtins that do more than to compute
_PURE = (
    "abc", "builtins", "cmath", "collections", "contextlib", "copy", "dataclasses", "enum", "functools",
    "itertools", "math", "numbers", "operator", "types", "typing",
)  # fmt: skip
_CLEAR = ("argparse", "builtins", "enum", "functools", "mytorch", "numpy", "types")
_UNKNOWN = object()


class Scope:
    """The variables of a function that aren't local, by their names.

    Args:
        locals: the names that are.
    """

    def __init__(self, function: types.FunctionType, locals: Names):
        self._locals, self._cells, self._globals = locals, cells_of(function), function.__globals__

    def has_effect(self, node: ast.AST) -> bool:
        """Returns whether a node is known to do more than to compute: to print, to draw numbers, to read a
        clock, or to use a queue."""
        if isinstance(node, ast.Name):
            return is_opaque(self._resolved(node))
        return isinstance(node, ast.Call) and self._call_has_effect(node)

    def _call_has_effect(self, call: ast.Call) -> bool:
        function = call.func
        if isinstance(function, ast.Name):
            found = self._resolved(function)
            root = getattr(found, "__module__", None) or type(getattr(found, "__self__", None)).__module__
            if found is getattr(builtins, function.id, _UNKNOWN):
                return function.id in _EFFECTS
            return found is not _UNKNOWN and _is_impure(root)
        owner = self._resolved(function.value) if isinstance(function, ast.Attribute) else _UNKNOWN
        if isinstance(owner, types.ModuleType):
            return owner.__name__ == "numpy.random" or _is_impure(owner.__name__)
        return is_opaque(owner)

    def suppresses(self, statement: ast.With) -> bool:
        """Returns whether a `with` statement may suppress exceptions: those of the package don't."""
        for item in statement.items:
            made = item.context_expr
            found = self._resolved(made.func if isinstance(made, ast.Call) else made)
            kind = found if isinstance(found, (type, types.FunctionType)) else type(found)
            root = (kind.__module__ or "").partition(".")[0]
            is_known = found is open or kind.__name__ == "nullcontext" or root == "mytorch"
            if found is _UNKNOWN or not is_known:
                return True
        return False

    def _resolved(self, node: ast.expr) -> object:
        """Returns what a dotted name that isn't local refers to now, if it is in a module or a closure."""
        if isinstance(node, ast.Attribute):
            owner = self._resolved(node.value)
            if isinstance(owner, types.ModuleType):
                return getattr(owner, node.attr, _UNKNOWN)
            return owner if type(owner).__module__.startswith("mytorch.") else _UNKNOWN
        if not isinstance(node, ast.Name) or node.id in self._locals:
            return _UNKNOWN
        if node.id in self._cells:
            try:
                return self._cells[node.id].cell_contents
            except ValueError:  # not assigned yet
                return _UNKNOWN
        return self._globals.get(node.id, getattr(builtins, node.id, _UNKNOWN))


def is_opaque(x: object) -> bool:
    """Returns whether what is done to an object can't be seen, as with files, iterators and sets."""
    root = type(x).__module__.partition(".")[0]
    if (
        isinstance(x, (set, bytearray))
        or hasattr(type(x), "__next__")
        or "numpy.random" in type(x).__module__
    ):
        return True
    return root not in _CLEAR and is_foreign(root)


def _is_impure(module: str) -> bool:
    root = module.partition(".")[0]
    return root in sys.stdlib_module_names and root not in _PURE
