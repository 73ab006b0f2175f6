"""What the instructions of a function load of what is outside of it, as far as the code shows it.

    y = x * cfg.rates.first + datetime.now().second    cfg.rates, datetime.now

Names are followed through modules: what is loaded is the first value that is no module, or a module that is
used as a value. Names that aren't there are noted, too: they may appear.
"""

from __future__ import annotations

import builtins
import dis
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import NamedTuple

from ..guards.places import MISSING, Attributes, content
from ..guards.snapshot import Snapshot
from ..guards.state_guards import PLAIN
from .code import codes_in, instructions_of
from .opaque import is_foreign, is_pure

_OF_MODULES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_LEFT_OUT = ("EXTENDED_ARG", "PUSH_NULL", "NOP", "CACHE", "PRECALL", "RESUME")
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL")


class Load(NamedTuple):
    """A value that an instruction loads.

    Attributes:
        code: of the function, or of one that is defined in it.
        offset: of the instruction.
        name: as it is written, "cfg.rates".
    """

    code: types.CodeType
    offset: int
    name: str
    value: object


class Loads:
    """The loads of a function; where they come from is kept in a snapshot."""

    def __init__(self, function: types.FunctionType, snapshot: Snapshot):
        self._globals, self._snapshot = function.__globals__, snapshot
        self._builtins = vars(builtins)
        code = function.__code__
        self._cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self._code = code

    def __iter__(self) -> Iterator[Load]:
        for code in codes_in(self._code):
            yield from self._of_code(code)

    def _of_code(self, code: types.CodeType) -> Iterator[Load]:
        found = [i for i in instructions_of(code) if i.opname not in _LEFT_OUT]
        imported: dict[str, object] = {}  # modules, by the local variables that hold them
        last: object = MISSING  # the module of the last `import`
        k = 0
        while k < len(found):
            i = found[k]
            name, value = str(i.argval), self._root(i, found[max(0, k - 2) : k], imported, last)
            if i.opname == "IMPORT_NAME":
                last = value
            while isinstance(value, types.ModuleType) and found[k + 1].opname in _OF_MODULES:
                k += 1
                if type(value) is not types.ModuleType:
                    yield Load(code, found[k].offset, f"{name}.__class__", type(value))
                name, value = f"{name}.{found[k].argval}", self._entry(value, found[k].argval)
            if isinstance(value, types.FunctionType) and found[k + 1].opname == "LOAD_ATTR":
                self._snapshot.keep_entry(value.__dict__, found[k + 1].argval)
            stored = found[k + 1] if k + 1 < len(found) else i
            is_module = isinstance(value, types.ModuleType)
            if is_module and stored.opname in _STORES and i.opname.startswith("IMPORT"):
                is_known = stored.opname == "STORE_FAST" and imported.get(stored.argval, value) is value
                imported[stored.argval] = value
                value = MISSING if is_known else value
            if value is not MISSING:
                yield Load(code, found[k].offset, name, value)
            k += 1

    def _root(
        self, i: dis.Instruction, before: list[dis.Instruction], imported: dict[str, object], last: object
    ) -> object:  # fmt: skip
        """Returns what an instruction loads by its own name; MISSING if that is nothing, or isn't known."""
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            return self._named(i.argval)
        if i.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
            cell = self._cells.get(i.argval)
            return MISSING if cell is None else content(cell)
        if i.opname.startswith("LOAD_FAST"):
            names = i.argval if isinstance(i.argval, tuple) else (i.argval,)  # two, from Python 3.13 on
            return next((imported[name] for name in reversed(names) if name in imported), MISSING)
        if i.opname == "IMPORT_NAME":
            return self._module(i.argval, *[x.argval for x in before])
        if i.opname == "IMPORT_FROM" and isinstance(last, types.ModuleType):
            return self._entry(last, i.argval)
        return MISSING

    def _named(self, name: str) -> object:
        """Returns a global or a builtin."""
        self._snapshot.keep_entry(self._globals, name)
        if name in self._globals:
            return self._globals[name]
        self._snapshot.keep_entry(self._builtins, name)
        return self._builtins.get(name, MISSING)

    def _module(self, name: str, level: int = 0, names: object = None) -> object:
        """Returns what `import` gives, if it is loaded."""
        package = self._globals.get("__package__") or ""
        try:
            name = importlib.util.resolve_name("." * int(level) + name, package)
        except (ImportError, TypeError, ValueError):
            return MISSING
        if not names:
            name = name.partition(".")[0]
        self._snapshot.keep_entry(sys.modules, name)
        return sys.modules.get(name, MISSING)

    def _entry(self, module: types.ModuleType, name: str) -> object:
        """Returns an attribute of a module; MISSING if there is none."""
        entries = vars(module)
        if not is_foreign(module.__name__):
            self._snapshot.keep_entry(Attributes(module, ("__class__",)), "__class__")
        if name in entries:
            value = entries[name]
        elif is_foreign(module.__name__) or "__getattr__" not in entries:
            value = getattr(module, name, MISSING)  # perhaps of the class of modules, as `__dict__`
        else:
            value = MISSING  # what a user's `__getattr__` returns, which isn't followed: see `watching`
        is_code = is_foreign(module.__name__) and is_pure(module.__name__) and not isinstance(value, PLAIN)
        if not is_code or value is MISSING:
            self._snapshot.keep_entry(entries, name)
        return value
