"""Functions and modules that a split function calls: those in which its graph breaks are split in turn.

    def step(x):                            def step(x):
        x = stem(x)                             x = part_1(x)
        x = block(x)  # prints          →       x = callee(block)(x)
        return head(x)                          return part_2(x)

The statement runs eagerly, and what it calls is compiled: so are its parts, around its own `print`.
"""

from __future__ import annotations

import ast
import copy
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...nn.module import Module
from .syntax import plain
from .watching import frames_of

CALLEE = "the callee"  # the name of the variable that holds `Callees`: none of the function's is called so
_FOREIGN = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PACKAGE = str(Path(__file__).parents[2])


class Callees:
    """A function that returns the function that it gets, or, if the graph breaks in it, that compiled.

    Args:
        error: what was raised.
        function: the function that was traced.
        make: compiles a function or module.

    Attributes:
        codes: the code of the functions in which the graph breaks.
        made: what was compiled so far.
    """

    def __init__(self, error: BaseException, function: types.FunctionType, make: Callable[[Callable], Any]):
        codes = [code for code, _ in frames_of(error)]
        start = codes.index(function.__code__) if function.__code__ in codes else len(codes)
        self.codes = {code for code in codes[start + 1 :] if code.co_name == "forward" or _is_users(code)}
        self.made: dict[Callable, Any] = {}
        self._make = make

    def __call__(self, function: Any) -> Any:
        found = self.made.get(function) if isinstance(function, _CALLABLE) else None
        if found is None:
            code = getattr(plain(function), "__code__", None)
            if code not in self.codes or not _is_splittable(function, code):
                return function
            found = self.made[function] = self._make(function)
            found.is_callee = True
        return found

    def in_calls(self, statement: ast.stmt) -> ast.stmt:
        """Returns a statement in whose calls, except those of its blocks, this function is asked first."""
        made = copy.copy(statement)
        for name, field in ast.iter_fields(statement):
            if isinstance(field, ast.expr):
                setattr(made, name, _Calls().visit(copy.deepcopy(field)))
            elif isinstance(field, list) and any([isinstance(x, (ast.expr, ast.withitem)) for x in field]):
                setattr(made, name, [_Calls().visit(copy.deepcopy(x)) for x in field])
        return made


_CALLABLE = (types.FunctionType, types.MethodType, Module)


def _is_splittable(function: Any, code: types.CodeType) -> bool:
    """Whether it is a user's function or module, or a module that may hold such, as Sequential."""
    if isinstance(function, Module):
        return type(function).__module__.startswith("mytorch.nn.") or _is_users(code)
    return isinstance(function, _CALLABLE) and _is_users(code)


def _is_users(code: types.CodeType) -> bool:
    return not code.co_filename.startswith((_PACKAGE, *_FOREIGN))


class _Calls(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802 - the name that NodeTransformer calls
        self.generic_visit(node)
        callee = ast.Call(ast.Name(CALLEE, ast.Load()), [node.func], [])
        node.func = ast.copy_location(callee, node.func)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:  # noqa: N802
        return node
