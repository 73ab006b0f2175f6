"""Instruction: one executed operation, as data; it holds no array."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..backends.device import device
from ..backends.functions import kind_of

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
COMMUNICATION, DATA = "communication", "data"
PHASES = (FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, DATA)

PLAIN = frozenset((int, float, bool, str, complex, type(None), type(Ellipsis), type))


Signature: TypeAlias = Callable | tuple[str, ...] | None


class Operand(NamedTuple):
    """An array that an instruction reads or makes.

    number: the same for the same array, from its first instruction to its end.
    """

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    device: str
    nbytes: int

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        where = "" if self.device == "cpu" else f"@{self.device}"
        return f"%{self.number}:{dtype_name(self.dtype)}[{sizes}]{where}"


dtype_name = functools.cache(str)  # NumPy takes 6 µs to name a dtype
new_operand = functools.partial(tuple.__new__, Operand)  # without a call of Python's `__new__`


class Instruction:
    """One executed operation.

    Attributes:
        number: from 1, in the order in which operations of this process began.
        name: of the op; `matmul_backward` is its vjp, `matmul_backward.1` the gradient of its input 1 where
            that is computed later, straight into `.grad`; else "AdamW.step", "all_reduce", "DataLoader", or
            the name given to `record_function`.
        phase: one of PHASES.
        module: the path of the module whose forward called it, as "transformer.h.3.attn"; for the outermost
            module, and one that isn't in its tree, the name of its class; "" outside of modules.
        signature: the op, or the custom Function, which names its arguments, or the names; None for a block
            of a program.
        arguments: by position, arrays as Operands; what is neither array nor number is "<its type>".
        keywords: the same, by name.
        outputs: the arrays that it made, as Operands.
        start: in seconds, by `time.perf_counter()`.
        duration: in seconds, of the CPU; None until it ends. On a GPU that is the time of the launch.
        inside: the seconds of it that belong to the instructions within.
        origin: for a vjp, the instruction of the forward pass that it belongs to; else None.
        parent: the instruction that was running when it began, or None.
        rank, thread: where it ran.
        site: `file:line` of the user's program, if the recording wants it; else "".
        failed: whether it raised.
        events: the CUDA events before and after it (see `device_time`).
    """

    outputs: tuple[Operand, ...] = ()
    start, duration, inside = 0.0, None, 0.0
    site, failed = "", False
    origin = events = finish = None

    def __init__(
        self, number: int, name: str, phase: str, module: str, signature: Signature, arguments: tuple,
        keywords: dict[str, object], parent: Instruction | None, rank: int, thread: int,
    ):
        self.number, self.name, self.phase, self.module = number, name, phase, module
        self.signature, self.arguments, self.keywords = signature, arguments, keywords
        self.parent, self.rank, self.thread = parent, rank, thread

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The arrays among the arguments."""
        values = (*self.arguments, *self.keywords.values())
        return tuple(_operands(values))

    @property
    def named(self) -> dict[str, object]:
        """The arguments by name; the two of an operator are `left` and `right`."""
        names = _names_of(self.signature)
        found = {
            names[i] if i < len(names) else f"{names[-1] if names else 'arg'}{i}": value
            for i, value in enumerate(self.arguments)
        }
        return {**found, **self.keywords}

    @property
    def attributes(self) -> dict[str, object]:
        """The arguments that are no arrays and not None."""
        return {k: v for k, v in self.named.items() if v is not None and type(v) is not Operand}

    @property
    def nbytes(self) -> int:
        """The bytes that it reads and writes: those of its inputs and outputs."""
        if self.kind == "view":
            return 0
        return sum([a.nbytes for a in (*self.inputs, *self.outputs)])

    @property
    def kind(self) -> str:
        """The kind of the operation: one of KINDS."""
        if self.phase in (OPTIMIZER, COMMUNICATION, DATA):
            return self.phase
        return "annotation" if self.signature is None else kind_of(self.name)

    @property
    def self_time(self) -> float:
        """The seconds in which no instruction within it ran."""
        return (self.duration or 0.0) - self.inside

    @property
    def device_time(self) -> float:
        """The seconds between its CUDA events; 0 on the CPU. Waits for the GPU, so ask after the step."""
        if self.events is None:
            return 0.0
        first, last = self.events
        last.synchronize()
        return first.elapsed_time(last) / 1000

    def end(self, failed: bool = False) -> None:
        """Ends it, where another object than the recorder knows when: a collective's `Work`."""
        if self.finish is not None:
            self.finish(self, failed=failed)

    def __repr__(self) -> str:
        made = ", ".join(map(str, self.outputs))
        shown = {k: v for k, v in self.named.items() if v is not None and v is not False}
        given = " ".join(f"{name}={text_of(value)}" for name, value in shown.items())
        where = f"  # {self.module}" if self.module else ""
        return f"#{self.number} {made}{' = ' if made else ''}{self.name} {given}".rstrip() + where


def plain(value: object, operand: Callable[[object], Operand | None]) -> Any:
    """Returns an argument without what keeps memory alive: an Operand for an array, "<type>" for others."""
    kind = type(value)
    if kind in PLAIN or kind is Operand:
        return value
    if isinstance(value, (tuple, list)):  # a Size, too
        return tuple([v if type(v) in PLAIN else plain(v, operand) for v in value])
    if kind is slice:
        return f"{value.start}:{value.stop}:{value.step}".replace("None", "")
    if isinstance(value, (np.dtype, device)):
        return str(value)
    if issubclass(kind, np.generic):
        return value.item()
    if issubclass(kind, int):  # a class of its own; what only stands for a number in a capture is none
        return int(value)
    found = operand(value)
    return f"<{kind.__name__}>" if found is None else found


def text_of(value: object) -> str:
    """Returns an argument as text without spaces."""
    if type(value) is tuple:
        return f"({','.join(map(text_of, value))})"
    text = str(value)
    return text if " " not in text and text.isprintable() else "_".join(text.split())


def _operands(values: tuple) -> list[Operand]:
    found = []
    for value in values:
        if type(value) is Operand:
            found.append(value)
        elif type(value) is tuple:
            found += _operands(value)
    return found


def _names_of(call: Signature) -> tuple[str, ...]:
    if isinstance(call, tuple):
        return call
    if isinstance(call, type):  # a custom Function; not kept, since the cache would keep its arrays, too
        return _names_of_function.__wrapped__(call)[1 if call._takes_context() else 0 :]
    return _names_of_function(call)


@functools.lru_cache(maxsize=4096)
def _names_of_function(call: Callable | None) -> tuple[str, ...]:
    function = getattr(call, "forward", call)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return ()
    names = code.co_varnames[: code.co_argcount]
    if code.co_flags & 0x04:  # *args, whose name comes after those that are given by keyword only
        names += (code.co_varnames[code.co_argcount + code.co_kwonlyargcount],)
    return tuple({"x": "left", "y": "right"}.get(n, n) for n in names) if names[:2] == ("x", "y") else names
