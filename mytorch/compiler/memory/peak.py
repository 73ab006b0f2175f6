"""How much memory a program needs at its peak, and what is alive then; nothing runs."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

from ...backends import threads
from ...backends.meta.array import MetaArray, new_of, view
from ...backends.meta.layout import layout
from ...core.grad_accumulator import LazyGrad
from ...nn.functional.composite import REGISTRY
from ...nn.functional.variant import uses_kernels
from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.kernels import MetaDraw, gradients
from ..program.program import Program
from .live_ranges import last_uses
from .plan import planned

_ATTENTION = ("scaled_dot_product_attention", "self_attention")


class Held(NamedTuple):
    """Memory at the peak: the array that it is, or what a kernel saved; its bytes; and what made it."""

    value: Value
    nbytes: int
    maker: str


class Memory(NamedTuple):
    """The memory that a program needs, in bytes.

    Attributes:
        given: of inputs, state and constants, which are there before.
        peak: of what its instructions make, at the most at a time. What an instruction needs only while it
            runs isn't in it, except the copies that loops make of arrays which aren't contiguous.
        at: the number of the instruction with the peak.
        instruction: it.
        held: what is alive then, the largest first.
    """

    given: int
    peak: int
    at: int
    instruction: Instruction | None
    held: list[Held]

    def __str__(self) -> str:
        name = "nothing" if self.instruction is None else f"instruction {self.at}, {_call(self.instruction)}"
        lines = [f"given {size_text(self.given)}, peak {size_text(self.peak)} more at {name}; alive there:"]
        shown = self.held[:10]
        lines += [f"  {size_text(x.nbytes):>9}  {x.value.described()} from {x.maker}" for x in shown]
        if rest := self.held[10:]:
            lines.append(f"  {size_text(sum(x.nbytes for x in rest)):>9}  {len(rest)} others")
        return "\n".join(lines)


def memory(program: Program) -> Memory:
    """Returns the memory that a program needs, as a table: see `Memory`. Nothing runs.

    >>> print(mytorch.capture(lambda x: (x + 1).exp().sum(), mytorch.ones(1000)).memory())
    given 4.0 kB, peak 8.0 kB more at instruction 1, exp; alive there:
         4.0 kB  %1: float32[1000] from add
         4.0 kB  %2: float32[1000] from exp
    """
    given = {*program.inputs, *program.state, *program.constants}
    keeps, instructions = _Keeps(given, program.bases()), planned(program)
    references: Counter[Value] = Counter()  # of each storage: how many values keep it alive
    held: dict[Value, Held] = {}
    best = Memory(sum(map(nbytes_of, given)), 0, 0, None, [])
    for number, (i, last) in enumerate(zip(instructions, last_uses(program, instructions), strict=True)):
        held |= {storage: Held(storage, nbytes, _call(i)) for storage, nbytes in keeps.add(i)}
        references.update([storage for value in i.outputs for storage in keeps.of[value]])
        alive = [held[storage] for storage in references if storage in held]
        peak = sum([x.nbytes for x in alive]) + _copies(i)
        if peak > best.peak:
            shown = sorted([x for x in alive if x.nbytes], key=lambda x: -x.nbytes)
            best = best._replace(peak=peak, at=number, instruction=i, held=shown)
        references.update(i.outputs if i.name == "host.set_grad" else ())  # `.grad` keeps it
        references -= Counter([x for value in last for x in keeps.of.get(value, ())])  # only those > 0
    return best


Program.memory = memory


class _Keeps:
    """What each value keeps alive.

    Attributes:
        of: for each value the storages, each named by the first value that lies in it. The value of what a
            kernel saves also names the arrays that the kernel makes for its vjp alone.
    """

    def __init__(self, given: Iterable[Value], bases: dict[Value, Value]):
        self._bases = bases
        self.of: dict[Value, list[Value]] = {value: [value] for value in given}
        self._saved: dict[Value, tuple[Any, _Arrays]] = {}

    def add(self, i: Instruction) -> list[tuple[Value, int]]:
        """Returns the storages that an instruction makes, with their bytes."""
        if i.name == "kernel":
            return self._kernel(i)
        if i.name == "kernel.vjp" and i.args[0] in self._saved:
            return self._vjp(i)
        made = {value: nbytes_of(value) for value in i.outputs if value.of is None}
        for value in i.outputs:
            self.of[value] = self.of.get(self._bases[value], [value])
        if i.name == "loop":
            outputs = dict(zip(i.kwargs["loop"].outputs, i.outputs, strict=True))
            for k, x in i.kwargs["loop"].places:
                self.of[outputs[k]] = self.of[i.args[x]]
                del made[outputs[k]]
        return [*made.items()]

    def _kernel(self, i: Instruction) -> list[tuple[Value, int]]:
        """A kernel's variant runs on meta arrays, to see which ones its vjp keeps."""
        name, *args = i.args
        *results, saved = i.outputs
        arrays = _Arrays(self._bases)
        args = [mapped(arrays.of, x) for x in args]
        composite = REGISTRY[name]
        result, vjp = composite.manual_variant.forward(*args)
        self._saved[saved] = vjp, arrays
        for value, x in zip(results, result if composite.outputs else [result], strict=True):
            arrays.name(x, value)
            self.of[value] = [value]
        self.of[saved], new = [saved], 0
        for x in {id(x.storage): x for x in _arrays_in(vjp, set())}.values():
            known = arrays.named.get(id(x.storage))
            new += x.storage.nbytes if known is None else 0
            self.of[saved] += [] if known is None else self.of[known]
        if name in _ATTENTION and uses_kernels() and threads.installed():
            heads = args[1] if name == "self_attention" else 1
            new = 8 * heads * args[0].size // args[0].shape[-1]  # two numbers a query, no probabilities
        return [*[(value, nbytes_of(value)) for value in results], (saved, new)]

    def _vjp(self, i: Instruction) -> list[tuple[Value, int]]:
        """The same array may be the gradient of two arguments, or what the vjp was given."""
        vjp, arrays = self._saved[i.args[0]]
        grads, made = gradients(vjp, mapped(arrays.of, i.args[1]), i.kwargs["wanted"]), []
        for value, k in zip(i.outputs, i.kwargs["wanted"], strict=True):
            if k in i.kwargs.get("lazy", ()):
                self.of[value] = []  # computed where it will be
                continue
            grad = grads[k].array() if type(grads[k]) is LazyGrad else grads[k]
            same = arrays.named.get(id(grad.storage)) if grad.shape == value.shape else None
            self.of[value] = [value] if same is None else self.of[same]
            if same is None:
                arrays.name(grad, value)
                made.append((value, nbytes_of(value)))
        return made


