"""Loads programs that `saving` saved, and checks all that the file says before anything is made of it."""

from __future__ import annotations

import keyword
import os
import re
import weakref
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import serialization
from ...backends.device import RawArray
from ...backends.dtypes import as_dtype
from ...core.array import wrap
from ...core.tensor import Tensor, from_raw, raw_of
from ...nn.parameter import Parameter
from ...ops import empty
from ...random import Generator, default_generator
from ...utils.nested import mapped
from ...utils.reading import is_count
from ..codegen.loop import Loop, Step
from ..parts.streaming import check_position
from ..program.instruction import Instruction, Reference, Value
from ..program.program import Program, fits
from .checking import Checker, extent_of
from .objects import read_objects, read_reference, try_objects
from .saving import VERSION

_DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_MOST = 1 << 31


def load(path: str | os.PathLike) -> Program:
    """Returns a program that `Program.save` saved; its state, `program.state`, are new arrays.

    The file may come from anyone: it holds names and numbers, no code. Instructions may only name what
    capturing knows, functions of NumPy and kernels, and each is run on arrays without elements, to see that
    shapes and dtypes are what the file says.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is no program, or is damaged; the message says where.
        ImportError: it contains bfloat16 and the package ml_dtypes is not installed.
    """
    return _loaded(path)[0]


def thaw(path: str | os.PathLike) -> Program:
    """Returns a program that `Program.freeze` saved, to run on in this process as it would have in that one.

    That is `load`, which see, and the default generator of the CPU gets the state that it had, if the program
    draws from it. The next `stream` begins where the frozen one was.

    >>> import tempfile
    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
    >>> def step(x):
    ...     optimizer.zero_grad()
    ...     (w * x).sum().backward()
    ...     optimizer.step()
    ...     return w.sum()
    >>> program = mytorch.capture(step, mytorch.ones(2))
    >>> program(mytorch.ones(2))
    tensor(1.80000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     program.freeze(f"{folder}/step.safetensors")
    ...     thawed = mytorch.compiler.thaw(f"{folder}/step.safetensors")
    >>> program(mytorch.ones(2)), thawed(mytorch.ones(2))
    (tensor(1.42000), tensor(1.42000))
    """
    program, random = _loaded(path)
    if random is not None:
        default_generator().set_state(random)
    return program


def _loaded(path: str | os.PathLike) -> tuple[Program, Tensor | None]:
    content = serialization.load(path)
    version = content.get("program") if isinstance(content, dict) else None
    if type(version) is not int or version != VERSION:
        raise ValueError(f"can't load {path}: it is not a program, or of another version than {VERSION}")
    with _at(f"can't load {path}"):
        program, random = _Reader(content).program(), content["random"]
        if random is not None:
            Generator().set_state(random)  # raises if it is none
        return program, random


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Context whose errors become ValueErrors that begin with the place."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        reason = error if isinstance(error, (ValueError, NotImplementedError)) else repr(error)
        raise ValueError(f"{place}: {reason}") from error


