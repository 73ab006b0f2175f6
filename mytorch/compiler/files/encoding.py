"""How instructions are stored: a table of the kinds of arguments, which `saving` and `loading` share.

Lists, tuples, numbers, strings and None are as `mytorch.save` has them; arguments of other kinds have the
name of their kind as the only key:

    {"value": 3}  {"slice": [start, stop, step]}  {"ellipsis": null}  {"dtype": "float32"}  {"dict": {…}}
    {"loop": {"inputs": […], "steps": […], "outputs": […]}}  {"fields": ["MinMax", {"min": …, "max": …}]}
    {"reference": see `objects`}
"""

from __future__ import annotations

import keyword
import re
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends.dtypes import as_dtype
from ...core.size import Size
from ...core.tensor import Tensor
from ...utils.reading import is_count
from ..codegen.loop import Loop, Step
from ..program.instruction import Reference, Value
from .objects import ObjectWriter, read_reference

_PLAIN = (type(None), bool, int, float, complex, str, np.generic)
_DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
}
_MOST_VALUES = 1 << 31


class Encoder:
    """Encodes arguments and outputs of a program whose objects a writer has."""

    def __init__(self, objects: ObjectWriter):
        self.objects = objects

    def encode(self, x: object, where: str) -> Any:
        """Returns what `mytorch.save` stores for an argument.

        Raises:
            NotImplementedError: a part of it is of no kind in the table; `where` says of what.
        """
        try:
            return self.encoded(x)
        except NotImplementedError as error:
            raise NotImplementedError(f"can't save {where}: {error}") from error

    def encoded(self, x: object) -> Any:
        if type(x) in (list, tuple, Size):
            return (list if type(x) is list else tuple)(map(self.encoded, x))
        if isinstance(x, _PLAIN):
            return x
        for name, kind in KINDS.items():
            if kind.holds(x):
                return {name: kind.encode(x, self)}
        raise NotImplementedError(f"it holds a {type(x).__name__}")


class Decoder:
    """Decodes the arguments of the instructions in a file.

    Attributes:
        values: those that are defined so far, by number.
        tensors: those to which instructions refer, by the numbers of their values.
        objects: those to which instructions refer.
    """

    def __init__(self) -> None:
        self.values: dict[int, Value] = {}
        self.tensors: dict[int, Tensor] = {}
        self.objects: Sequence[object] = ()
        self.tuples: dict[str, type] = {}

    def decoded(self, x: object) -> Any:
        """Returns an argument.

        Raises:
            ValueError, or whatever Python raises: it isn't as `Encoder` encodes.
        """
        if isinstance(x, (list, tuple)):
            return type(x)(map(self.decoded, x))
        if isinstance(x, dict):
            ((name, content),) = x.items()
            return KINDS[name].decode(content, self)
        if not isinstance(x, _PLAIN):
            raise ValueError(f"expected a number, got a {type(x).__name__}")
        return x

    def define(self, x: dict[str, Any]) -> Value:
        """Returns a new value, as `definition_of` describes it."""
        number, of = x["number"], x["of"]
        if not is_count(number) or number > _MOST_VALUES or number in self.values:
            raise ValueError(f"a value has the number {number!r}")
        shape, strides = tuple(x["shape"]), tuple(x["strides"])
        is_pair = len(shape) == len(strides) and all([type(step) is int for step in strides])
        if not is_pair or not all(map(is_count, shape)):
            raise ValueError(f"%{number} has shape {shape} and strides {strides}")
        dtype = np.dtype(object) if x["dtype"] == "object" else _dtype(x["dtype"])
        value = Value(number, shape, strides, dtype, None if of is None else self.values[of].storage)
        self.values[number] = value
        return value


def definition_of(value: Value, base: Value | None = None) -> dict[str, object]:
    """Returns what is stored of a value that lies in the memory of another one, or in its own."""
    return {
        "number": value.number, "dtype": value.dtype.name, "shape": list(value.shape),
        "strides": list(value.strides), "of": None if base in (None, value) else base.number,
    }


class Kind(NamedTuple):
    """A kind of arguments: which these are, and how they are stored, and made again."""

    holds: Callable[[Any], bool]
    encode: Callable[[Any, Encoder], Any]
    decode: Callable[[Any, Decoder], Any]


def _is_a(kind: type) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, kind)


def _is_dtype(x: object) -> bool:
    return isinstance(x, np.dtype) or (isinstance(x, type) and np.dtype(x).kind != "O")


def _dtype(name: object) -> np.dtype:
    if name not in _DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    return np.dtype(as_dtype(name))


def _encoded_loop(x: Loop, encoder: Encoder) -> dict[str, list]:
    steps = [[step.name, list(step.args), step.kind, step.dtype] for step in x.steps]
    return {"inputs": list(x.inputs), "steps": steps, "outputs": list(x.outputs)}


def _loop(content: dict[str, list], decoder: Decoder) -> Loop:
    steps = [Step(name, tuple(args), kind, dtype) for name, args, kind, dtype in content["steps"]]
    if not all([type(a) in (str, int, float, bool) for step in steps for a in step.args]):
        raise ValueError("an argument of a step is neither a name nor a number")
    return Loop(tuple(content["inputs"]), tuple(steps), tuple(content["outputs"]))


def _is_namedtuple(x: object) -> bool:
    return hasattr(x, "_fields") and re.fullmatch("[A-Z][A-Za-z0-9]*", type(x).__name__) is not None


def _encoded_namedtuple(x: Any, encoder: Encoder) -> list:
    return [type(x).__name__, _each(encoder.encoded, x._asdict())]


def _namedtuple(content: list, decoder: Decoder) -> tuple:
    """Returns a namedtuple, of a new class of this name."""
    name, fields = content
    names = tuple(fields)
    if not re.fullmatch("[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
        raise ValueError(f"a namedtuple has the name {name!r}")
    made = decoder.tuples.setdefault(name, namedtuple(name, names))
    if made._fields != names:
        raise ValueError(f"{name} has the fields {made._fields} and {names}")
    return made(*map(decoder.decoded, fields.values()))


def _each(function: Callable, items: dict) -> dict:
    return {name: function(item) for name, item in items.items()}


KINDS = {
    "value": Kind(_is_a(Value), lambda x, encoder: x.number, lambda number, decoder: decoder.values[number]),
    "reference": Kind(
        _is_a(Reference), lambda x, encoder: encoder.objects.encode(x.target),
        lambda content, decoder: Reference(read_reference(content, decoder.objects, decoder.tensors)),
    ),
    "loop": Kind(_is_a(Loop), _encoded_loop, _loop),
    "slice": Kind(
        _is_a(slice), lambda x, encoder: [encoder.encoded(part) for part in (x.start, x.stop, x.step)],
        lambda content, decoder: slice(*decoder.decoded(content)),
    ),
    "ellipsis": Kind(lambda x: x is Ellipsis, lambda x, encoder: None, lambda content, decoder: Ellipsis),
    "dtype": Kind(_is_dtype, lambda x, encoder: np.dtype(x).name, lambda name, decoder: _dtype(name)),
    "fields": Kind(_is_namedtuple, _encoded_namedtuple, _namedtuple),
    "dict": Kind(
        lambda x: type(x) is dict, lambda x, encoder: _each(encoder.encoded, x),
        lambda content, decoder: _each(decoder.decoded, content),
    ),
}
