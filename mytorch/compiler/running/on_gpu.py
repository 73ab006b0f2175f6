"""Runs programs on a GPU, and the first part of them as a CUDA graph."""

from __future__ import annotations

from dataclasses import replace
from operator import is_, is_not
from typing import Any

from ...backends.device import RawArray, copied, on
from ...core.array import Array
from ...core.flat_buffer import GradSlot
from ...core.tensor import Tensor, increment_version
from ...cuda.graphs import CUDAGraph, graph
from ...optim.optimizer import Optimizer
from ..program.instruction import Instruction
from ..program.program import Program
from .arrays import copied_as_it_lies
from .execution import Executable

_IN_A_GRAPH = ("host.draw", "host.kept", "host.random", "host.grad", "host.set_grad", "host.add_grad")


class OnGPU(Executable):
    """A program on a GPU as a function of raw arrays."""

    def __call__(self, *raws: RawArray) -> Any:
        with on(self._device):
            return super().__call__(*raws)


class Graphed(OnGPU):
    """A program on a GPU whose instructions, up to the first call of a Python object, are one CUDA graph. The
    step of an optimizer is part of it if it `is_capturable`. It is for functions whose backward pass is in
    them, or that have none: what a later one needs would be overwritten by the next call.

    The first call runs without a graph, on copies of the arguments, which compiles all kernels; the second
    one captures it. Then arguments are copied to where they lay during the capture, the graph is launched,
    and what it returns is copied; the rest runs as always. Where arrays of the state or gradients, or options
    of optimizers, are others than during the capture, it is captured again. One thread at a time may run it.

    Attributes:
        count: of the instructions in the graph.
        reason: why there is no graph; None if there is one, or may be.
    """

    def __init__(self, program: Program):
        super().__init__(program)
        instructions = program.instructions
        self.count = next((k for k, i in enumerate(instructions) if not _fits(i)), len(instructions))
        self.reason = self._refusal(program)
        self._was_run, self._graph = False, None
        if self.reason is None:
            self._split(program)

    def _split(self, program: Program) -> None:
        """Makes two programs: what is in the graph, and the rest, which gets the results of the first."""
        head, tail = program.instructions[: self.count], program.instructions[self.count :]
        returned, bases = {*program.results()}, program.bases()
        needed = {x for i in tail for x in i.inputs()} | returned
        results = tuple([y for i in head for y in i.outputs if y in needed])
        self._copied = [y in returned and bases[y] not in program.state for y in results]
        self._head = OnGPU(replace(program, instructions=head, outputs=results))
        self._tail = OnGPU(replace(program, instructions=tail, inputs=(*program.inputs, *results)))
        self._reads = _owners(head, "host.grad")
        self._sets = _owners(head, "host.set_grad")
        self._steps = [_Step(optimizer) for optimizer in _owners(head, "host.step")]

    def _refusal(self, program: Program) -> str | None:
        instructions, bases = program.instructions, program.bases()
        if any([x.dtype.kind == "O" for x in program.inputs]):
            return "a number that changes is an input; pass it as a tensor"
        if all([i.is_host for i in instructions[: self.count]]):
            rest = instructions[self.count :]
            return f"{rest[0].name} comes first" if rest else "it computes nothing"
        if self._written.inputs:
            return "it writes to an argument"
        if any([bases[y] in program.inputs for y in program.results()]):
            return "it returns a view of an argument"
        return None

    def bind(self) -> None:
        before = [raw for *_, raw in self._state]
        super().bind()
        changed = any([raw is not was for (*_, raw), was in zip(self._state, before, strict=True)])
        if changed and self.reason is None:
            self._graph = None
            self._head.bind()
            self._tail.bind()

    def __call__(self, *raws: RawArray) -> Any:
        if self.reason is not None or any([p._post_hooks for p in self._sets]):
            return super().__call__(*raws)
        with on(self._device):
            if not self._was_run:
                self._was_run = True
                return super().__call__(*map(copied_as_it_lies, raws))
            if self._graph is None or not self._is_current():
                self.bind()  # an optimizer may just have moved the parameters
                try:
                    self._capture(raws)
                except RuntimeError as error:
                    self.reason = str(error)
                    return super().__call__(*raws)
            return self._tail(*raws, *self._replay(raws))

    def _capture(self, raws: tuple[RawArray, ...]) -> None:
        """Captures the graph, which computes nothing, but sets `.grad`.

        Raises:
            RuntimeError: it can't be captured; then gradients are what they were.
        """
        if not all([step.optimizer.is_capturable() for step in self._steps]):
            raise RuntimeError("an optimizer's step calls Python's objects now")
        before = [_Slot(p) for p in dict.fromkeys([*self._reads, *self._sets])]
        for slot in before:
            slot.release()
            slot.take()
        self._inputs = [*map(copied_as_it_lies, raws)]
        self._read = _gradients(self._reads)
        captured = CUDAGraph()
        try:
            with graph(captured):
                self._results = self._head(*self._inputs)
            if any(map(is_not, _gradients(self._reads), self._read)):
                raise RuntimeError("it adds to gradients that are in no optimizer's buffer")
        except RuntimeError:
            for slot in before:
                slot.take()
            raise
        self._slots = [_Slot(p) for p in self._sets]
        self._steps = [_Step(step.optimizer) for step in self._steps]
        self._graph = captured

    def _is_current(self) -> bool:
        """Whether gradients are where they were during the capture."""
        held = [*self._slots, *self._steps]
        return all(map(is_, _gradients(self._reads), self._read)) and all([x.is_current() for x in held])

    def _replay(self, raws: tuple[RawArray, ...]) -> list[RawArray]:
        for memory, x in zip(self._inputs, raws, strict=True):
            memory[...] = x
        for slot in self._slots:
            slot.release()
        for reference in self._head._written.owners:
            if (owner := reference()) is not None:
                increment_version(owner)
        self._graph.replay()
        for slot in self._slots:
            slot.take()
        for step in self._steps:
            step.count()
        pairs = zip(self._results, self._copied, strict=True)
        return [copied(y) if is_copied else y for y, is_copied in pairs]

    def __str__(self) -> str:
        if self.reason is not None:
            return f"no CUDA graph: {self.reason}"
        return f"{self.count} of them in a CUDA graph"


