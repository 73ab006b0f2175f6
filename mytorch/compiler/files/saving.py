"""Saves programs: one safetensors file, with the instructions as JSON in its header; nothing in it is code.

    {"program": 1, "name": "step",
     "inputs": [{"number": 1, "dtype": "float32", "shape": [2, 3], "strides": [12, 4], "of": null}],
     "state": […], "constants": […], "tensors": [{"value": 0, "requires_grad": true, "is_parameter": true}],
     "objects": [see `objects`], "random": the state of the default generator, "position": that of a stream,
     "is_tuned": false,
     "instructions": [{"name": "multiply", "args": [{"value": 1}, {"value": 0}], "kwargs": {},
                       "outputs": [{"number": 2, …}], "origin": ""}],
     "outputs": {"value": 2}, "arrays": {"%0": the elements of a state or constant}, "grads": {"%0": …}}

In arguments and outputs, lists, tuples, numbers, strings and None are as `mytorch.save` has them; what else
there is has its kind as the only key:

    {"value": 3}  {"slice": [start, stop, step]}  {"ellipsis": null}  {"dtype": "float32"}  {"dict": {…}}
    {"loop": {"inputs": […], "steps": […], "outputs": […]}}  {"fields": ["MinMax", {"min": …, "max": …}]}
    {"reference": see `objects`}
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from ... import serialization
from ...backends.device import CPU, RawArray, move
from ...core.size import Size
from ...nn.parameter import Parameter
from ...random import default_generator
from ..codegen.loop import Loop
from ..program.instruction import Instruction, Reference, Value
from ..program.program import Program, described, fits
from ..tracing.host import draws
from .checking import extent_of, is_known
from .objects import ObjectWriter

VERSION = 3
_MOST_APART = 64  # how many times its size an array of state may span


def save(program: Program, path: str | os.PathLike) -> None:
    """Saves a program to a safetensors file, with the elements that its state has now; see `load`.

    The write is atomic, and every safetensors library can read the arrays.

    Raises:
        NotImplementedError: an instruction refers to an object that isn't mytorch's own (see `objects`), as
            an optimizer of a class of yours, or has hooks; or the program returns what is neither arrays nor
            numbers, strings and None.
        ValueError: a tensor of the state has another shape, dtype or memory order than when it was captured.

    >>> import tempfile
    >>> program = mytorch.capture(lambda x: (x + 1).sum(), mytorch.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     program.save(f"{folder}/program.safetensors")
    ...     loaded = mytorch.compiler.load(f"{folder}/program.safetensors")
    >>> print(loaded)
    <lambda>(%0: float32[3])
      %1: float32[3] = add(%0, 1)
      %2: float32[] = sum(%1, axis=None, keepdims=False, dtype=None)
      return %2
    >>> loaded(mytorch.ones(3))
    tensor(6.00000)
    """
    if opaque := [value for value in program.inputs if value.dtype.kind == "O"]:
        what = "was saved for a vjp" if opaque[0].kind == "saved" else "is a number of Python"
        raise NotImplementedError(f"can't save {program.name}: {opaque[0]} {what}")
    if program.device is not CPU and (calls := [i.name for i in program.instructions if i.is_host]):
        raise NotImplementedError(f"can't save {program.name} on {program.device}: it calls {calls[0]}")
    arrays, bases, objects = _arrays(program), program.bases(), ObjectWriter(program)
    content = {
        "program": VERSION,
        "name": program.name,
        "inputs": [_definition(value) for value in program.inputs],
        "state": [_definition(value) for value in program.state],
        "constants": [_definition(value) for value in program.constants],
        "instructions": [_instruction(i, bases, objects) for i in program.instructions],
        "outputs": _encoded(program.outputs, "the outputs", objects),
        "arrays": {f"%{value.number}": raw for value, raw in arrays.items()},
        "objects": objects.objects,
        "tensors": [
            {"value": number, "requires_grad": x.requires_grad, "is_parameter": isinstance(x, Parameter)}
            for number, x in objects.tensors.items()
        ],
        "grads": {f"%{number}": x.grad._array for number, x in objects.tensors.items() if x.grad is not None},
        "random": default_generator().get_state() if draws(program) else None,
        "position": program.position,
        "is_tuned": program.is_tuned,
    }  # fmt: skip
    try:
        serialization.save(content, path)
    except TypeError as error:  # a dtype, or an option of an optimizer, that the format doesn't have
        raise NotImplementedError(f"can't save {program.name}: {error}") from error


def _arrays(program: Program) -> dict[Value, RawArray]:
    """Returns state and constants as they are now: of tensors, which may have got other arrays, theirs."""
    found = {**program.state, **program.constants}
    for value, reference in program.owners.items():
        owner = reference()
        if owner is not None:
            found[value] = owner._data._array
    for value, raw in found.items():
        raw = found[value] = move(raw, CPU)
        if not fits(raw, value):
            was, now = value.described(strides=True), described(raw)
            raise ValueError(f"can't save {program.name}: {was} is {now} now")
        if extent_of(value) > _MOST_APART * max(raw.nbytes, 1):
            raise NotImplementedError(f"can't save {value.described()}: its strides are {value.strides}")
    return found


def _definition(value: Value, base: Value | None = None) -> dict[str, object]:
    return {
        "number": value.number, "dtype": value.dtype.name, "shape": list(value.shape),
        "strides": list(value.strides), "of": None if base in (None, value) else base.number,
    }  # fmt: skip


def _instruction(i: Instruction, bases: dict[Value, Value], objects: ObjectWriter) -> dict[str, object]:
    if not is_known(i.name):
        raise NotImplementedError(f"can't save the instruction {i}: there is no {i.name}")
    where = f"the instruction {i}"
    return {
        "name": i.name,
        "args": [_encoded(x, where, objects) for x in i.args],
        "kwargs": {name: _encoded(x, where, objects) for name, x in i.kwargs.items()},
        "outputs": [_definition(value, bases[value]) for value in i.outputs],
        "origin": i.origin,
    }


def _encoded(x: object, where: str, objects: ObjectWriter) -> Any:
    """Returns an argument as `mytorch.save` stores it."""
    if isinstance(x, Reference):
        try:
            return {"reference": objects.encode(x.target)}
        except NotImplementedError as error:
            raise NotImplementedError(f"can't save {where}: {error}") from error
    if isinstance(x, Value) and x.dtype.kind == "O" and where == "the outputs":
        raise NotImplementedError(f"can't save {where}: {x} was saved for a vjp")
    if isinstance(x, Value):
        return {"value": x.number}
    if isinstance(x, Loop):
        steps = [[step.name, list(step.args), step.kind, step.dtype] for step in x.steps]
        return {"loop": {"inputs": list(x.inputs), "steps": steps, "outputs": list(x.outputs)}}
    if isinstance(x, slice):
        return {"slice": [_encoded(part, where, objects) for part in (x.start, x.stop, x.step)]}
    if x is Ellipsis:
        return {"ellipsis": None}
    if isinstance(x, np.dtype) or (isinstance(x, type) and np.dtype(x).kind != "O"):
        return {"dtype": np.dtype(x).name}
    if hasattr(x, "_fields") and re.fullmatch("[A-Z][A-Za-z0-9]*", type(x).__name__):
        fields = {name: _encoded(getattr(x, name), where, objects) for name in x._fields}
        return {"fields": [type(x).__name__, fields]}
    if type(x) in (list, tuple, Size):
        return (list if type(x) is list else tuple)([_encoded(item, where, objects) for item in x])
    if type(x) is dict:
        return {"dict": {name: _encoded(item, where, objects) for name, item in x.items()}}
    if x is None or isinstance(x, (bool, int, float, complex, str, np.generic)):
        return x
    raise NotImplementedError(f"can't save {where}: it holds a {type(x).__name__}")


Program.save = save
