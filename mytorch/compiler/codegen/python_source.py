"""Generates the Python function of a program, which calls NumPy, BLAS, kernels and compiled loops."""

from __future__ import annotations

import functools
import re
from collections.abc import Container

import numpy as np

from ...backends import gpu_errors
from ...backends.address import address_of
from ...backends.blas import product
from ...backends.device import CPU, META, RawArray, array_module, device, move
from ...backends.kinds import GPU, NUMPY
from ...backends.sliding_window import sliding_window_view
from ...ops.bounds import ERRORS, require_range
from ...ops.linalg_checks import lapack
from ..memory.live_ranges import last_uses, scheduled
from ..program.instruction import Instruction, Reference, Value
from ..program.kernels import run_kernel, run_vjp
from ..program.program import Program
from ..program.raising import SOLVERS
from ..running.arrays import arranged, as_it_is, flat, in_order, writeable
from ..running.checked import Checks
from ..running.host_functions import HOST
from ..running.recorded import RecordedStep
from . import triton_source
from .loop import COLUMN, FULL, ROW, SCALAR
from .lowering import Pointer, lowered
from .numba_source import SMALL

_PROPERTIES = ".T", ".mT", ".real", ".imag"
_READ_ONLY = "diagonal", "broadcast_to"  # what NumPy returns


def source_of(
    program: Program, is_recorded: bool = False, is_checked: bool = False
) -> tuple[str, dict[str, object]]:
    """Returns the source of the function `run`, and what is in its namespace.

    Args:
        is_recorded: with a block for each instruction (see `recorded`).
        is_checked: with checks of what each instruction makes (see `checked`).
    """
    target = program.device
    namespace: dict[str, object] = {"np": np, "flat": flat, "writeable": writeable, "product": product}
    namespace |= {"in_order": in_order, "arranged": arranged, "as_writable": NUMPY.as_writable}
    namespace |= {"address_of": address_of, "sliding_window_view": sliding_window_view, "lapack": lapack}
    if target is not CPU:
        namespace |= {"cupy": array_module(target), "flat": triton_source.flat, "writeable": as_it_is}
    namespace |= {name_of(value): raw for value, raw in program.state.items()}
    namespace |= {name_of(value): move(raw, target) for value, raw in program.constants.items()}
    lines = [f"def run({', '.join(map(name_of, program.inputs))}):"]
    lines += [f"    {name_of(x)} = arranged({name_of(x)}, {x.strides})" for x in program.loose]
    changed = program.changed_storages() - {*program.gradients()}
    instructions = scheduled(program)
    # Kernels, and Python's objects, take arrays, not the numbers that NumPy makes of those without dims.
    takers = [i for i in instructions if i.name.startswith("kernel") or i.is_host]
    changed |= {x.storage for i in takers for x in i.inputs() if not x.ndim and x.dtype.kind != "O"}
    writable = changed | {x.storage for x in program.results() if x.ndim}  # the caller may write to them
    numbers = {i: number for number, i in enumerate(instructions)}
    vectors, ready = _contiguous(program), transposed_state(program)
    if not is_recorded:
        instructions = lowered(program, instructions, vectors)
    if is_checked:
        namespace["checks"] = Checks(program, instructions)
        given = ", ".join(map(name_of, (*program.inputs, *program.state)))
        lines.append(f"    bounds = checks.begin({given})")
    for k, (i, last) in enumerate(zip(instructions, last_uses(program, instructions), strict=True)):
        number = numbers.get(i, -1)
        last = [value for value in last if value not in ready]
        if i.outputs and i.outputs[0] in ready:
            continue
        body = _lines(number, i, namespace, vectors, target)
        if target is not CPU:  # CuPy may lay a result out in another order than NumPy
            made = [y for y in i.outputs if y.of is None and y.ndim > 1] if _is_call(i) else []
            body += [f"{name_of(y)} = arranged({name_of(y)}, {y.strides})" for y in made]
        else:
            body += [line for y in i.outputs if y.storage in writable for line in _writable(y, i)]
        if is_recorded and not i.is_host:  # which record themselves
            body = _recorded_lines(number, i, body, instructions, namespace)
        lines += [f"    {line}" for line in body]
        if is_checked and i.outputs:
            lines.append(f"    checks.after({k}, bounds, {_source(i.outputs, namespace)})")
        lines += [f"    del {', '.join(map(name_of, last))}"] if last else []
    lines.append(f"    return {_source(program.outputs, namespace)}")
    return "\n".join(lines), namespace


