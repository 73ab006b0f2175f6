"""Runs programs: one Python function for a program, which calls NumPy, BLAS and compiled loops."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...backends import threads
from ...backends.blas import product
from ...nn.functional.composite import use_fused
from ...utils import atomic_write
from .kernels import run_kernel, run_vjp
from .loop import COLUMN, FULL, HEADER, ROW, SCALAR, Loop
from .memory import last_uses
from .program import Instruction, Program, Value
from .reuse import in_place

_PROPERTIES = ".T", ".mT", ".real", ".imag"


def compiled(program: Program) -> Callable:
    """Returns the function of raw arrays, (inputs) -> outputs nested as the program's."""
    text, namespace = source_of(program)
    exec(compile(text.rpartition("\n\n\n")[2], f"<{program.name}>", "exec"), namespace)  # our own text
    return namespace["run"]


def source_of(program: Program) -> tuple[str, dict[str, Any]]:
    """Returns the source of the loops and of the function `run`, and what is in its namespace."""
    namespace: dict[str, Any] = {"np": np, "flat": flat, "product": product}
    for value, raw in (*program.state.items(), *program.constants.items()):
        namespace[_name(value)] = raw
    lines = [f"def run({', '.join(map(_name, program.inputs))}):"]
    loops, changed, places = {}, program.changed_storages(), in_place(program)
    for number, (i, last) in enumerate(zip(program.instructions, last_uses(program), strict=True)):
        if i in places:
            i = replace(i, kwargs={**i.kwargs, "loop": replace(i.kwargs["loop"], places=places[i])})
        lines += [f"    {line}" for line in _lines(number, i, namespace)]
        lines += [f"    {line}" for y in i.outputs if y.storage in changed for line in _writable(y, i)]
        if i.name == "loop":
            loops[f"loop{number}"] = i.kwargs["loop"].source(f"loop{number}")
        lines += [f"    del {', '.join(map(_name, last))}"] if last else []
    lines.append(f"    return {_source(program.outputs, namespace)}")
    return "\n\n\n".join([*loops.values(), "\n".join(lines)]), namespace


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
    name = f"k{len(namespace)}"
    namespace[name] = x
    return name


def _lines(number: int, i: Instruction, namespace: dict[str, Any]) -> list[str]:
    if i.name == "loop":
        return _loop_lines(number, i, namespace)
    if i.name.startswith("kernel"):
        return _kernel_lines(i, namespace)
    given = [_source(x, namespace) for x in i.args]
    if i.name == ".setitem":
        return [f"{given[0]}[{given[1]}] = {given[2]}"]
    if i.name == ".getitem":
        call = f"{given[0]}[{given[1]}]"
    elif i.name in _PROPERTIES:
        call = given[0] + i.name
    else:
        rest = given[1:] if i.name.startswith(".") else given
        rest += [f"{key}={_source(x, namespace)}" for key, x in i.kwargs.items()]
        call = f"{_callee(i.name, given)}({', '.join(rest)})"
    return [f"{', '.join(map(_name, i.outputs))} = {call}" if i.outputs else call]


def _callee(name: str, given: list[str]) -> str:
    """Returns the source of the function that an instruction calls.

    Raises:
        ValueError: NumPy has none of this name.
    """
    if name == "matmul":
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
    given = ", ".join(_source(x, namespace) for x in (*i.args, i.kwargs["wanted"]))
    return [f"{results}= vjp({given})"]


def _writable(y: Value, i: Instruction) -> list[str]:
    """The lines that make a result writable: NumPy returns numbers for arrays without dims, and diagonals
    that are read-only."""
    if "diagonal" in i.name:
        return [f"{_name(y)}.flags.writeable = True"]
    return [] if y.shape or i.name == "loop" else [f"{_name(y)} = np.asarray({_name(y)})"]


def _loop_lines(number: int, i: Instruction, namespace: dict[str, Any]) -> list[str]:
    loop, rows, n = i.kwargs["loop"], i.kwargs["rows"], i.kwargs["n"]
    name, sizes = f"loop{number}", {FULL: rows * n, ROW: rows, COLUMN: n, SCALAR: 1}
    namespace[name] = runnable(loop)
    given = [f"flat({_name(x)}, {sizes[kind]})" for x, kind in zip(i.args, loop.inputs, strict=True)]
    lines, stored = [], []
    for y, place in zip(i.outputs, loop.places or [None] * len(i.outputs), strict=True):
        if place is None:
            lines.append(f"{_name(y)} = np.empty({y.shape!r}, {y.dtype.name!r})")
            stored.append(f"{_name(y)}.reshape(-1)")
        else:  # in the memory of an input
            lines.append(f"{_name(y)} = {given[place]}.reshape({y.shape!r})")
            given[place] = f"{_name(y)}.reshape(-1)"
    return [*lines, f"{name}({', '.join([*given, *stored])}, {rows}, {n})"]


def flat(x: np.ndarray, size: int) -> np.ndarray:
    """Returns the elements in C order; writeable, for which alone loops are compiled.

    Raises:
        ValueError: the array has another size, for which the loop would read beyond its end.
    """
    if x.size != size:
        raise ValueError(f"a loop needs an array of {size} elements, got shape {x.shape}")
    flags = x.flags
    return (x if flags.c_contiguous and flags.writeable else np.array(x, order="C")).reshape(-1)


def runnable(loop: Loop) -> Callable:
    """Returns the compiled loop, or the same in NumPy without Numba and with `use_fused(False)`."""
    return loaded(loop) if use_fused.default and threads.installed() else loop.in_numpy


@functools.cache
def loaded(loop: Loop) -> Callable:
    """Returns the compiled loop; its source is kept in a folder by content, with what Numba makes of it."""
    source = HEADER + loop.source()
    digest = hashlib.sha256(source.encode()).hexdigest()[:24]
    root = Path(os.environ.get("MYTORCH_CACHE") or Path.home() / ".cache" / "mytorch")
    path = root / "programs" / digest / "loop.py"
    if not path.exists() or path.read_text() != source:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(source)
    spec = importlib.util.spec_from_file_location(f"mytorch_loop_{digest}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # Numba looks for it there
    spec.loader.exec_module(module)
    return module.loop
