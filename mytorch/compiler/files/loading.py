"""Loads programs that `saving` saved, and checks all that the file says before anything is made of it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import serialization
from ...backends.device import RawArray
from ...core.array import wrap
from ...core.tensor import Tensor, from_raw, raw_of
from ...nn.parameter import Parameter
from ...ops import empty
from ...random import Generator, default_generator
from ...utils.nested import mapped
from ..parts.streaming import check_position
from ..program.instruction import Instruction, Value
from ..program.program import Program, fits
from .checking import Checker, extent_of
from .encoding import Decoder
from .objects import read_objects, try_objects
from .saving import VERSION


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
    """Makes the program of what a file holds."""

    def __init__(self, content: dict[str, Any]):
        self._content, self._decoder = content, Decoder()
        self._state: dict[Tensor, Value] = {}
        self._checker = Checker(self._state)

    def program(self) -> Program:
        content = self._content
        _require("its name", content["name"], str)
        _require("is_tuned", content.get("is_tuned", False), bool)
        check_position(content["position"])
        arrays = dict(content["arrays"])
        state, constants = self._arrays("state", arrays), self._arrays("constants", arrays)
        if arrays:
            raise ValueError(f"no values have the arrays {list(arrays)}")
        with _at("the tensors"):
            self._make_tensors(state, content["tensors"], dict(content["grads"]))
        with _at("the objects"):
            self._make_objects(content["objects"])
        with _at("the inputs"):
            inputs = tuple(map(self._definition, content["inputs"]))
        instructions = [self._instruction(k, x) for k, x in enumerate(content["instructions"])]
        for value in {x for i in instructions for x in i.written}.intersection(state):
            if _overlaps(value):
                raise ValueError(f"{value.described()} is written to; its elements overlap: {value.strides}")
        with _at("the outputs"):
            outputs = self._decoder.decoded(content["outputs"])
            mapped(_check_output, outputs)
        return Program(
            inputs, state, constants, instructions, outputs, content["name"],
            {value: weakref.ref(x) for x, value in self._state.items()}, position=content["position"],
            is_tuned=content.get("is_tuned", False),
        )

    def _make_tensors(
        self, state: dict[Value, RawArray], saved: list[dict], grads: dict[str, np.ndarray]
    ) -> None:
        tensors = self._decoder.tensors
        for x in saved:
            value = self._decoder.values[x["value"]]
            if not isinstance(x["requires_grad"], bool) or x["value"] in tensors:
                raise ValueError(f"one is {x}")
            tensor = from_raw(state[value])
            tensor = Parameter(tensor, False) if x["is_parameter"] else tensor
            tensor.requires_grad_(x["requires_grad"])
            if (grad := grads.pop(f"%{value.number}", None)) is not None:
                tensor.grad = wrap(_array_of(value, grad, "gradient"))
            tensors[x["value"]], self._state[tensor] = tensor, value
        if grads:
            raise ValueError(f"no tensors have the gradients {[*grads]}")

    def _make_objects(self, saved: list[dict]) -> None:
        tensors = self._decoder.tensors
        try_objects(saved, {number: _without_elements(x) for number, x in tensors.items()})
        self._decoder.objects = read_objects(saved, tensors)
        for tensor, value in self._state.items():  # an optimizer may have moved it
            if not fits(raw_of(tensor), value):
                raise ValueError(f"{value.described(strides=True)} can't be a parameter's array")

    def _arrays(self, kind: str, arrays: dict[str, np.ndarray]) -> dict[Value, RawArray]:
        """Returns state or constants, with strides as they had when they were saved."""
        found = {}
        for x in self._content[kind]:
            with _at(f"the {kind}"):
                value = self._definition(x)
                found[value] = _strided(_array_of(value, arrays.pop(f"%{value.number}"), "array"), value)
        return found

    def _definition(self, x: dict[str, Any]) -> Value:
        """Defines a value that isn't the result of an instruction."""
        value = self._decoder.define(x)
        if value.of is not None or value.dtype.kind == "O":
            raise ValueError(f"{value.described()} is the result of an instruction")
        self._checker.define(value)
        return value

    def _instruction(self, k: int, x: dict[str, Any]) -> Instruction:
        decoded = self._decoder.decoded
        with _at(f"instruction {k}, {x.get('name') if isinstance(x, dict) else x!r}"):
            args, kwargs = tuple(map(decoded, x["args"])), {}
            for name, item in x["kwargs"].items():
                kwargs[name] = decoded(item)
            outputs = tuple(map(self._decoder.define, x["outputs"]))
            _require("its name", x["name"], str)
            _require("its origin", x["origin"], str)
            written = self._checker.written_by(x["name"], args, kwargs)
            found = Instruction(x["name"], args, kwargs, outputs, written, x["origin"])
            self._checker.run(found)
        return found


def _require(what: str, x: object, kind: type) -> None:
    if not isinstance(x, kind):
        raise ValueError(f"{what} is {x!r}")


def _array_of(value: Value, raw: object, what: str) -> np.ndarray:
    if not isinstance(raw, np.ndarray) or (raw.shape, raw.dtype) != (value.shape, value.dtype):
        raise ValueError(f"{value.described()} has another {what}")
    return raw


def _without_elements(x: Tensor) -> Tensor:
    return empty(*x.shape, dtype=x.dtype, device="meta").requires_grad_(x.requires_grad)


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
