"""Origins: which op, in which module and phase, an instruction of a program comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ...core.grad_mode import _state
from ...stream.instruction import BACKWARD
from ...stream.recorder import Recorder
from .instruction import Instruction


def merged(origins: Iterable[str]) -> str:
    """Returns the origin of what stands for several instructions: backward if one of them is."""
    origins = [*origins]
    phase = BACKWARD if any([origin.split(" ")[0] == BACKWARD for origin in origins]) else ""
    modules = dict.fromkeys([origin.removeprefix(BACKWARD).strip() for origin in origins])
    return f"{phase} {', '.join(filter(None, modules))}".strip()


class Origins(Recorder):
    """The recorder while a program is captured: it keeps nothing but the operation that runs.

    Args:
        tracer: gets the steps of optimizers.
    """

    def __init__(self, tracer: Any) -> None:
        super().__init__()
        self.wants_site = self.wants_events = False
        self.watchers = ()
        self._tracer = tracer

    def operand(self, raw: object, maker: object = None) -> None:
        """Returns None: tracing arrays have numbers of their own."""

    def marked(self, instruction: Instruction) -> Instruction:
        """Returns an instruction of a program with its origin, as "backward h.0.mlp"."""
        running = self._thread.current
        while running is not None and running.parent is not None:
            running = running.parent
        if running is None:
            if _state.backward_pass is None:
                return instruction
            running = self._thread.last  # the vjp whose gradients are summed to the shapes of the inputs
            if running is None or running.phase != BACKWARD:
                return replace(instruction, origin=BACKWARD)
        phase = f"{BACKWARD} " if running.phase == BACKWARD else ""
        return replace(instruction, origin=f"{phase}{running.module}".strip())

    def recorded_step(self, optimizer: Any, step: Callable) -> Callable:
        """Returns a function that notes the step of an optimizer instead of doing it.

        Raises:
            NotImplementedError: the optimizer has hooks.
        """
        if optimizer._hooks:
            raise NotImplementedError("a program can't hold the step of an optimizer with hooks")
        return self._tracer.step
