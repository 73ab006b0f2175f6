"""What the code of Python functions shows: the names that it uses, and how."""

from __future__ import annotations

import dis
import functools
import re
import types
from collections.abc import Container, Iterator
from itertools import pairwise

_DYNAMIC = {  # with these a function gets at attributes without naming them
    "__class__", "__delattr__", "__dict__", "__getattr__", "__getattribute__", "__init__", "__setattr__",
    "asdict", "astuple", "attrgetter", "copy", "deepcopy", "delattr", "fields", "getattr", "methodcaller",
    "replace", "setattr",
}  # fmt: skip
_DYNAMIC_GLOBALS = {"dir", "eval", "exec", "type", "vars"}  # and these, which are also names of methods
_ANY_ATTRIBUTE = {
    "__dict__", "__getattribute__", "asdict", "astuple", "attrgetter", "getattr", "methodcaller",
}  # fmt: skip
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions of Python that load a global
_OF_OBJECTS = {"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_FAST"}
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")


Modules = Container[tuple[int, int]]  # where code loads a module, by its id, and the offset


def names_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in a function and in those that are defined in it."""
    found = {name for inner in codes_in(code) for name in inner.co_names}
    return found.union(filter(None, _names_of_getattr(code)))


def _names_of_getattr(code: types.CodeType, modules: Modules = ()) -> list[str | None]:
    """Returns the names in calls of `getattr`; None for one that isn't written out."""
    loads = [load for inner in codes_in(code) for load in attribute_loads_in(inner, modules)]
    return [name for _, text, name in loads if text == "getattr"]


def parameter_loads_in(code: types.CodeType, names: Container[str]) -> Iterator[tuple[int, str]]:
    """Yields the offsets of instructions of a function itself that load some of its variables, or of those of
    the function around it, and which."""
    for i in instructions_of(code):
        if i.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD")):
            loaded = i.argval if isinstance(i.argval, tuple) else (i.argval,)
            yield from [(i.offset, name) for name in loaded if name in names]


def globals_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals alone: `optimizer.step` isn't a global function `step`."""
    return {i.argval for i in _instructions_in(code) if i.opname in _LOADS}


