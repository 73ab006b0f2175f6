"""Functions and their syntax trees: a function's tree, and a function that does what a tree says."""

from __future__ import annotations
import __future__

import ast
import dis
import functools
import inspect
import types
import weakref
from collections.abc import Callable

from ...nn.module import Module
from ..guards.modules import is_foreign
from ..guards.places import content

_made: weakref.WeakKeyDictionary[types.FunctionType, ast.FunctionDef] = weakref.WeakKeyDictionary()
_OF_CALLS = (
    "EXTENDED_ARG", "LOAD_ATTR", "LOAD_METHOD", "PRECALL", "PUSH_NULL", "CALL", "CALL_METHOD",
    "CALL_FUNCTION",
)
_KINDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUTURE = [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]


def plain(function: Callable) -> types.FunctionType | None:
    """Returns the function whose code a callable runs: of a module `forward`, of a method its function."""
    if isinstance(function, types.FunctionType):
        return function if (cell := _decorated(function)) is None else plain(cell.cell_contents)
    if isinstance(function, types.MethodType):
        return plain(function.__func__)
    if isinstance(function, functools.partial):
        return plain(function.func)
    if isinstance(function, Module) and type(function).__call__ is Module.__call__:
        return None if "forward" in vars(function) else plain(type(function).forward)
    return None


def with_plain(function: Callable, new: types.FunctionType) -> Callable:
    """Returns the callable with another function in place of its `plain` one."""
    if isinstance(function, types.MethodType):
        return types.MethodType(with_plain(function.__func__, new), function.__self__)
    if isinstance(function, functools.partial):
        return functools.partial(with_plain(function.func, new), *function.args, **function.keywords)
    if isinstance(function, Module):

        def call(*args: object, **kwargs: object) -> object:
            if function._hooks is not None:  # they are called around the module's own `forward`
                return function(*args, **kwargs)
            return new(function, *args, **kwargs)

        return call
    if (cell := _decorated(function)) is not None:
        made = types.CellType(with_plain(cell.cell_contents, new))
        closure = tuple([made if x is cell else x for x in function.__closure__])
        remade = types.FunctionType(
            function.__code__, function.__globals__, None, function.__defaults__, closure
        )
        remade.__kwdefaults__ = function.__kwdefaults__
        return functools.update_wrapper(remade, made.cell_contents)
    return new


def _decorated(function: types.FunctionType) -> types.CellType | None:
    """Returns where a decorator of the package or of Python, as `no_grad`, keeps the function that it calls;
    None if it is another function."""
    if "__wrapped__" not in function.__dict__ or not is_foreign(function.__globals__.get("__name__")):
        return None
    cells = [x for x in function.__closure__ or () if content(x) is function.__wrapped__]
    return cells[0] if cells else None


def tree_of(function: types.FunctionType) -> ast.FunctionDef | None:
    """Returns the syntax tree of a function, with the lines of its file and without decorators, defaults and
    annotations; None if its source isn't found, or isn't what it runs."""
    if function in _made:
        return _made[function]
    if function.__name__ == "<lambda>" or function.__code__.co_flags & _KINDS:
        return None
    try:
        lines, first = inspect.getsourcelines(function.__code__)
        is_indented = lines[0][:1].isspace()
        found = ast.parse("if True:\n" * is_indented + "".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    tree = found.body[0].body[0] if is_indented else found.body[0]
    if not isinstance(tree, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, first - 1 - is_indented)
    tree.decorator_list, tree.returns = [], None
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    is_same = _content(_code(tree, function, function.__code__.co_freevars)) == _content(function.__code__)
    return tree if is_same else None


def function_of(
    tree: ast.FunctionDef, like: types.FunctionType, cells: dict[str, types.CellType], name: str
) -> types.FunctionType:
    """Returns a function that does what a tree says, with the globals and defaults of another.

    Args:
        cells: the variables that aren't its own, by their names.
    """
    code = _code(tree, like, cells)
    closure = tuple([cells[found] for found in code.co_freevars])
    made = types.FunctionType(code, like.__globals__, name, None, closure)
    made.__module__ = like.__module__  # that of a user's function which is decorated
    return made


def keep(part: types.FunctionType, tree: ast.FunctionDef) -> types.FunctionType:
    """Returns a part of a function, and keeps its tree: its source is in no file."""
    _made[part] = tree
    return part


def is_part(function: Callable) -> bool:
    """Returns whether a function is a part of one that was split."""
    return isinstance(function, types.FunctionType) and function in _made


def cells_of(function: types.FunctionType) -> dict[str, types.CellType]:
    """Returns the cells of a function's closure by their names."""
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _code(tree: ast.FunctionDef, like: types.FunctionType, free: object) -> types.CodeType:
    """Returns the code of a function whose variables `free` belong to one around it."""
    around = ast.FunctionDef("around", arguments([*free]), [tree], [], type_params=[])
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(around, tree)], []))
    flags = like.__code__.co_flags & functools.reduce(int.__or__, _FUTURE)
    code = compile(module, like.__code__.co_filename, "exec", flags, dont_inherit=True)
    for _ in range(2):
        code = next(x for x in code.co_consts if isinstance(x, types.CodeType))
    return code


def arguments(names: list[str]) -> ast.arguments:
    """Returns the part of a tree that names positional arguments."""
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])


def _content(code: types.CodeType) -> tuple:
    """Returns what tells the code of one source from that of another, whatever the module imports: on that it
    depends how a method is called."""
    constants = [
        _content(x) if isinstance(x, types.CodeType)
        else (type(x), x.rpartition("<locals>.")[2] if isinstance(x, str) else x)  # of inner functions
        for x in code.co_consts
    ]
    operations = [
        (i.opname, i.argrepr if i.opname in ("BINARY_OP", "COMPARE_OP") else "")
        for i in dis.get_instructions(code) if i.opname not in _OF_CALLS
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return operations, *names, constants
