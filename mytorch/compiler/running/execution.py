"""Runs programs: the Python function of a program, and the loops that it calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import indent
from typing import Any

import numpy as np

from ...backends.device import CPU, RawArray, device
from ...backends.float_errors import IGNORE, errors
from ...backends.threads import get_num_threads
from ...core.grad_mode import _state
from ...core.tensor import increment_version
from ...nn.functional.composite import REGISTRY, use_fused
from ...nn.fused_ops.registry import why_not
from ..codegen import numba_source, triton_source
from ..codegen.loop import Loop
from ..codegen.lowering import awaited
from ..codegen.numba_source import DEFAULT, Strategy, loaded
from ..codegen.python_source import name_of, source_of, transposed_state
from ..memory.live_ranges import scheduled
from ..program.instruction import Instruction
from ..program.program import Program, described, fits
from .autotune import is_compiled, strategy_of
from .checked import is_on
from .movers import movers


class Executable:
    """A program as a function of raw arrays, (inputs) -> outputs nested as the program's.

    Attributes:
        writes: whether it writes to inputs or state; what objects write (`host`) isn't counted.
        movers: optimizers that must be settled when it runs: see `movers`.
    """

    def __init__(self, program: Program):
        self._device, self._program = program.device, program
        self._state = [(value, owner, program.state[value]) for value, owner in program.owners.items()]
        self._transposed = [(name_of(y), name_of(x)) for y, x in transposed_state(program).items()]
        self._build()
        changed = {value for i in program.instructions if not i.is_host for value in i.written}
        self._changed = [owner for value, owner in program.owners.items() if value in changed]
        saved = any([value.dtype.kind == "O" for value in program.results()])
        self._written = [k for k, x in enumerate(program.inputs) if x in changed]
        self._written_state = [value for value in program.state if value in changed]
        self.writes = bool(self._written or self._written_state)
        self.movers = movers(program)
        names = {i.name for i in program.instructions}
        self._has_vjps, self._has_kernels = saved or "kernel.vjp" in names, "kernel" in names

    def _build(self) -> None:
        """Generates the function, with the kernels that are there, and for the number of threads."""
        program = self._program
        self._settings = use_fused.default, get_num_threads()
        text, self._namespace = source_of(program, is_checked=is_on())
        self._awaited = awaited(program)
        for number, i in enumerate(scheduled(program)):
            if i.name == "loop":  # each is in a file of its own: see `loaded`
                strategy = _strategy_of(i, program)
                self._namespace[f"loop{number}"] = runnable(i.kwargs["loop"], strategy, program.device)
        self._namespace |= {"errors": errors, "IGNORE": IGNORE}
        self._namespace |= {name_of(value): raw for value, _, raw in self._state}
        exec(compile(_without_warnings(text), f"<{program.name}>", "exec"), self._namespace)  # our own text
        self._run = self._namespace["run"]
        self._recorded: dict[str, object] | None = None  # what `_namespace` is, for recorded runs
        self._transpose()

    def _arrived(self) -> bool:
        """Returns whether all kernels are compiled that weren't when the function was generated."""
        return all(["cpu" in REGISTRY[name].kernels for name in self._awaited])

    def bind(self) -> None:
        """Makes the program use the arrays that the tensors of its state have now.

        Raises:
            RuntimeError: one has another shape or dtype, or is on another device.
        """
        for k, (value, reference, raw) in enumerate(self._state):
            owner = reference()
            if owner is not None and owner._data._array is not raw:
                now = owner._data._array
                if not fits(now, value, self._device):
                    raise RuntimeError(
                        f"a tensor of the program's state was {value.described(strides=True)} on "
                        f"{self._device}, and is {described(now)} now"
                    )
                self._namespace[name_of(value)] = now
                self._state[k] = value, reference, now
                self._transpose()

    def overlap(self, raws: Sequence[RawArray]) -> bool:
        """Returns whether an input or state that is written shares memory with another input or state: a
        program takes them as independent."""
        values = [value for value, _, _ in self._state] if self._written else self._written_state
        state = [self._namespace[name_of(value)] for value in values]
        return any([
            np.may_share_memory(raws[k], other)
            for k in self._written for other in (*raws[:k], *raws[k + 1 :])
        ]) or any([np.may_share_memory(x, raw) for x in state for raw in raws])  # fmt: skip

    def _transpose(self) -> None:
        for y, x in self._transposed:
            self._namespace[y] = self._namespace[x].T

    def __call__(self, *raws: RawArray) -> Any:
        """Runs the program; its state must be bound."""
        for reference in self._changed:
            owner = reference()
            if owner is not None:
                increment_version(owner)
        if self._settings != (use_fused.default, get_num_threads()) or self._awaited and self._arrived():
            self._build()
        run = self._run if _state.stream is None else self._recorded_run()
        if not self._has_kernels:
            return run(*raws)
        recording, _state.recording = _state.recording, self._has_vjps  # do kernels save?
        try:
            return run(*raws)
        finally:
            _state.recording = recording

    def _recorded_run(self) -> Callable:
        """Returns the function that shows its instructions to logs and profilers."""
        if self._recorded is None:
            text, self._recorded = source_of(self._program, True, is_on())
            loops = [name for name in self._namespace if name.startswith("loop")]
            self._recorded |= {name: self._namespace[name] for name in (*loops, "errors", "IGNORE")}
            exec(compile(_without_warnings(text), f"<{self._program.name}>", "exec"), self._recorded)
        changing = [name_of(value) for value, _, _ in self._state] + [y for y, _ in self._transposed]
        self._recorded |= {name: self._namespace[name] for name in changing}
        return self._recorded["run"]


def _without_warnings(text: str) -> str:
    """Returns the function with NumPy's warnings off, as inf and NaN are values: see `float_errors`."""
    head, _, body = text.partition("\n")
    body = f"    try:\n{indent(body, '    ')}\n    finally:\n        errors.reset(token)"
    return f"{head}\n    token = errors.set(IGNORE)\n{body}"


def loops_of(program: Program, kind: str) -> list[str]:
    """Returns the sources of the loops for a kind of device: "cpu" in Numba, "cuda" in Triton."""
    loops = [(f"loop{k}", i) for k, i in enumerate(scheduled(program)) if i.name == "loop"]
    if kind == "cpu":
        return [numba_source.source(i.kwargs["loop"], name, _strategy_of(i, program)) for name, i in loops]
    return [triton_source.source(i.kwargs["loop"], i.kwargs["n"], name) for name, i in loops]


def _strategy_of(i: Instruction, program: Program) -> Strategy:
    return strategy_of(i, program.is_tuned and program.device is CPU)


def runnable(loop: Loop, strategy: Strategy = DEFAULT, target: device = CPU) -> Callable:
    """Returns the compiled loop, or the same in NumPy's functions without Numba or Triton and with
    `use_fused(False)`.

    Args:
        target: on a GPU it takes all outputs, also those in the memory of inputs.
    """
    if target is CPU:
        return loaded(loop, strategy) if is_compiled() else loop.in_numpy
    if not use_fused.default or why_not(target.kernels):
        return replace(loop, places=()).in_numpy
    return functools.partial(triton_source.launched, loop)
