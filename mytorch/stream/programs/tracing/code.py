"""What the code of Python functions shows: the names that it uses, and how."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator

_DYNAMIC = {  # with these a function gets at attributes without naming them
    "__class__", "__delattr__", "__dict__", "__getattr__", "__getattribute__", "__init__", "__setattr__",
    "asdict", "astuple", "attrgetter", "copy", "deepcopy", "delattr", "fields", "getattr", "methodcaller",
    "replace", "setattr",
}  # fmt: skip
_DYNAMIC_GLOBALS = {"dir", "eval", "exec", "type", "vars"}  # and these, which are also names of methods
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions of Python that load a global
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")


def names_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in a function and in those that are defined in it."""
    return {name for inner in _codes_in(code) for name in inner.co_names}


def globals_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals alone: `optimizer.step` isn't a global function `step`."""
    return {i.argval for i in _instructions_in(code) if i.opname in _LOADS}


def attributes_in(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """Yields the names of attributes, each with that of the attribute whose attribute it is, or "": for
    `x.optimizer.step` "optimizer" with "", and "step" with "optimizer"."""
    before = ""
    for i in _instructions_in(code):
        if i.opname in _OF_ATTRIBUTES:
            yield i.argval, before
        if i.opname != "EXTENDED_ARG":
            before = i.argval if i.opname == "LOAD_ATTR" else ""


def imports_in(code: types.CodeType, package: str) -> Iterator[types.ModuleType]:
    """Yields the modules that a function of a package imports itself, if they are loaded."""
    for i in _instructions_in(code):
        if i.opname == "IMPORT_NAME":
            names = i.argval, f"{package}.{i.argval}".strip("."), i.argval.partition(".")[0]
            yield from [sys.modules[name] for name in names if name in sys.modules]


def gets_at_others(code: types.CodeType) -> bool:
    """Whether a function gets at attributes that it doesn't name."""
    if code.co_filename == "<string>":  # of a dataclass: `__eq__` names `__class__`
        return False
    if any([i.opname == "MATCH_CLASS" for i in _instructions_in(code)]):
        return True
    return not (names_in(code).isdisjoint(_DYNAMIC) and globals_in(code).isdisjoint(_DYNAMIC_GLOBALS))


def compares_identity(code: types.CodeType) -> bool:
    """Whether a function asks what is the same object (`x is y`), other than None."""
    is_none = False
    for i in _instructions_in(code):
        if i.opname == "IS_OP" and not is_none:
            return True
        is_none = i.opname == "LOAD_CONST" and i.argval is None
    return False


def _instructions_in(code: types.CodeType) -> Iterator[dis.Instruction]:
    for inner in _codes_in(code):
        yield from dis.get_instructions(inner)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code of a function, and of those that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)
