"""Calls of Python objects in programs: gradients, optimizers and random numbers.

    %9: float32[8, 16] = host.set_grad(<parameter %0>, %8)
    host.step(<AdamW>)  # writes %0, %9
    %4: float32[10] = host.random(<Generator>, 'standard_normal', (10,), float32)

They run in their order (see `host_functions`), each time that the program runs, as they would without a
program: the rate of an optimizer may change, hooks of gradients are called, and random numbers are those that
eager draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device import CPU, META, RawArray
from ...backends.door import in_force
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.layout import layout
from ...backends.meta.random import MetaRandom
from ...core.array import Array
from ...core.graph import Node
from ...core.tensor import Tensor, from_raw
from ...nn.functional.dropout import Draw
from ...optim.optimizer import Optimizer
from ...random import Generator, default_generator
from ...utils.nested import mapped
from ..program.instruction import Instruction, Reference, Value
from ..program.program import Program
from .number import Number

Draws = (Draw,)


_REPLACED = ("_data", "_grad", "grad_slot", "_post_hooks", "_node", "_view")  # attributes of a tensor


class _Held:
    """A tensor, and what it held before a tracing array took its array's place.

    Attributes:
        node: the tensor's node while the function runs.
    """

    def __init__(self, owner: Tensor, raw: RawArray):
        self.owner, self.raw = owner, raw
        self.before = {name: getattr(owner, name) for name in _REPLACED}
        self.node: Node | None = None

    def restore(self) -> None:
        self.before["_data"]._array = self.raw
        for name, value in self.before.items():
            setattr(self.owner, name, value)


class _Slot:
    """What a parameter has as its `grad_slot` while a function is traced.

    Args:
        has_graph: whether the tensor is the result of operations before the function.

    Attributes:
        known: the `.grad` that the instructions so far give the parameter.
    """

    def __init__(self, tracer: HostCalls, owner: Tensor, has_graph: bool):
        self._tracer, self._owner, self._has_graph = tracer, owner, has_graph
        self.known = owner._grad = None if owner._grad is None else tracer.grad(owner)

    def take(self, grad: MetaArray) -> Array:
        """Returns the gradient that backward has computed, as `.grad`."""
        if self._has_graph:
            raise NotImplementedError("a program can't hold the backward pass of a graph that was there")
        self.known = self._tracer.set_grad(self._owner, grad)
        return self.known

    def reserve(self) -> RawArray:
        """Returns memory for a gradient."""
        raw = self._owner._data._array
        return np.empty(raw.shape, raw.dtype, like=raw)

    def fits(self, data: RawArray) -> bool:
        """Returns True: an assignment to `.data` is an error at the end of the trace."""
        return True

    def holds(self, grad: Array | None) -> bool:
        """Returns False: gradients are not neighbours in memory during a trace."""
        return False

    def synchronize(self) -> None:
        """Notes that the function has assigned `.grad`."""
        grad = self._owner._grad
        if grad is not self.known:
            if grad is None:
                self._tracer.host("set_grad", Reference(self._owner), None)
            elif self._owner._node is None:
                raise NotImplementedError("a program can't set the .grad of a tensor that requires none")
            else:
                self._owner._grad = grad = self._tracer.set_grad(self._owner, grad._array)
            self.known = grad


def _raise_of_hook(owner: Tensor) -> None:
    raise NotImplementedError(
        "a program can't hold hooks of accumulated gradients, as DDP's: compile the module inside"
    )


class HostCalls:
    """The part of a tracer that replaces what tensors hold, and notes calls of Python objects."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}  # by the id of the tensor, which stays alive
        self._slots: list[_Slot] = []
        self._draws: dict[int, tuple[Value, Draw]] = {}
        self._scheduled: set[int] = set()  # the ids of optimizers whose options a schedule has changed

    def replace(self, owner: Tensor, raw: RawArray, x: MetaArray) -> None:
        """Makes a tensor hold a tracing array until the end."""
        if id(owner) in self._held:
            raise NotImplementedError("a program can't hold an assignment to `.data`")
        has_graph = owner.node is not None and bool(owner.node.parents)
        held = self._held[id(owner)] = _Held(owner, raw)
        owner._data._array = x
        if has_graph:  # which the engine walks behind the program, and not the program, too
            owner._node = owner._view = None
            owner.requires_grad_()
        held.node = owner._node
        if owner._post_hooks:  # it would be called now, and not in each run
            owner._post_hooks = {0: _raise_of_hook}
        owner.grad_slot = _Slot(self, owner, has_graph)  # one that is frozen may have a gradient, too
        self._slots.append(owner.grad_slot)

    def finish(self) -> None:
        """Notes what the function has left in `.grad`.

        Raises:
            NotImplementedError: it has assigned a `.data`, or written in place to a tensor with a history.
        """
        self._synchronize_grads()
        for held in self._held.values():
            if held.owner._data is not held.before["_data"]:
                raise NotImplementedError("a program can't hold an assignment to `.data`")
            if held.owner._node is not held.node:
                raise NotImplementedError("a program can't write to a tensor that has a history")

    def restore(self) -> None:
        """Gives the tensors back what they held."""
        for held in self._held.values():
            held.restore()
        self._held.clear(), self._slots.clear(), self.owners.clear()

    def reads_history(self, x: Tensor) -> None:
        """Raises an error if a tensor with a node was there before the function: another one, or this one in
        another call, may be a leaf where it is none."""
        if x._node is not None and (id(x) in self._held or self._is_argument(x)):
            in_force().once("whether a tensor that it gets is a leaf")

    def reads_grad(self, x: Tensor) -> None:
        """Raises an error if a tensor is an argument: the program gets its elements, and no gradient."""
        if self._is_argument(x):
            in_force().once("the .grad that an argument may have")

    # Gradients and optimizers.

    def grad(self, owner: Tensor) -> Array:
        """Notes that `.grad` is read."""
        raw = owner._data._array
        x = new_of(layout(raw.shape, None, raw.dtype))
        self.host("grad", Reference(owner), outputs=(self.new(x),))
        return Array(x)

    def set_grad(self, owner: Tensor, grad: MetaArray) -> Array:
        """Notes that `.grad` becomes an array with these elements; returns it."""
        x = new_of(layout(grad.shape, None, grad.dtype))
        self.host("set_grad", Reference(owner), self.value(grad), outputs=(self.new(x),))
        return Array(x)

    def _synchronize_grads(self) -> None:
        for slot in self._slots:
            slot.synchronize()

    def step(self, optimizer: Optimizer, closure: Callable | None = None) -> None:
        """Notes the step of an optimizer, which writes to its parameters and may write to their gradients.

        Raises:
            NotImplementedError: it has a closure.
        """
        if closure is not None:
            raise NotImplementedError("a program can't hold an optimizer's step with a closure")
        params = [p for group in optimizer.param_groups for p in group["params"]]
        grads = self._grads_of(params)
        written = tuple([self.value(p._data._array) for p in params] + [*map(self.value, grads)])
        self.host("step", Reference(optimizer), written=written)
        if not optimizer._step_supports_amp_scaling or id(optimizer) in self._scheduled:
            self.stale.add_moved(written)

    def note_call(self, method: Callable, *args: object, **kwargs: object) -> None:
        """Notes a call of an object's method that returns nothing and writes to no tensor.

        Raises:
            NotImplementedError: an argument is a tensor; the function may read what it changes.
        """
        if self.reads_rates:
            raise NotImplementedError(f"a program can't hold {method.__qualname__}() where it reads rates")
        if any([isinstance(x, (Tensor, Array)) for x in (*args, *kwargs.values())]):
            raise NotImplementedError(f"a program can't hold {method.__qualname__}() with a tensor")
        self._scheduled.add(id(getattr(getattr(method, "__self__", None), "optimizer", None)))
        self.host("call", Reference(method), args, kwargs)

    def norm(self, function: Callable, params: list[Tensor], *args: object) -> Tensor:
        """Notes a call of a function that clips the gradients of parameters and returns their norm.

        Raises:
            NotImplementedError: a parameter is made by the program.
        """
        if any([isinstance(p._data._array, MetaArray) and id(p) not in self._held for p in params]):
            raise NotImplementedError("a program can't clip the gradients of tensors that it makes")
        grads = self._grads_of(params)
        made = new_of(layout((), None, np.result_type(np.float32, *{g.dtype for g in grads})))
        written = tuple(map(self.value, grads))
        self.host("norm", Reference(function), args, outputs=(self.new(made),), written=written)
        return from_raw(made)

    def zero_grads(self, optimizer: Optimizer, params: list[Tensor]) -> None:
        """Notes that an optimizer fills the gradients of its parameters with zeros."""
        written = tuple(map(self.value, self._grads_of(params)))
        self.host("call", Reference(optimizer.zero_grad), (False,), {}, written=written)

    def _grads_of(self, params: list[Tensor]) -> list[MetaArray]:
        self.unwrap(params)
        self._synchronize_grads()
        return [p._grad._array for p in params if p._grad is not None]

    def host(
        self, name: str, *args: object, outputs: tuple[Value, ...] = (), written: tuple[Value, ...] = ()
    ) -> None:
        """Notes a call of a function in HOST."""
        args = mapped(lambda x: x.value if type(x) is Number else x, args)
        self.note(Instruction(f"host.{name}", args, {}, outputs, written))

    # Random numbers.

    def generator(self, generator: Generator) -> Any:
        """Returns what stands for `generator.rng`."""
        return _Random(self, generator)

    def draw(self, draw: Draw) -> Value:
        """Returns the value of a dropout's draw."""
        found = self._draws.get(id(draw))
        if found is None:
            found = self._draws[id(draw)] = self.opaque(), draw
            where = () if self.device is CPU else (str(self.device),)
            self.host("draw", *where, outputs=found[:1])
        return found[0]

    def kept(self, draw: Draw, x: MetaArray, p: float) -> MetaArray:
        """Notes that the mask of a dropout is drawn."""
        made = new_of(layout(x.shape, None, np.dtype(bool)))
        if self.is_inside:  # a kernel draws its own
            return made
        self.host("kept", self.draw(draw), self.value(x), p, outputs=(self.new(made),))
        return made


class _Random:
    """What stands for NumPy's generator during a trace."""

    def __init__(self, tracer: HostCalls, generator: Generator):
        self._tracer, self._generator = tracer, Reference(generator)
        self.is_numpys = tracer.device is CPU
        if generator is default_generator(META) or generator is default_generator(tracer.device):
            self._generator = None if tracer.device is CPU else str(tracer.device)
        elif generator.device is not META:
            tracer.stand_in(generator.device)

    def __getattr__(self, name: str) -> Callable:
        def call(*args: object, **kwargs: object) -> MetaArray:
            with self._tracer.inside():
                made = getattr(MetaRandom(), name)(*args, **kwargs)
            value = self._tracer.value
            values = mapped(lambda x: value(x) if isinstance(x, MetaArray) else x, (args, kwargs))
            self._tracer.host("random", self._generator, name, *values, outputs=(self._tracer.new(made),))
            return made

        return call


def draws(program: Program) -> bool:
    """Returns whether a program draws random numbers of the default generator."""
    calls = [(i.name, i.args[:1]) for i in program.instructions if i.is_host]
    return any([call in (("host.draw", ()), ("host.random", (None,))) for call in calls])