def _recorded_lines(
    number: int, i: Instruction, body: list[str], instructions: list[Instruction],
    namespace: dict[str, object],
) -> list[str]:  # fmt: skip
    """Returns the lines of an instruction within a block of the stream."""
    is_vjp = i.name == "kernel.vjp"
    maker = next((k for k, x in enumerate(instructions) if is_vjp and i.args[0] in x.outputs), -1)
    namespace[f"step{number}"] = RecordedStep(i, None if maker < 0 else instructions[maker])
    arrays = [x for x in i.outputs if x.dtype.kind != "O"]
    given = _source(tuple(i.args[i.name == "kernel" :]), namespace)
    origin = f", block{maker}" if maker >= 0 else ""
    head = f"with step{number}({given}{origin}) as block{number}:"
    made = f"block{number}.outputs = {_source(tuple(arrays), namespace)}"
    return [head, *[f"    {line}" for line in (*body, made)]]


def transposed_state(program: Program) -> dict[Value, Value]:
    """Returns the transposes of matrices of the state, which are made once, and not in each run."""
    found = [i for i in program.instructions if i.name == ".T" and i.args[0] in program.state]
    return {i.outputs[0]: i.args[0] for i in found}


def computed(i: Instruction, known: dict[Value, RawArray]) -> RawArray:
    """Returns the result of a single instruction of arrays whose elements are known."""
    namespace: dict[str, object] = {"np": np, "product": product, "lapack": lapack}
    namespace |= {name_of(x): known[x] for x in i.inputs()}
    exec("\n".join(_lines(0, i, namespace)), namespace)  # our own text
    return np.asarray(namespace[name_of(i.outputs[0])])


def name_of(value: Value) -> str:
    """Returns the name of a value in the function."""
    return f"v{value.number}"


def _source(x: object, namespace: dict[str, object]) -> str:
    """Returns the source of an argument; what isn't a value gets a name in the namespace."""
    if isinstance(x, Value):
        return name_of(x)
    if isinstance(x, Pointer):
        return f"address_of({name_of(x.array)})" + f" + {x.offset}" * bool(x.offset)
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
    made = [y for i in program.instructions if i.name in ("loop", "matmul") for y in i.outputs]
    known = {y for y in made if y.is_c_order}
    held = (*program.state.items(), *program.constants.items())
    return known | {x for x, raw in held if raw.flags.c_contiguous and getattr(raw.flags, "writeable", True)}


