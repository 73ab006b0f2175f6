"""Programs: what a function computes, as data that can be printed, changed, saved and run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import RawArray
from ...backends.float_errors import IGNORE, errors
from ...core.op import as_raw
from ...core.tensor import from_raw, raw_of

if TYPE_CHECKING:
    from .memory import Memory


@dataclass(frozen=True, eq=False)
class Value:
    """An array of a program: an input, part of the state, or the result of an instruction.

    Attributes:
        number: in the order of definition.
        shape, strides, dtype: of the array; strides in bytes.
        storage: the value whose memory it lies in, itself unless it is a view.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    of: Value | None = None

    @property
    def storage(self) -> Value:
        return self if self.of is None else self.of

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"%{self.number}"

    def described(self) -> str:
        """Returns the value with its dtype and shape: `%3: float32[32, 64]`."""
        if self.dtype.kind == "O":
            return f"%{self.number}: saved"
        return f"%{self.number}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class Instruction:
    """A call of a NumPy function, of an array's method, or of a fused loop.

    Attributes:
        name: as in NumPy, `add`, `add.reduce`, `linalg.norm`; methods begin with a dot, `.getitem`.
        args, kwargs: nested tuples, lists, dicts and slices of values, numbers, dtypes and strings.
        outputs: the arrays that it returns.
        written: the storages in which it changes elements.
    """

    name: str
    args: tuple
    kwargs: dict[str, Any]
    outputs: tuple[Value, ...]
    written: tuple[Value, ...] = ()

    def inputs(self) -> list[Value]:
        """Returns the values among the arguments, in order."""
        return [x for x in leaves((self.args, self.kwargs)) if isinstance(x, Value)]

    def __str__(self) -> str:
        if self.name == "loop":
            return self._loop_text()
        given = [text(x) for x in self.args] + [f"{k}={text(x)}" for k, x in self.kwargs.items()]
        call = f"{self.name}({', '.join(given)})"
        results = ", ".join(value.described() for value in self.outputs)
        views = [value.of for value in self.outputs if value.of is not None and value.of not in self.written]
        note = f"  # view of {views[0]}" if views else ""
        if self.written:
            note = f"  # writes {', '.join(map(repr, self.written))}"
        return f"{results} = {call}{note}" if results else f"{call}{note}"


    def _loop_text(self) -> str:
        results = ", ".join(value.described() for value in self.outputs)
        loop = self.kwargs["loop"]
        head = f"{results} = loop over {self.kwargs['rows']} rows of {self.kwargs['n']}:"
        names = {f"x{k}": repr(value) for k, value in enumerate(self.args)}
        names |= {f"v{k}": repr(value) for k, value in zip(loop.outputs, self.outputs, strict=True)}
        lines = []
        for k, step in enumerate(loop.steps):
            given = ", ".join(names.get(a, str(a)) if isinstance(a, str) else f"{a:g}" for a in step.args)
            note = "  # for each row" if step.kind == "row" else ""
            lines.append(f"      {names.get(f'v{k}', f'v{k}')} = {step.name}({given}){note}")
        return "\n".join([head, *lines])


