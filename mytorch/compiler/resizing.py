"""Makes the program of a function for arguments of other sizes without another trace.

A trace of symbolic sizes knows what Python has computed of sizes (see `tracing.sizes`). So its instructions
can be made again, one after the other: the arguments are computed, and the rules of meta arrays give the
results. What Python can't note must not be lost: see `witness`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.meta.array import MetaArray, new_of
from ..backends.meta.functions import call_function
from ..backends.meta.layout import Layout, layout
from ..backends.meta.random import MetaRandom
from ..nn.functional.composite import REGISTRY
from ..utils.nested import leaves, mapped
from .partition import Partition
from .program.instruction import Instruction, Value
from .program.kernels import MetaDraw, in_order
from .program.program import Program
from .program.rules import rule_of
from .tracing.expressions import Evaluation, Lost, LostText, NotSymbolic
from .tracing.number import COMPARISONS, OPERATIONS
from .tracing.sizes import Sizes

_MADE_LIKE_BEFORE = {f"host.{name}" for name in ("grad", "set_grad", "norm")}
LostArguments = dict[Instruction, dict[int, Lost | LostText]]  # by their positions


class Resizing:
    """The instructions of a trace, made again for inputs of other layouts.

    Args:
        partition: the programs that were traced.
        sizes: what Python has computed of sizes in the trace.
        lost: arguments that were computed of sizes, of which this isn't known.
        layouts: of the inputs; None for numbers.

    Attributes:
        values: of the new programs, by those of the trace.
        evaluation: of expressions.
    """

    def __init__(
        self, partition: Partition, sizes: Sizes, lost: LostArguments, layouts: Sequence[Layout | None]
    ):
        self.partition, self.sizes, self.lost, self._layouts = partition, sizes, lost, layouts
        self.values: dict[Value, Value] = {}
        self.evaluation = Evaluation(self.values)
        self._arrays: dict[Value, MetaArray | MetaDraw | None] = {}  # by the new values
        self._kernels: dict[Value, tuple] = {}  # names and arguments, by what is saved

    def programs(self) -> tuple[Program, Program | None]:
        """Returns the programs.

        Raises:
            NotSymbolic: there are none.
        """
        forward, backward = self.partition.traced
        if len(forward.inputs) != len(self._layouts):
            raise NotSymbolic("other numbers are inputs")
        inputs = [self._new(x, found) for x, found in zip(forward.inputs, self._layouts, strict=True)]
        for x in (*forward.state, *forward.constants):
            self._define(x, x, new_of(layout(x.shape, x.strides, x.dtype)))
        made = self.program(forward, inputs)
        if backward is not None:
            for x, y in self.partition.incoming.items():
                self._new(x, layout(self.values[y].shape, None, x.dtype))
            backward = self.program(backward, [self.values[x] for x in backward.inputs])
        self._check_guards()
        return made, backward

    def _check_guards(self) -> None:
        for answer, name, args in self.sizes.guards.values():
            given = [*map(self.evaluation, args)]
            if bool(OPERATIONS[name](*given)) != answer:
                symbol = COMPARISONS.get(name)
                text = f"{given[0]} {symbol} {given[1]}" if symbol else f"{name}({given[0]})"
                raise NotSymbolic(f"{text} is {not answer}, was {answer} when it was traced")

    def program(self, program: Program, inputs: Sequence[Value]) -> Program:
        """Returns a program with these inputs."""
        instructions = []
        for i in program.instructions:
            try:
                instructions.append(self.instruction(i))
            except NotSymbolic as error:
                raise NotSymbolic(f"{i.name}{f' in {i.origin}' if i.origin else ''}: {error}") from None
            except Exception as error:  # whatever NumPy, and the rules of meta arrays, raise
                raise NotSymbolic(f"{i.name}: {type(error).__name__}: {error}") from error
        outputs = mapped(lambda x: self.values[x] if isinstance(x, Value) else x, program.outputs)
        made = {"inputs": tuple(inputs), "loose": tuple([self.values[x] for x in program.loose])}
        return replace(program, **made, instructions=instructions, outputs=outputs)

    def _new(self, value: Value, found: Layout | None) -> Value:
        """Defines what stands for an input."""
        if found is None:
            return self._define(value, value, None)
        return self._define(value, replace(value, shape=found.shape, strides=found.strides), new_of(found))

    def _define(self, value: Value, made: Value, array: MetaArray | MetaDraw | None) -> Value:
        self.values[value], self._arrays[made] = made, array
        return made

    def instruction(self, i: Instruction) -> Instruction:
        """Returns an instruction for the new sizes."""
        args, kwargs = self.arguments(i)
        arrays = mapped(self._array, args), mapped(self._array, kwargs)
        made = self._results(i, args, *arrays)
        if len(made) != len(i.outputs):
            raise NotSymbolic(f"it gives {len(made)} results, not {len(i.outputs)}")
        given = [(self._array(self.values[x]), self.values[x].storage) for x in i.inputs()]
        sources = {array.storage: value for array, value in given if isinstance(array, MetaArray)}
        outputs = tuple([self._output(y, x, sources) for y, x in zip(i.outputs, made, strict=True)])
        written = tuple([self.values[x].storage for x in i.written])
        return replace(i, args=args, kwargs=kwargs, outputs=outputs, written=written)

    def arguments(self, i: Instruction) -> tuple[tuple, dict]:
        """Returns the arguments of an instruction for the new sizes."""
        lost, positions = self.lost.get(i, {}), itertools.count()

        def leaf(x: Any) -> Any:
            k = next(positions)
            if k in lost:
                return lost[k].value(self.evaluation)
            return self.values[x] if isinstance(x, Value) else self.evaluation(x)

        args, kwargs = mapped(leaf, self.sizes.symbolic.get(i, (i.args, i.kwargs)))
        if i.name == "kernel.vjp":
            _, given = self._kernels[args[0]]
            kwargs["wanted"] = {k: given[k].shape for k in kwargs["wanted"]}
        return args, kwargs

    def _array(self, x: Any) -> Any:
        return self._arrays[x] if isinstance(x, Value) else x

    def _results(self, i: Instruction, values: tuple, args: tuple, kwargs: dict) -> list[Any]:
        """Returns what an instruction gives: meta arrays, or what stands for what is none."""
        if i.is_host:
            return _results_of_host(i, args)
        if i.name == "kernel":
            self._kernels[i.outputs[-1]] = name, given = args[0], args[1:]
            found, _ = REGISTRY[name].manual_variant.forward(*given)
            found = found if REGISTRY[name].outputs else (found,)
            return [*[in_order(y, name) for y in found], None]
        if i.name == "kernel.vjp":
            name, given = self._kernels[values[0]]
            made = [np.empty(given[k].shape, given[k].dtype, like=given[k]) for k in kwargs["wanted"]]
            return [in_order(x, name) for x in made]
        if i.name == "check":
            return []
        rule = rule_of(i.name) or _rule_of_others(i.name)
        known = {id(x) for x in leaves((args, kwargs))}
        return [x for x in leaves(rule(*args, **kwargs)) if isinstance(x, MetaArray) and id(x) not in known]

    def _output(self, y: Value, x: Any, sources: Mapping[Any, Value]) -> Value:
        if not isinstance(x, MetaArray):
            return self._define(y, y, x)
        was, now = layout(y.shape, y.strides, y.dtype).flags, x.flags
        is_alike = (was.c_contiguous, was.f_contiguous) == (now.c_contiguous, now.f_contiguous)
        of = sources.get(x.storage)
        if (x.dtype, x.ndim) != (y.dtype, y.ndim) or not is_alike:
            raise NotSymbolic(f"it gives {x.dtype}{list(x.shape)} that lies otherwise in memory")
        if of is not (None if y.of is None else self.values[y.of]):
            raise NotSymbolic("it gives a view of another array, or a copy")
        return self._define(y, replace(y, shape=x.shape, strides=x.strides, of=of), x)


def _results_of_host(i: Instruction, args: tuple) -> list[Any]:
    if i.name in _MADE_LIKE_BEFORE:
        if any([isinstance(x, MetaArray) and x.shape != i.outputs[0].shape for x in args]):
            raise NotSymbolic("a gradient has another shape")
        return [new_of(layout(y.shape, y.strides, y.dtype)) for y in i.outputs]
    if i.name == "host.random":
        return [getattr(MetaRandom(), args[1])(*args[2], **args[3])]
    if i.name == "host.kept":
        return [new_of(layout(args[1].shape, None, np.dtype(bool)))]
    return [MetaDraw() if i.name == "host.draw" else None for _ in i.outputs]  # else Python's numbers


def _rule_of_others(name: str) -> Any:
    """Returns the rule of a function of NumPy that no program in a file may have."""
    function = getattr(np, name, None)
    if function is None:
        raise NotSymbolic("it has no rule")
    return lambda *args, **kwargs: call_function(function, *args, **kwargs)