def _lines(
    number: int, i: Instruction, namespace: dict[str, object], contiguous: Container[Value] = (),
    target: device = CPU,
) -> list[str]:  # fmt: skip
    if i.name == "loop":
        return _loop_lines(number, i, contiguous, target)
    if i.name.startswith("kernel"):
        return _kernel_lines(i, namespace, target)
    if i.is_host:
        return _host_lines(i, namespace)
    if i.name == "check":
        return [_check_line(i, namespace, target)] if target is not META else []
    if i.name == "launch":
        return [_launch_line(i, namespace)]
    if i.name == "arranged":
        return [f"{name_of(i.outputs[0])} = arranged({name_of(i.args[0])}, {i.outputs[0].strides})"]
    if i.name == "in_order":
        return [f"{name_of(i.outputs[0])} = in_order({name_of(i.args[0])})"]
    given = [_source(x, namespace) for x in i.args]
    arrays = *i.inputs(), *i.outputs
    is_small = target is CPU and all([x.dtype == np.float32 and x.size < SMALL for x in arrays])
    if i.name == ".setitem":
        return [f"{given[0]}[{given[1]}] = {given[2]}"]
    if i.name == ".getitem":
        call = f"{given[0]}[{given[1]}]"
    elif i.name in _PROPERTIES:
        call = given[0] + i.name
    elif i.name == "reshape" and isinstance(i.args[0], Value) and len(given) == 2 and not i.kwargs:
        call = f"{given[0]}.reshape({given[1]})"  # a microsecond less than NumPy's function
    elif i.name == "matmul" and i.outputs and any([x.dtype != i.outputs[0].dtype for x in i.inputs()]):
        wide = [f"{x}.astype({i.outputs[0].dtype.name!r})" for x in given]  # of halves, not rounded yet
        call = f"product({', '.join(wide)})"
    elif i.name == "matmul" and is_small and [x.ndim for x in i.inputs()] == [2, 2]:
        call = f"{given[0]}.dot({given[1]})"  # the same product, called faster
    elif i.name == "sum" and len(i.inputs()) == len(given) == 1 and not _options(i):
        call = f"{given[0]}.sum()"
    else:
        rest = given[1:] if i.name.startswith(".") else given
        rest += [f"{key}={_source(x, namespace)}" for key, x in i.kwargs.items()]
        takes_arrays = any([x.dtype.kind != "O" for x in i.inputs()]) and i.name != "full"
        module = "np" if target is CPU or takes_arrays else "cupy"  # NumPy's functions see their arguments
        callee = _callee(i.name, given, is_small, "out" in i.kwargs, module)
        call = f"{callee}({', '.join(rest)})"
        if i.name in SOLVERS:  # whose error is NumPy's
            call = f"lapack({i.name.partition('.')[2]!r}, {callee}, {', '.join(rest)})"
    return [f"{', '.join(map(name_of, i.outputs))} = {call}" if i.outputs else call]


def _is_call(i: Instruction) -> bool:
    """Whether an instruction calls a function of NumPy, or of CuPy."""
    return not i.is_host and i.name != "loop" and not i.name.startswith("kernel")


def _options(i: Instruction) -> list[str]:
    """Returns the names of the arguments that aren't None or False; 0, an axis, is an option."""
    return [name for name, x in i.kwargs.items() if x is not None and x is not False]


def _callee(name: str, given: list[str], is_small: bool, has_out: bool, module: str) -> str:
    """Returns the source of the function that an instruction calls.

    Args:
        is_small: it isn't worth more than one thread.
        has_out: the array of the result is given.
        module: the name of that of functions.

    Raises:
        ValueError: NumPy has none of this name.
    """
    if name == "matmul" and not is_small and not has_out:
        return "product"  # BLAS on the pool of threads, or cuBLAS
    if name == "lib.stride_tricks.sliding_window_view":
        return "sliding_window_view"
    if name.startswith("."):
        found = getattr(np.ndarray, name[1:], None)
    else:
        found = functools.reduce(lambda x, part: getattr(x, part, None), name.split("."), np)
    if not callable(found) or not re.fullmatch(r"\.?[a-z_0-9]+(\.[a-z_0-9]+)*", name):
        raise ValueError(f"NumPy has no function {name!r}")
    return given[0] + name if name.startswith(".") else f"{module}.{name}"


def _kernel_lines(i: Instruction, namespace: dict[str, object], target: device) -> list[str]:
    results = "".join(f"{name_of(y)}, " for y in i.outputs)
    arrays = [y for y in i.outputs if y.ndim]  # a kernel decides how they lie in memory
    ordered = [f"{name_of(y)} = arranged({name_of(y)}, {y.strides})" for y in arrays]
    if i.name == "kernel":
        namespace[i.args[0]] = functools.partial(run_kernel, i.args[0], target.kernels)
        given = ", ".join(_source(x, namespace) for x in i.args[1:])
        return [f"{results}= {i.args[0]}({given})", *ordered]
    namespace["vjp"] = run_vjp
    given = [_source(x, namespace) for x in i.args]
    given += [f"{name}={_source(x, namespace)}" for name, x in i.kwargs.items()]
    return [f"{results}= vjp({', '.join(given)})", *ordered]


