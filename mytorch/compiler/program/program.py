"""Programs: what a function computes, as data that can be printed, changed, saved and run."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import CPU, DeviceLike, RawArray, as_device, device, device_of, is_raw, move
from ...core.op import as_raw
from ...core.overriding import overriding
from ...core.tensor import Tensor, from_raw, increment_version, raw_of
from ...utils.nested import leaves, mapped, text
from .instruction import Instruction, Value

if TYPE_CHECKING:
    from ..memory.live_ranges import Memory
    from ..parts.chunking import Chunked
    from ..parts.placed import Placed
    from ..parts.streaming import Stream
    from ..running.execution import Executable


@dataclass
class Program:
    """Instructions in the order in which they run.

    Attributes:
        inputs: the arguments.
        state: arrays that belong to no argument, as parameters, by value: they are read, or written, where
            they lie.
        constants: small arrays with known elements.
        outputs: what is returned, nested as the function returned it.
        owners: the tensors of the state: where one has got another array since, that is used.
        gives_lazy: results of vjps may be `LazyGrad`s, as the engine takes them.
        device: where it runs. Constants lie on the CPU in any case, and are copied once.
        position: where the next `stream` begins, of a program that was frozen in the middle of one.
        loose: inputs that may lie in another order in memory, as gradients: those are copied.
        is_tuned: loops run in the fastest of several strategies, which are measured; see `strategies`.
    """

    inputs: tuple[Value, ...]
    state: dict[Value, RawArray]
    constants: dict[Value, RawArray]
    instructions: list[Instruction]
    outputs: object
    name: str = "program"
    owners: dict[Value, weakref.ref[Tensor]] = field(default_factory=dict, repr=False)
    gives_lazy: bool = False
    device: device = CPU
    position: dict[str, Any] | None = None
    is_tuned: bool = False
    loose: tuple[Value, ...] = ()
    _run: Executable | None = field(default=None, init=False, repr=False)
    _stream: Stream | None = field(default=None, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        where = "" if self.device is CPU else f" on {self.device}"
        lines = [f"{self.name}({', '.join(value.described() for value in self.inputs)}){where}"]
        for kind, values in (("state", self.state), ("constant", self.constants)):
            for value, raw in values.items():
                known = f" = {raw.tolist()}" if kind == "constant" and raw.size <= 4 else ""
                lines.append(f"  {kind} {value.described()}{known}")
        lines += [f"  {instruction}" for instruction in self.instructions]
        return "\n".join([*lines, f"  return {text(self.outputs)}"])

    def __call__(self, *tensors: Tensor | RawArray) -> Any:
        """Runs the program.

        Args:
            tensors: for each input one of its shape, strides and dtype, on the device of the program, or a
                number.

        Returns:
            Tensors without history, nested as the function returned them.

        Raises:
            ValueError: another number, shape, memory order, dtype or device of tensors, or what the program
                writes to shares memory with another tensor.
            RuntimeError: it uses parameters after a step that moves them in each run: see `movers`.
        """
        from ..running.movers import settle

        if overriding and (answer := overriding.dispatch(self.__call__, tensors, {})) is not NotImplemented:
            return answer
        raws = [x if type(x) in (float, int) else raw_of(x) for x in tensors]
        check_inputs(self.name, self.inputs, raws, self.device)
        run = self.executable()
        settle(self.name, run.movers)
        run.bind()
        if run.writes and run.overlap(raws):
            raise ValueError(f"{self.name}: it writes to a tensor that shares memory with another")
        result = run(*raws)
        for tensor, value in zip(tensors, self.inputs, strict=True):
            if isinstance(tensor, Tensor) and value in self.changed_storages():
                increment_version(tensor)
        return mapped(lambda x: from_raw(as_raw(x)) if is_raw(x) or isinstance(x, np.generic) else x, result)

    def executable(self) -> Executable:
        """Returns the function of raw arrays that runs the program."""
        if self._run is None:
            from ..running.on_gpu import Executable, OnGPU

            self._run = Executable(self) if self.device is CPU else OnGPU(self)
        return self._run

    def optimized(self, mode: str | None = None) -> Program:
        """Returns a program that computes the same in fewer passes over memory; see `passes`.

        Args:
            mode: "max-autotune" measures several strategies for each loop before the program runs for the
                first time, and keeps on disk which was the fastest. Others of PyTorch have no effect.

        Raises:
            RuntimeError: an unknown mode.
        """
        from ..passes import optimized

        return optimized(self, mode)

    def strategies(self) -> str:
        """Returns a table of the times of each loop in several strategies, measured now unless they were
        before; results differ by the order of sums at most.

        Raises:
            RuntimeError: loops aren't compiled.
        """
        from ..running.autotune import table

        return table(self)

    def source(self, target: str | None = None) -> str:
        """Returns the source that runs: compiled loops, and the calls of these and of NumPy's functions.

        Args:
            target: "cpu" or "cuda"; by default where the program runs. For the other one it is the source of
                the loops alone, in Numba or Triton.
        """
        from ..codegen.python_source import source_of
        from ..running.execution import loops_of

        if target not in (None, "cpu", "cuda"):
            raise ValueError(f'source(): expected "cpu" or "cuda", got {target!r}')
        loops = loops_of(self, target or self.device.type)
        own = target in (None, self.device.type)
        return "\n\n\n".join([*loops, source_of(self)[0]] if own else loops)

    def to(self, device: DeviceLike) -> Program:
        """Returns the program on another device, with a state of its own there; itself if it is on it.

        Raises:
            NotImplementedError: it calls Python's objects, which stay where they are.
        """
        target = as_device(device)
        if target is self.device:
            return self
        if calls := [i.name for i in self.instructions if i.is_host]:
            raise NotImplementedError(
                f"can't move {self.name} to {target}: it calls Python's objects, {calls[0]}"
            )
        state = {value: move(raw, target) for value, raw in self.state.items()}
        return replace(self, state=state, owners={}, device=target)

    def save(self, path: str | os.PathLike) -> None:
        """Saves the program, with its state, to a safetensors file; see `saving.save` and `load`."""
        from ..files.saving import save

        save(self, path)

    def freeze(self, path: str | os.PathLike) -> None:
        """Saves the program in the middle of a run, which `thaw` continues in another process, bit for bit.

        That is `save`, which is atomic: with parameters, gradients that are set, moments, buffers, rates and
        counts of steps, and random states. If the program's last stream hasn't come to its end, it is the
        stream's `freeze`: results so far are written, and the position in the source is stored.
        """
        if self._stream is None:
            self.save(path)
        else:
            self._stream.freeze(path)

    def stream(self, source: Any, sink: object = None) -> Stream:
        """Returns an iterable that runs the program on each batch of a source, and gives its results.

        Batches are read, and results written, by threads beside the program; see `streaming.Stream`.

        Args:
            source: an array or memory map, or a tuple with one for each input, that is cut along the first
                dim; or a DataLoader, or any iterable of batches. The last batch may have fewer rows if the
                program treats each row by itself.
            sink: an array or memory map for the rows of the results, or a tuple of such; a list, or a
                function, that gets each result; or None.

        >>> program = mytorch.capture(lambda x: x * 2, mytorch.ones(2))
        >>> for y in program.stream(mytorch.arange(4.0)):
        ...     print(y)
        tensor([0.00000 2.00000])
        tensor([4.00000 6.00000])
        """
        from ..parts.streaming import Stream

        return Stream(self, source, sink)

    def chunked(self, memory: int | str) -> Chunked:
        """Returns a function that computes the same part by part of the batch, in less memory.

        The batch is the first dim of the first input, and of those of the same length. Results for each row
        are those of the program; products may round otherwise, and sums over the batch add up those of parts.

        Args:
            memory: that it may make besides inputs and state: bytes, or text as "500MB" or "1.5 GiB".

        Raises:
            ValueError: no part is small enough, the message says what the smallest one needs; or the program
                is too large and writes to its inputs, or between parts to an array and to views of it.

        >>> x = mytorch.ones(1000, 10)
        >>> program = mytorch.capture(lambda x: (x * 2).exp().sum(), x)
        >>> chunked = program.chunked(memory="10kB")
        >>> chunked.rows, chunked.peak
        (200, 8008)
        """
        from ..parts.chunking import Chunked

        return Chunked(self, memory)

    def placed(
        self, devices: Sequence[DeviceLike] | Mapping[DeviceLike, int | str],
        memory: int | str | Mapping[DeviceLike, int | str] | None = None,
    ) -> Placed:  # fmt: skip
        """Returns a function that computes the same on several devices, if one has too little memory.

        The program is cut where the fewest bytes cross; copies are made while devices compute. Gradients, and
        what optimizers keep, lie with their parameter. The tensors of the state move to their devices, as by
        `model.to`. Results lie where they are made.

        Args:
            devices: names, or a limit for each, as accelerate's `max_memory`: `{0: "10GiB", "cpu": "30GiB"}`.
            memory: the limit of each device, or of some: bytes, or text as "500MB" or "1.5 GiB"; by default
                what is free on a GPU, and none on others.

        Raises:
            ValueError: it doesn't fit, the message says what is needed; or it writes to its inputs.
            NotImplementedError: an input or result is no array, or has gaps between its elements.

        >>> w, v = mytorch.ones(300, 300), mytorch.ones(300, 300)
        >>> program = mytorch.capture(lambda x: (x @ w).relu() @ v, mytorch.ones(1, 300))
        >>> program.placed(["cpu"], memory="500kB")
        Traceback (most recent call last):
        ValueError: <lambda> doesn't fit its devices, it needs 723.6 kB of 500.0 kB on cpu
        >>> program.placed({"cpu": "1MB"}).nbytes
        0
        """
        from ..parts.placed import Placed

        return Placed(self, devices, memory)

    def draw(self, path: str | os.PathLike) -> None:
        """Draws the program as a graph, to a file whose suffix is .svg or .html; see `drawing.draw`."""
        from ..drawing import draw

        draw(self, path)

    def memory(self) -> Memory:
        """Returns the memory that the program needs, as a table: see `memory.Memory`. Nothing runs.

        >>> print(mytorch.capture(lambda x: (x + 1).exp().sum(), mytorch.ones(1000)).memory())
        given 4.0 kB, peak 8.0 kB more at instruction 1, exp; alive there:
             4.0 kB  %1: float32[1000] from add
             4.0 kB  %2: float32[1000] from exp
        """
        from ..memory.live_ranges import memory_of

        return memory_of(self)

    def results(self) -> list[Value]:
        """Returns the values among the outputs."""
        return [x for x in leaves(self.outputs) if isinstance(x, Value)]

    def bases(self) -> dict[Value, Value]:
        """Returns for each value the one in whose memory it lies: passes may have replaced, or computed, what
        a view was made of, and `Value.of` doesn't say so."""
        found = {value: value for value in (*self.inputs, *self.state, *self.constants)}
        for i in self.instructions:
            for y in i.outputs:
                given = i.inputs() if y.of is not None else []
                same = [x for x in given if x.storage is y.of] or given
                found[y] = found[same[0]] if same else y
                found.setdefault(y.storage, found[y])
        return found

    def changed_storages(self) -> set[Value]:
        """Returns the storages that an instruction writes to."""
        return {value for instruction in self.instructions for value in instruction.written}

    def gradients(self) -> list[Value]:
        """Returns the values that are the `.grad` of a parameter."""
        calls = ("host.grad", "host.set_grad")
        return [value for i in self.instructions if i.name in calls for value in i.outputs]

    def next_number(self) -> int:
        """Returns a number that no value has, nor any after it."""
        made = [y for i in self.instructions for y in i.outputs]
        return 1 + max([x.number for x in (*self.inputs, *self.state, *self.constants, *made)], default=-1)

    def uses(self) -> dict[Value, list[Instruction]]:
        """Returns the instructions that take each value."""
        found: dict[Value, list[Instruction]] = {}
        for instruction in self.instructions:
            for value in instruction.inputs():
                found.setdefault(value, []).append(instruction)
        return found


