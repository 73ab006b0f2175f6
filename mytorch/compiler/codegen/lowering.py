"""
Takes kernels apart into the calls of compiled functions that they consist of.

Around its compiled functions a kernel checks arguments, makes arrays and chooses between ways: Python, which
does the same in each run of a program, as shapes, strides and dtypes are the same. So its forward and its vjp
run once on tracing arrays, and what they do becomes instructions. Of

    %62: float32[12, 64, 384], %63: saved = kernel('linear', %60, %6, None)

remains

    v308 = np.empty((768, 384), 'float32')
    gemm_product(int32_111, int32_112, 768, 384, 128, address_of(v300), 128, address_of(v6), 128, …)

Products and views of the program are treated likewise. The program itself, which is printed, saved and shown
to profilers, has kernels; `Program.source` has launches.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import threads
from ...backends.address import Address
from ...backends.blas import add_product, product
from ...backends.device import CPU, is_raw, thread
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.layout import layout
from ...backends.openblas import SERIAL
from ...core.grad_accumulator import LazyGrad
from ...core.grad_mode import _state
from ...core.unbroadcast import unbroadcast
from ...nn.functional.composite import REGISTRY, Unsupported
from ...nn.functional.variant import uses_kernels
from ...utils.nested import mapped
from ..program.instruction import Instruction, Reference, Value
from ..program.kernels import gradients
from ..program.program import Program
from ..tracing.tracer import Tracer
from ..tracing.tracing_array import TracingArray

# Kernels whose Python looks at no elements, and makes arrays with `like=`.
LOWERED = (
    "linear", "linear_activation", "layer_norm", "add_layer_norm", "rms_norm", "group_norm", "self_attention",
    "scaled_dot_product_attention", "gelu", "swiglu", "geglu", "lstm_steps",
)


class Pointer(NamedTuple):
    """An argument of a launch: the address of an array, and the bytes from there."""

    array: Value
    offset: int

    def __repr__(self) -> str:
        return f"address_of({self.array!r})" + f" + {self.offset}" * bool(self.offset)


def lowered(
    program: Program, instructions: list[Instruction], contiguous: Collection[Value]
) -> list[Instruction]:
    """Returns the instructions with launches in place of kernels.

    Args:
        instructions: of the program, as they run.
        contiguous: values that are known to be in C order.
    """
    if program.device is not CPU or not uses_kernels() or thread.tracer is not None:
        return instructions
    kernels = _candidates(program, instructions)
    if not (kernels or any(map(_is_large_product, instructions))) or threads.why_serial():
        return instructions
    while True:
        try:
            return Lowering(program, contiguous).lowered(instructions, kernels)
        except _NotLowered as error:
            kernels = kernels - {error.saved}


def awaited(program: Program) -> list[str]:
    """Returns the names of kernels in a program that aren't loaded: perhaps they are being compiled."""
    names = {i.args[0] for i in program.instructions if i.name == "kernel"}.intersection(LOWERED)
    if not names or program.device is not CPU or threads.why_serial():
        return []
    return [name for name in names if "cpu" not in REGISTRY[name].kernels]


def _candidates(program: Program, instructions: list[Instruction]) -> frozenset[Value]:
    """Returns what those kernels save that may be taken apart: kernels, and vjps, of float32."""
    results, found = {*program.results()}, set()
    for i in instructions:
        if i.name == "kernel" and i.args[0] in LOWERED and i.outputs[-1] not in results:
            arrays = [*i.inputs(), *i.outputs[:-1]]
            if all([x.size and x.dtype == np.float32 for x in arrays]):
                found.add(i.outputs[-1])
        if i.name == "kernel.vjp" and "dtypes" in i.kwargs:
            found.discard(i.args[0])
    return frozenset(found)


def _is_large_product(i: Instruction) -> bool:
    """Whether it is a product of float32 arrays, the second a matrix, that is worth several threads."""
    if i.name != "matmul":
        return False
    arrays = [*i.inputs(), *i.outputs]
    is_plain = not i.kwargs and len(i.inputs()) == 2 and i.args[0].ndim >= i.args[1].ndim == 2
    is_large = is_plain and i.args[0].size * i.args[1].shape[1] >= SERIAL
    return is_large and all([x.size and x.dtype == np.float32 for x in arrays])


