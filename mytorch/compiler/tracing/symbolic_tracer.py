"""SymbolicTracer: a tracer that also notes what is computed of the sizes of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...utils.nested import leaves, mapped
from ..program.instruction import Instruction, Value
from .number import Number
from .size import exact, have_sizes
from .sizes import Sizes
from .tracer import Tracer


class SymbolicTracer(Tracer):
    """Notes instructions, and the sizes among their arguments.

    Args:
        sizes: gets the sizes.
        args: see `Tracer`.
    """

    def __init__(self, sizes: Sizes, *args: Any):
        super().__init__(*args)
        self.sizes = sizes

    def call(self, name: str, rule: Callable, args: tuple, kwargs: dict) -> Any:
        given = args, kwargs
        if self.is_inside or not have_sizes(given):
            return super().call(name, rule, args, kwargs)
        count = len(self.instructions)
        result = super().call(name, rule, *mapped(exact, given))
        has_numbers = any([type(x) is Number for x in leaves(given)])  # beside inputs sizes are constants
        if len(self.instructions) > count and not has_numbers:
            self._note_sizes(given)
        return result

    def note(self, instruction: Instruction) -> None:
        given = instruction.args, instruction.kwargs
        if not have_sizes(given):
            return super().note(instruction)
        args, kwargs = mapped(exact, given)
        super().note(replace(instruction, args=args, kwargs=kwargs))
        return self._note_sizes(given)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """As in a tracer; an error, which the function may catch, may have another answer for other sizes."""
        with super().inside():
            try:
                yield
            except Exception as error:
                self.sizes.error = error
                raise

    def choose(self, ask: Callable[[], bool]) -> bool:
        """Returns the choice of an earlier trace, whatever the sizes are."""
        with self.inside():
            found = self.sizes.choice(ask())
        self.choices.append(found)
        return found

    def _note_sizes(self, arguments: tuple[tuple, dict]) -> None:
        self.sizes.note(self.instructions[-1], *mapped(self._symbolic_leaf, arguments))

    def _symbolic_leaf(self, x: Any) -> Any:
        is_known = isinstance(x, Value) or have_sizes(x)
        return x if is_known else self._value_leaf(self._lifted_leaf(x))
