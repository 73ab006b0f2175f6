"""Prints instructions as Python, which calls NumPy, BLAS, kernels and compiled loops."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable

import numpy as np

from ...backends import gpu_errors
from ...backends.address import address_of
from ...backends.blas import product
from ...backends.device import CPU, META, RawArray, array_module, device
from ...backends.kinds import GPU, NUMPY
from ...backends.sliding_window import sliding_window_view
from ...ops.bounds import ERRORS, require_range
from ...ops.linalg_checks import lapack
from ..program.instruction import Instruction, Reference, Value
from ..program.raising import SOLVERS
from ..running.arrays import arranged, as_it_is, flat, in_order, writeable
from ..running.host_functions import HOST
from ..running.kernels import run_kernel, run_vjp
from . import triton_source
from .loop import COLUMN, FULL, ROW, SCALAR
from .lowering import Pointer
from .numba_source import SMALL

_FUNCTIONS = {
    "np": np, "flat": flat, "writeable": writeable, "product": product, "in_order": in_order,
    "arranged": arranged, "as_writable": NUMPY.as_writable, "address_of": address_of,
    "sliding_window_view": sliding_window_view, "lapack": lapack,
}
_SLIDING = "lib.stride_tricks.sliding_window_view"


def name_of(value: Value) -> str:
    """Returns the name of a value in the source."""
    return f"v{value.number}"


def computed(i: Instruction, known: dict[Value, RawArray]) -> RawArray:
    """Returns the result of a single instruction of arrays whose elements are known."""
    printer = PythonPrinter()
    text = "\n".join(printer.lines(i))
    namespace = printer.namespace | {name_of(x): known[x] for x in i.inputs()}
    exec(text, namespace)  # our own text
    return np.asarray(namespace[name_of(i.outputs[0])])


class PythonPrinter:
    """Prints instructions, and collects what their lines call or take that has no literal.

    Args:
        target: where the arrays are.
        contiguous: values that are known to be in C order and writeable.
        loops: the name of each loop.

    Attributes:
        namespace: what is collected, by name.
    """

    def __init__(
        self, target: device = CPU, contiguous: Collection[Value] = (),
        loops: dict[Instruction, str] | None = None,
    ):
        self.target, self.contiguous, self.loops = target, contiguous, loops or {}
        self.namespace: dict[str, object] = {**_FUNCTIONS}
        if target is not CPU:
            on_gpu = {"cupy": array_module(target), "flat": triton_source.flat, "writeable": as_it_is}
            self.namespace |= on_gpu

    def lines(self, i: Instruction) -> list[str]:
        """Returns the lines of an instruction.

        Raises:
            ValueError: it calls a function that NumPy hasn't.
        """
        if i.is_host or i.name in _STATEMENTS:
            return self._host(i) if i.is_host else _STATEMENTS[i.name](self, i)
        args = [self.argument(x) for x in i.args]
        if i.name in _TEMPLATES:
            return [_assigned(i, _TEMPLATES[i.name].format(*args))]
        call = _CALLS[i.name](self, i, args) if i.name in _CALLS else None
        return [_assigned(i, call or self._call(i, args))]

    def argument(self, x: object) -> str:
        """Returns the source of an argument; what has no literal gets a name in the namespace."""
        if isinstance(x, Value):
            return name_of(x)
        if isinstance(x, Pointer):
            return f"address_of({name_of(x.array)})" + f" + {x.offset}" * bool(x.offset)
        if isinstance(x, (tuple, list, dict, slice)):
            return self._nested(x)
        if isinstance(x, np.dtype):
            return repr(x.name)
        if x is Ellipsis:
            return "..."
        if isinstance(x, (int, str, type(None))) or (isinstance(x, (float, np.generic)) and np.isfinite(x)):
            return repr(x)
        return self._named(f"k{len(self.namespace)}", x.target if isinstance(x, Reference) else x)

    def _nested(self, x: tuple | list | dict | slice) -> str:
        if isinstance(x, dict):
            return "{" + ", ".join(f"{name!r}: {self.argument(item)}" for name, item in x.items()) + "}"
        if isinstance(x, slice):
            return f"slice({', '.join(map(self.argument, (x.start, x.stop, x.step)))})"
        items = "".join(f"{self.argument(item)}, " for item in x)
        if hasattr(x, "_fields"):
            return f"{self._named(type(x).__name__, type(x))}({items})"
        return f"({items})" if isinstance(x, tuple) else f"[{items}]"

    def _named(self, name: str, x: object) -> str:
        self.namespace[name] = x
        return name

    def _call(self, i: Instruction, args: list[str]) -> str:
        """Returns the call of NumPy's function, or of an array's method."""
        rest = args[1:] if i.name.startswith(".") else args
        rest = ", ".join([*rest, *[f"{name}={self.argument(x)}" for name, x in i.kwargs.items()]])
        if i.name.startswith("."):
            return f"{args[0]}{_checked(i.name)}({rest})"
        if i.name == _SLIDING:
            return f"sliding_window_view({rest})"
        takes_arrays = any([x.dtype.kind != "O" for x in i.inputs()]) and i.name != "full"
        # NumPy's functions see on which device their arguments are.
        module = "np" if self.target is CPU or takes_arrays else "cupy"
        function = f"{module}.{_checked(i.name)}"
        if i.name in SOLVERS:  # whose error is NumPy's
            return f"lapack({i.name.partition('.')[2]!r}, {function}, {rest})"
        return f"{function}({rest})"

    def _matmul(self, i: Instruction, args: list[str]) -> str | None:
        inputs = i.inputs()
        for y in i.outputs:
            if any([x.dtype != y.dtype for x in inputs]):  # of halves, not rounded yet
                return f"product({', '.join([f'{x}.astype({y.dtype.name!r})' for x in args])})"
        is_small = self.target is CPU and _are_small((*inputs, *i.outputs))
        if is_small and [x.ndim for x in inputs] == [2, 2]:
            return f"{args[0]}.dot({args[1]})"  # the same product, called faster
        if is_small or "out" in i.kwargs:
            return None
        options = [f"{name}={self.argument(x)}" for name, x in i.kwargs.items()]
        return f"product({', '.join([*args, *options])})"  # BLAS on the pool of threads, or cuBLAS

    def _reshape(self, i: Instruction, args: list[str]) -> str | None:
        """A microsecond less than NumPy's function."""
        is_plain = isinstance(i.args[0], Value) and len(args) == 2 and not i.kwargs
        return f"{args[0]}.reshape({args[1]})" if is_plain else None

    def _sum(self, i: Instruction, args: list[str]) -> str | None:
        has_options = any([x is not None and x is not False for x in i.kwargs.values()])  # 0 is an axis
        return f"{args[0]}.sum()" if len(i.inputs()) == len(args) == 1 and not has_options else None

    def _arranged(self, i: Instruction, args: list[str]) -> str:
        return f"arranged({args[0]}, {i.outputs[0].strides})"

    def _kernel(self, i: Instruction) -> list[str]:
        name, *args = i.args
        self._named(name, functools.partial(run_kernel, name, self.target.kernels))
        return self._results(i, f"{name}({', '.join(map(self.argument, args))})")

    def _vjp(self, i: Instruction) -> list[str]:
        args = [*map(self.argument, i.args), *[f"{k}={self.argument(x)}" for k, x in i.kwargs.items()]]
        return self._results(i, f"{self._named('vjp', run_vjp)}({', '.join(args)})")

    def _results(self, i: Instruction, call: str) -> list[str]:
        """Returns the call of a kernel, which decides how its results lie in memory."""
        arrays = [y for y in i.outputs if y.ndim]
        ordered = [f"{name_of(y)} = arranged({name_of(y)}, {y.strides})" for y in arrays]
        return [f"{''.join([f'{name_of(y)}, ' for y in i.outputs])}= {call}", *ordered]

    def _launch(self, i: Instruction) -> list[str]:
        function, args = i.args[0].target, i.args[1:]
        name = f"{function.__module__.rpartition('.')[2]}_{function.__name__.lstrip('_')}"
        return [f"{self._named(name, function)}({', '.join(map(self._constant, args))})"]

    def _constant(self, x: object) -> str:
        """Returns the source of an argument of a launch; NumPy's numbers, and tuples of numbers, are made
        once."""
        if isinstance(x, np.generic):
            return self._named(f"{type(x).__name__}_{x}".replace(".", "_").replace("-", "m"), x)
        if type(x) is tuple and not any([isinstance(item, (Value, Pointer)) for item in x]):
            return self._named(f"k{len(self.namespace)}", x)
        return self.argument(x)

    def _check(self, i: Instruction) -> list[str]:
        if self.target is META:
            return []
        self._named("check", gpu_errors.check_range if self.target.kind is GPU else require_range)
        low, high, text, ignored = [repr(i.kwargs[name]) for name in ("low", "high", "text", "ignored")]
        error = ERRORS[i.kwargs["error"]].__name__
        return [f"check({name_of(i.args[0])}, {low}, {high}, {text}, {error}, {ignored})"]

    def _host(self, i: Instruction) -> list[str]:
        name = self._named(i.name.replace(".", "_"), HOST[i.name.removeprefix("host.")])
        return [_assigned(i, f"{name}({', '.join(map(self.argument, i.args))})")]

    def _loop(self, i: Instruction) -> list[str]:
        loop, rows, n = i.kwargs["loop"], i.kwargs["rows"], i.kwargs["n"]
        sizes, places = {FULL: rows * n, ROW: rows, COLUMN: n, SCALAR: 1}, dict(loop.places)
        args = [self._flat(x, sizes[kind]) for x, kind in zip(i.args, loop.inputs, strict=True)]
        lines, stored = [], []
        module = "np" if self.target is CPU else "cupy"
        for k, y in zip(loop.outputs, i.outputs, strict=True):
            array, flattened = f"{module}.empty({y.shape!r}, {y.dtype.name!r})", f"{name_of(y)}.reshape(-1)"
            if k in places:  # in the memory of an input
                x = i.args[places[k]]
                array = name_of(x) if x in self.contiguous else f"writeable({name_of(x)})"
                args[places[k]] = flattened
            if k not in places or self.target is not CPU:  # Triton's kernels get all outputs
                stored.append(flattened)
            lines.append(f"{name_of(y)} = {array}")
        return [*lines, f"{self.loops[i]}({', '.join([*args, *stored])}, {rows}, {n})"]

    def _flat(self, x: Value, size: int) -> str:
        if x not in self.contiguous or x.size != size:
            return f"flat({name_of(x)}, {size})"
        return name_of(x) if x.ndim == 1 else f"{name_of(x)}.reshape(-1)"