class _Reader:
    """Makes the program of what a file holds.

    Attributes:
        values: those defined so far, by number.
    """

    def __init__(self, content: dict[str, Any]):
        self._content = content
        self.values: dict[int, Value] = {}
        self._tensors: dict[int, Tensor] = {}  # of the state, to which instructions refer
        self._state: dict[Tensor, Value] = {}
        self._checker = Checker(self._state)
        self._tuples: dict[str, type] = {}

    def program(self) -> Program:
        content = self._content
        if not isinstance(content["name"], str):
            raise ValueError(f"its name is {content['name']!r}")
        arrays = dict(content["arrays"])
        state = self._arrays("state", arrays)
        constants = self._arrays("constants", arrays)
        with _at("the tensors"):
            self._make_tensors(state, content["tensors"], dict(content["grads"]))
        with _at("the objects"):
            shapes = {number: _without_elements(x) for number, x in self._tensors.items()}
            try_objects(content["objects"], shapes)
            self._objects = read_objects(content["objects"], self._tensors)
            for tensor, value in self._state.items():
                _check_fits(raw_of(tensor), value)  # an optimizer may have moved it
        if arrays:
            raise ValueError(f"no values have the arrays {list(arrays)}")
        with _at("the inputs"):
            inputs = tuple([self._definition(x) for x in content["inputs"]])
        instructions = [self._instruction(k, x) for k, x in enumerate(content["instructions"])]
        for value in {x for i in instructions for x in i.written}.intersection(state):
            if _overlaps(value):
                raise ValueError(f"{value.described()} is written to; its elements overlap: {value.strides}")
        with _at("the outputs"):
            outputs = self._decoded(content["outputs"])
            mapped(_check_output, outputs)
        owners = {value: weakref.ref(x) for x, value in self._state.items()}
        name, position, is_tuned = content["name"], content["position"], content.get("is_tuned", False)
        check_position(position)
        if not isinstance(is_tuned, bool):
            raise ValueError(f"is_tuned is {is_tuned!r}")
        parts = inputs, state, constants, instructions, outputs, name, owners
        return Program(*parts, position=position, is_tuned=is_tuned)

    def _make_tensors(
        self, state: dict[Value, RawArray], saved: list[dict], grads: dict[str, np.ndarray]
    ) -> None:
        for x in saved:
            value = self.values[x["value"]]
            if not isinstance(x["requires_grad"], bool) or x["value"] in self._tensors:
                raise ValueError(f"one is {x}")
            tensor = from_raw(state[value])
            tensor = Parameter(tensor, False) if x["is_parameter"] else tensor
            tensor.requires_grad_(x["requires_grad"])
            if (grad := grads.pop(f"%{value.number}", None)) is not None:
                if not isinstance(grad, np.ndarray) or (grad.shape, grad.dtype) != (value.shape, value.dtype):
                    raise ValueError(f"{value.described()} has another gradient")
                tensor.grad = wrap(grad)
            self._tensors[x["value"]], self._state[tensor] = tensor, value
        if grads:
            raise ValueError(f"no tensors have the gradients {[*grads]}")

    def _arrays(self, kind: str, arrays: dict[str, np.ndarray]) -> dict[Value, RawArray]:
        """Returns state or constants, with strides as they had when they were saved."""
        found = {}
        for x in self._content[kind]:
            with _at(f"the {kind}"):
                value = self._definition(x)
                raw = arrays.pop(f"%{value.number}")
                if not isinstance(raw, np.ndarray) or (raw.shape, raw.dtype) != (value.shape, value.dtype):
                    raise ValueError(f"{value.described()} has another array")
                found[value] = _strided(raw, value)
        return found

    def _definition(self, x: dict[str, Any]) -> Value:
        """Defines a value that isn't the result of an instruction."""
        value = self._value(x)
        if value.of is not None or value.dtype.kind == "O":
            raise ValueError(f"{value.described()} is the result of an instruction")
        self._checker.define(value)
        return value

    def _value(self, x: dict[str, Any]) -> Value:
        number, of = x["number"], x["of"]
        if not is_count(number) or number > _MOST or number in self.values:
            raise ValueError(f"a value has the number {number!r}")
        shape, strides = tuple(x["shape"]), tuple(x["strides"])
        is_pair = len(shape) == len(strides) and all([type(step) is int for step in strides])
        if not is_pair or not all([is_count(n) for n in shape]):
            raise ValueError(f"%{number} has shape {shape} and strides {strides}")
        dtype = np.dtype(object) if x["dtype"] == "object" else _dtype(x["dtype"])
        value = Value(number, shape, strides, dtype, None if of is None else self.values[of].storage)
        self.values[number] = value
        return value

    def _instruction(self, k: int, x: dict[str, Any]) -> Instruction:
        with _at(f"instruction {k}, {x.get('name') if isinstance(x, dict) else x!r}"):
            args, kwargs = tuple(map(self._decoded, x["args"])), {}
            for name, item in x["kwargs"].items():
                kwargs[name] = self._decoded(item)
            outputs = tuple([self._value(y) for y in x["outputs"]])
            if not isinstance(x["name"], str) or not isinstance(x["origin"], str):
                raise ValueError(f"it has the name {x['name']!r} and the origin {x['origin']!r}")
            written = self._checker.written_by(x["name"], args, kwargs)
            found = Instruction(x["name"], args, kwargs, outputs, written, x["origin"])
            self._checker.run(found)
        return found

    def _decoded(self, x: object) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)([self._decoded(item) for item in x])
        if not isinstance(x, dict):
            if x is not None and not isinstance(x, (bool, int, float, complex, str, np.generic)):
                raise ValueError(f"expected a number, got a {type(x).__name__}")
            return x
        ((kind, content),) = x.items()
        if kind == "value":
            return self.values[content]
        if kind == "slice":
            return slice(*self._decoded(content))
        if kind == "dict":
            return {name: self._decoded(item) for name, item in content.items()}
        if kind == "ellipsis":
            return Ellipsis
        if kind == "reference":
            return Reference(read_reference(content, self._objects, self._tensors))
        return {"dtype": _dtype, "loop": _loop, "fields": self._fields}[kind](content)

    def _fields(self, content: list) -> tuple:
        """Returns a namedtuple, of a new class of this name."""
        name, fields = content
        names = tuple(fields)
        if not re.fullmatch("[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
            raise ValueError(f"a namedtuple has the name {name!r}")
        made = self._tuples.setdefault(name, namedtuple(name, names))
        if made._fields != names:
            raise ValueError(f"{name} has the fields {made._fields} and {names}")
        return made(*[self._decoded(item) for item in fields.values()])


def _without_elements(x: Tensor) -> Tensor:
    return empty(*x.shape, dtype=x.dtype, device="meta").requires_grad_(x.requires_grad)


def _dtype(name: object) -> np.dtype:
    if name not in _DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    return np.dtype(as_dtype(name))


def _loop(content: dict[str, list]) -> Loop:
    steps = [Step(name, tuple(args), kind, dtype) for name, args, kind, dtype in content["steps"]]
    if not all([type(a) in (str, int, float, bool) for step in steps for a in step.args]):
        raise ValueError("an argument of a step is neither a name nor a number")
    return Loop(tuple(content["inputs"]), tuple(steps), tuple(content["outputs"]))


def _strided(raw: np.ndarray, value: Value) -> np.ndarray:
    """Returns a copy of an array with the strides of the value."""
    if raw.strides == value.strides or not raw.size:
        return raw
    extent = extent_of(value)
    if extent > 64 * raw.nbytes:
        raise ValueError(f"{value} of shape {value.shape} has strides {value.strides}")
    first = sum([(n - 1) * -step for n, step in zip(value.shape, value.strides, strict=True) if step < 0])
    made = np.ndarray(value.shape, value.dtype, bytearray(extent), first, value.strides)
    made[...] = raw
    if made.tobytes() != raw.tobytes():  # elements that share memory must be equal, as in an expanded array
        raise ValueError(f"{value.described()} has strides {value.strides}, for which its elements overlap")
    return made


def _check_fits(raw: RawArray, value: Value) -> None:
    if not fits(raw, value):
        raise ValueError(f"{value.described()} of strides {value.strides} can't be a parameter's array")


def _overlaps(value: Value) -> bool:
    """Returns whether elements share memory."""
    end = value.dtype.itemsize
    for step, n in sorted([(abs(s), n) for n, s in zip(value.shape, value.strides, strict=True) if n > 1]):
        if step < end:
            return True
        end += step * (n - 1)
    return False


def _check_output(x: object) -> None:
    if isinstance(x, np.generic) or (isinstance(x, Value) and x.dtype.kind == "O"):
        raise ValueError(f"{x!r} can't be returned")
