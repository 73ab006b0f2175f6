"""What the source of a statement shows: does it load something opaque, may a `with` hide errors?"""

from __future__ import annotations

import ast
import builtins
import types

from .opaque import why_opaque
from .syntax import cells_of
from .variables import Names

_UNKNOWN = object()


class Scope:
    """The variables of a function that aren't local, by their names.

    Args:
        locals: the names that are.
    """

    def __init__(self, function: types.FunctionType, locals: Names):
        self._locals, self._cells, self._globals = locals, cells_of(function), function.__globals__

    def loads_opaque(self, node: ast.AST) -> bool:
        """Returns whether a node is known to load something that a program can't hold."""
        found = self._resolved(node) if isinstance(node, (ast.Name, ast.Attribute)) else _UNKNOWN
        is_module = isinstance(found, types.ModuleType)  # of which a function may only compute
        return not is_module and found is not _UNKNOWN and why_opaque(found) is not None

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
