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
from ...backends.threads import get_num_threads, installed
from ...core.grad_mode import _state
from ...core.tensor import increment_version
from ...nn.functional.composite import REGISTRY
from ...nn.functional.variant import uses_kernels
from ...nn.fused_ops.background import cpu_features
from ...nn.fused_ops.registry import why_not
from ..codegen import numba_source, triton_source
from ..codegen.function_source import FunctionPrinter, transposed_state
from ..codegen.loop import Loop
from ..codegen.lowering import awaited
from ..codegen.numba_source import DEFAULT, Strategy, loaded, usual
from ..codegen.python_source import name_of
from ..program.instruction import Instruction
from ..program.program import Program, described, fits
from .autotune import Tuning
from .checked import is_on
from .movers import movers


class Written:
    """What a program writes to; what Python's objects write (`host`) isn't counted.

    Attributes:
        inputs: their positions.
        state: the values of the state.
        owners: weak references to the tensors of the state.
    """

    def __init__(self, program: Program):
        written = {value for i in program.instructions if not i.is_host for value in i.written}
        self.inputs = [k for k, x in enumerate(program.inputs) if x in written]
        self.state = [value for value in program.state if value in written]
        self.owners = [owner for value, owner in program.owners.items() if value in written]


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
        self.build()
        self._written = Written(program)
        self.writes, self.movers = bool(self._written.inputs or self._written.state), movers(program)
        names = {i.name for i in program.instructions}
        self._has_kernels = "kernel" in names
        self._has_vjps = "kernel.vjp" in names or any([x.dtype.kind == "O" for x in program.results()])

    def build(self) -> None:
        """Generates the function, with the kernels that are there, and for the number of threads."""
        program = self._program
        self._settings, self._awaited = (uses_kernels(), get_num_threads()), awaited(program)
        printer = FunctionPrinter(program, is_checked=is_on())
        for i, name in printer.loops.items():  # each is in a file of its own: see `loaded`
            strategy = strategy_of(i, program)
            printer.namespace[name] = runnable(i.kwargs["loop"], strategy, program.device)
        self._namespace = self._executed(printer)
        self._namespace |= {name_of(value): raw for value, _, raw in self._state}
        self._run = self._namespace["run"]
        self._recorded: dict[str, object] | None = None  # what `_namespace` is, for recorded runs
        self._transpose()

    def _executed(self, printer: FunctionPrinter) -> dict[str, object]:
        """Returns the namespace with the function, in which NumPy's warnings are off, as inf and NaN are
        values: see `float_errors`."""
        head, _, body = printer.text().partition("\n")
        body = f"    try:\n{indent(body, '    ')}\n    finally:\n        errors.reset(token)"
        text = f"{head}\n    token = errors.set(IGNORE)\n{body}"
        namespace = printer.namespace | {"errors": errors, "IGNORE": IGNORE}
        exec(compile(text, f"<{self._program.name}>", "exec"), namespace)  # our own text
        return namespace

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
        written = self._written.inputs
        values = [value for value, _, _ in self._state] if written else self._written.state
        state = [self._namespace[name_of(value)] for value in values]
        return any([
            np.may_share_memory(raws[k], other) for k in written for other in (*raws[:k], *raws[k + 1 :])
        ]) or any([np.may_share_memory(x, raw) for x in state for raw in raws])

    def _transpose(self) -> None:
        for y, x in self._transposed:
            self._namespace[y] = self._namespace[x].T

    def __call__(self, *raws: RawArray) -> Any:
        """Runs the program; its state must be bound."""
        for reference in self._written.owners:
            owner = reference()
            if owner is not None:
                increment_version(owner)
        if self._settings != (uses_kernels(), get_num_threads()) or self._awaited and self._arrived():
            self.build()
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
            printer = FunctionPrinter(self._program, is_recorded=True, is_checked=is_on())
            printer.namespace |= {name: self._namespace[name] for name in printer.loops.values()}
            self._recorded = self._executed(printer)
        changing = [name_of(value) for value, _, _ in self._state] + [y for y, _ in self._transposed]
        self._recorded |= {name: self._namespace[name] for name in changing}
        return self._recorded["run"]


def source(program: Program, target: str | None = None) -> str:
    """Returns the source that runs: compiled loops, and the calls of these and of NumPy's functions.

    Args:
        target: "cpu" or "cuda"; by default where the program runs. For the other one it is the source of
            the loops alone, in Numba or Triton.
    """
    if target not in (None, "cpu", "cuda"):
        raise ValueError(f'source(): expected "cpu" or "cuda", got {target!r}')
    own, printer = program.device.type, FunctionPrinter(program)
    parts = [
        triton_source.source(i.kwargs["loop"], i.kwargs["n"], name) if (target or own) != "cpu"
        else numba_source.source(i.kwargs["loop"], name, strategy_of(i, program))
        for i, name in printer.loops.items()
    ]
    return "\n\n\n".join([*parts, printer.text()] if target in (None, own) else parts)


class Strategies(dict):
    """The `Tuning` of each loop of a program, by its name in the source: see `strategies`."""

    def __init__(self, program: Program):
        super().__init__({name: _tuning(i) for i, name in FunctionPrinter(program).loops.items()})
        self._program = program

    def __setitem__(self, name: str, strategy: Strategy) -> None:
        self[name].choose(strategy)
        self._program.is_tuned = True
        self._program.executable().build()

    def __str__(self) -> str:
        return "\n".join([f"{name}, {tuning}" for name, tuning in self.items()])


def strategies(program: Program) -> Strategies:
    """Returns the strategies of each loop with their times, measured now unless they were before: a dict, as
    text a table. Results differ by the order of sums at most. The program runs a loop in the strategy that is
    assigned to it: `program.strategies()["loop0"] = Strategy(threads=1)`.

    Raises:
        RuntimeError: loops aren't compiled.
    """
    if not is_compiled():
        raise RuntimeError("strategies(): loops are not compiled without Numba, or with use_fused(False)")
    return Strategies(program)


Program.source, Program.strategies = source, strategies
_tunings = functools.cache(Tuning)


def is_compiled() -> bool:
    """Whether loops are compiled: not without Numba, nor with `use_fused(False)`."""
    return bool(uses_kernels() and installed())


def strategy_of(i: Instruction, program: Program) -> Strategy:
    """Returns how a loop of a program runs: as chosen, or, without measuring, as usual."""
    is_tuned = program.is_tuned and program.device is CPU and is_compiled()
    return _tuning(i).chosen if is_tuned else usual(i.kwargs["rows"] * i.kwargs["n"])


def _tuning(i: Instruction) -> Tuning:
    sizes, dtypes = (i.kwargs["rows"], i.kwargs["n"]), tuple([x.dtype.name for x in i.args])
    return _tunings(i.kwargs["loop"], *sizes, dtypes, get_num_threads(), cpu_features())


def runnable(loop: Loop, strategy: Strategy = DEFAULT, target: device = CPU) -> Callable:
    """Returns the compiled loop, or the same in NumPy's functions without Numba or Triton and with
    `use_fused(False)`.

    Args:
        target: on a GPU it takes all outputs, also those in the memory of inputs.
    """
    if target is CPU:
        return loaded(loop, strategy) if is_compiled() else loop.in_numpy
    if not uses_kernels() or why_not(target.kernels):
        return replace(loop, places=()).in_numpy
    return functools.partial(triton_source.launched, loop)