_STATEMENTS: dict[str, Callable] = {
    "loop": PythonPrinter._loop, "kernel": PythonPrinter._kernel, "kernel.vjp": PythonPrinter._vjp,
    "check": PythonPrinter._check, "launch": PythonPrinter._launch,
}
_TEMPLATES = {
    ".getitem": "{}[{}]", ".setitem": "{}[{}] = {}", "in_order": "in_order({})", ".T": "{}.T", ".mT": "{}.mT",
    ".real": "{}.real", ".imag": "{}.imag",
}
_CALLS: dict[str, Callable] = {  # shorter than NumPy's call; None where they don't fit
    "matmul": PythonPrinter._matmul, "reshape": PythonPrinter._reshape, "sum": PythonPrinter._sum,
    "arranged": PythonPrinter._arranged,
}


def _assigned(i: Instruction, call: str) -> str:
    return f"{', '.join(map(name_of, i.outputs))} = {call}" if i.outputs else call


def _are_small(arrays: Iterable[Value]) -> bool:
    """Whether an instruction of these arrays isn't worth more than one thread."""
    return all([x.dtype == np.float32 and x.size < SMALL for x in arrays])


def _checked(name: str) -> str:
    """Returns the name of a function, or of an array's method.

    Raises:
        ValueError: NumPy has none of this name.
    """
    owner, *parts = (np.ndarray, name[1:]) if name.startswith(".") else (np, *name.split("."))
    found = functools.reduce(lambda x, part: getattr(x, part, None), parts, owner)
    if not callable(found) or not re.fullmatch(r"\.?[a-z_0-9]+(\.[a-z_0-9]+)*", name):
        raise ValueError(f"NumPy has no function {name!r}")
    return name
