"""Makes the program of a function for arguments of other sizes without another trace.

A trace of symbolic sizes knows what Python has computed of sizes (see `tracing.sizes`). So its instructions
can be made again, one after the other: the arguments are computed, and the rules of meta arrays give the
results. What Python can't note, as `range(n)` in the package's own functions, must not be lost: a second
trace, of other sizes, is the *witness*. It must be what the instructions become for its sizes; and whatever
is the same in both must stay so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.meta.array import MetaArray, new_of
from ..backends.meta.functions import call_function
from ..backends.meta.layout import Layout, layout
from ..backends.meta.random import MetaRandom
from ..core.tensor import Tensor
from ..nn.functional.composite import REGISTRY
from ..utils.nested import leaves, mapped
from .files.checking import rule_of
from .partition import Partition
from .program.instruction import Instruction, Reference, Value
from .program.kernels import MetaDraw, in_order
from .program.program import Program
from .tracing.number import COMPARISONS, OPERATIONS
from .tracing.sizes import Evaluation, Expression, Sizes

_MADE_LIKE_BEFORE = {f"host.{name}" for name in ("grad", "set_grad", "norm")}
_LOSES = (int, float, np.integer, np.floating)  # kinds of arguments in which an expression may be lost


class NotSymbolic(Exception):
    """Raised where a size can't be another one; says why."""


class SymbolicTrace:
    """What a trace of symbolic sizes can become.

    Args:
        partition: the programs that were traced.
        sizes: what Python has computed of sizes in the trace.

    Attributes:
        is_witnessed: whether another trace has confirmed it.
    """

    def __init__(self, partition: Partition, sizes: Sizes):
        if partition.results.views:
            raise NotSymbolic("it returns a view of another result")
        self._partition, self._sizes = partition, sizes
        self._fixed = dict(sizes.expressions.values())  # those that have always had one value
        self._lost: dict[Instruction, dict[int, Lost]] = {}
        self.is_witnessed = False

    def witness(self, other: Partition) -> None:
        """Compares it with another trace, of other sizes.

        Raises:
            NotSymbolic: the other trace is not what this one becomes.
        """
        theirs = other.traced[0].inputs
        run = _Run(self._partition, self._sizes, self._lost, [_layout_of(x) for x in theirs], other)
        run.programs()
        run.check_guards()
        self._fixed = {x: value for x, value in self._fixed.items() if _same(run.evaluation(x), value)}
        self.is_witnessed = True

    def resized(self, layouts: Sequence[Layout | None]) -> Partition:
        """Returns the partition for inputs of these layouts; of numbers it is None.

        Raises:
            NotSymbolic: there is none.
        """
        run = _Run(self._partition, self._sizes, self._lost, layouts)
        programs = run.programs()
        run.check_guards()
        for expression, value in self._fixed.items():
            if not _same(now := run.evaluation(expression), value):
                raise NotSymbolic(f"{expression} is {now}, was {value} whenever it was traced")
        return self._partition.resized(*programs, run.values)


def check_resized(made: Partition, traced: Partition, sizes: Sizes) -> None:
    """Raises RuntimeError unless a resized partition is what a trace gives."""
    try:
        SymbolicTrace(traced, sizes).witness(made)
    except NotSymbolic as error:
        raise RuntimeError(f"{made.forward.name} isn't what a trace gives: {error}") from error


class Lost:
    """An argument of an instruction that C code has made of a size: any of these expressions, or of them in
    a text, may be what it was made of."""

    def __init__(self, kind: type, candidates: list[Expression], text: list[str | Lost] | None = None):
        self._kind, self._candidates, self._text = kind, candidates, text

    def value(self, evaluation: Evaluation) -> Any:
        """Returns the argument for other sizes.

        Raises:
            NotSymbolic: it isn't certain.
        """
        if self._text is not None:
            return "".join([str(x.value(evaluation)) if isinstance(x, Lost) else x for x in self._text])
        first, *others = [self._kind(evaluation(x)) for x in self._candidates]
        if any([not _same(x, first) for x in others]):
            raise NotSymbolic(f"it isn't known whether a size is {' or '.join(map(str, (first, *others)))}")
        return first


