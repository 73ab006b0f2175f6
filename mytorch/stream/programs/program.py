"""Programs: what a function computes, as data that can be printed, changed, saved and run."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import RawArray
from ...backends.meta.layout import layout
from ...core.op import as_raw
from ...core.tensor import Tensor, from_raw, increment_version, raw_of

if TYPE_CHECKING:
    from .execution import Executable
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

    @property
    def is_c_order(self) -> bool:
        """Whether the elements lie one after the other, the last dim innermost."""
        return layout(self.shape, self.strides, self.dtype).flags.c_contiguous

    def __repr__(self) -> str:
        return f"%{self.number}"

    def described(self) -> str:
        """Returns the value with its dtype and shape: `%3: float32[32, 64]`."""
        if self.dtype.kind == "O":
            return f"%{self.number}: saved"
        return f"%{self.number}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Reference:
    """A Python object that an instruction uses."""

    target: Any

    def __repr__(self) -> str:
        shape = f" {list(self.target.shape)}" if isinstance(self.target, Tensor) else ""
        return f"<{type(self.target).__name__}{shape}>"


@dataclass(frozen=True, eq=False)
class Instruction:
    """A call of a NumPy function, of an array's method, or of a fused loop.

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
    kwargs: dict[str, Any]
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
        note += f"  # {self.origin}" if self.origin else ""
        return f"{results} = {call}{note}" if results else f"{call}{note}"

    def _loop_text(self) -> str:
        results = ", ".join(value.described() for value in self.outputs)
        loop = self.kwargs["loop"]
        origin = f"  # {self.origin}" if self.origin else ""
        head = f"{results} = loop over {self.kwargs['rows']} rows of {self.kwargs['n']}:{origin}"
        names = {f"x{k}": repr(value) for k, value in enumerate(self.args)}
        names |= {f"v{k}": repr(value) for k, value in zip(loop.outputs, self.outputs, strict=True)}
        lines = []
        for k, step in enumerate(loop.steps):
            given = ", ".join(names.get(a, str(a)) if isinstance(a, str) else f"{a:g}" for a in step.args)
            note = "" if step.kind == "full" else f"  # for each {step.kind}"
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
        owners: the tensors of the state: where one has got another array since, that is used.
        gives_lazy: results of vjps may be `LazyGrad`s, as the engine takes them.
        is_tuned: loops run in the fastest of several strategies, which are measured; see `strategies`.
    """

    inputs: tuple[Value, ...]
    state: dict[Value, RawArray]
    constants: dict[Value, RawArray]
    instructions: list[Instruction]
    outputs: Any
    name: str = "program"
    owners: dict[Value, weakref.ref[Tensor]] = field(default_factory=dict, repr=False)
    gives_lazy: bool = False
    is_tuned: bool = False
    _run: Executable | None = field(default=None, init=False, repr=False)

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
            tensors: for each input one of its shape, strides and dtype.

        Returns:
            Tensors without history, nested as the function returned them.

        Raises:
            ValueError: another number, shape, memory order or dtype of tensors, or what the program writes to
                shares memory with another tensor.
        """
        raws = [raw_of(x) for x in tensors]
        if len(raws) != len(self.inputs) or not all(map(fits, raws, self.inputs)):
            wanted = ", ".join(value.described() for value in self.inputs)
            given = ", ".join(f"{x.dtype}{list(x.shape)} of strides {x.strides}" for x in raws)
            raise ValueError(f"{self.name}: expected {wanted}, in the order of the examples, got {given}")
        run = self.executable()
        run.bind()
        if run.overlap(raws):
            raise ValueError(f"{self.name}: it writes to a tensor that shares memory with another")
        result = run(*raws)
        for tensor, value in zip(tensors, self.inputs, strict=True):
            if isinstance(tensor, Tensor) and value in self.changed_storages():
                increment_version(tensor)
        return mapped(lambda x: from_raw(as_raw(x)) if isinstance(x, (np.ndarray, np.generic)) else x, result)

    def executable(self) -> Executable:
        """Returns the function of raw arrays that runs the program."""
        if self._run is None:
            from .execution import Executable

            self._run = Executable(self)
        return self._run

    def optimized(self, mode: str | None = None) -> Program:
        """Returns a program that computes the same in fewer passes over memory; see `passes`.

        Args:
            mode: "max-autotune" measures several strategies for each loop before the program runs for the
                first time, and keeps on disk which was the fastest. Others of PyTorch have no effect.

        Raises:
            RuntimeError: an unknown mode.
        """
        from .passes import optimized

        return optimized(self, mode)

    def strategies(self) -> str:
        """Returns a table of the times of each loop in several strategies, measured now unless they were
        before; results differ by the order of sums at most.

        Raises:
            RuntimeError: loops aren't compiled.
        """
        from .autotune import table

        return table(self)

    def source(self, target: str = "cpu") -> str:
        """Returns the source that runs: compiled loops, and the calls of these and of NumPy.

        Args:
            target: with "cuda" the loops alone, in Triton. They are launched by `loop_triton.launched`;
                whole programs run on the CPU so far.
        """
        from .execution import source_of

        if target == "cpu":
            return "\n\n\n".join(source_of(self)[:2])
        if target != "cuda":
            raise ValueError(f'source(): expected "cpu" or "cuda", got {target!r}')
        from .loop_triton import source

        found = [(k, i.kwargs) for k, i in enumerate(self.instructions) if i.name == "loop"]
        return "\n\n\n".join([source(given["loop"], given["n"], f"loop{k}") for k, given in found])

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

    def bases(self) -> dict[Value, Value]:
        """Returns for each value the one in whose memory it lies: passes may have replaced, or computed, what
        a view was made of, and `Value.of` doesn't say so."""
        found = {value: value for value in (*self.inputs, *self.state, *self.constants)}
        for i in self.instructions:
            for y in i.outputs:
                given = i.inputs() if y.of is not None else []
                same = [x for x in given if x.storage is y.of] or given
                found[y] = found[same[0]] if same else y
                found.setdefault(y.storage, found[y])
        return found

    def changed_storages(self) -> set[Value]:
        """Returns the storages that an instruction writes to."""
        return {value for instruction in self.instructions for value in instruction.written}

    def gradients(self) -> list[Value]:
        """Returns the values that are the `.grad` of a parameter."""
        calls = ("host.grad", "host.set_grad")
        return [value for i in self.instructions if i.name in calls for value in i.outputs]

    def uses(self) -> dict[Value, list[Instruction]]:
        """Returns the instructions that take each value."""
        found: dict[Value, list[Instruction]] = {}
        for instruction in self.instructions:
            for value in instruction.inputs():
                found.setdefault(value, []).append(instruction)
        return found


def fits(raw: RawArray, value: Value) -> bool:
    """Whether an array is on the CPU and has the shape, dtype and, where they matter, strides of a value."""
    if not isinstance(raw, np.ndarray) or raw.shape != value.shape or raw.dtype != value.dtype:
        return False
    pairs = zip(raw.shape, raw.strides, value.strides, strict=True)
    return not raw.size or all([size == 1 or ours == theirs for size, ours, theirs in pairs])


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