class _Arrays:
    """Meta arrays that stand for values.

    Attributes:
        named: the value for each storage, by its id.
    """

    def __init__(self, bases: dict[Value, Value]) -> None:
        self._bases = bases
        self.named: dict[int, Value] = {}
        self._arrays: dict[Value, MetaArray] = {}

    def of(self, value: object) -> Any:
        """Returns the array of a value; what isn't one as it is."""
        if not isinstance(value, Value):
            return value
        if value.dtype.kind == "O":
            return MetaDraw()
        first = self._bases[value]
        base = self._arrays.get(first)
        if base is None:
            base = self._arrays[first] = new_of(layout(first.shape, first.strides, first.dtype))
            self.name(base, first)
        return base if value is first else view(base, layout(value.shape, value.strides, value.dtype))

    def name(self, x: MetaArray, value: Value) -> None:
        self.named.setdefault(id(x.storage), value)
        self._arrays.setdefault(value, x)  # it stays alive, and its id its own


_PARTS = {  # what a Python object of a type holds
    FunctionType: lambda x: [x.__closure__, x.__defaults__], MethodType: lambda x: [x.__self__, x.__func__],
    functools.partial: lambda x: [x.func, x.args, x.keywords],
    CellType: gc.get_referents,  # its content; nothing if it isn't set
    tuple: list, list: list, dict: lambda x: list(x.values()), type: lambda x: [],
}


def _arrays_in(x: object, seen: set[int]) -> Iterator[MetaArray]:
    """Yields the arrays that an object, as a function, holds."""
    if id(x) in seen:
        return
    seen.add(id(x))
    if isinstance(x, MetaArray):
        yield x
        return
    parts = next((f for kind, f in _PARTS.items() if isinstance(x, kind)), None)
    for item in parts(x) if parts is not None else list(getattr(x, "__dict__", {}).values()):
        yield from _arrays_in(item, seen)


def _copies(i: Instruction) -> int:
    """Returns the bytes of the copies that a loop makes of arrays that aren't contiguous."""
    if i.name != "loop":
        return 0
    arrays = [layout(x.shape, x.strides, x.dtype) for x in dict.fromkeys(i.args)]
    return sum([x.nbytes for x in arrays if not x.flags.c_contiguous])


def nbytes_of(value: Value) -> int:
    """Returns the bytes of the elements."""
    return value.size * value.dtype.itemsize


def _call(i: Instruction) -> str:
    return repr(i.args[0]) if i.name == "kernel" else i.name


def size_text(nbytes: int) -> str:
    """Returns a number of bytes as "1.5 MB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"