def _products_of_grads(instructions: list[Instruction], results: list[Value]) -> set[Instruction]:
    """Returns the products of two matrices that only become `.grad`, directly behind them."""
    uses = Counter([*results, *[x for i in instructions for x in i.inputs()]])
    return {
        i for i, user in itertools.pairwise(instructions)
        if i.name == "matmul" and user.name == "host.set_grad" and i.outputs == user.args[1:]
        and i.args[0].ndim == 2 and uses[i.outputs[0]] == 1
    }


def _saved(i: Instruction) -> Value | None:
    """Returns the value that stands for what a kernel saves: a kernel's, or that of the kernel of a vjp."""
    return i.outputs[-1] if i.name == "kernel" else i.args[0] if i.name == "kernel.vjp" else None


class _NotLowered(Exception):
    """Raised for a kernel that can't be taken apart.

    Attributes:
        saved: the value that stands for what it saves.
    """

    def __init__(self, saved: Value):
        self.saved = saved


class LaunchArray(TracingArray):
    """A tracing array that stands for one on the CPU."""

    __slots__ = ()
    stands_for_cpu = True


class Lowering(Tracer):
    """Notes what kernels do.

    Args:
        contiguous: see `lowered`.
    """

    takes_launches = True
    kind = LaunchArray

    def __init__(self, program: Program, contiguous: Collection[Value]):
        super().__init__(CPU, None)
        self._first = program.next_number()
        self._known: dict[Value, MetaArray] = {}
        arrays = [x for x in program.inputs if x.dtype.kind != "O"]
        self._as_declared = {*program.state, *[x for x in arrays if not x.is_c_order]}
        self._contiguous, self._results = contiguous, program.results()
        self._vjps: dict[Value, Any] = {}
        self._lazy: dict[Value, LazyGrad] = {}

    def lowered(self, instructions: list[Instruction], kernels: Collection[Value]) -> list[Instruction]:
        """Returns the instructions, the kernels that save these values taken apart.

        Raises:
            _NotLowered: one can't be.
        """
        used = {i.args[0] for i in instructions if i.name == "kernel.vjp"}
        into_grad = _products_of_grads(instructions, self._results)
        thread.tracer, recording = self, _state.recording
        try:
            with self:
                for i in instructions:
                    saved = _saved(i)
                    if saved in kernels:
                        _state.recording = saved in used
                        self._lower(i, saved)
                    elif i.name in ("host.set_grad", "host.add_grad") and i.args[1] in self._lazy:
                        self._into_grad(i)
                    elif _is_large_product(i):
                        self._product(i, i in into_grad)
                    else:
                        self.instructions.append(i)
                        self._follow(i)
        finally:
            thread.tracer, _state.recording = None, recording
        return self._without_views({*instructions})

    def _without_views(self, kept: Collection[Instruction]) -> list[Instruction]:
        """Returns the instructions without those that only made an array which nothing takes: a launch takes
        the address of a view from the array that it is a view of."""
        used, found = {*self._results}, []
        for i in reversed(self.instructions):
            if i in kept or not i.outputs or i.is_host or not used.isdisjoint(i.outputs):
                used.update(i.inputs())
                found.append(i)
        return found[::-1]

    def note(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)

    def launch(self, function: Any, args: tuple) -> None:
        """Notes a call of a compiled function."""
        self.note(Instruction("launch", (Reference(function), *mapped(self._launched, args)), {}, ()))

    def _launched(self, x: Any) -> Any:
        if isinstance(x, MetaArray):
            return self.value(x)
        if isinstance(x, Address):
            storage = x.array.storage
            return Pointer(self._storages[id(storage)], x - storage.start)
        if is_raw(x) and x.flags.writeable and x.size:
            raise NotImplementedError("a kernel makes an array without `like=`")
        if isinstance(x, int) and x >= 1 << 63:
            raise NotImplementedError("a kernel computes an address")
        return x

    def _lower(self, i: Instruction, saved: Value) -> None:
        start = len(self.instructions)
        try:
            made = self._kernel(i) if i.name == "kernel" else self._vjp(i)
            self._name(made, start)
        except (NotImplementedError, Unsupported) as error:
            raise _NotLowered(saved) from error

    def _kernel(self, i: Instruction) -> list[tuple[Value, MetaArray]]:
        """Runs the forward pass; returns the arrays that stand for its results."""
        composite = REGISTRY[i.args[0]]
        result, vjp = composite.kernel("cpu").forward(*mapped(self._array, i.args[1:]))
        self._vjps[i.outputs[-1]] = vjp
        results = result if composite.outputs else (result,)
        return [*zip(i.outputs[:-1], results, strict=True)]

    def _follow(self, i: Instruction) -> None:
        """Notes how a view of a known array lies in memory."""
        base = i.args[0] if i.args else None
        if i.name in (".T", "reshape", ".reshape") and not i.kwargs and self._is_known(base):
            x = self._array(base)
            with self.inside():
                x = x.T if i.name == ".T" else x.reshape(*i.args[1:])
            self.new(x)
            self._known[i.outputs[0]] = x
            self._rename(x, i.outputs[0])

    def _is_known(self, x: Any) -> bool:
        return isinstance(x, Value) and (x in self._known or x in self._as_declared or x in self._contiguous)

    def _product(self, i: Instruction, is_lazy: bool) -> None:
        """A product, or a gradient that is one."""
        start, (y,), (a, b) = len(self.instructions), i.outputs, mapped(self._array, i.args)
        if is_lazy:
            self._lazy[y] = LazyGrad(y.shape, a, lambda out, beta: add_product(a, b, out, beta))
        else:
            self._name([(y, product(a, b))], start)

    def _vjp(self, i: Instruction) -> list[tuple[Value, MetaArray]]:
        """Runs a vjp; returns the arrays that stand for the gradients, without those that `.grad` gets."""
        wanted, found = i.kwargs["wanted"], []
        grads = gradients(self._vjps[i.args[0]], mapped(self._array, i.args[1]), wanted)
        for y, (k, shape) in zip(i.outputs, wanted.items(), strict=True):
            grad = grads[k]
            if type(grad) is LazyGrad and k in i.kwargs.get("lazy", ()) and grad.shape == shape:
                self._lazy[y] = grad
                continue
            grad = grad.array() if type(grad) is LazyGrad else grad
            found.append((y, grad if grad.shape == shape else unbroadcast(grad, shape)))
        return found

    def _into_grad(self, i: Instruction) -> None:
        """A gradient is computed in the memory of `.grad`."""
        owner, value = i.args
        adds = i.name == "host.add_grad"
        place = new_of(layout(value.shape, None, value.dtype))
        name = "host.grad" if adds else "host.new_grad"
        self.note(Instruction(name, (owner,), {}, (self.new(place),)))
        self._lazy.pop(value).compute(place, int(adds))
        self.note(Instruction("host.stored", (owner, self.value(place)), {}, i.outputs))

    def _array(self, value: Any) -> Any:
        """Returns the array that stands for a value."""
        if not isinstance(value, Value):
            return value
        x = self._known.get(value)
        if x is None:
            strides = value.strides if value in self._as_declared else None
            x = self._known[value] = new_of(layout(value.shape, strides, value.dtype))
            made = self.new(x)
            if value in self._as_declared or value in self._contiguous:
                self._rename(x, value)
            else:
                self.note(Instruction("in_order", (value,), {}, (made,)))
        return x

    def _arranged(self, x: Any, y: Value) -> Any:
        """Returns what stands for a result in the order in memory that the program declares."""
        if not isinstance(x, MetaArray) or x.shape != y.shape or x.strides == y.strides or x.size < 2:
            return x
        made = new_of(layout(y.shape, y.strides, y.dtype))
        self.note(Instruction("arranged", (self.value(x),), {}, (self.new(made),)))
        return made

    def _rename(self, x: MetaArray, value: Value) -> None:
        if self._storages[id(x.storage)] is self._values[id(x)][0]:
            self._storages[id(x.storage)] = value
        self._values[id(x)] = value, x

    def _name(self, made: list[tuple[Value, MetaArray]], start: int) -> None:
        """Gives results the names that the program has for them."""
        made = [(y, self._arranged(x, y)) for y, x in made]
        new = {y for i in self.instructions[start:] for y in i.outputs}
        names: dict[Value, Value] = {}
        for y, x in made:
            if not isinstance(x, MetaArray):
                raise NotImplementedError("a result that isn't computed by launches")
            if self.value(x) not in new or self.value(x) in names:
                x = x.reshape(y.shape)  # an array that has a name
            names[self.value(x)], self._known[y] = y, x
            self._rename(x, y)

        def renamed(x: Any) -> Any:
            return names.get(x, x) if isinstance(x, Value) else x

        for k, i in enumerate(self.instructions[start:], start):
            args, outputs = mapped(renamed, (i.args, i.outputs))
            self.instructions[k] = replace(i, args=args, kwargs=mapped(renamed, i.kwargs), outputs=outputs)
