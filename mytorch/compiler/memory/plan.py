"""The memory plan of a program: in which order, and in whose memory, its instructions compute."""

from __future__ import annotations

from ..program.instruction import Instruction
from ..program.program import Program
from .buffer_reuse import in_place
from .gradients import into_grads


def planned(program: Program) -> list[Instruction]:
    """Returns the instructions as they run: gradients are computed where `.grad` is, and loops store results
    in the memory of inputs that are overwritten by them. What isn't needed any longer is freed at once: see
    `last_uses`."""
    return in_place(program, into_grads(program))
