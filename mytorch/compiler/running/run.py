"""Runs a program on tensors, and moves it to another device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...backends.device import CPU, DeviceLike, RawArray, as_device, is_raw, move
from ...core.op import as_raw
from ...core.overriding import overriding
from ...core.tensor import Tensor, from_raw, increment_version, raw_of
from ...utils.nested import mapped
from ..program.program import Program, check_inputs
from .execution import Executable
from .movers import settle
from .on_gpu import OnGPU


def executable(program: Program) -> Executable:
    """Returns the function of raw arrays that runs a program; it is generated once."""
    if program._run is None:
        program._run = (Executable if program.device is CPU else OnGPU)(program)
    return program._run


def run(program: Program, *tensors: Tensor | RawArray) -> Any:
    """Runs a program.

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
    if overriding and (answer := overriding.dispatch(program.__call__, tensors, {})) is not NotImplemented:
        return answer
    raws = [x if type(x) in (float, int) else raw_of(x) for x in tensors]
    check_inputs(program.name, program.inputs, raws, program.device)
    function = program.executable()
    settle(program.name, function.movers)
    function.bind()
    if function.writes and function.overlap(raws):
        raise ValueError(f"{program.name}: it writes to a tensor that shares memory with another")
    result = function(*raws)
    changed = program.changed_storages()
    for tensor, value in zip(tensors, program.inputs, strict=True):
        if isinstance(tensor, Tensor) and value in changed:
            increment_version(tensor)
    return mapped(lambda x: from_raw(as_raw(x)) if is_raw(x) or isinstance(x, np.generic) else x, result)


def to(program: Program, device: DeviceLike) -> Program:
    """Returns a program on another device, with a state of its own there; itself if it is on it.

    Raises:
        NotImplementedError: it calls Python's objects, which stay where they are.
    """
    target = as_device(device)
    if target is program.device:
        return program
    if calls := [i.name for i in program.instructions if i.is_host]:
        raise NotImplementedError(
            f"can't move {program.name} to {target}: it calls Python's objects, {calls[0]}"
        )
    state = {value: move(raw, target) for value, raw in program.state.items()}
    return replace(program, state=state, owners={}, device=target)


Program.executable, Program.__call__, Program.to = executable, run, to
