"""Runs programs: one Python function for a program, which calls NumPy, BLAS and compiled loops."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from ...backends.blas import product
from ...backends.device import RawArray
from ...backends.float_errors import IGNORE, errors
from ...core.grad_mode import _state
from ...core.tensor import increment_version
from .autotune import is_compiled, strategy_of
from .host import HOST
from .kernels import run_kernel, run_vjp
from .loop import COLUMN, FULL, ROW, SCALAR, Loop
from .loop_numba import DEFAULT, SMALL, Strategy, loaded, source
from .memory import last_uses, scheduled
from .program import Instruction, Program, Reference, Value, fits

_PROPERTIES = ".T", ".mT", ".real", ".imag"


class Executable:
    """A program as a function of raw arrays, (inputs) -> outputs nested as the program's."""

    def __init__(self, program: Program):
        loops, text, self._namespace = source_of(program)
        del loops  # each is in a file of its own: see `loaded`
        for number, i in enumerate(scheduled(program)):
            if i.name == "loop":
                strategy = strategy_of(i, program.is_tuned)
                self._namespace[f"loop{number}"] = runnable(i.kwargs["loop"], strategy)
        exec(compile(text, f"<{program.name}>", "exec"), self._namespace)  # our own text
        self._run = self._namespace["run"]
        self._transposed = [(_name(y), _name(x)) for y, x in transposed_state(program).items()]
        self._transpose()
        changed = {value for i in program.instructions if not i.is_host for value in i.written}
        self._state = [(value, owner, program.state[value]) for value, owner in program.owners.items()]
        self._changed = [owner for value, owner in program.owners.items() if value in changed]
        saved = any([value.dtype.kind == "O" for value in program.results()])
        self._written = [k for k, x in enumerate(program.inputs) if x in changed]
        self._written_state = [value for value in program.state if value in changed]
        names = {i.name for i in program.instructions}
        self._has_vjps, self._has_kernels = saved or "kernel.vjp" in names, "kernel" in names

    def bind(self) -> None:
        """Makes the program use the arrays that the tensors of its state have now.

        Raises:
            RuntimeError: one has another shape or dtype, or is on another device.
        """
        for k, (value, reference, raw) in enumerate(self._state):
            owner = reference()
            if owner is not None and owner._data._array is not raw:
                now = owner._data._array
                if not fits(now, value):
                    raise RuntimeError(
                        f"a tensor of the program's state was {value.dtype}{list(value.shape)}, "
                        f"and is {now.dtype}{list(now.shape)} now"
                    )
                self._namespace[_name(value)] = now
                self._state[k] = value, reference, now
                self._transpose()

    def overlap(self, raws: Sequence[RawArray]) -> bool:
        """Returns whether an input or state that is written shares memory with another input or state: a
        program takes them as independent."""
        if not self._written and not self._written_state:
            return False
        values = [value for value, _, _ in self._state] if self._written else self._written_state
        state = [self._namespace[_name(value)] for value in values]
        return any([
            np.may_share_memory(raws[k], other)
            for k in self._written for other in (*raws[:k], *raws[k + 1 :])
        ]) or any([np.may_share_memory(x, raw) for x in state for raw in raws])  # fmt: skip

    def _transpose(self) -> None:
        for y, x in self._transposed:
            self._namespace[y] = self._namespace[x].T

    def __call__(self, *raws: RawArray) -> Any:
        """Runs the program; its state must be bound."""
        for reference in self._changed:
            owner = reference()
            if owner is not None:
                increment_version(owner)
        token = errors.set(IGNORE)  # inf and NaN are values
        try:
            if not self._has_kernels:
                return self._run(*raws)
            recording, _state.recording = _state.recording, self._has_vjps  # do kernels save?
            try:
                return self._run(*raws)
            finally:
                _state.recording = recording
        finally:
            errors.reset(token)


def source_of(program: Program) -> tuple[str, str, dict[str, Any]]:
    """Returns the source of the loops, that of the function `run`, and what is in its namespace."""
    namespace: dict[str, Any] = {"np": np, "flat": flat, "writeable": writeable, "product": product}
    for value, raw in (*program.state.items(), *program.constants.items()):
        namespace[_name(value)] = raw
    lines = [f"def run({', '.join(map(_name, program.inputs))}):"]
    loops, changed = [], program.changed_storages() - {*program.gradients()}
    instructions = scheduled(program)
    vectors, ready = _contiguous(program), transposed_state(program)
    for number, (i, last) in enumerate(zip(instructions, last_uses(program, instructions), strict=True)):
        last = [value for value in last if value not in ready]
        if i.outputs and i.outputs[0] in ready:
            continue
        lines += [f"    {line}" for line in _lines(number, i, namespace, vectors)]
        lines += [f"    {line}" for y in i.outputs if y.storage in changed for line in _writable(y, i)]
        if i.name == "loop":
            strategy = strategy_of(i, program.is_tuned)
            loops.append(source(i.kwargs["loop"], f"loop{number}", strategy))
        lines += [f"    del {', '.join(map(_name, last))}"] if last else []
    lines.append(f"    return {_source(program.outputs, namespace)}")
    return "\n\n\n".join(loops), "\n".join(lines), namespace


