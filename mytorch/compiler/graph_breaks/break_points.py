"""Where a graph breaks: at the instructions that load something opaque, which a program can't depend on."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping

from ...nn.module import Module
from ...utils.nested import leaves
from ..guards.allowed import is_dynamic, why_opaque
from ..guards.bytecode import attribute_loads_in, codes_in, parameter_loads_in
from ..guards.loads import Load
from ..guards.reachable import Reachable
from .syntax import plain


def graph_break(what: str) -> NotImplementedError:
    """Returns the error that ends a trace at something opaque."""
    return NotImplementedError(f"a program can't hold {what}")


class BreakPoints:
    """The opaque objects that functions get at, by the instructions that load them.

    An attribute is known by its name alone, whatever it is an attribute of.

    Args:
        reachable: the functions that may run, what they load, and the opaque attributes of objects.

    Attributes:
        codes: the code of the functions that may run, by its ids.
    """

    def __init__(self, reachable: Reachable):
        self.codes: dict[int, types.CodeType] = {}
        self._modules = reachable.modules
        self._attributes = {name: _described(name, text) for name, text in reachable.opaque.items()}
        self._loads: dict[int, dict[int, str]] = {}  # by the id of the code, and the offset
        self._parameters: dict[int, dict[str, str]] = {}  # by the id of the code, and the name
        self._found: dict[int, dict[int, str]] = {}
        for function in reachable.functions:
            self.codes |= {id(code): code for code in codes_in(function.__code__)}
            if function.__defaults__ or function.__kwdefaults__:
                parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
                self._note_parameters(
                    function.__code__, {p.name: p.default for p in parameters if p.default is not p.empty}
                )
        for load in reachable.loads:
            self._note_load(load)

    def _note_load(self, load: Load) -> None:
        if is_dynamic(load.value) and load.name.rpartition(".")[2] == load.value.__name__:
            return  # called by its name
        if (text := why_opaque(load.value)) is not None:
            self._loads.setdefault(id(load.code), {})[load.offset] = _described(load.name, text)

    def _note_parameters(self, code: types.CodeType, values: Mapping[str, object]) -> None:
        opaque = {name: _described(name, text) for name, x in values.items() if (text := why_opaque(x))}
        for inner in codes_in(code) if opaque else ():
            self._parameters.setdefault(id(inner), {}).update(opaque)

    def note_arguments(self, function: Callable, args: tuple, kwargs: dict) -> None:
        """Notes which parameters of the traced function get something opaque.

        Raises:
            NotImplementedError: it isn't known which, as for a module with hooks, or the function itself is
                opaque.
        """
        if (what := why_opaque(function)) is not None:
            raise graph_break(what)
        whats = [why_opaque(x) for x in leaves((args, kwargs))]
        if any(whats):
            found, is_module = plain(function), isinstance(function, Module)
            if found is None or (is_module and function._hooks is not None):
                raise graph_break(next(filter(None, whats)))
            signature = inspect.signature(function.forward if is_module else function)
            self._note_parameters(found.__code__, signature.bind(*args, **kwargs).arguments)

    def of(self, code: types.CodeType) -> dict[int, str]:
        """Returns what is opaque of what a function loads, by the offsets of the instructions that do."""
        if id(code) not in self._found:
            self._found[id(code)] = self._of(code)
        return self._found[id(code)]

    def _of(self, code: types.CodeType) -> dict[int, str]:
        found = {**self._loads.get(id(code), {})}
        parameters = self._parameters.get(id(code), {})
        if parameters:
            found |= {offset: parameters[name] for offset, name in parameter_loads_in(code, parameters)}
        if self._attributes or "__subclasses__" in code.co_names:
            loads = attribute_loads_in(code, self._modules)
            texts = {offset: self._of_attribute(text, name) for offset, text, name in loads}
            found |= {offset: text for offset, text in texts.items() if text is not None}
        return found

    def _of_attribute(self, text: str, name: str | None) -> str | None:
        if name == "__subclasses__":
            return "the subclasses of a class"
        if name is None and self._attributes:
            return f"what {text} may find: {next(iter(self._attributes.values()))}"
        return self._attributes.get(name)

    def first(self) -> str | None:
        """Returns something opaque that a function may load; None if there is nothing."""
        return next((text for code in [*self.codes.values()] for text in self.of(code).values()), None)


def _described(name: str, text: str) -> str:
    if text == "print()":
        return "what is printed"
    if text.rpartition(".")[2].rstrip("()") == name.rpartition(".")[2]:
        return text
    return f"{name}, which is {text}"
