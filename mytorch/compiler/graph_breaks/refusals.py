"""Where functions load what is opaque: there a capture ends, and the function is split."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping

from .code import attribute_loads_in, codes_in, parameter_loads_in
from .loads import Load
from .opaque import DYNAMIC, is_computing, why_opaque


class Refusals:
    """The opaque objects that functions get at, by the instructions that load them.

    An attribute is known by its name alone, whatever it is an attribute of.

    Attributes:
        codes: of the functions that may run, by their ids.
        modules: where functions load modules whose attributes compute with numbers and tensors.
    """

    def __init__(self) -> None:
        self.codes: dict[int, types.CodeType] = {}
        self.modules: set[tuple[int, int]] = set()  # by the id of the code, and the offset
        self._loads: dict[int, dict[int, str]] = {}  # by the id of the code, and the offset
        self._attributes: dict[str, str] = {}  # by name, what they are
        self._parameters: dict[int, dict[str, str]] = {}  # by the id of the code, and the name
        self._found: dict[int, dict[int, str]] = {}

    def note_function(self, function: types.FunctionType) -> None:
        """Notes a function that may run, and the defaults of its parameters."""
        for code in codes_in(function.__code__):
            self.codes[id(code)] = code
        if function.__defaults__ or function.__kwdefaults__:
            parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            self.note_parameters(function.__code__, defaults)

    def note_parameters(self, code: types.CodeType, values: Mapping[str, object]) -> bool:
        """Notes what a function gets; returns whether something of it is opaque."""
        opaque = {name: text for name, x in values.items() if (text := why_opaque(x)) is not None}
        for inner in codes_in(code) if opaque else ():
            self._parameters.setdefault(id(inner), {}).update(opaque)
        return bool(opaque)

    def note_load(self, load: Load) -> None:
        """Notes what an instruction loads."""
        is_dynamic = id(load.value) in DYNAMIC and load.name.rpartition(".")[2] == load.value.__name__
        text = None if is_dynamic else why_opaque(load.value)
        if text is None and isinstance(load.value, types.ModuleType) and is_computing(load.value):
            self.modules.add((id(load.code), load.offset))
        if text is not None:
            self._loads.setdefault(id(load.code), {})[load.offset] = _described(load.name, text)

    def note_attribute(self, name: object, value: object) -> None:
        """Notes an attribute of an object or a class."""
        text = why_opaque(value)
        if text is not None and isinstance(name, str):
            self._attributes[name] = _described(name, text)

    def of(self, code: types.CodeType) -> dict[int, str]:
        """Returns what is opaque of what a function loads, by the offsets of the instructions that do."""
        if id(code) not in self._found:
            self._found[id(code)] = self._of(code)
        return self._found[id(code)]

    def _of(self, code: types.CodeType) -> dict[int, str]:
        found = {**self._loads.get(id(code), {})}
        parameters = self._parameters.get(id(code), {})
        for offset, name in parameter_loads_in(code, parameters) if parameters else ():
            found[offset] = _described(name, parameters[name])
        asks = bool(self._attributes) or "__subclasses__" in code.co_names
        for offset, text, name in attribute_loads_in(code, self.modules) if asks else ():
            if name == "__subclasses__":
                found[offset] = "the subclasses of a class"
            elif name is None and self._attributes:
                found[offset] = f"what {text} may find: {next(iter(self._attributes.values()))}"
            elif name in self._attributes:
                found[offset] = self._attributes[name]
        return found

    def first(self) -> str | None:
        """Returns something opaque that a function may load; None if there is nothing."""
        return next((text for code in [*self.codes.values()] for text in self.of(code).values()), None)


def _described(name: str, text: str) -> str:
    if text == "print()":
        return "what is printed"
    if text.rpartition(".")[2].rstrip("()") == name.rpartition(".")[2]:
        return text
    return f"{name}, which is {text}"