class _Run:
    """The instructions of a trace, made again for inputs of other layouts.

    Args:
        layouts: of the inputs.
        other: the witness.

    Attributes:
        values: of the new programs, by those of the trace.
        evaluation: of expressions.
    """

    def __init__(
        self, partition: Partition, sizes: Sizes, lost: dict, layouts: Sequence[Layout | None],
        other: Partition | None = None,
    ):  # fmt: skip
        self._partition, self._sizes, self._lost, self._layouts = partition, sizes, lost, layouts
        self._other = other
        self.values: dict[Value, Value] = {}
        self.evaluation = Evaluation(self.values)
        self._arrays: dict[Value, MetaArray | MetaDraw] = {}  # by the new values
        self._kernels: dict[Value, tuple] = {}  # names and arguments, by what is saved
        self._theirs: dict[Value, Value] = {}  # the values of the witness, by the new ones

    def programs(self) -> tuple[Program, Program | None]:
        """Returns the programs."""
        forward, backward = self._partition.traced
        theirs = self._other.traced if self._other is not None else (None, None)
        if self._other is not None and (backward is None) != (theirs[1] is None):
            raise NotSymbolic("only one of two traces has a backward pass")
        inputs = [self._new(x, found) for x, found in zip(forward.inputs, self._layouts, strict=True)]
        for x in (*forward.state, *forward.constants):
            self._define(x, x, new_of(layout(x.shape, x.strides, x.dtype)))
        made = self._program(forward, inputs, theirs[0])
        if backward is None:
            return made, None
        for x, y in self._partition.incoming.items():
            self._new(x, layout(self.values[y].shape, None, x.dtype))
        inputs = [self.values[x] for x in backward.inputs]
        return made, self._program(backward, inputs, theirs[1])

    def check_guards(self) -> None:
        """Raises NotSymbolic if a comparison of sizes has another answer than in the trace."""
        for answer, name, args in self._sizes.guards.values():
            given = [*map(self.evaluation, args)]
            if bool(OPERATIONS[name](*given)) != answer:
                symbol = COMPARISONS.get(name)
                text = f"{given[0]} {symbol} {given[1]}" if symbol else f"{name}({given[0]})"
                raise NotSymbolic(f"{text} is {not answer}, was {answer} when it was traced")

    def _program(self, program: Program, inputs: list[Value], theirs: Program | None) -> Program:
        if theirs is not None:
            self._compare_heads(program, inputs, theirs)
        instructions = []
        others = itertools.repeat(None) if theirs is None else theirs.instructions
        for i, other in zip(program.instructions, others, strict=False):
            try:
                instructions.append(self._instruction(i, other))
            except NotSymbolic as error:
                raise NotSymbolic(f"{i.name}{f' in {i.origin}' if i.origin else ''}: {error}") from None
            except Exception as error:  # whatever NumPy, and the rules of meta arrays, raise
                raise NotSymbolic(f"{i.name}: {type(error).__name__}: {error}") from error
        outputs = mapped(self._current, program.outputs)
        if theirs is not None and not self._are_same(outputs, theirs.outputs):
            raise NotSymbolic("the results are others")
        loose = tuple([self.values[x] for x in program.loose])
        return replace(
            program, inputs=tuple(inputs), instructions=instructions, outputs=outputs, loose=loose
        )  # fmt: skip

    def _current(self, x: Any) -> Any:
        return self.values[x] if isinstance(x, Value) else x

    def _new(self, value: Value, found: Layout | None, of: Value | None = None) -> Value:
        """Defines what stands for a value."""
        if found is None:
            return self._define(value, value, None)
        made = replace(value, shape=found.shape, strides=found.strides, of=of)
        return self._define(value, made, new_of(found))

    def _define(self, value: Value, made: Value, array: Any) -> Value:
        self.values[value], self._arrays[made] = made, array
        return made

    # One instruction.

    def _instruction(self, i: Instruction, other: Instruction | None) -> Instruction:
        args, kwargs = self._arguments(i)
        if other is not None:
            self._compare(i, args, kwargs, other)
            args, kwargs = self._arguments(i)
        arrays = mapped(self._array, args), mapped(self._array, kwargs)
        made = self._results(i, args, *arrays)
        if len(made) != len(i.outputs):
            raise NotSymbolic(f"it gives {len(made)} results, not {len(i.outputs)}")
        sources = {self._arrays[self.values[x]].storage: self.values[x].storage
                   for x in i.inputs() if isinstance(self._arrays[self.values[x]], MetaArray)}  # fmt: skip
        outputs = tuple([self._output(y, x, sources) for y, x in zip(i.outputs, made, strict=True)])
        written = tuple([self.values[x].storage for x in i.written])
        if other is not None:
            self._compare_outputs(outputs, written, other)
        return replace(i, args=args, kwargs=kwargs, outputs=outputs, written=written)

    def _arguments(self, i: Instruction) -> tuple[tuple, dict]:
        lost, positions = self._lost.get(i, {}), itertools.count()

        def leaf(x: Any) -> Any:
            k = next(positions)
            if k in lost:
                return lost[k].value(self.evaluation)
            return self.values[x] if isinstance(x, Value) else self.evaluation(x)

        args, kwargs = mapped(leaf, self._sizes.symbolic.get(i, (i.args, i.kwargs)))
        if i.name == "kernel.vjp":
            _, given = self._kernels[args[0]]
            kwargs["wanted"] = {k: given[k].shape for k in kwargs["wanted"]}
        return args, kwargs

    def _array(self, x: Any) -> Any:
        return self._arrays[x] if isinstance(x, Value) else x

    def _results(self, i: Instruction, values: tuple, args: tuple, kwargs: dict) -> list[Any]:
        """Returns what an instruction gives: meta arrays, or what stands for what is none."""
        if i.name == "kernel":
            composite = REGISTRY[args[0]]
            self._kernels[self._opaque(i.outputs[-1])] = args[0], args[1:]
            found, _ = composite.manual_variant.forward(*args[1:])
            found = found if composite.outputs else (found,)
            return [*[in_order(y, args[0]) for y in found], None]
        if i.name == "kernel.vjp":
            name, given = self._kernels[values[0]]
            made = [np.empty(given[k].shape, given[k].dtype, like=given[k]) for k in kwargs["wanted"]]
            return [in_order(x, name) for x in made]
        if i.is_host:
            return self._host_results(i, args)
        if i.name == "check":
            return []
        rule = rule_of(i.name) or _function(i.name)
        known = {id(x) for x in leaves((args, kwargs))}
        return [x for x in leaves(rule(*args, **kwargs)) if isinstance(x, MetaArray) and id(x) not in known]

    def _opaque(self, value: Value) -> Value:
        self.values[value] = value
        return value

    def _host_results(self, i: Instruction, args: tuple) -> list[Any]:
        if i.name in _MADE_LIKE_BEFORE:
            if any([isinstance(x, MetaArray) and x.shape != i.outputs[0].shape for x in args]):
                raise NotSymbolic("a gradient has another shape")
            return [new_of(layout(y.shape, y.strides, y.dtype)) for y in i.outputs]
        if i.name == "host.random":
            return [getattr(MetaRandom(), args[1])(*args[2], **args[3])]
        if i.name == "host.kept":
            return [new_of(layout(args[1].shape, None, np.dtype(bool)))]
        if i.name == "host.draw":
            return [MetaDraw()]
        return [None for _ in i.outputs]  # Python's numbers

    def _output(self, y: Value, x: Any, sources: Mapping[Any, Value]) -> Value:
        if not isinstance(x, MetaArray):
            self._arrays[self._opaque(y)] = x
            return y
        was = layout(y.shape, y.strides, y.dtype).flags
        is_alike = (was.c_contiguous, was.f_contiguous) == (x.flags.c_contiguous, x.flags.f_contiguous)
        of = sources.get(x.storage)
        if (x.dtype, x.ndim) != (y.dtype, y.ndim) or (of is None) != (y.of is None) or not is_alike:
            raise NotSymbolic(f"it gives {x.dtype}{list(x.shape)} that lies otherwise in memory")
        if of is not None and of is not self.values[y.of]:
            raise NotSymbolic("it gives a view of another array")
        return self._define(y, replace(y, shape=x.shape, strides=x.strides, of=of), x)

    # The witness.

    def _compare_heads(self, program: Program, inputs: Sequence[Value], theirs: Program) -> None:
        """Raises NotSymbolic unless inputs, state and constants are the same."""
        ours = *inputs, *program.state, *program.constants
        others = *theirs.inputs, *theirs.state, *theirs.constants
        if len(ours) != len(others) or len(program.instructions) != len(theirs.instructions):
            counts = len(program.instructions), len(theirs.instructions)
            raise NotSymbolic(f"{program.name} has {counts[0]} instructions, and had {counts[1]}")
        self._pair(ours, others)
        for x, y in zip(program.state.values(), theirs.state.values(), strict=True):
            if x is not y:
                raise NotSymbolic("the state is another one")
        for x, y in zip(program.constants.values(), theirs.constants.values(), strict=True):
            if (x.shape, x.dtype) != (y.shape, y.dtype) or x.tobytes() != y.tobytes():
                raise NotSymbolic(f"a constant of shape {list(x.shape)} is computed of a size")

    def _pair(self, ours: Sequence[Value], others: Sequence[Value]) -> None:
        for x, y in zip(ours, others, strict=True):
            known = self._theirs.setdefault(x, y)
            alike = (x.shape, x.dtype, x.kind) == (y.shape, y.dtype, y.kind)
            if known is not y or not alike or not _lie_alike(x, y):
                raise NotSymbolic(f"{x.described(strides=True)} was {y.described(strides=True)}")

    def _are_same(self, ours: Any, others: Any) -> bool:
        pairs = [[*leaves(ours)], [*leaves(others)]]
        return len(pairs[0]) == len(pairs[1]) and all(map(self._is_same, *pairs))

    def _is_same(self, x: Any, y: Any) -> bool:
        if isinstance(x, Value):
            return self._theirs.get(x) is y
        if isinstance(x, Reference) and isinstance(y, Reference):
            return x.target is y.target or (not isinstance(x.target, Tensor) and x.target == y.target)
        return _same(x, y)

    def _compare(self, i: Instruction, args: tuple, kwargs: dict, other: Instruction) -> None:
        """Raises NotSymbolic unless the arguments are those of the witness, but for what was lost, which is
        found again."""
        if (i.name, len(i.outputs), [*kwargs]) != (other.name, len(other.outputs), [*other.kwargs]):
            raise NotSymbolic(f"it was {other.name}")
        ours, others = [*leaves((args, kwargs))], [*leaves((other.args, other.kwargs))]
        was = [*leaves((i.args, i.kwargs))]
        if len(ours) != len(others):
            raise NotSymbolic("it had other arguments")
        for k, (x, y) in enumerate(zip(ours, others, strict=True)):
            if not self._is_same(x, y):
                found = self._found_again(was[k], y) if len(was) == len(ours) else None
                if found is None:
                    raise NotSymbolic(f"an argument is {x!r}, was {y!r}, which isn't known to be of a size")
                self._lost.setdefault(i, {})[k] = found

    def _found_again(self, now: Any, was: Any) -> Lost | None:
        """Returns what an argument may have been made of, of which it isn't known; None if that is nothing.

        Args:
            now: the argument in the trace.
            was: in the witness.
        """
        if type(now) is not type(was):
            return None
        if isinstance(now, str):
            parts = [re.split(r"(\d+)", text) for text in (now, was)]
            if len(parts[0]) != len(parts[1]):
                return None
            found = [a if a == b else a.isdigit() and b.isdigit() and self._found_again(int(a), int(b))
                     for a, b in zip(*parts, strict=True)]  # fmt: skip
            return Lost(str, [], found) if all([x or x == "" for x in found]) else None
        if not isinstance(now, _LOSES) or isinstance(now, bool):
            return None
        kind = type(now)
        found = [x for x, value in self._candidates(kind)
                 if _same(kind(value), now) and _same(self._evaluated(x, kind), was)]  # fmt: skip
        return Lost(kind, found) if found else None

    def _candidates(self, kind: type) -> Iterator[tuple[Expression, Any]]:
        for x, value in self._sizes.expressions.values():
            yield x, value
            if issubclass(kind, (float, np.floating)) and value:
                yield Expression("truediv", (1, x)), 1 / value
                yield Expression("pow", (x, -0.5)), value**-0.5

    def _evaluated(self, x: Expression, kind: type) -> Any:
        try:
            return kind(self.evaluation(x))
        except (ArithmeticError, KeyError, ValueError):  # of an array that comes later, or 1 / 0
            return None

    def _compare_outputs(self, outputs: tuple, written: tuple, other: Instruction) -> None:
        self._pair(outputs, other.outputs)
        if [self._theirs.get(x) for x in written] != [*other.written]:
            raise NotSymbolic("it writes to other arrays")
        if [y.of and self._theirs.get(y.of) for y in outputs] != [y.of for y in other.outputs]:
            raise NotSymbolic("it gives views of other arrays")


def _function(name: str) -> Any:
    """Returns the rule of a function of NumPy that no program in a file may have."""
    function = getattr(np, name, None)
    if function is None:
        raise NotSymbolic("it has no rule")
    return lambda *args, **kwargs: call_function(function, *args, **kwargs)


def _lie_alike(x: Value, y: Value) -> bool:
    """Returns whether two values of one shape have the same strides, where they matter."""
    return all([a == b for n, a, b in zip(x.shape, x.strides, y.strides, strict=True) if n > 1])


def _layout_of(x: Value) -> Layout | None:
    return None if x.dtype.kind == "O" else layout(x.shape, x.strides, x.dtype)


def _same(x: Any, y: Any) -> bool:
    """Returns whether two arguments are equal, and of one type."""
    if type(x) is not type(y):
        return False
    if isinstance(x, (float, np.floating)):
        return repr(x) == repr(y)
    return x is y or bool(x == y)