class _Slot:
    """Where a graph leaves the gradient of a parameter."""

    def __init__(self, owner: Tensor):
        self._owner, self._bound, grad = owner, owner.grad_slot, owner._grad
        self._slot: GradSlot | None = None
        if grad is not None:
            is_bound = self._bound is not None and self._bound.holds(grad)
            raw = grad._array
            self._slot = self._bound if is_bound else GradSlot(raw, raw, (0, raw.size))

    def is_current(self) -> bool:
        """Whether the parameter's gradients lie where they did."""
        return self._owner.grad_slot is self._bound

    def release(self) -> None:
        """Makes the last gradient free to be overwritten; one that someone else holds moves to a copy."""
        self._owner._grad = None
        if self._slot is not None:
            self._slot.reserve()

    def take(self) -> None:
        """Sets `.grad`."""
        self._owner._grad: Array | None = None if self._slot is None else self._slot.view()


class _Step:
    """The step of an optimizer, with what it was captured with: its buffers, and options."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer, self._known = optimizer, _used_by(optimizer)

    def is_current(self) -> bool:
        """Whether it would do the same now."""
        return self.optimizer.is_capturable() and _used_by(self.optimizer) == self._known

    def count(self) -> None:
        """Counts the writes to parameters."""
        for buffer in self.optimizer.flat_buffers():
            buffer.increment_versions()


def _used_by(optimizer: Optimizer) -> tuple[list, list]:
    """Returns the buffers of an optimizer, and its options; arrays by their ids."""
    options = [
        (name, id(value._data._array) if isinstance(value, Tensor) else value)
        for group in optimizer.param_groups for name, value in group.items() if name != "params"
    ]
    return optimizer.flat_buffers(), options


def _fits(i: Instruction) -> bool:
    """Whether an instruction can be in a graph."""
    if i.name == "host.norm":  # `Optimizer.clip_grad_norm` leaves a factor to the optimizer's next step
        optimizer, (*_, checks) = getattr(i.args[0].target, "__self__", None), i.args[1]
        return not checks and (optimizer is None or optimizer.is_capturable())
    if i.name == "host.step":
        return i.args[0].target.is_capturable()
    return not i.is_host or i.name in _IN_A_GRAPH


def _gradients(owners: list[Tensor]) -> list[RawArray | None]:
    return [None if p._grad is None else p._grad._array for p in owners]


def _owners(instructions: list[Instruction], name: str) -> list[object]:
    return list(dict.fromkeys([i.args[0].target for i in instructions if i.name == name]))