def _launch_line(i: Instruction, namespace: dict[str, object]) -> str:
    function, *args = i.args[0].target, *i.args[1:]
    name = f"{function.__module__.rpartition('.')[2]}_{function.__name__.lstrip('_')}"
    namespace[name] = function
    return f"{name}({', '.join([_constant(x, namespace) for x in args])})"


def _constant(x: object, namespace: dict[str, object]) -> str:
    """Returns the source of an argument of a launch; NumPy's numbers are made once, and tuples of numbers."""
    if isinstance(x, np.generic):
        name = f"{type(x).__name__}_{x}".replace(".", "_").replace("-", "m")
    elif type(x) is tuple and not any([isinstance(item, (Value, Pointer)) for item in x]):
        name = f"k{len(namespace)}"
    else:
        return _source(x, namespace)
    namespace[name] = x
    return name


def _check_line(i: Instruction, namespace: dict[str, object], target: device) -> str:
    namespace["check"] = gpu_errors.check_range if target.kind is GPU else require_range
    low, high, text, ignored = [repr(i.kwargs[name]) for name in ("low", "high", "text", "ignored")]
    error = ERRORS[i.kwargs["error"]].__name__
    return f"check({name_of(i.args[0])}, {low}, {high}, {text}, {error}, {ignored})"


def _host_lines(i: Instruction, namespace: dict[str, object]) -> list[str]:
    name = i.name.replace(".", "_")
    namespace[name] = HOST[i.name.removeprefix("host.")]
    call = f"{name}({', '.join(_source(x, namespace) for x in i.args)})"
    return [f"{name_of(i.outputs[0])} = {call}" if i.outputs else call]


def _writable(y: Value, i: Instruction) -> list[str]:
    """The lines that make a result writable: NumPy returns numbers for arrays without dims, and some views
    that are read-only."""
    if i.name.lstrip(".") in _READ_ONLY and y.of is not None:
        return [f"{name_of(y)} = as_writable({name_of(y)}, {name_of(i.inputs()[0])})"]
    return [] if y.shape or i.name == "loop" else [f"{name_of(y)} = np.asarray({name_of(y)})"]


def _loop_lines(number: int, i: Instruction, contiguous: Container[Value], target: device) -> list[str]:
    loop, rows, n = i.kwargs["loop"], i.kwargs["rows"], i.kwargs["n"]
    name, sizes = f"loop{number}", {FULL: rows * n, ROW: rows, COLUMN: n, SCALAR: 1}
    pairs = zip(i.args, loop.inputs, strict=True)
    given = [_flat_source(x, sizes[kind], x in contiguous) for x, kind in pairs]
    lines, stored, places = [], [], dict(loop.places)
    module = "np" if target is CPU else "cupy"
    for k, y in zip(loop.outputs, i.outputs, strict=True):
        place, flattened = places.get(k), f"{name_of(y)}.reshape(-1)"
        if place is None:
            lines.append(f"{name_of(y)} = {module}.empty({y.shape!r}, {y.dtype.name!r})")
            stored.append(flattened)
        else:  # in the memory of an input
            x = i.args[place]
            whole = name_of(x) if x in contiguous else f"writeable({name_of(x)})"
            lines.append(f"{name_of(y)} = {whole}")
            given[place] = flattened
            stored += [] if target is CPU else [flattened]  # Triton's kernels get all outputs
    return [*lines, f"{name}({', '.join([*given, *stored])}, {rows}, {n})"]


def _flat_source(x: Value, size: int, is_contiguous: bool) -> str:
    if not is_contiguous or x.size != size:
        return f"flat({name_of(x)}, {size})"
    return name_of(x) if x.ndim == 1 else f"{name_of(x)}.reshape(-1)"