@dataclass
class Program:
    """Instructions in the order in which they run.

    Attributes:
        inputs: the arguments.
        state: arrays that belong to no argument, as parameters, by value: they are read, or written, where
            they lie.
        constants: small arrays with known elements.
        outputs: what is returned, nested as the function returned it.
    """

    inputs: tuple[Value, ...]
    state: dict[Value, RawArray]
    constants: dict[Value, RawArray]
    instructions: list[Instruction]
    outputs: Any
    name: str = "program"
    _run: Callable | None = field(default=None, init=False, repr=False)

    def __str__(self) -> str:
        lines = [f"{self.name}({', '.join(value.described() for value in self.inputs)})"]
        for kind, values in (("state", self.state), ("constant", self.constants)):
            for value, raw in values.items():
                known = f" = {raw.tolist()}" if kind == "constant" and raw.size <= 4 else ""
                lines.append(f"  {kind} {value.described()}{known}")
        lines += [f"  {instruction}" for instruction in self.instructions]
        return "\n".join([*lines, f"  return {text(self.outputs)}"])

    def __call__(self, *tensors: Any) -> Any:
        """Runs the program.

        Args:
            tensors: for each input one of its shape and dtype.

        Returns:
            Tensors without history, nested as the function returned them.

        Raises:
            ValueError: another number, shape or dtype of tensors.
        """
        raws = [raw_of(x) for x in tensors]
        wanted = [(value.shape, value.dtype) for value in self.inputs]
        if [(raw.shape, raw.dtype) for raw in raws] != wanted:
            given = ", ".join(f"{raw.dtype}{list(raw.shape)}" for raw in raws)
            raise ValueError(f"{self.name}: expected {', '.join(map(str, wanted))}, got {given or 'nothing'}")
        if self._run is None:
            from .execution import compiled

            self._run = compiled(self)
        token = errors.set(IGNORE)  # inf and NaN are values
        try:
            result = self._run(*raws)
        finally:
            errors.reset(token)
        return mapped(lambda x: from_raw(as_raw(x)) if isinstance(x, (np.ndarray, np.generic)) else x, result)

    def optimized(self) -> Program:
        """Returns a program that computes the same in fewer passes over memory; see `passes`."""
        from .passes import optimized

        return optimized(self)

    def source(self) -> str:
        """Returns the Python source that runs: compiled loops, and the calls of these and of NumPy."""
        from .execution import source_of

        return source_of(self)[0]

    def save(self, path: str | os.PathLike) -> None:
        """Saves the program, with its state, to a safetensors file; see `saving.save` and `load`."""
        from .saving import save

        save(self, path)

    def draw(self, path: str | os.PathLike) -> None:
        """Draws the program as a graph, to a file whose suffix is .svg or .html; see `drawing.draw`."""
        from .drawing import draw

        draw(self, path)

    def memory(self) -> Memory:
        """Returns the memory that the program needs, as a table: see `memory.Memory`. Nothing runs.

        >>> print(mytorch.capture(lambda x: (x + 1).exp().sum(), mytorch.ones(1000)).memory())
        given 4.0 kB, peak 8.0 kB more at instruction 1, exp; alive there:
             4.0 kB  %1: float32[1000] from add
             4.0 kB  %2: float32[1000] from exp
        """
        from .memory import memory_of

        return memory_of(self)

    def results(self) -> list[Value]:
        """Returns the values among the outputs."""
        return [x for x in leaves(self.outputs) if isinstance(x, Value)]

    def changed_storages(self) -> set[Value]:
        """Returns the storages that an instruction writes to."""
        return {value for instruction in self.instructions for value in instruction.written}

    def uses(self) -> dict[Value, list[Instruction]]:
        """Returns the instructions that take each value."""
        found: dict[Value, list[Instruction]] = {}
        for instruction in self.instructions:
            for value in instruction.inputs():
                found.setdefault(value, []).append(instruction)
        return found


def leaves(x: Any) -> Iterator[Any]:
    """Yields what nested tuples, lists, dicts and slices hold."""
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from leaves(item)
    elif isinstance(x, dict):
        yield from leaves(list(x.values()))
    elif isinstance(x, slice):
        yield from leaves((x.start, x.stop, x.step))
    else:
        yield x


def mapped(function: Callable, x: Any) -> Any:
    """Returns the nested structure with `function` applied to its leaves."""
    if isinstance(x, tuple):
        items = [mapped(function, item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
    if isinstance(x, list):
        return [mapped(function, item) for item in x]
    if isinstance(x, dict):
        return {name: mapped(function, item) for name, item in x.items()}
    if isinstance(x, slice):
        return slice(*[mapped(function, item) for item in (x.start, x.stop, x.step)])
    return function(x)


def text(x: Any) -> str:
    """Returns an argument as it is printed."""
    if isinstance(x, (tuple, list)):
        items = ", ".join(map(text, x))
        return f"[{items}]" if isinstance(x, list) else f"({items},)" if len(x) == 1 else f"({items})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{name!r}: {text(item)}' for name, item in x.items())}}}"
    if isinstance(x, slice):
        parts = ["" if part is None else text(part) for part in (x.start, x.stop, x.step)]
        return ":".join(parts[: 2 if x.step is None else 3])
    return "..." if x is Ellipsis else str(x) if isinstance(x, np.dtype) else repr(x)
