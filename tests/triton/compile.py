"""
The mode of launches in which kernels are compiled for any GPU, on a machine without one.

    with compiling(90) as reports:
        kernel("softmax")(x, -1, …)       # NumPy arrays take the place of the GPU's; nothing runs
    for report in reports:
        print(report)                     # registers, spills, shared memory
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver as active

from mytorch.nn.fused_ops.triton.chips import CHIPS, Chip
from mytorch.nn.fused_ops.triton.launch import OPTIONS, in_mode
from mytorch.nn.fused_ops.triton.tune import Tuned

CUOBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
MAX_REGISTERS = 255  # of a thread, on every GPU


@dataclass(frozen=True)
class Report:
    """What one compiled kernel needs.

    Attributes:
        kernel, capability, signature, config: what was compiled, for which GPU. A type ends in ":16" where
            addresses or numbers are divisible by 16.
        registers: of each thread.
        spilled: bytes of each thread that found no register, or are an array that can't be in registers.
        shared_memory: bytes of each block.
        cubin: the machine code.
    """

    kernel: str
    capability: int
    signature: tuple[tuple[str, str], ...]
    config: tuple[tuple[str, Any], ...]
    registers: int
    spilled: int
    shared_memory: int
    cubin: bytes = field(repr=False)

    def problems(self) -> list[str]:
        """What is more than the GPU has, or would make it slow."""
        limit = CHIPS[self.capability].shared_memory
        found = {
            f"{self.registers} registers, at most {MAX_REGISTERS}": self.registers > MAX_REGISTERS,
            f"{self.spilled} bytes spilled": self.spilled > 0,
            f"{self.shared_memory} bytes of shared memory, at most {limit}": self.shared_memory > limit,
        }
        return [text for text, bad in found.items() if bad]


@contextmanager
def compiling(capability: int) -> Iterator[list[Report]]:
    """Inside, launches compile for a GPU of this compute capability (80, 90, 100), in all their tuned
    configurations; the list gets a report of each, once for each of its kind."""
    mode = Compile(capability)
    before = active._active
    active.set_active(CompileOnly(capability))
    try:
        with in_mode(mode):
            yield mode.reports
    finally:
        active._active = before


class Compile:
    """The mode of `compiling`."""

    def __init__(self, capability: int):
        if capability not in CHIPS:
            raise ValueError(f"compiling() is for {', '.join(map(str, CHIPS))}, got {capability}")
        self.capability, self.reports = capability, []

    def launch(self, kernel: Any, grid: tuple[int, ...], pointers: list, meta: dict) -> None:
        compiled = kernel.warmup(*pointers, grid=grid, **OPTIONS, **meta)
        report = _reports.get(compiled.hash)
        if report is None:
            report = _reports[compiled.hash] = _report(compiled, self.capability, meta)
        if report not in self.reports:
            self.reports.append(report)

    def configs(self, tuned: Tuned, grid: Any, pointers: list, meta: dict) -> list[dict]:
        return tuned.candidates(pointers, meta, self.chip())

    def chip(self) -> Chip:
        return CHIPS[self.capability]


_reports: dict[str, Report] = {}  # by hash of what was compiled: asking the binary takes a moment


def _report(compiled: Any, capability: int, meta: dict) -> Report:
    registers, stack, local = resources(compiled.asm["cubin"])
    source = compiled.src
    signature = [
        (name, f"{kind}:16" if ["tt.divisibility", 16] in source.attrs.get((i,), ()) else str(kind))
        for i, (name, kind) in enumerate(source.signature.items())
        if kind != "constexpr"
    ]
    return Report(
        compiled.metadata.name, capability, tuple(signature), tuple(meta.items()),
        registers, max(stack, local), compiled.metadata.shared, compiled.asm["cubin"],
    )


def resources(cubin: bytes) -> tuple[int, int, int]:
    """The registers of a thread, and its bytes of stack and of local memory, from the machine code."""
    text = cuobjdump("-res-usage", cubin)
    found = re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing about registers: {text}")
    return tuple(map(int, found.groups()))


def products(cubin: bytes) -> int:
    """The multiplications of a group of four warps on Hopper's tensor cores, each loop run once."""
    sizes = re.findall(r"\bHGMMA\.(\d+)x(\d+)x(\d+)", cuobjdump("-sass", cubin))
    return sum(math.prod(map(int, size)) for size in sizes)


def cuobjdump(option: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [CUOBJDUMP, option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class CompileOnly(DriverBase):
    """A driver for a GPU that isn't there: enough for the compiler, and nothing that could launch."""

    def __init__(self, capability: int):
        self.target = GPUTarget("cuda", capability, 32)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.target.arch  # kernels are kept by device

    def get_current_stream(self, device: int) -> int:
        return 0

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("compiling() compiles and launches nothing")

    get_active_torch_device = map_python_to_cpp_type = get_benchmarker = _refuse
