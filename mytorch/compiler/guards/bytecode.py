"""What the code of Python functions shows: the names that it uses, and how."""

from __future__ import annotations

import dis
import functools
import re
import types
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_DYNAMIC = {  # with these a function gets at attributes without naming them
    "__class__", "__delattr__", "__dict__", "__getattr__", "__getattribute__", "__init__", "__setattr__",
    "asdict", "astuple", "attrgetter", "copy", "deepcopy", "delattr", "fields", "getattr", "methodcaller",
    "replace", "setattr",
}
_DYNAMIC_GLOBALS = {"dir", "eval", "exec", "type", "vars"}  # and these, which are also names of methods
_ANY_ATTRIBUTE = {
    "__dict__", "__getattribute__", "asdict", "astuple", "attrgetter", "getattr", "methodcaller",
}
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions of Python that load a global
_OF_OBJECTS = {"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_FAST"}
_ATTRIBUTE_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_OF_ATTRIBUTES = (*_ATTRIBUTE_LOADS, "STORE_ATTR", "DELETE_ATTR")
_NAMING = (*_LOADS, *_OF_ATTRIBUTES)
_CALLS = ("PRECALL", "CALL", "CALL_FUNCTION", "CALL_METHOD")  # "CALL" after "PRECALL" in Python 3.11

Instructions = list[dis.Instruction]
Modules = Container[tuple[int, int]]  # where code loads a module, by its id, and the offset