def attributes_in(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """Yields the names of attributes, each with that of the attribute whose attribute it is, or "": for
    `x.optimizer.step` "optimizer" with "", and "step" with "optimizer"."""
    yield from [(name, "") for name in _names_of_getattr(code) if name is not None]
    before = ""
    for i in _instructions_in(code):
        if i.opname in _OF_ATTRIBUTES:
            yield i.argval, before
        if i.opname != "EXTENDED_ARG":
            before = i.argval if i.opname == "LOAD_ATTR" else ""


@functools.lru_cache(1000)
def stores_in(code: types.CodeType) -> frozenset[str | None]:
    """Returns the names that a function may give to attributes, as in `x.name = y`, `Config(name=y)`, or by a
    string; None among them if these aren't written out, as in `Config(**options)`."""
    found = {i.argval for i in _instructions_in(code) if i.opname.startswith("STORE_")}
    waiting = [x for inner in codes_in(code) for x in inner.co_consts]
    while waiting:
        x = waiting.pop()
        waiting += x if isinstance(x, (tuple, frozenset)) else ()
        found |= {x} if isinstance(x, str) else set()
    is_any = any([i.opname == "DICT_MERGE" for i in _instructions_in(code)])
    return frozenset({*found, None} if is_any else found - {None})


@functools.lru_cache(1000)
def names_of_class(kind: type) -> frozenset[str]:
    """Returns the names that a class has, and that its methods use."""
    methods = [x for x in vars(kind).values() if isinstance(x, types.FunctionType)]
    return frozenset(vars(kind)).union(*[names_in(method.__code__) for method in methods])


def gets_at_others(code: types.CodeType, modules: Modules = ()) -> bool:
    """Whether a function gets at attributes that it doesn't name, other than those of some modules."""
    if code.co_filename == "<string>":  # of a dataclass: `__eq__` names `__class__`
        return False
    if any([i.opname == "MATCH_CLASS" for i in _instructions_in(code)]):
        return True
    if any([_formats(before, i) for before, i in pairwise(_instructions_in(code))]):
        return True
    names = names_in(code) - ({"getattr"} if None not in _names_of_getattr(code, modules) else set())
    return not (names.isdisjoint(_DYNAMIC) and globals_in(code).isdisjoint(_DYNAMIC_GLOBALS))


def _formats(before: dis.Instruction, i: dis.Instruction) -> bool:
    """Whether it may be `"{0.name}".format(x)`: of a string that isn't written out that isn't known."""
    if i.opname not in _OF_ATTRIBUTES or i.argval not in ("format", "format_map"):
        return False
    text = before.argval if before.opname == "LOAD_CONST" else None
    return not isinstance(text, str) or re.search(r"\{[^{}:!]*\.", text) is not None


def attribute_loads_in(
    code: types.CodeType, modules: Modules = ()
) -> Iterator[tuple[int, str, str | None]]:  # fmt: skip
    """Yields the offsets of instructions of a function itself with which it gets at attributes, how that is
    written, and the name of the attribute; None if the function computes it, as for `getattr(x, f"_{name}")`.

    Args:
        modules: for a call of `getattr` whose first argument is one of these, nothing is yielded.
    """
    found = [i for i in instructions_of(code) if i.opname != "EXTENDED_ARG"]
    for k, i in enumerate(found):
        if i.argval == "getattr" and i.opname in _LOADS and _asks(found[k + 1 :], code, modules):
            continue
        if i.opname in (*_LOADS, *_OF_ATTRIBUTES) and i.argval in _ANY_ATTRIBUTE:
            yield i.offset, i.argval, _name_in(found[k + 1 :]) if i.argval == "getattr" else None
        elif i.opname in _OF_ATTRIBUTES[:3]:
            yield i.offset, i.argval, i.argval


def _asks(later: list[dis.Instruction], code: types.CodeType, modules: Modules) -> bool:
    """Whether the first argument in a call of `getattr`, which was just loaded, is one of some modules."""
    first = next((k for k, i in enumerate(later) if (id(code), i.offset) in modules), None)
    loads = [] if first is None else [i.opname for i in later[: first + 1] if i.opname != "PUSH_NULL"]
    if first is None or loads[0] not in _OF_OBJECTS or not {*loads[1:]} <= {"LOAD_ATTR"}:
        return False
    depth = 1  # of the stack: the module, and what comes next, until the call
    for before, i in pairwise(later[first:]):
        is_call = i.opname == "PRECALL" or i.opname == "CALL" and before.opname != "PRECALL"
        if is_call and depth == i.arg:
            return True
        is_jump = i.opcode in dis.hasjrel or i.opcode in dis.hasjabs
        depth += 0 if is_jump else dis.stack_effect(i.opcode, i.arg)
        if is_jump or depth < 2:
            return False
    return False


def _name_in(later: list[dis.Instruction]) -> str | None:
    """Returns the name in a call of `getattr`, which was just loaded, if it is written out, and the other
    arguments are a name or an attribute, and a name or a constant."""
    kinds = [i.opname for i in later[:20] if i.opname != "PUSH_NULL"]
    k = 1
    while kinds[k] == "LOAD_ATTR":
        k += 1
    is_simple = kinds[0].startswith("LOAD_") and kinds[k] == "LOAD_CONST"
    ends = [kind.startswith(("CALL", "PRECALL")) for kind in kinds[k + 1 : k + 3]]
    is_simple = is_simple and (ends[0] or (kinds[k + 1].startswith("LOAD_") and ends[1]))
    return [i.argval for i in later if i.opname != "PUSH_NULL"][k] if is_simple else None


def gets_at_classes(code: types.CodeType) -> bool:
    """Whether a function may get at the class of an object; `__eq__` of a dataclass only compares it."""
    is_made = code.co_filename == "<string>"
    return not is_made and ("type" in globals_in(code) or "__class__" in names_in(code))


def compares_identity(code: types.CodeType) -> bool:
    """Whether a function asks what is the same object (`x is y`), other than None."""
    is_none = False
    for i in _instructions_in(code):
        if i.opname == "IS_OP" and not is_none:
            return True
        is_none = i.opname == "LOAD_CONST" and i.argval is None
    return False


def _instructions_in(code: types.CodeType) -> Iterator[dis.Instruction]:
    for inner in codes_in(code):
        yield from instructions_of(inner)


@functools.lru_cache(1000)
def instructions_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """Returns the instructions of a function itself."""
    return tuple(dis.get_instructions(code))


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code of a function, and of those that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)
