"""FunctionEvent: an instruction as the profiler shows it, and the sink that collects them."""

from __future__ import annotations

import re
from time import perf_counter
from typing import NamedTuple

from ..backends.device import RawArray
from ..stream.flops import flops
from ..stream.instruction import Instruction
from ..stream.recorder import Sink
from .memory import MemoryRecord
from .texts import TimeTexts


class Interval(NamedTuple):
    """A beginning and an end, in microseconds since the beginning of the trace."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Returns the time between them."""
        return self.end - self.start


class FunctionEvent(TimeTexts):
    """One recorded operation, with the attributes of PyTorch's class of this name; times in microseconds.

    Attributes:
        id, name, thread, stack, flops, input_shapes, count: as in PyTorch.
        cpu_parent, cpu_children: the event that it ran in, or None, and those that ran in it.
        phase, module, kind: as of its `Instruction`.
        start, end: since the beginning of the trace; time_range holds both.
        cpu_time_total, self_cpu_time_total: with and without the operations within it; cpu_time is the first.
        device_time_total, self_device_time_total: on the GPU, between CUDA events before and after it;
            device_time is the first.
        cpu_memory_usage, device_memory_usage: bytes of the arrays that it made and that outlived it.
        peak_memory: the most bytes that were alive while it ran.
        bytes: that it read and wrote.
    """

    count = 1

    def __init__(self, i: Instruction, zero: float, allocated: dict[str, int], peak: int = 0):
        self.instruction, self.id = i, i.number
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.key = self.name = re.sub(r"^ProfilerStep#\d+$", "ProfilerStep*", i.name)  # one row for all steps
        self.thread, self.phase, self.module, self.kind = i.thread, i.phase, i.module, i.kind
        self.start = 1e6 * (i.start - zero)
        self.cpu_time_total = 1e6 * (i.duration or 0.0)
        self.end = self.start + self.cpu_time_total
        self.self_cpu_time_total = 1e6 * i.self_time
        self.device_time_total = self.self_device_time_total = 1e6 * i.device_time
        self.cpu_memory_usage = self.self_cpu_memory_usage = allocated.get("cpu", 0)
        on_gpu = sum(n for device, n in allocated.items() if device != "cpu")
        self.device_memory_usage = self.self_device_memory_usage = on_gpu
        self.peak_memory = peak
        self.flops, self.bytes = flops(i), i.nbytes
        self.input_shapes = [list(a.shape) for a in i.inputs]
        self.stack = [i.site] if i.site else []
        self.is_user_annotation, self.is_inner = i.kind == "annotation", i.parent is not None

    @property
    def time_range(self) -> Interval:
        return Interval(self.start, self.end)

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total

    @property
    def device_time(self) -> float:
        return self.device_time_total

    def __repr__(self) -> str:
        return f"<FunctionEvent {self.name} {self.phase} {self.cpu_time_total:.1f} us>"


class Collector(Sink):
    """The sink of a profiler: the instructions of a trace, and the memory of their arrays."""

    def __init__(self, with_stack: bool, with_cuda: bool, memory: MemoryRecord | None):
        self.wants_site, self.wants_events, self.wants_arrays = with_stack, with_cuda, memory is not None
        self.memory = memory
        self.instructions: list[Instruction] = []
        self.zero = perf_counter()

    def begin(self, instruction: Instruction) -> None:
        pass

    def end(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)

    def see(self, raw: RawArray, instruction: Instruction | None) -> None:
        self.memory.see(raw, instruction)

    def events(self) -> list[FunctionEvent]:
        """Returns the events by their start; waits for the GPU. Totals contain the operations within."""
        self.instructions.sort(key=lambda i: i.start)
        allocated: dict = {}
        peaks: dict = {}
        if self.memory is not None:
            allocated = self.memory.by_instruction()
            peaks = self.memory.peak_by_instruction(self.instructions)
        found = {
            i: FunctionEvent(i, self.zero, allocated.get(i, {}), peaks.get(i, 0)) for i in self.instructions
        }
        for i in reversed(self.instructions):  # an inner one before the one around it
            outer = found.get(i.parent)
            if outer is not None:
                inner = found[i]
                if outer.instruction.events is None:  # a block of a program has none of its own
                    outer.device_time_total += inner.device_time_total
                else:
                    outer.self_device_time_total -= inner.device_time_total
                outer.cpu_memory_usage += inner.cpu_memory_usage
                outer.device_memory_usage += inner.device_memory_usage
        for event in found.values():
            event.cpu_parent = found.get(event.instruction.parent)
            if event.cpu_parent is not None:
                event.cpu_parent.cpu_children.append(event)
        return list(found.values())
