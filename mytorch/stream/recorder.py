"""
The recorder: what every operation of a program passes while it is recorded.

`core` has one variable for it, `_state.stream`: None, and then an operation costs one test more. Otherwise it
is the `Recorder`, which every op, every vjp that the backward pass calls, `Optimizer.step`, collectives and
`next(DataLoader)` pass. It shows an instruction to its *sinks* when it begins and when it ends: a list, a
log, a profiler, the page of `mytorchrun top`.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from ..backends import device as devices
from ..backends.device import RawArray, device_of, is_raw
from ..core import engine
from ..core.array import Array
from ..core.closure import closure_arrays
from ..core.grad_accumulator import LazyGrad
from ..core.grad_mode import _state
from ..core.graph import Node, owner_of, shown_name
from ..core.op import as_raw
from ..core.tensor import Tensor
from ..cuda.streams import Event, current_stream
from ..nn.functional.composite import Unsupported
from ..utils.call_site import call_site
from .instruction import (
    BACKWARD,
    COMMUNICATION,
    DATA,
    FORWARD,
    OPTIMIZER,
    PLAIN,
    Instruction,
    Operand,
    Signature,
    new_operand,
    plain,
)

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_NONE: dict[str, object] = {}
_PURGE = 1 << 14  # references to arrays, among them dead ones, before the dead are removed


class Sink(Protocol):
    """What gets the instructions.

    wants_site:   each gets the line of the user's program.
    wants_events: each on a GPU gets CUDA events.
    wants_arrays: `see(array, instruction)` is called with each array when it is first seen, also with those
        that a vjp holds; the instruction is the one that made it, None if it was there before.
    """

    wants_site = wants_events = wants_arrays = False

    def see(self, raw: RawArray, instruction: Instruction | None) -> None: ...

    def begin(self, instruction: Instruction) -> None: ...

    def end(self, instruction: Instruction) -> None: ...


class _Thread(threading.local):
    current: Instruction | None = None  # that runs
    last: Instruction | None = None  # that ended
    path = ""  # of the module that runs
    paths: dict[int, str] | None = None  # of the modules below the outermost one that runs


class _Reference(weakref.ref):
    """A weak reference to an array, with its operand."""

    __slots__ = ("operand",)


class Block:
    """A `with` block that is an instruction."""

    __slots__ = ("recorder", "instruction", "outputs")

    def __init__(self, recorder: Recorder, instruction: Instruction):
        self.recorder, self.instruction, self.outputs = recorder, instruction, ()

    def __enter__(self) -> Block:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is Unsupported:  # a kernel refused the arguments: another variant computes
            self.instruction.name += " (unsupported)"
        self.recorder.end(self.instruction, self.outputs, kind is not None)


class Recorder:
    """Makes instructions, of all threads; there is one while something records (see `start`).

    Attributes:
        sinks: what gets them.
        rank: of this process, by the launcher's environment.
    """

    def __init__(self) -> None:
        self.sinks: tuple[Sink, ...] = ()
        self.rank = rank_of_process()
        self._thread = _Thread()
        self._numbers, self._operands = itertools.count(1), itertools.count(1)
        self._references: dict[int, _Reference] = {}
        self._limit = _PURGE

    def attach(self, sinks: tuple[Sink, ...]) -> None:
        """Sets the sinks."""
        self.sinks = sinks
        self.wants_site = any(sink.wants_site for sink in sinks)
        self.wants_events = any(sink.wants_events for sink in sinks)
        self.watchers = tuple(sink for sink in sinks if sink.wants_arrays)

    # One instruction.

    def begin(
        self, name: str, phase: str | None = None, signature: Signature = None, arguments: object = (),
        keywords: dict[str, object] | None = None, module: str | None = None, nested: bool = True,
    ) -> Instruction:
        """Begins an instruction, within the one that runs.

        Args:
            phase: by default that of the instruction around it, else forward.
            signature: the op, or the names of the arguments; None for a block of a program.
            arguments, keywords: arrays and others.
            module: its path; by default that of the module that runs.
            nested: False: other instructions may begin and end before it ends, and are not within it.
        """
        thread = self._thread
        parent = thread.current
        if phase is None:
            phase = _phase_of(parent)
        operand, given = self.operand, []
        for a in arguments:
            kind = type(a)
            given.append(operand(a) if kind is np.ndarray else a if kind in PLAIN else plain(a, operand))
        keywords = {k: plain(v, operand) for k, v in keywords.items()} if keywords else _NONE
        instruction = Instruction(
            next(self._numbers), name, phase, thread.path if module is None else module, signature,
            tuple(given), keywords, parent, self.rank, threading.get_ident(),
        )
        if self.wants_site:
            instruction.site = call_site()
        if nested:
            thread.current = instruction
        for sink in self.sinks:
            sink.begin(instruction)
        if self.wants_events:
            self._record_event(instruction)
        instruction.start = perf_counter()
        return instruction

    def end(self, instruction: Instruction, outputs: object = (), failed: bool = False) -> None:
        """Ends an instruction that made these arrays."""
        instruction.duration = perf_counter() - instruction.start
        if instruction.events is not None:
            _, last = instruction.events
            last.record(current_stream(instruction.inputs[0].device))
        instruction.outputs = tuple([self.operand(a, instruction) for a in outputs])
        instruction.failed = failed
        thread, parent = self._thread, instruction.parent
        if thread.current is instruction:
            thread.current = parent
            if parent is not None:
                parent.inside += instruction.duration
        thread.last = instruction
        for sink in self.sinks:
            sink.end(instruction)

    def operand(self, raw: object, maker: Instruction | None = None) -> Operand | None:
        """Returns the operand of an array, with a number of its own; None for anything else."""
        found = self._references.get(id(raw))
        if found is not None and found() is raw:
            return found.operand
        if isinstance(raw, (Tensor, Array)):
            return self.operand(raw.data._array, maker)
        if not is_raw(raw):
            return None
        device = "cpu" if type(raw) is np.ndarray else str(device_of(raw))
        found = _Reference(raw)
        found.operand = new_operand((next(self._operands), raw.shape, raw.dtype, device, raw.nbytes))
        self._references[id(raw)] = found
        for sink in self.watchers:
            sink.see(raw, maker)
        if len(self._references) > self._limit:
            self._purge()
        return found.operand

    def _purge(self) -> None:
        """Removes the references to arrays that are gone."""
        for key, reference in list(self._references.items()):
            if reference() is None:
                self._references.pop(key, None)
        self._limit = max(_PURGE, 2 * len(self._references))

    def _record_event(self, instruction: Instruction) -> None:
        """Records the first CUDA event of an instruction on a GPU; a graph that is captured gets none."""
        on_gpu = instruction.inputs[0].device if instruction.inputs else "cpu"
        if on_gpu != "cpu" and not devices.thread.is_capturing:
            first, last = Event(enable_timing=True), Event(enable_timing=True)
            first.record(current_stream(on_gpu))
            instruction.events = first, last

    # What the package calls.

    def recorded(self, call: Callable, compute: Callable) -> Callable:
        """Returns `compute`, the body of the op `call`, as a function that is recorded."""

        def run(raws, kwargs):
            with Block(self, self.begin(call.__name__.lstrip("_"), None, call, raws, kwargs)) as block:
                result, vjp = compute(raws, kwargs)
                if isinstance(result, (tuple, list)):
                    result = block.outputs = tuple(map(as_raw, result))
                else:
                    result = as_raw(result)
                    block.outputs = (result,)
                if self.watchers:
                    for saved in closure_arrays(vjp):
                        self.operand(saved, block.instruction)
            return result, vjp

        return run

    def recorded_function(self, function: Any) -> Callable:
        """Returns what runs the forward pass of a custom Function as a function that is recorded."""

        def run(ctx, args, kwargs):
            with Block(self, self.begin(function.__name__, None, function, args, kwargs)) as block:
                result = function._run(ctx, args, kwargs)
                block.outputs = _arrays_in(result)
            return result

        return run

    def connect(self, node: Node) -> None:
        """Sets the instruction of a node that was just made."""
        node.instruction = self._thread.last

    def call_vjp(self, node: Node, grad: RawArray, needed: set[Node] | None) -> tuple:
        """Calls `engine.call_vjp`, recorded; a LazyGrad is an instruction of its own, when computed."""
        if node.name.endswith("]"):  # passes the gradient of one of several outputs on, unchanged
            return engine.call_vjp(node, grad, needed)
        origin = getattr(node, "instruction", None)
        module = "" if origin is None else origin.module
        name = f"{shown_name(node.name)}_backward"
        given = (*grad.values(),) if isinstance(grad, dict) else (grad,)
        instruction = self.begin(name, BACKWARD, ("grad",), given, module=module)
        instruction.origin = origin
        with Block(self, instruction) as block:
            grads = engine.call_vjp(node, grad, needed)
            block.outputs = [g for g in grads if is_raw(g)]
        for i, g in enumerate(grads):
            if type(g) is LazyGrad:
                g.compute = self.later(f"{name}.{i}", g.compute, instruction)
        return grads

    def later(self, name: str, compute: Callable, vjp: Instruction) -> Callable:
        """Returns the `compute` of a LazyGrad, which a vjp returned, as a function that is recorded."""

        def run(out, beta):
            keywords = {"beta": beta}
            instruction = self.begin(name, BACKWARD, ("grad",), vjp.inputs, keywords, vjp.module)
            instruction.origin = vjp.origin
            with Block(self, instruction) as block:
                if owner_of(out) is not out:
                    self.operand(out)  # a section of a flat buffer was there before
                compute(out, beta)
                block.outputs = (out,)

        return run

    def call_module(self, module: Any, args: tuple, kwargs: dict) -> Any:
        """Calls a module's forward with its hooks; ops in it are recorded with its path."""
        thread = self._thread
        path, paths = thread.path, thread.paths
        if paths is None:
            thread.paths = {id(m): name or type(m).__name__ for name, m in module.named_modules()}
        inner = thread.paths.get(id(module))
        thread.path = f"{path}.{type(module).__name__}" if inner is None else inner
        try:
            if module._hooks is None:
                return module.forward(*args, **kwargs)
            return module._hooks.call(module, args, kwargs)
        finally:
            thread.path, thread.paths = path, paths

    def recorded_step(self, optimizer: Any, step: Callable) -> Callable:
        """Returns an optimizer's `step` as a function that is recorded."""

        def vectors(optimizer):
            states = vars(optimizer).get("_group_states", ())  # one that wraps another has none
            buffers = [flat.buffer for state in states for flat in state.flats]
            return [a for b in buffers for a in (b.data, *b.moments.values())], [b.grad for b in buffers]

        def run(optimizer, *args, **kwargs):
            values, grads = vectors(optimizer)
            for vector in values:
                self.operand(vector)  # was there before
            name = f"{type(optimizer).__name__}.step"
            with Block(self, self.begin(name, OPTIMIZER, ("grad",), grads)) as block:
                result = step(optimizer, *args, **kwargs)
                block.outputs = vectors(optimizer)[0]
            return result

        return run

    def write(self, name: str, target: RawArray, index: object, value: object) -> None:
        """Does `target[index] = value`, recorded."""
        names = "left", "index", "right"
        with Block(self, self.begin(name, None, names, (target, index, value))) as block:
            target[index] = value
            block.outputs = (target,)

    def load(self, load: Callable[[], Any]) -> Any:
        """Returns the next batch of a DataLoader, recorded."""
        with Block(self, self.begin("DataLoader", DATA)) as block:
            try:
                batch, over = load(), None
                block.outputs = _arrays_in(batch)
            except StopIteration as end:  # is no failure
                over = end
        if over is not None:
            raise over
        return batch

    def begin_collective(
        self, op: str, raw: RawArray, group: str, seq: int, site: str, peers: tuple[int, ...] | None
    ) -> Instruction:
        """Begins a collective, or a send or receive with `peers`; its `Work` ends it."""
        keywords = {"group": group, "seq": seq, **({} if peers is None else {"peers": peers})}
        instruction = self.begin(op, COMMUNICATION, ("tensor",), (raw,), keywords, nested=False)
        instruction.site, instruction.finish = site, self.end
        return instruction


def _phase_of(parent: Instruction | None) -> str:
    if parent is not None:
        return parent.phase
    return FORWARD if _state.backward_pass is None else BACKWARD


def _arrays_in(batch: object) -> list[Tensor | Array]:
    """Returns the tensors in tuples, lists and dicts."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (tuple, list)):
        return [a for item in batch for a in _arrays_in(item)]
    return [batch] if isinstance(batch, (Tensor, Array)) or is_raw(batch) else []


def rank_of_process() -> int:
    """Returns the rank that the launcher gave to this process; 0 without one."""
    found = (os.environ.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in found if rank.isdecimal()), 0)
