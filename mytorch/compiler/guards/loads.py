"""What the instructions of a function load of what is outside of it, as far as the code shows it.

    y = x * cfg.rates.first + datetime.now().second    cfg.rates, datetime.now

Names are followed through modules: what is loaded is the first value that is no module, or a module that is
used as a value. Names that aren't there are guarded, too: they may appear.
"""

from __future__ import annotations

import builtins
import dis
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .bytecode import codes_in, instructions_of
from .modules import is_foreign, is_pure
from .places import MISSING, Place, content
from .snapshot import Snapshot
from .state_guards import PLAIN

_OF_MODULES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_LEFT_OUT = ("EXTENDED_ARG", "PUSH_NULL", "NOP", "CACHE", "PRECALL", "RESUME")
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL")


class Load(NamedTuple):
    """A value that an instruction loads.

    Attributes:
        code: the code of the function, or of one that is defined in it.
        offset: where the instruction is in it.
        name: the value's name as it is written, "cfg.rates".
    """

    code: types.CodeType
    offset: int
    name: str
    value: object


class Loads:
    """The loads of a function; the places of their values get guards in a snapshot."""

    def __init__(self, function: types.FunctionType, snapshot: Snapshot):
        self._globals, self._snapshot = function.__globals__, snapshot
        self._code = function.__code__
        self._cells = dict(zip(self._code.co_freevars, function.__closure__ or (), strict=True))
        self._imported: dict[str, object] = {}  # modules, by the local variables that hold them
        self._last: object = MISSING  # the module of the last `import`

    def __iter__(self) -> Iterator[Load]:
        for code in codes_in(self._code):
            self._imported, self._last = {}, MISSING
            yield from self._of_code(code)

    def _of_code(self, code: types.CodeType) -> Iterator[Load]:
        steps = [i for i in instructions_of(code) if i.opname not in _LEFT_OUT]
        k = 0
        while k < len(steps):
            first, before = steps[k], steps[max(0, k - 2) : k]
            name, value = str(first.argval), _FIND.get(first.opname, Loads._local)(self, first, before)
            while isinstance(value, types.ModuleType) and steps[k + 1].opname in _OF_MODULES:
                k += 1
                if type(value) is not types.ModuleType:
                    yield Load(code, steps[k].offset, f"{name}.__class__", type(value))
                name, value = f"{name}.{steps[k].argval}", self._entry(value, steps[k].argval)
            after = steps[min(k + 1, len(steps) - 1)]
            if isinstance(value, types.FunctionType) and after.opname == "LOAD_ATTR":
                self._snapshot.guard(Place(value.__dict__, after.argval))
            if value is not MISSING and not self._imports(first, value, after):
                yield Load(code, steps[k].offset, name, value)
            k += 1

    def _imports(self, first: dis.Instruction, value: object, after: dis.Instruction) -> bool:
        """Returns whether a module is imported into a local variable that holds no other one; it is followed
        when the variable is loaded."""
        is_module = isinstance(value, types.ModuleType) and first.opname.startswith("IMPORT")
        if not is_module or after.opname not in _STORES:
            return False
        before = self._imported.get(after.argval, value)
        self._imported[after.argval] = value
        return after.opname == "STORE_FAST" and before is value

    # What an instruction loads by its own name; MISSING if that is nothing, or isn't known.

    def _local(self, i: dis.Instruction, before: list[dis.Instruction]) -> object:
        if not i.opname.startswith("LOAD_FAST"):
            return MISSING
        names = i.argval if isinstance(i.argval, tuple) else (i.argval,)  # two, from Python 3.13 on
        return next((self._imported[name] for name in reversed(names) if name in self._imported), MISSING)

    def _global(self, i: dis.Instruction, before: list[dis.Instruction]) -> object:
        for entries in (self._globals, vars(builtins)):
            self._snapshot.guard(Place(entries, i.argval))
            if i.argval in entries:
                return entries[i.argval]
        return MISSING

    def _variable(self, i: dis.Instruction, before: list[dis.Instruction]) -> object:
        cell = self._cells.get(i.argval)
        return MISSING if cell is None else content(cell)

    def _module(self, i: dis.Instruction, before: list[dis.Instruction]) -> object:
        """Returns what `import` gives, if it is loaded."""
        level, names = [x.argval for x in before] if len(before) == 2 else (0, None)
        self._last = MISSING
        try:
            package = self._globals.get("__package__") or ""
            name = importlib.util.resolve_name("." * int(level) + i.argval, package)
        except (ImportError, TypeError, ValueError):
            return MISSING
        name = name if names else name.partition(".")[0]
        self._snapshot.guard(Place(sys.modules, name))
        self._last = sys.modules.get(name, MISSING)
        return self._last

    def _of_import(self, i: dis.Instruction, before: list[dis.Instruction]) -> object:
        return self._entry(self._last, i.argval) if isinstance(self._last, types.ModuleType) else MISSING

    def _entry(self, module: types.ModuleType, name: str) -> object:
        """Returns an attribute of a module; MISSING if there is none."""
        entries, is_constant = vars(module), is_foreign(module.__name__)
        if not is_constant:
            self._snapshot.guard_attribute(module, "__class__")
        if name in entries:
            value = entries[name]
        elif is_constant or "__getattr__" not in entries:
            value = getattr(module, name, MISSING)  # perhaps of the class of modules, as `__dict__`
        else:
            value = MISSING  # what a user's `__getattr__` returns, which isn't followed: see `watching`
        is_code = is_constant and is_pure(module.__name__) and not isinstance(value, PLAIN)
        if not is_code or value is MISSING:
            self._snapshot.guard(Place(entries, name))
        return value


_FIND: dict[str, Callable[[Loads, dis.Instruction, list[dis.Instruction]], object]] = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), Loads._global),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), Loads._variable),
    "IMPORT_NAME": Loads._module,
    "IMPORT_FROM": Loads._of_import,
}
