"""Instructions of programs, and what they take and give: values, which are arrays or numbers, and objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends.meta.layout import layout
from ...core.tensor import Tensor
from ...utils.nested import leaves, mapped, text


@dataclass(frozen=True, eq=False)
class Value:
    """An array of a program: an input, part of the state, or the result of an instruction.

    Attributes:
        number: in the order of definition.
        shape, strides, dtype: of the array; strides in bytes.
        storage: the value whose memory it lies in, itself unless it is a view.
        kind: what it is if it is no array, but an object: what a kernel "saved", or a Python number, "float".
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    of: Value | None = None
    kind: str = "saved"

    @property
    def storage(self) -> Value:
        return self if self.of is None else self.of

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_c_order(self) -> bool:
        """Whether the elements lie one after the other, the last dim innermost."""
        return layout(self.shape, self.strides, self.dtype).flags.c_contiguous

    def __repr__(self) -> str:
        return f"%{self.number}"

    def described(self, strides: bool = False) -> str:
        """Returns the value with its dtype and shape: `%3: float32[32, 64]`.

        Args:
            strides: adds " of strides (256, 4)".
        """
        if self.dtype.kind == "O":
            return f"%{self.number}: {self.kind}"
        text = f"%{self.number}: {self.dtype}{list(self.shape)}"
        return f"{text} of strides {self.strides}" if strides else text


@dataclass(frozen=True)
class Reference:
    """A Python object that an instruction uses."""

    target: Any

    def __repr__(self) -> str:
        shape = f" {list(self.target.shape)}" if isinstance(self.target, Tensor) else ""
        return f"<{type(self.target).__name__}{shape}>"


@dataclass(frozen=True, eq=False)
class Instruction:
    """A call of a NumPy function, of an array's method, or of a fused loop, or a check of indices.

    Attributes:
        name: as in NumPy, `add`, `add.reduce`, `linalg.norm`; methods begin with a dot, `.getitem`.
        args, kwargs: nested tuples, lists, dicts and slices of values, numbers, dtypes and strings.
        outputs: the arrays that it returns.
        written: the storages in which it changes elements.
        origin: the phase, if it isn't forward, and the path of the module: "backward h.0.mlp"; of a loop all
            that it has of these.
    """

    name: str
    args: tuple
    kwargs: dict[str, object]
    outputs: tuple[Value, ...]
    written: tuple[Value, ...] = ()
    origin: str = ""

    @property
    def is_host(self) -> bool:
        """Whether it calls a Python object: see `host`."""
        return self.name.startswith("host.")

    def inputs(self) -> list[Value]:
        """Returns the values among the arguments, in order."""
        return [x for x in leaves((self.args, self.kwargs)) if isinstance(x, Value)]

    def renamed(self, current: Callable) -> Instruction:
        """Returns the instruction with `current(x)` in place of each value that it takes, or writes."""
        args, kwargs = mapped(current, self.args), mapped(current, self.kwargs)
        written = tuple([current(x).storage for x in self.written])
        return replace(self, args=args, kwargs=kwargs, written=written)

    def __str__(self) -> str:
        if self.name == "loop":
            return self._loop_text()
        if self.name == "check":
            return self._check_text()
        args = [*map(text, self.args), *[f"{name}={text(x)}" for name, x in self.kwargs.items()]]
        call = f"{self.name}({', '.join(args)})"
        results = ", ".join(value.described() for value in self.outputs)
        notes = [self._memory_text(), self.origin]
        return "".join([f"{results} = {call}" if results else call, *[f"  # {x}" for x in notes if x]])

    def _memory_text(self) -> str:
        """Returns where the elements are that it writes, or of which it returns a view."""
        if self.written:
            return f"writes {', '.join(map(repr, self.written))}"
        return next((f"view of {value.of}" for value in self.outputs if value.of is not None), "")

    def _check_text(self) -> str:
        (x,), options = self.args, self.kwargs
        allowed = f"{options['low']} <= {x!r} < {options['high']}"
        if options["ignored"] is not None:
            allowed += f" or {x!r} == {options['ignored']}"
        return f"check({allowed})  # else {options['error']}: {options['text']}"

    def _loop_text(self) -> str:
        results = ", ".join(value.described() for value in self.outputs)
        loop = self.kwargs["loop"]
        origin = f"  # {self.origin}" if self.origin else ""
        head = f"{results} = loop over {self.kwargs['rows']} rows of {self.kwargs['n']}:{origin}"
        names = {f"x{k}": repr(value) for k, value in enumerate(self.args)}
        names |= {f"v{k}": repr(value) for k, value in zip(loop.outputs, self.outputs, strict=True)}
        lines = []
        for k, step in enumerate(loop.steps):
            args = ", ".join(names.get(a, str(a)) if isinstance(a, str) else f"{a:g}" for a in step.args)
            note = "" if step.kind == "full" else f"  # for each {step.kind}"
            lines.append(f"      {names.get(f'v{k}', f'v{k}')} = {step.name}({args}){note}")
        return "\n".join([head, *lines])
