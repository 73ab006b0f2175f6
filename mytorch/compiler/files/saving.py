"""Saves programs: one safetensors file, with the instructions as JSON in its header; nothing in it is code.

    {"program": 1, "name": "step",
     "inputs": [{"number": 1, "dtype": "float32", "shape": [2, 3], "strides": [12, 4], "of": null}],
     "state": […], "constants": […], "tensors": [{"value": 0, "requires_grad": true, "is_parameter": true}],
     "objects": [see `objects`], "random": the state of the default generator, "position": that of a stream,
     "is_tuned": false,
     "instructions": [{"name": "multiply", "args": [{"value": 1}, {"value": 0}], "kwargs": {},
                       "outputs": [{"number": 2, …}], "origin": ""}],
     "outputs": {"value": 2}, "arrays": {"%0": the elements of a state or constant}, "grads": {"%0": …}}

Arguments and outputs are stored as `encoding` says.
"""

from __future__ import annotations

import os

from ... import serialization
from ...backends.device import CPU, RawArray, move
from ...nn.parameter import Parameter
from ...random import default_generator
from ..program.instruction import Instruction, Value
from ..program.program import Program, described, fits
from ..tracing.host import draws
from .checking import extent_of, is_known
from .encoding import Encoder, definition_of
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
    _check(program)
    objects = ObjectWriter(program)
    content = {"program": VERSION, **_definitions(program, Encoder(objects)), **_tensors(objects)}
    content |= {
        "arrays": {f"%{value.number}": raw for value, raw in _arrays(program).items()},
        "objects": objects.objects,
        "random": default_generator().get_state() if draws(program) else None,
        "position": program.position,
        "is_tuned": program.is_tuned,
    }
    try:
        serialization.save(content, path)
    except TypeError as error:  # a dtype, or an option of an optimizer, that the format doesn't have
        raise NotImplementedError(f"can't save {program.name}: {error}") from error


def _check(program: Program) -> None:
    """Raises NotImplementedError for what a file can't hold."""
    if opaque := [value for value in program.inputs if value.dtype.kind == "O"]:
        what = "was saved for a vjp" if opaque[0].kind == "saved" else "is a number of Python"
        raise NotImplementedError(f"can't save {program.name}: {opaque[0]} {what}")
    if opaque := [value for value in program.results() if value.dtype.kind == "O"]:
        raise NotImplementedError(f"can't save the outputs: {opaque[0]} was saved for a vjp")
    if program.device is not CPU and (calls := [i.name for i in program.instructions if i.is_host]):
        raise NotImplementedError(f"can't save {program.name} on {program.device}: it calls {calls[0]}")
    if unknown := [i for i in program.instructions if not is_known(i.name)]:
        raise NotImplementedError(f"can't save the instruction {unknown[0]}: there is no {unknown[0].name}")


def _definitions(program: Program, encoder: Encoder) -> dict[str, object]:
    """Returns the part of a file that holds values and instructions."""
    bases = program.bases()
    return {
        "name": program.name,
        "inputs": [*map(definition_of, program.inputs)],
        "state": [*map(definition_of, program.state)],
        "constants": [*map(definition_of, program.constants)],
        "instructions": [_instruction(i, bases, encoder) for i in program.instructions],
        "outputs": encoder.encode(program.outputs, "the outputs"),
    }


def _instruction(i: Instruction, bases: dict[Value, Value], encoder: Encoder) -> dict[str, object]:
    where = f"the instruction {i}"
    return {
        "name": i.name,
        "args": encoder.encode([*i.args], where),
        "kwargs": {name: encoder.encode(x, where) for name, x in i.kwargs.items()},
        "outputs": [definition_of(value, bases[value]) for value in i.outputs],
        "origin": i.origin,
    }


def _tensors(objects: ObjectWriter) -> dict[str, object]:
    """Returns the part of a file that says what the tensors are to which instructions refer."""
    return {
        "tensors": [
            {"value": number, "requires_grad": x.requires_grad, "is_parameter": isinstance(x, Parameter)}
            for number, x in objects.tensors.items()
        ],
        "grads": {f"%{number}": x.grad._array for number, x in objects.tensors.items() if x.grad is not None},
    }


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


Program.save = save