def transposed_state(program: Program) -> dict[Value, Value]:
    """Returns the transposes of matrices of the state, which are made once, and not in each run."""
    found = [i for i in program.instructions if i.name == ".T" and i.args[0] in program.state]
    return {i.outputs[0]: i.args[0] for i in found}


def computed(i: Instruction, known: dict[Value, RawArray]) -> RawArray:
    """Returns the result of a single instruction of arrays whose elements are known."""
    namespace: dict[str, Any] = {"np": np, "product": product}
    namespace |= {_name(x): known[x] for x in i.inputs()}
    exec("\n".join(_lines(0, i, namespace)), namespace)  # our own text
    return np.asarray(namespace[_name(i.outputs[0])])


def _name(value: Value) -> str:
    return f"v{value.number}"


def _source(x: Any, namespace: dict[str, Any]) -> str:
    """Returns the source of an argument; what isn't a value gets a name in the namespace."""
    if isinstance(x, Value):
        return _name(x)
    if hasattr(x, "_fields"):
        namespace[type(x).__name__] = type(x)
        return f"{type(x).__name__}{_source(tuple(x), namespace)}"
    if isinstance(x, (tuple, list)):
        items = "".join(f"{_source(item, namespace)}, " for item in x)
        return f"({items})" if isinstance(x, tuple) else f"[{items}]"
    if isinstance(x, dict):
        items = ", ".join(f"{name!r}: {_source(item, namespace)}" for name, item in x.items())
        return f"{{{items}}}"
    if isinstance(x, slice):
        parts = ", ".join(_source(part, namespace) for part in (x.start, x.stop, x.step))
        return f"slice({parts})"
    if isinstance(x, np.dtype):
        return repr(x.name)
    if x is Ellipsis:
        return "..."
    if isinstance(x, (int, bool, str, type(None))) or (isinstance(x, (float, np.generic)) and np.isfinite(x)):
        return repr(x)
    if isinstance(x, Reference):
        x = x.target
    name = f"k{len(namespace)}"
    namespace[name] = x
    return name


def _contiguous(program: Program) -> set[Value]:
    """Returns values that are known to be in C order and writeable."""
    known = {y for i in program.instructions if i.name in ("loop", "matmul") for y in i.outputs}
    held = (*program.state.items(), *program.constants.items())
    return known | {x for x, raw in held if raw.flags.c_contiguous and raw.flags.writeable}


def _lines(
    number: int, i: Instruction, namespace: dict[str, Any], contiguous: Container[Value] = ()
) -> list[str]:  # fmt: skip
    if i.name == "loop":
        return _loop_lines(number, i, contiguous)
    if i.name.startswith("kernel"):
        return _kernel_lines(i, namespace)
    if i.is_host:
        return _host_lines(i, namespace)
    given = [_source(x, namespace) for x in i.args]
    if i.name == ".setitem":
        return [f"{given[0]}[{given[1]}] = {given[2]}"]
    if i.name == ".getitem":
        call = f"{given[0]}[{given[1]}]"
    elif i.name in _PROPERTIES:
        call = given[0] + i.name
    elif i.name == "reshape" and isinstance(i.args[0], Value) and len(given) == 2 and not i.kwargs:
        call = f"{given[0]}.reshape({given[1]})"  # a microsecond less than NumPy's function
    elif i.name == "sum" and len(given) == 1 and not {*i.kwargs.values()} - {None, False}:
        call = f"{given[0]}.sum()"
    else:
        rest = given[1:] if i.name.startswith(".") else given
        rest += [f"{key}={_source(x, namespace)}" for key, x in i.kwargs.items()]
        is_small = all([x.dtype == np.float32 and x.size < SMALL for x in (*i.inputs(), *i.outputs)])
        call = f"{_callee(i.name, given, is_small)}({', '.join(rest)})"
    return [f"{', '.join(map(_name, i.outputs))} = {call}" if i.outputs else call]


