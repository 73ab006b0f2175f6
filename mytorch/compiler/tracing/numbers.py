"""Python numbers that are inputs of a program: what stands for them while a function is traced.

    step(%0: float32[8], %1: float)
      %2: float = host.number('mul', %1, 2)
      host.outcome(True, 'lt', %2, 1)
      %3: float32[] = asarray(%2, float32)
      %4: float32[8] = multiply(%0, %3)

`scale = lr * 2` notes Python's own operation, `if scale < 1:` that the program holds as long as the answer is
the same, and `x * scale` that the number becomes an array without dims of the dtype that NumPy would give it.
All of these depend on numbers alone, so they come first in the program, before anything that has an effect.
Where Python asks for the exact value (`float(scale)`, `math.sqrt(scale)`, an index, text), the number is
*pinned*: the function is traced again, with the number as a constant.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import is_raw
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.layout import layout
from ...utils.nested import leaves, mapped
from ..guards.places import Place
from ..guards.snapshot import KINDS
from ..program.instruction import Instruction, Value
from .number import OPERANDS, OPERATIONS, UFUNCS, Number, exact_size, pinned

if TYPE_CHECKING:
    from .tracer import Tracer

_BOOL = np.dtype(bool)
# Functions of NumPy that take numbers as arrays without dims, of the common dtype, for the same; those that
# store one, with the position of the number among the arguments.
_ELEMENTWISE = {*UFUNCS, "where", "clip"}
_STORES = {".setitem": 2, ".fill": 1, "full": 1, "full_like": 1, "copyto": 1}


def _example_of(x: object) -> Any:
    return x.example if type(x) is Number else x


def _value_of(x: object) -> Any:
    return x.value if type(x) is Number else x


def with_numbers(x: object, numbers: Mapping[int | Place, Number]) -> Any:
    """Returns nested arguments with these in place of numbers, by their positions among the numbers."""
    count = itertools.count()

    def replaced(leaf):
        return numbers.get(next(count), leaf) if type(leaf) in KINDS else leaf

    return mapped(replaced, x) if numbers else x


class Numbers:
    """The numbers of one trace, and what is noted of them.

    Args:
        inputs: the numbers that are inputs, by their positions among the numbers of the arguments, or by
            their places in objects, where something stands for them until the end.

    Attributes:
        head: the instructions with which the program begins.
        pinned: the positions of those whose exact values Python needed, or that were written to.
    """

    def __init__(self, inputs: Mapping[int | Place, float | int] | None = None):
        self.inputs = {**(inputs or {})}
        self.head: list[Instruction] = []
        self.pinned: set[int | Place] = set()
        self._placed: dict[Place, Number] = {}
        self._tracer: Tracer | None = None
        self._known: dict[tuple, Any] = {}  # what was noted, by operation and arguments
        self._made: list[weakref.ref[Number]] = []

    def begin(self, tracer: Tracer) -> dict[int | Place, Number]:
        """Returns what stands for the inputs, which become inputs of the tracer's program; it is put in their
        places."""
        self._tracer = tracer
        found = {k: self._new(x, frozenset((k,))) for k, x in self.inputs.items()}
        tracer.number_inputs = [x.value for x in found.values()]
        self._placed = {k: x for k, x in found.items() if isinstance(k, Place)}
        for place, x in self._placed.items():
            place.write(x)
        return found

    def finish(self) -> None:
        """Ends the trace: from now on what stands for a number does what the number does."""
        self._tracer = None
        self._known.clear()
        for place, x in self._placed.items():
            if place.read() is not x:
                self.pinned.add(place)
            place.write(x.example)
        self._placed.clear()

    def escaped(self) -> bool:
        """Returns whether something outlives the trace that stands for a number: the function has kept it,
        in an object that isn't watched."""
        if any([reference() is not None for reference in self._made]):
            gc.collect()
        return any([reference() is not None for reference in self._made])

    def _new(self, example: Any, roots: frozenset[int | Place]) -> Number:
        made = Number(example, self._tracer.opaque(type(example).__name__), roots, self)
        self._made.append(weakref.ref(made))
        return made

    def pin(self, args: tuple) -> Any:
        """Returns the first number; the inputs that these depend on become constants."""
        if self._tracer is not None:
            self.pinned.update(*[x.roots for x in args if type(x) is Number])
        return _example_of(args[0])

    def operation(self, name: str, args: tuple) -> Any:
        """Returns what stands for the result of an operation, which is noted."""
        args = tuple(map(exact_size, args))
        result = OPERATIONS[name](*map(_example_of, args))
        if self._tracer is None:
            return result
        if not isinstance(result, (int, float)) and getattr(result, "dtype", _BOOL).kind not in "iufV":
            self.pin(args)
            return result
        key = name, *map(_identity, args)
        if key not in self._known:
            roots = frozenset().union(*[x.roots for x in args if type(x) is Number])
            found = self._known[key] = self._new(result, roots)
            self._note("number", (name, *args), (found.value,))
            if name == "pow":  # 2 ** -1 is a float, (-8.0) ** 0.5 is complex
                self.outcome("is_a", (found, type(result).__name__))
        return self._known[key]

    def outcome(self, name: str, args: tuple) -> bool:
        """Returns the answer of a comparison, which the program expects to be the same in each run."""
        args = tuple(map(exact_size, args))
        answer = bool(OPERATIONS[name](*map(_example_of, args)))
        key = name, *map(_identity, args)
        if self._tracer is not None and key not in self._known:
            self._known[key] = answer
            self._note("outcome", (answer, name, *args))
        return answer

    def _note(self, name: str, args: tuple, outputs: tuple[Value, ...] = ()) -> None:
        self.head.append(Instruction(f"host.{name}", mapped(_value_of, args), {}, outputs))

    def as_arrays(self, name: str, rule: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Returns the arguments of a NumPy function with arrays without dims in place of what stands for
        numbers, where it does the same with these; numbers that are in other places become constants."""
        exact = mapped(_example_of, args), mapped(pinned, kwargs)
        dtype = self._dtype(name, *exact)
        if dtype is not None:
            k = _STORES.get(name)
            places = range(name == "where", len(args)) if k is None else (k,)
            given = tuple([
                self.array(x, dtype) if type(x) is Number and k in places else mapped(pinned, x)
                for k, x in enumerate(args)
            ])
            if _same_layout(rule, exact, (given, exact[1]), self._tracer):
                return given, exact[1]
        return mapped(pinned, args), exact[1]

    def _dtype(self, name: str, args: tuple, kwargs: dict) -> np.dtype | None:
        """Returns the dtype of the arrays that numbers become; None if they don't."""
        try:
            if name in _STORES:
                target = kwargs["dtype"] if kwargs.get("dtype") is not None else args[0].dtype
                common = np.result_type(target, args[_STORES[name]])
                return common if common == target else None
            operands = args[name == "where" :]
            if name in _ELEMENTWISE and all([is_raw(x) or isinstance(x, OPERANDS) for x in operands]):
                return np.result_type(*[x.dtype if is_raw(x) else x for x in operands])
        except (AttributeError, IndexError, OverflowError, TypeError):  # the rule raises the error
            return None
        return None

    def array(self, x: Number, dtype: np.dtype) -> MetaArray | np.ndarray:
        """Returns an array without dims of a number."""
        if self._tracer is None:
            return np.asarray(x.example, dtype)
        key = "array", x.value.number, dtype
        if key not in self._known:
            made = self._known[key] = new_of(layout((), None, dtype))
            self.head.append(Instruction("asarray", (x.value, dtype), {}, (self._tracer.new(made),)))
        return self._known[key]


def _same_layout(rule: Callable, exact: tuple, given: tuple, tracer: Tracer) -> bool:
    """Whether a rule gives arrays of the same shapes and dtypes for two kinds of arguments."""
    with tracer.inside():
        try:
            found = [leaves(rule(*args, **kwargs)) for args, kwargs in (exact, given)]
        except (TypeError, ValueError):
            return False
        layouts = [[(x.shape, x.dtype) for x in made if isinstance(x, MetaArray)] for made in found]
    return layouts[0] == layouts[1]


def _identity(x: object) -> object:
    return ("%", x.value.number) if type(x) is Number else (type(x), repr(x))