def names_in(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in a function and in functions that are defined in it."""
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


@functools.lru_cache(1000)
def names_of_class(kind: type) -> frozenset[str]:
    """Returns the names that a class has, and that its methods use."""
    methods = [x for x in vars(kind).values() if isinstance(x, types.FunctionType)]
    return frozenset(vars(kind)).union(*[names_in(method.__code__) for method in methods])


def attribute_loads_in(code: types.CodeType, modules: Modules = ()) -> Iterator[tuple[int, str, str | None]]:
    """Yields the offsets of instructions of a function itself with which it gets at attributes, how that is
    written, and the name of the attribute; None if the function computes it, as for `getattr(x, f"_{name}")`.

    Args:
        modules: for a call of `getattr` whose first argument is one of these, nothing is yielded.
    """
    found = [i for i in instructions_of(code) if i.opname != "EXTENDED_ARG"]
    for k, i in enumerate(found):
        if i.opname in _NAMING and i.argval == "getattr":
            arguments = _arguments_in(found[k + 1 :])
            if i.opname not in _LOADS or (id(code), _path_in(arguments)) not in modules:
                yield i.offset, "getattr", _name_in(arguments)
        elif i.opname in _NAMING and i.argval in _ANY_ATTRIBUTE:
            yield i.offset, i.argval, None
        elif i.opname in _ATTRIBUTE_LOADS:
            yield i.offset, i.argval, i.argval


def _arguments_in(later: Instructions) -> list[Instructions]:
    """Returns the instructions for each argument of a call, of those after the one that loads its function;
    nothing if these are no call, or have jumps in them."""
    depth, start = 0, {}  # of the stack, and where each item of it begins
    is_before_call = False
    for k, i in enumerate(later):
        if i.opname in _CALLS and not is_before_call and 0 < depth == i.arg:
            ends = [*[start[n] for n in range(1, depth)], k]
            return [later[start[n] : end] for n, end in enumerate(ends)]
        is_jump = i.opcode in dis.hasjrel or i.opcode in dis.hasjabs
        height = -1 if is_jump else depth + dis.stack_effect(i.opcode, i.arg)
        if height < 0:
            return []
        if k or i.opname != "PUSH_NULL":  # which may come after the function
            start |= dict.fromkeys(range(depth, height), k)
            depth, is_before_call = height, i.opname == "PRECALL"
    return []


def argument_of(code: types.CodeType, offset: int) -> int | None:
    """Returns where the only argument of a call is loaded, if that is a name or an attribute, given where its
    function is."""
    later = [i for i in instructions_of(code) if i.offset > offset and i.opname != "EXTENDED_ARG"]
    arguments = _arguments_in(later)
    return _path_in(arguments) if len(arguments) == 1 else None


def _path_in(arguments: list[Instructions]) -> int | None:
    """Returns where the first argument of a call is loaded, if that is an object, or an attribute of one, by
    its name, as `nn.functional`."""
    names = [i.opname for i in arguments[0]] if arguments else []
    is_path = not _OF_OBJECTS.isdisjoint(names[:1]) and {*names[1:]} <= {"LOAD_ATTR"}
    return arguments[0][-1].offset if is_path else None


def _name_in(arguments: list[Instructions]) -> str | None:
    """Returns the name in a call of `getattr`, given its arguments, if it is written out."""
    found = arguments[1] if len(arguments) > 1 else []
    return found[0].argval if [i.opname for i in found] == ["LOAD_CONST"] else None


@functools.lru_cache(1000)
def instructions_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """Returns the instructions of a function itself."""
    return tuple(dis.get_instructions(code))


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code of a function, and of the functions that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


@dataclass
class Uses:
    """What the code of functions uses, by names.

    Attributes:
        names: of globals and attributes.
        accessed: the names of attributes, each with the names of the attributes whose attribute it is, or "":
            for `x.optimizer.step` "optimizer" with "", and "step" with "optimizer".
        stored: the names that functions may give to attributes, as in `x.name = y`, `Config(name=y)`, or by a
            string; None among them if these aren't written out, as in `Config(**options)`.
        is_dynamic: whether a function gets at attributes that it doesn't name, as by `getattr`.
        gets_at_classes: whether a function may make an object of a class that it got from another object.
        asks_types: whether a function calls `type`, so that what stands for a number isn't as good as one.
        asks_identity: whether a function asks what is the same object (`x is y`), other than None.
    """

    names: set[str] = field(default_factory=set)
    accessed: dict[str, set[str]] = field(default_factory=dict)
    stored: set[str | None] = field(default_factory=set)
    is_dynamic: bool = False
    gets_at_classes: bool = False
    asks_types: bool = False
    asks_identity: bool = False

    def add(self, code: types.CodeType, modules: Modules) -> None:
        """Adds what a function uses.

        Args:
            modules: where it loads modules that only compute.
        """
        inner = [i for part in codes_in(code) for i in instructions_of(part) if i.opname != "EXTENDED_ARG"]
        names, loaded = names_in(code), {i.argval for i in inner if i.opname in _LOADS}
        self.names |= names
        self._add_accessed(code, inner)
        self._add_stored(code, inner)
        self.asks_types |= "type" in loaded
        self.asks_identity |= any(map(_compares_identity, [None, *inner], inner))
        if code.co_filename != "<string>":  # that of a dataclass: `__eq__` compares `__class__`
            self.gets_at_classes |= "type" in loaded or "__class__" in names
            computes = None in _names_of_getattr(code, modules)
            dynamic = names & _DYNAMIC - (set() if computes else {"getattr"}) | loaded & _DYNAMIC_GLOBALS
            self.is_dynamic |= bool(dynamic) or any(map(_matches_or_formats, [None, *inner], inner))

    def add_type(self) -> None:
        """Adds that a function has `type` as an object."""
        self.asks_types = self.is_dynamic = self.gets_at_classes = True

    def _add_accessed(self, code: types.CodeType, inner: Instructions) -> None:
        for name in filter(None, _names_of_getattr(code)):
            self.accessed.setdefault(name, set()).add("")
        for before, i in pairwise([*inner[:1], *inner]):
            if i.opname in _OF_ATTRIBUTES:
                owner = before.argval if before.opname == "LOAD_ATTR" else ""
                self.accessed.setdefault(i.argval, set()).add(owner)

    def _add_stored(self, code: types.CodeType, inner: Instructions) -> None:
        self.stored |= {i.argval for i in inner if i.opname.startswith("STORE_")} - {None}
        waiting = [x for part in codes_in(code) for x in part.co_consts]
        while waiting:
            x = waiting.pop()
            waiting += x if isinstance(x, (tuple, frozenset)) else ()
            self.stored |= {x} if isinstance(x, str) else set()
        self.stored |= {None} if any([i.opname == "DICT_MERGE" for i in inner]) else set()


# Of an instruction and the one before it.


def _compares_identity(before: dis.Instruction | None, i: dis.Instruction) -> bool:
    return i.opname == "IS_OP" and not (before.opname == "LOAD_CONST" and before.argval is None)


def _matches_or_formats(before: dis.Instruction | None, i: dis.Instruction) -> bool:
    """Returns whether it is `case Kind(x):` or may be `"{0.name}".format(x)`, with a text that isn't written
    out, too."""
    if i.opname not in _OF_ATTRIBUTES or i.argval not in ("format", "format_map"):
        return i.opname == "MATCH_CLASS"
    text = before.argval if before.opname == "LOAD_CONST" else None
    return not isinstance(text, str) or re.search(r"\{[^{}:!]*\.", text) is not None
