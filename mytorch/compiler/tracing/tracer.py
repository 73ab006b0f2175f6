"""Tracing: notes the instructions of a function that runs on tracing arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...backends.device import CPU, META, RawArray, device, device_of, is_raw, move, thread
from ...backends.door import Kind
from ...backends.functions import writes
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.layout import layout
from ...core.grad_mode import _state
from ...core.tensor import Tensor, raw_of
from ...nn.functional.composite import Composite
from ...utils.nested import leaves, mapped
from ..program.instruction import Instruction, Value
from ..program.kernels import call_kernel
from ..program.origins import Origins
from ..program.program import Program
from .host import Draws, HostCalls
from .number import Number
from .numbers import Numbers
from .stale import StaleValues
from .tracing_array import TracingArray

if TYPE_CHECKING:
    from .sizes import Sizes


def _raise_shared(x: RawArray, y: RawArray) -> None:
    raise NotImplementedError(
        f"a program can't have two tensors of the same memory, of shapes {x.shape} and {y.shape}, as its "
        "state"
    )


class Tracer(HostCalls, Kind):
    """Notes the instructions of a function that runs on tracing arrays.

    Args:
        device: where the program will run; while it is traced, its arrays are on the meta device.
        answer: gets an array without dims that the function asks the element of, returns it.
        numbers: the numbers that are inputs.

    Attributes:
        choices: between two ways to compute the same: see `choose`.
        is_inside: whether an instruction is computed, so that nothing is noted.
        instructions: so far, without those of numbers alone.
        inputs, number_inputs: the values of the arguments.
        state: the arrays of tensors that are no arguments, by the values that stand for them.
        constants: other arrays with elements that instructions take.
        owners: the tensors of the state.
        takes_launches: calls of compiled kernels are noted: see `lowering`.
        reads_rates: the function may read what a step of a schedule changes.
        graph_break: the last error that should end the trace; the function itself may have caught it.
        sizes: see `SymbolicTracer`.
        picks: `x[i]` with an integer `i` that the program computes is noted, as a copy; see `pick`.
    """

    sizes: Sizes | None = None
    takes_launches = reads_rates = picks = False
    answers = draws = True
    kind = TracingArray

    def __init__(
        self, device: device, answer: Callable[[Tracer, Value], Any] | None, numbers: Numbers | None = None
    ) -> None:
        self.device, self.numbers = device, numbers or Numbers()
        self.choices: list[bool] = []
        self.instructions: list[Instruction] = []
        self.inputs: list[Value] = []
        self.number_inputs: list[Value] = []
        self.state: dict[Value, RawArray] = {}
        self.constants: dict[Value, RawArray] = {}
        self.owners: dict[Value, Tensor] = {}
        self.graph_break: NotImplementedError | None = None
        self.origins = Origins(self)
        self._answer = answer
        self._values: dict[int, tuple[Value, MetaArray]] = {}  # by the id of the array, which stays alive
        self._lifted: dict[int, tuple[RawArray, MetaArray]] = {}  # by the id of the array with elements
        self._storages: dict[int, Value] = {}  # the first value in each storage
        self.stale = StaleValues()
        self.is_inside = False
        self._first = 0  # the number of the first value
        super().__init__()

    def break_graph(self, error: NotImplementedError) -> NoReturn:
        """Raises an error that ends the trace; it is raised again at the end if the function catches it."""
        self.graph_break = error
        raise error

    def new(self, x: MetaArray) -> Value:
        """Returns a new value for an array."""
        x.__class__ = self.kind
        of = self._storages.get(id(x.storage))
        value = Value(self._first + len(self._values), x.layout.shape, x.layout.strides, x.dtype, of)
        self._storages.setdefault(id(x.storage), value)
        self._values[id(x)] = value, x
        return value

    def fresh(self, like: MetaArray) -> MetaArray:
        """Returns a new array in C order that no instruction makes: an input."""
        x = new_of(layout(like.shape, None, like.dtype))
        self.new(x)
        return x

    def opaque(self, kind: str = "saved") -> Value:
        """Returns a new value for what is no array."""
        value = Value(len(self._values), (), (), np.dtype(object), kind=kind)
        self._values[-len(self._values)] = value, None
        return value

    def value(self, x: MetaArray) -> Value:
        """Returns the value of an array.

        Raises:
            NotImplementedError: no instruction made it.
        """
        found = self._values.get(id(x))
        if found is None:
            raise NotImplementedError(
                f"a program can't hold an array of shape {x.shape} that no instruction of it made: a tensor "
                "of the meta device, or one of another program"
            )
        return found[0]

    def value_of(self, x: MetaArray) -> Value | None:
        """Returns the value of an array; None if no instruction made it."""
        return self._values.get(id(x), (None,))[0]

    def choose(self, ask: Callable[[], bool]) -> bool:
        self.choices.append(ask())
        return self.choices[-1]

    def _is_argument(self, x: Tensor) -> bool:
        return self.value_of(x._data._array) in self.inputs

    def stand_in(self, found: device) -> device:
        """Returns the meta device for the program's.

        Raises:
            NotImplementedError: another device.
        """
        if found is not self.device:
            raise NotImplementedError(f"a program on {self.device} can't hold tensors on {found}")
        return META

    def lift(self, raw: RawArray, owner: object = None) -> MetaArray:
        """Returns the array that stands for one that an op meets; without dims it is as good as a number.

        Raises:
            NotImplementedError: it is on another device; see `held`.
        """
        if raw.ndim and not isinstance(raw, MetaArray):
            self.stand_in(device_of(raw))
        return self.held(raw, owner if isinstance(owner, Tensor) else None)

    def held(self, raw: RawArray, owner: Tensor | None = None) -> MetaArray:
        """Returns the array that stands for one with elements; until the end the owner holds it.

        Raises:
            NotImplementedError: the memory is part of other state, or a tensor's on another device.
        """
        if isinstance(raw, MetaArray):
            return raw
        found = self._lifted.get(id(raw))
        if found is None:
            if owner is not None:
                self.stand_in(device_of(raw))
            x = new_of(layout(raw.shape, raw.strides, raw.dtype))
            value = self.new(x)
            if owner is None:
                self.constants[value] = move(raw, CPU)
            else:
                for other in self.state.values():
                    if np.may_share_memory(raw, other):
                        _raise_shared(raw, other)
                self.state[value], self.owners[value] = raw, owner
            found = self._lifted[id(raw)] = raw, x
        elif owner is not None:
            _raise_shared(raw, raw)
        if owner is not None:
            self.replace(owner, raw, found[1])
        return found[1]

    def constant(self, raw: RawArray) -> MetaArray:
        """Returns a new array with these elements."""
        return self.held(raw.copy()).copy()

    def call(self, name: str, rule: Callable, args: tuple, kwargs: dict) -> Any:
        """Runs a rule of meta arrays, and notes the call."""
        if self.is_inside:
            return rule(*args, **kwargs)
        if any([type(x) is Number for x in leaves((args, kwargs))]):
            args, kwargs = self.numbers.as_arrays(name, rule, args, kwargs)
        args, kwargs = mapped(self._lifted_leaf, args), mapped(self._lifted_leaf, kwargs)
        with self.inside():
            result = rule(*args, **kwargs)
        written = self._written(name, args, kwargs)
        if name == ".setitem" and self._is_itself(*args):
            return result  # the end of `x[...] += y`, which was done in place
        made = [x for x in leaves(result) if isinstance(x, MetaArray) and id(x) not in self._values]
        arguments = mapped(self._value_leaf, args), mapped(self._value_leaf, kwargs)
        outputs = tuple([self.new(x) for x in made])
        if outputs or written:
            self.note(Instruction(name, *arguments, outputs, written))
        return result

    def _written(self, name: str, args: tuple, kwargs: dict) -> tuple[Value, ...]:
        """Returns the storages that a call writes to: those of `out`, or of the first array among all."""
        first = [self.value(x).storage for x in leaves((args, kwargs)) if isinstance(x, MetaArray)][:1]
        outs = [self.value(x).storage for x in leaves(kwargs.get("out")) if isinstance(x, MetaArray)]
        written = *outs, *(first if writes(name) else [])
        if not self.constants.keys().isdisjoint(written):
            raise NotImplementedError("a program can't write to an array that it did not make")
        return written

    def _is_itself(self, x: MetaArray, index: object, y: object) -> bool:
        """Whether `x[index]` is the array `y`, in the same memory."""
        if not isinstance(y, MetaArray) or y.storage is not x.storage:
            return False
        with self.inside():
            part = x[index]
        same = part.storage is x.storage and part.shape == y.shape and part.strides == y.strides
        return same and part.offset == y.offset

    def note(self, instruction: Instruction) -> None:
        """Adds an instruction, with its origin."""
        self._check(instruction.inputs(), instruction.written)
        self.instructions.append(self.origins.marked(instruction))

    def takes_index(self, raw: RawArray) -> bool:
        """Returns whether an array without dims may be an index as it is, without its element."""
        return self.picks and not self.is_inside and isinstance(raw, MetaArray)

    def picked(self, x: Tensor, y: Tensor) -> None:
        """Notes that `y`, a copy, is a view of `x` in eager code: it may not be written to or returned, nor
        used after `x` is written to."""
        self.stale.add_copy(self.value(raw_of(y)), self.value(self.held(raw_of(x), x)))

    def check_results(self, results: Iterable[object]) -> None:
        """Raises an error if a result of the function is stale, or a copy of what is a view in eager code."""
        arrays = [self._values.get(id(raw_of(x))) for x in results if isinstance(x, Tensor)]
        self._check([found[0] for found in arrays if found is not None], (), are_results=True)

    def _check(self, used: Iterable[Value], written: Sequence[Value], are_results: bool = False) -> None:
        if self.stale and (error := self.stale.error(used, written, are_results)) is not None:
            self.break_graph(error)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Context in which nothing is noted: the inside of an instruction."""
        before, self.is_inside = self.is_inside, True
        try:
            yield
        finally:
            self.is_inside = before

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Context in which nothing is traced in this thread: a part of the program runs."""
        kinds, stream = thread.kinds, _state.stream
        thread.tracer, thread.kinds, _state.stream = None, (), None
        try:
            yield
        finally:
            thread.tracer, thread.kinds, _state.stream = self, kinds, stream

    def note_kernel(
        self, name: str, args: tuple, results: Sequence[MetaArray], kwargs: dict | None = None
    ) -> tuple[list[MetaArray], Value]:
        """Notes a call of a kernel; returns its results, and the value that stands for what it saves."""
        arguments = mapped(lambda x: self._value_leaf(self._lifted_leaf(x)), args)
        made = [x if id(x) not in self._values else x.copy() for x in results]
        outputs = [self.new(x) for x in made]
        saved = self.opaque()
        if kwargs is None:
            outputs.append(saved)
        self.note(Instruction(name, arguments, kwargs or {}, tuple(outputs)))
        return made, saved

    def composite(self, composite: Composite, args: tuple, kernels: bool) -> Any:
        """Returns the results of a composite that stays one instruction (see `kernels`), or its reference."""
        results = call_kernel(composite, args, kernels)
        return composite.run_reference(*args) if results is None else results

    def checks(
        self, x: Tensor | RawArray, low: int, high: int, text: str, error: type[Exception],
        ignored: int | None,
    ) -> bool:
        """Notes that elements must be within bounds: see `ops.bounds`."""
        if self.is_inside or self.device is META:
            return True
        (raw,) = self.unwrap((x,))
        kwargs = {"low": low, "high": high, "ignored": ignored, "error": error.__name__, "text": text}
        if raw.size:
            self.note(Instruction("check", (self.value(raw),), mapped(self._value_leaf, kwargs), ()))
        return True

    def without_check(self, args: tuple) -> None:
        """Takes back the check of an argument of a kernel, which checks itself, if it is the last
        instruction."""
        last = self.instructions[-1] if self.instructions else None
        if last is not None and last.name == "check":
            checked = [self.value(x) for x in args if isinstance(x, MetaArray)]
            self.instructions[-1:] = [] if last.args[0] in checked else [last]

    def program(self, outputs: object, name: str = "program") -> Program:
        """Returns the program of the instructions so far."""
        owners = {value: weakref.ref(owner) for value, owner in self.owners.items()}
        inputs = *self.inputs, *self.number_inputs
        instructions = [*self.numbers.head, *self.instructions]
        arrays = {**self.state}, {**self.constants}
        return Program(inputs, *arrays, instructions, outputs, name, owners, device=self.device)

    def made_by(self, name: str, function: Callable) -> Callable:
        """Returns a function that makes an array, which notes its calls."""
        return lambda *args, **kwargs: self.call(name, function, args, kwargs)

    def ask(self, x: MetaArray) -> Any:
        """Returns the element of an array without dims, which the function asks for.

        Raises:
            NotImplementedError: nothing can answer.
        """
        try:
            if x.size != 1 or self._answer is None:
                raise NotImplementedError("a program can't hold an element of an array that Python reads")
            return self._answer(self, self.value(x))
        except NotImplementedError as error:
            self.break_graph(error)

    def _lifted_leaf(self, x: Any) -> Any:
        return self.held(x) if is_raw(x) else x

    def _value_leaf(self, x: Any) -> Any:
        if isinstance(x, MetaArray):
            return self.value(x)
        if type(x) is Number:
            return x.pinned()
        return self.draw(x) if isinstance(x, Draws) else x

    def hold(self, tensors: Collection[Tensor]) -> None:
        """Makes tensors the state, those on the program's device."""
        seen: set[int] = set()
        for x in tensors:
            if id(x._data) in seen:
                _raise_shared(raw_of(x), raw_of(x))
            seen.add(id(x._data))
            if device_of(raw_of(x)) is self.device:
                self.unwrap((x,))

    def unwrap(self, args: Sequence[Tensor | RawArray]) -> list[MetaArray]:
        """Returns the arrays that stand for those of tensors and for other ones."""
        return [self.lift(raw_of(x), x) for x in args]

    def sets_grad(self, x: Tensor) -> None:
        self.unwrap((x,))  # the program shall set it, not this call

    def place(self, found: device) -> device:
        return self.device

    def once(self, what: str) -> None:
        self.break_graph(NotImplementedError(f"a program can't hold {what}"))

    def moved(self, raw: RawArray, target: device) -> RawArray | None:
        if device_of(raw) is META:
            return raw  # nothing to be moved
        return self.constant(raw) if target is META else None

    def takes_call(self, method: Callable, args: tuple, kwargs: dict) -> bool:
        self.note_call(method, *args, **kwargs)
        return True

    def zeroes_grads(self, optimizer: Any, parameters: list) -> bool:
        self.zero_grads(optimizer, parameters)
        return True