def _callee(name: str, given: list[str], is_small: bool) -> str:
    """Returns the source of the function that an instruction calls.

    Args:
        is_small: it isn't worth more than one thread.

    Raises:
        ValueError: NumPy has none of this name.
    """
    if name == "matmul" and not is_small:
        return "product"  # BLAS on the pool of threads
    if name.startswith("."):
        found = getattr(np.ndarray, name[1:], None)
    else:
        found = functools.reduce(lambda x, part: getattr(x, part, None), name.split("."), np)
    if not callable(found) or not re.fullmatch(r"\.?[a-z_0-9]+(\.[a-z_0-9]+)*", name):
        raise ValueError(f"NumPy has no function {name!r}")
    return given[0] + name if name.startswith(".") else f"np.{name}"


def _kernel_lines(i: Instruction, namespace: dict[str, Any]) -> list[str]:
    results = "".join(f"{_name(y)}, " for y in i.outputs)
    if i.name == "kernel":
        namespace[i.args[0]] = functools.partial(run_kernel, i.args[0])
        given = ", ".join(_source(x, namespace) for x in i.args[1:])
        return [f"{results}= {i.args[0]}({given})"]
    namespace["vjp"] = run_vjp
    given = [_source(x, namespace) for x in i.args]
    given += [f"{name}={_source(x, namespace)}" for name, x in i.kwargs.items()]
    return [f"{results}= vjp({', '.join(given)})"]


def _host_lines(i: Instruction, namespace: dict[str, Any]) -> list[str]:
    name = i.name.replace(".", "_")
    namespace[name] = HOST[i.name.removeprefix("host.")]
    call = f"{name}({', '.join(_source(x, namespace) for x in i.args)})"
    return [f"{_name(i.outputs[0])} = {call}" if i.outputs else call]


def _writable(y: Value, i: Instruction) -> list[str]:
    """The lines that make a result writable: NumPy returns numbers for arrays without dims, and diagonals
    that are read-only."""
    if "diagonal" in i.name:
        return [f"{_name(y)}.flags.writeable = True"]
    return [] if y.shape or i.name == "loop" else [f"{_name(y)} = np.asarray({_name(y)})"]


def _loop_lines(number: int, i: Instruction, contiguous: Container[Value]) -> list[str]:
    loop, rows, n = i.kwargs["loop"], i.kwargs["rows"], i.kwargs["n"]
    name, sizes = f"loop{number}", {FULL: rows * n, ROW: rows, COLUMN: n, SCALAR: 1}
    pairs = zip(i.args, loop.inputs, strict=True)
    given = [_flat_source(x, sizes[kind], x in contiguous) for x, kind in pairs]
    lines, stored, places = [], [], dict(loop.places)
    for k, y in zip(loop.outputs, i.outputs, strict=True):
        place, flattened = places.get(k), f"{_name(y)}.reshape(-1)"
        if place is None:
            lines.append(f"{_name(y)} = np.empty({y.shape!r}, {y.dtype.name!r})")
            stored.append(flattened)
        else:  # in the memory of an input
            x = i.args[place]
            whole = _name(x) if x in contiguous else f"writeable({_name(x)})"
            whole += "" if x.shape == y.shape else f".reshape({y.shape!r})"
            lines.append(f"{_name(y)} = {whole}")
            given[place] = flattened
    return [*lines, f"{name}({', '.join([*given, *stored])}, {rows}, {n})"]


def _flat_source(x: Value, size: int, is_contiguous: bool) -> str:
    if not is_contiguous or x.size != size:
        return f"flat({_name(x)}, {size})"
    return _name(x) if x.ndim == 1 else f"{_name(x)}.reshape(-1)"


def flat(x: np.ndarray, size: int) -> np.ndarray:
    """Returns the elements in C order; writeable, for which alone loops are compiled.

    Raises:
        ValueError: the array has another size, for which the loop would read beyond its end.
    """
    if x.size != size:
        raise ValueError(f"a loop needs an array of {size} elements, got shape {x.shape}")
    flags = x.flags
    return (x if flags.c_contiguous and flags.writeable else np.array(x, order="C")).reshape(-1)


def writeable(x: np.ndarray) -> np.ndarray:
    """Returns the array.

    Raises:
        ValueError: it is read-only.
    """
    if not x.flags.writeable:
        raise ValueError("a program can't write to a read-only array")
    return x


def runnable(loop: Loop, strategy: Strategy = DEFAULT) -> Callable:
    """Returns the compiled loop, or the same in NumPy without Numba and with `use_fused(False)`."""
    return loaded(loop, strategy) if is_compiled() else loop.in_numpy
