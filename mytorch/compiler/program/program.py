"""Programs: what a function computes, as data that can be printed, changed, saved and run."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...backends.device import CPU, RawArray, device, device_of
from ...core.tensor import Tensor
from ...utils.nested import leaves, text
from .instruction import Instruction, Value


@dataclass
class Program:
    """Instructions in the order in which they run.

    The class is data. What can be done with a program is a method that the folder which does it attaches, as
    `save` by `files`: `import mytorch.compiler` imports them all.

    Attributes:
        inputs: the arguments.
        state: arrays that belong to no argument, as parameters, by value: they are read, or written, where
            they lie.
        constants: small arrays with known elements.
        outputs: what is returned, nested as the function returned it.
        owners: the tensors of the state: where one has got another array since, that is used.
        gives_lazy: results of vjps may be `LazyGrad`s, as the engine takes them.
        device: where it runs. Constants lie on the CPU in any case, and are copied once.
        position: where the next `stream` begins, of a program that was frozen in the middle of one.
        loose: inputs that may lie in another order in memory, as gradients: those are copied.
        is_tuned: loops run in the fastest of several strategies, which are measured; see `strategies`.
    """

    inputs: tuple[Value, ...]
    state: dict[Value, RawArray]
    constants: dict[Value, RawArray]
    instructions: list[Instruction]
    outputs: object
    name: str = "program"
    owners: dict[Value, weakref.ref[Tensor]] = field(default_factory=dict, repr=False)
    gives_lazy: bool = False
    device: device = CPU
    position: dict[str, Any] | None = None
    is_tuned: bool = False
    loose: tuple[Value, ...] = ()
    _run: Any = field(default=None, init=False, repr=False, compare=False)  # its Executable, of `running`
    _stream: Any = field(default=None, init=False, repr=False, compare=False)  # the last one, of `parts`

    def __str__(self) -> str:
        where = "" if self.device is CPU else f" on {self.device}"
        lines = [f"{self.name}({', '.join(value.described() for value in self.inputs)}){where}"]
        for kind, values in (("state", self.state), ("constant", self.constants)):
            for value, raw in values.items():
                known = f" = {raw.tolist()}" if kind == "constant" and raw.size <= 4 else ""
                lines.append(f"  {kind} {value.described()}{known}")
        lines += [f"  {instruction}" for instruction in self.instructions]
        return "\n".join([*lines, f"  return {text(self.outputs)}"])

    def results(self) -> list[Value]:
        """Returns the values among the outputs."""
        return [x for x in leaves(self.outputs) if isinstance(x, Value)]

    def bases(self) -> dict[Value, Value]:
        """Returns for each value the one in whose memory it lies: passes may have replaced, or computed, what
        a view was made of, and `Value.of` doesn't say so."""
        found = {value: value for value in (*self.inputs, *self.state, *self.constants)}
        for i in self.instructions:
            for y in i.outputs:
                sources = i.inputs() if y.of is not None else []
                same = [x for x in sources if x.storage is y.of] or sources
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

    def next_number(self) -> int:
        """Returns a number that no value has, nor any after it."""
        made = [y for i in self.instructions for y in i.outputs]
        return 1 + max([x.number for x in (*self.inputs, *self.state, *self.constants, *made)], default=-1)

    def makers(self) -> dict[Value, Instruction]:
        """Returns the instruction that makes each value."""
        return {y: i for i in self.instructions for y in i.outputs}

    def uses(self) -> dict[Value, list[Instruction]]:
        """Returns the instructions that take each value."""
        found: dict[Value, list[Instruction]] = {}
        for instruction in self.instructions:
            for value in instruction.inputs():
                found.setdefault(value, []).append(instruction)
        return found


def check_inputs(
    name: str, inputs: Sequence[Value], raws: Sequence[RawArray | float], target: device = CPU
) -> None:
    """Raises ValueError unless arrays, or numbers, fit the inputs of a program of this name."""
    pairs = zip(raws, inputs, strict=False)
    if len(raws) != len(inputs) or not all([fits(x, value, target) for x, value in pairs]):
        wanted = ", ".join([value.described(strides=True) for value in inputs])
        got = ", ".join([*map(described, raws)])
        raise ValueError(f"{name}: expected {wanted} on {target}, as the examples, got {got}")


def described(x: RawArray | float) -> str:
    """Returns the dtype, shape, strides and device of an array, or the type of a number."""
    if isinstance(x, (float, int)):
        return type(x).__name__
    return f"{x.dtype}{list(x.shape)} of strides {x.strides} on {device_of(x)}"


def fits(raw: RawArray | float, value: Value, target: device = CPU) -> bool:
    """Whether an array is on a device and has the shape, dtype and, where they matter, strides of a value; or
    a number its kind."""
    if value.dtype.kind == "O" or isinstance(raw, (float, int)):
        return type(raw).__name__ == value.kind
    if device_of(raw) is not target or raw.shape != value.shape or raw.dtype != value.dtype:
        return False
    pairs = zip(raw.shape, raw.strides, value.strides, strict=True)
    return not raw.size or all([size == 1 or ours == theirs for size, ours, theirs in pairs])