def check_inputs(
    name: str, inputs: Sequence[Value], raws: Sequence[RawArray | float], target: device = CPU
) -> None:
    """Raises ValueError unless arrays, or numbers, fit the inputs of a program of this name."""
    pairs = zip(raws, inputs, strict=False)
    if len(raws) != len(inputs) or not all([fits(x, value, target) for x, value in pairs]):
        wanted = ", ".join([value.described(strides=True) for value in inputs])
        given = ", ".join([*map(described, raws)])
        raise ValueError(f"{name}: expected {wanted} on {target}, as the examples, got {given}")


def described(x: RawArray | float) -> str:
    """Returns the dtype, shape, strides and device of an array, or the type of a number."""
    if isinstance(x, (float, int)):
        return type(x).__name__
    return f"{x.dtype}{list(x.shape)} of strides {x.strides} on {device_of(x)}"


def fits(raw: RawArray | float, value: Value, target: device = CPU) -> bool:
    """Whether an array is on a device and has the shape, dtype and, where they matter, strides of a value; or
    a number its kind."""
    if value.dtype.kind == "O" or isinstance(raw, (float, int)):
        return type(raw).__name__ == value.kind
    if device_of(raw) is not target or raw.shape != value.shape or raw.dtype != value.dtype:
        return False
    pairs = zip(raw.shape, raw.strides, value.strides, strict=True)
    return not raw.size or all([size == 1 or ours == theirs for size, ours, theirs in pairs])
