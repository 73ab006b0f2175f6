"""Optimizers that may move parameters and gradients to new memory while a program runs, which has the old."""

from __future__ import annotations

from collections.abc import Iterable

from ...optim.optimizer import Optimizer
from ..program.instruction import Instruction, Value
from ..program.program import Program

_CALLS = ("host.step", "host.call", "host.norm")
_GRADS = ("host.grad", "host.set_grad", "host.add_grad", "host.new_grad", "host.stored")  # their results


def movers(program: Program) -> list[Optimizer]:
    """Returns the optimizers that a program calls before it uses their parameters, or gradients.

    A step moves these where anyone has assigned others, state or options since the last one, or another
    optimizer has them.
    """
    calls = {i: found for i in program.instructions if (found := _optimizer_of(i)) is not None}
    if not calls:
        return []
    bases, movers = program.bases(), {}
    grads = {y for i in program.instructions if i.name in _GRADS for y in i.outputs}
    used = {bases.get(x, x) for x in program.results()}
    for i in reversed(program.instructions):
        if i in calls and not used.isdisjoint(grads | _parameters(program, calls[i])):
            movers[calls[i]] = None
        used |= {bases.get(x, x) for x in i.inputs()}
    return [*movers]


def _optimizer_of(i: Instruction) -> Optimizer | None:
    """Returns the optimizer whose method an instruction calls."""
    target = i.args[0].target if i.name in _CALLS else None
    owner = getattr(target, "__self__", target)
    return owner if isinstance(owner, Optimizer) else None


def _parameters(program: Program, optimizer: Optimizer) -> set[Value]:
    """Returns the state of a program that is a parameter of an optimizer."""
    params = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {value for value, owner in program.owners.items() if id(owner()) in params}


def settle(name: str, optimizers: Iterable[Optimizer]) -> None:
    """Moves parameters and gradients before a program of this name runs, and not in the middle of it.

    Raises:
        RuntimeError: two optimizers have a parameter, and each step moves it; or there are hooks.
    """
    for optimizer in optimizers:
        optimizer.flat_buffers()
    if not all([optimizer.is_settled() for optimizer in optimizers]):
        raise RuntimeError(
            f"{name}: it uses a parameter after a step that may move it, as two optimizers have it, or hooks"
        )
