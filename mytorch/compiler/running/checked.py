"""The checking mode of programs: what each instruction has made is compared with what the program declares.

    MYTORCH_CHECK_PROGRAMS=1 python train.py

    %2: float32[4, 3] = sin(%0): made float32[4, 3] of strides (4, 16) on cpu, not of strides (12, 4) on cpu

Passes and loops trust the declared dtypes, shapes, strides and views. Where one isn't true a loop may read
elements in another order, or write them into a copy.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...backends.device import is_raw
from ...core.grad_accumulator import LazyGrad
from ...core.op import as_raw
from ..program.instruction import Instruction, Value
from ..program.program import Program, described, fits

Bounds = dict[Value, tuple[int, int]]
_SHARING = ("in_order", "host.set_grad", "host.stored")  # whose results may be what they take, by design


def is_on() -> bool:
    """Whether programs are checked while they run."""
    return os.environ.get("MYTORCH_CHECK_PROGRAMS", "0") not in ("", "0")


class Checks:
    """The checks of a program. What they know of a run is in a dict of its own: threads run one at once.

    Args:
        instructions: of the program, as they run.
    """

    def __init__(self, program: Program, instructions: list[Instruction]):
        self._name, self._target, self._instructions = program.name, program.device, instructions
        self._arguments = [*program.inputs, *program.state]
        whole = [*program.instructions, *instructions]
        self._bases = Program(program.inputs, program.state, program.constants, whole, ()).bases()
        self._written = {self._bases.get(x, x) for i in whole for x in i.written}

    def begin(self, *arrays: Any) -> Bounds:
        """Checks inputs and state; returns the addresses that each array lies between."""
        bounds: Bounds = {}
        for value, x in zip(self._arguments, arrays, strict=True):
            self._check(value, x, "it", bounds, False)
        return bounds

    def after(self, number: int, bounds: Bounds, made: tuple) -> None:
        """Checks what an instruction has made.

        Raises:
            RuntimeError: it isn't as declared.
        """
        i = self._instructions[number]
        text = str(i)
        for value, x in zip(i.outputs, made, strict=True):
            self._check(value, x, text, bounds, True)
            if value.of is None and not (i.name in _SHARING or i.name == "loop"):
                self._check_new(value, i, text, bounds)

    def _check_new(self, value: Value, i: Instruction, text: str, bounds: Bounds) -> None:
        """Refuses a new array in the memory of an argument, if one of the two is written to."""
        for other in i.inputs():
            is_written = not self._written.isdisjoint((value, self._bases.get(other, other)))
            if is_written and _overlap(bounds.get(value, (0, 0)), bounds.get(other, (0, 0))):
                self._refuse(text, f"{value.described()} lies in the memory of {other!r}")

    def _check(self, value: Value, x: Any, text: str, bounds: Bounds, is_made: bool) -> None:
        """Compares an array with what the program declares; objects and numbers it checks itself."""
        if type(x) is LazyGrad or value.dtype.kind == "O":
            return
        raw = as_raw(x) if isinstance(x, np.generic) else x  # what NumPy makes of arrays without dims
        if not fits(raw, value, self._target):
            wanted = f"{value.described(strides=True)} on {self._target}"
            got = described(raw) if is_raw(raw) else type(raw).__name__
            self._refuse(text, f"made {got}, not {wanted}")
        base = self._bases.get(value, value)
        if isinstance(x, np.generic) and base in self._written:
            self._refuse(text, f"{value.described()} is read-only")
        if type(x) is np.ndarray:
            if is_made and value.of is None and not x.flags.writeable:
                self._refuse(text, f"{value.described()} is read-only")
            self._check_bounds(value, base, x, text, bounds)

    def _check_bounds(self, value: Value, base: Value, x: np.ndarray, text: str, bounds: Bounds) -> None:
        """Notes where an array lies, which is within what it is a view of."""
        if x.size:
            low, high = bounds[value] = np.lib.array_utils.byte_bounds(x)
            first, last = bounds.get(base, (low, high))  # nothing is known, or written, of NumPy's numbers
            if not first <= low <= high <= last:
                self._refuse(text, f"{value.described()} isn't a view of {base!r}, but a copy")

    def _refuse(self, text: str, reason: str) -> None:
        raise RuntimeError(f"{self._name} isn't as declared: {text}: {reason}")


def _overlap(x: tuple[int, int], y: tuple[int, int]) -> bool:
    return max(x[0], y[0]) < min(x[1], y[1])
