"""Traces of symbolic sizes, and their witnesses.

What Python can't note, as `range(n)` in the package's own functions, must not be lost. So another trace, of
other sizes, is the *witness*: it must be what the instructions become for its sizes; and whatever is the same
in both must stay so.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..backends.meta.layout import Layout, layout
from ..core.tensor import Tensor
from ..utils.nested import leaves
from .partition import Partition
from .program.instruction import Instruction, Reference, Value
from .program.program import Program
from .resizing import LostArguments, Resizing
from .tracing.expressions import Expression, Lost, LostText, NotSymbolic, same
from .tracing.sizes import Sizes


class SymbolicTrace:
    """What a trace of symbolic sizes can become.

    Args:
        partition: the programs that were traced.
        sizes: what Python has computed of sizes in the trace.

    Attributes:
        is_witnessed: whether another trace has confirmed it.
        is_compared: whether a program that it became for a third size was, with a trace.
    """

    def __init__(self, partition: Partition, sizes: Sizes):
        if not sizes.is_used:
            raise NotSymbolic("it asks for the type of what may be a size")
        if sizes.error is not None:
            raise NotSymbolic(f"it catches {type(sizes.error).__name__}: {sizes.error}")
        if partition.results.views:
            raise NotSymbolic("it returns a view of another result")
        self._partition, self._sizes = partition, sizes
        self._fixed = dict(sizes.expressions.values())  # those that have always had one value
        self._lost: LostArguments = {}
        self.is_witnessed = self.is_compared = False

    def witness(self, other: Partition) -> None:
        """Compares it with another trace, of other sizes.

        Raises:
            NotSymbolic: the other trace is not what this one becomes.
        """
        witness = Witness(self._partition, self._sizes, self._lost, other)
        witness.programs()
        self._fixed = {x: value for x, value in self._fixed.items() if same(witness.evaluation(x), value)}
        self.is_witnessed = True

    def resized(self, layouts: Sequence[Layout | None]) -> Partition:
        """Returns the partition for inputs of these layouts; None for numbers.

        Raises:
            NotSymbolic: there is none.
        """
        resizing = Resizing(self._partition, self._sizes, self._lost, layouts)
        programs = resizing.programs()
        for expression, value in self._fixed.items():
            if not same(now := resizing.evaluation(expression), value):
                raise NotSymbolic(f"{expression} is {now}, was {value} whenever it was traced")
        return self._partition.resized(*programs, resizing.values)


def check_resized(made: Partition, traced: Partition, sizes: Sizes) -> None:
    """Raises RuntimeError unless a resized partition is what a trace gives: one with the same inputs, that
    depends on no elements."""
    asks = any([i.name == "host.expect" for i in traced.traced[0].instructions])
    if asks or len(made.traced[0].inputs) != len(traced.traced[0].inputs):
        return
    try:
        SymbolicTrace(traced, sizes).witness(made)
    except NotSymbolic as error:
        raise RuntimeError(f"{made.forward.name} isn't what a trace gives: {error}") from error


class Witness(Resizing):
    """The instructions of a trace, made again for the sizes of another trace, and compared with it.

    Args:
        partition, sizes, lost: see `Resizing`; `lost` gets what was computed of sizes without a note.
        other: the programs of the other trace.
    """

    def __init__(self, partition: Partition, sizes: Sizes, lost: LostArguments, other: Partition):
        super().__init__(partition, sizes, lost, [_layout_of(x) for x in other.traced[0].inputs])
        self._others = iter(other.traced)
        self._theirs: dict[Value, Value] = {}  # the values of the other trace, by the new ones
        if (partition.traced[1] is None) != (other.traced[1] is None):
            raise NotSymbolic("only one of two traces has a backward pass")

    def program(self, program: Program, inputs: Sequence[Value]) -> Program:
        other = next(self._others)
        counts = len(program.instructions), len(other.instructions)
        ours = *inputs, *program.state, *program.constants
        others = *other.inputs, *other.state, *other.constants
        if len(ours) != len(others) or counts[0] != counts[1]:
            raise NotSymbolic(f"{program.name} has {counts[0]} instructions, and had {counts[1]}")
        self._pair(ours, others)
        for x, y in zip(program.state.values(), other.state.values(), strict=True):
            if x is not y:
                raise NotSymbolic("the state is another one")
        for x, y in zip(program.constants.values(), other.constants.values(), strict=True):
            if (x.shape, x.dtype, x.tobytes()) != (y.shape, y.dtype, y.tobytes()):
                raise NotSymbolic(f"a constant of shape {list(x.shape)} is computed of a size")
        self._instructions = iter(other.instructions)
        made = super().program(program, inputs)
        pairs = [*leaves(made.outputs)], [*leaves(other.outputs)]
        if len(pairs[0]) != len(pairs[1]) or not all(map(self._is_same, *pairs)):
            raise NotSymbolic("the results are others")
        return made

    def instruction(self, i: Instruction) -> Instruction:
        other = next(self._instructions)
        self._compare(i, other)
        made = super().instruction(i)
        self._pair(made.outputs, other.outputs)
        if [self._theirs.get(x) for x in made.written] != [*other.written]:
            raise NotSymbolic("it writes to other arrays")
        if [self._theirs.get(y.of) for y in made.outputs] != [y.of for y in other.outputs]:
            raise NotSymbolic("it gives views of other arrays")
        return made

    def _pair(self, ours: Sequence[Value], others: Sequence[Value]) -> None:
        """Notes which values are the same in both traces; raises NotSymbolic if one isn't."""
        for x, y in zip(ours, others, strict=True):
            alike = (x.shape, x.dtype, x.kind) == (y.shape, y.dtype, y.kind)
            steps = zip(x.shape, x.strides, y.strides, strict=True) if alike else ()
            alike = alike and all([a == b for n, a, b in steps if n > 1])
            if self._theirs.setdefault(x, y) is not y or not alike:
                raise NotSymbolic(f"{x.described(strides=True)} was {y.described(strides=True)}")

    def _is_same(self, x: Any, y: Any) -> bool:
        if isinstance(x, Value):
            return self._theirs.get(x) is y
        if isinstance(x, Reference) and isinstance(y, Reference):
            return _are_same_targets(x.target, y.target)
        return same(x, y)

    def _compare(self, i: Instruction, other: Instruction) -> None:
        """Raises NotSymbolic unless the arguments are those of the other trace, but for what was lost, which
        is found again."""
        args, kwargs = self.arguments(i)
        if (i.name, len(i.outputs), [*kwargs]) != (other.name, len(other.outputs), [*other.kwargs]):
            raise NotSymbolic(f"it was {other.name}")
        ours, others = [*leaves((args, kwargs))], [*leaves((other.args, other.kwargs))]
        traced = [*leaves((i.args, i.kwargs))]
        if not len(ours) == len(others) == len(traced):
            raise NotSymbolic("it had other arguments")
        for k, (x, y) in enumerate(zip(ours, others, strict=True)):
            if not self._is_same(x, y):
                found = self._recovered(traced[k], y)
                if found is None:
                    raise NotSymbolic(f"an argument is {x!r}, was {y!r}, which isn't known to be of a size")
                self.lost.setdefault(i, {})[k] = found

    def _recovered(self, now: Any, was: Any) -> Lost | LostText | None:
        """Returns what an argument may have been made of, of which it isn't known; None if that is nothing.

        Args:
            now: the argument in the trace.
            was: in the other one.
        """
        kind = type(now)
        if kind is not type(was):
            return None
        if kind is str:
            return self._text(re.split(r"(\d+)", now), re.split(r"(\d+)", was))
        if not isinstance(now, (int, float, np.integer, np.floating)) or kind is bool:
            return None
        pairs = self._candidates(issubclass(kind, (float, np.floating)))
        found = [x for x, value in pairs if same(kind(value), now) and same(self._value(x, kind), was)]
        return Lost(kind, found) if found else None

    def _text(self, now: list[str], was: list[str]) -> LostText | None:
        if len(now) != len(was):
            return None
        found: list[Any] = []
        for a, b in zip(now, was, strict=True):
            is_number = a != b and a.isdigit() and b.isdigit()
            found.append(self._recovered(int(a), int(b)) if is_number else a if a == b else None)
        return None if None in found else LostText(found)

    def _candidates(self, with_inverse: bool) -> Iterator[tuple[Expression, Any]]:
        """Yields expressions, and their values in the trace."""
        for x, value in self.sizes.expressions.values():
            yield x, value
            if with_inverse and value:
                yield Expression("truediv", (1, x)), 1 / value

    def _value(self, x: Expression, kind: type) -> Any:
        try:
            return kind(self.evaluation(x))
        except (NotSymbolic, OverflowError, ValueError):  # of an array that comes later, or 1 / 0; int(inf)
            return None


def _are_same_targets(x: Any, y: Any) -> bool:
    """Returns whether two instructions call the same, or refer to the same tensor; a function with the
    parameters that it clips is made in each trace."""
    if isinstance(x, functools.partial) and isinstance(y, functools.partial):
        pairs = [[*leaves((f.func, f.args, f.keywords))] for f in (x, y)]
        return len(pairs[0]) == len(pairs[1]) and all(map(operator.is_, *pairs))
    return x is y or (not isinstance(x, Tensor) and x == y)


def _layout_of(x: Value) -> Layout | None:
    return None if x.dtype.kind == "O" else layout(x.shape, x.strides, x.dtype)
