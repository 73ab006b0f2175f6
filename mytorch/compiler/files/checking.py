"""Checks instructions that come from a file: each is run on meta arrays, which have no elements.

So the rules of shapes, dtypes and views are those of capturing, and nothing is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...backends.functions import writes
from ...backends.meta.array import MetaArray, new_of, view
from ...backends.meta.creation import CREATION
from ...backends.meta.functions import FUNCTIONS, SHAPES, VIEWS, call_function
from ...backends.meta.layout import layout
from ...backends.meta.ufuncs import call_ufunc
from ...core.tensor import Tensor, from_raw
from ...nn.functional.composite import REGISTRY
from ...ops.bounds import ERRORS
from ...utils.nested import leaves, mapped
from ...utils.reading import is_count
from ..codegen.loop import COLUMN, EXPRESSIONS, FULL, REDUCTIONS, ROW, SCALAR, Loop, Step
from ..program.instruction import Instruction, Value
from ..program.kernels import KERNELS, KERNELS_IN_HALF, MetaDraw
from ..running.host_functions import HOST
from ..tracing.tracing_array import METHODS, PROPERTIES, name_of
from .checking_host import HostChecker

# Those that make lists of any length, or repeat something any number of times, are left out.
_UNKNOWN = {"split", "array_split", "hsplit", "vsplit", "dsplit", "diff", "frombuffer", "broadcast_arrays"}
_FUNCTIONS = {name_of(f): f for f in (*SHAPES, *FUNCTIONS, *VIEWS) if name_of(f) not in _UNKNOWN}
_OF_ARRAYS = {f".{name.strip('_')}": getattr(MetaArray, name) for name in METHODS}
_OF_ARRAYS |= {f".{name}": getattr(MetaArray, name).fget for name in PROPERTIES}
_UFUNC_METHODS = ("__call__", "reduce", "accumulate", "outer", "at")
_HOST = HOST.keys() - {"number", "outcome"}  # numbers are inputs of compiled functions only
_TYPES = {
    "float": (int, float, np.number), "int": (int, np.integer), "bool": bool, "str": str, "None": (),
}  # fmt: skip
_MOST_DIMS = 12  # samples have two elements along each
_MOST_BYTES = 1 << 62


def is_known(name: str) -> bool:
    """Whether a program in a file may have instructions of this name."""
    is_host = name.startswith("host.") and name.removeprefix("host.") in _HOST
    return is_host or name in ("loop", "kernel", "kernel.vjp", "check") or rule_of(name) is not None


def rule_of(name: str) -> Callable | None:
    """Returns what a call does with meta arrays; None for a function that no instruction calls."""
    if name in _OF_ARRAYS:
        return _OF_ARRAYS[name]
    if name in _FUNCTIONS:
        return partial(call_function, _FUNCTIONS[name])
    head, _, method = name.partition(".")
    ufunc, method = getattr(np, head, None), method or "__call__"
    if not isinstance(ufunc, np.ufunc) or method not in _UFUNC_METHODS:
        return None
    return partial(call_ufunc, ufunc, method)


def extent_of(value: Value) -> int:
    """Returns the number of bytes from its first element to the end of its last."""
    steps = [max(n - 1, 0) * abs(step) for n, step in zip(value.shape, value.strides, strict=True)]
    return sum(steps) + value.dtype.itemsize


class Checker:
    """Runs the instructions of a program on meta arrays, one after another.

    Args:
        state: the values of the tensors that instructions refer to.

    Its methods raise ValueError, or whatever NumPy and the rules of meta arrays raise, for what can't be.
    """

    def __init__(self, state: dict[Tensor, Value]) -> None:
        self._arrays: dict[Value, MetaArray | MetaDraw] = {}
        self._host = HostChecker(state, self._array)
        self._kernels: dict[Value, tuple[tuple, list[Value]]] = {}  # arguments and results, by what is saved

    def define(self, value: Value) -> None:
        """Makes the array that stands for a value."""
        if len(value.shape) > _MOST_DIMS or len(value.strides) != len(value.shape):
            raise ValueError(f"{value}: shape {value.shape} and strides {value.strides}")
        whole = math.prod(n or 1 for n in value.shape) * value.dtype.itemsize
        if max(whole, extent_of(value)) > _MOST_BYTES:
            raise ValueError(f"{value} of shape {value.shape} is too large")
        shape = layout(value.shape, value.strides, value.dtype)
        base = self._arrays.get(value.of) if value.of is not None else None
        self._arrays[value] = new_of(shape) if base is None else view(base, shape)

    def run(self, i: Instruction) -> None:
        """Checks an instruction, and defines its outputs."""
        if i.name == "loop":
            self._loop(i)
        elif i.name == "kernel":
            self._kernel(*i.args, outputs=i.outputs)
        elif i.name == "kernel.vjp":
            self._vjp(*i.args, **i.kwargs, outputs=i.outputs)
        elif i.is_host:
            self._call_host(i)
        elif i.name == "check":
            self._check(*i.args, **i.kwargs, outputs=i.outputs)
        else:
            self._call(i)
        for value in i.outputs:
            if value.dtype.kind != "O":
                self.define(value)

    def _array(self, x: object) -> Any:
        return self._arrays[x] if isinstance(x, Value) else x

    def written_by(self, name: str, args: tuple, kwargs: dict[str, object]) -> tuple[Value, ...]:
        """Returns the storages in which a call changes elements."""
        if name.startswith("host."):
            return self._host.written_by(name, args)
        outs = [x.storage for x in leaves(kwargs.get("out")) if isinstance(x, Value)]
        given = [x.storage for x in leaves((args, kwargs)) if isinstance(x, Value)]
        return (*outs, *(given[:1] if writes(name) else []))

    def _call_host(self, i: Instruction) -> None:
        if i.kwargs or i.name.removeprefix("host.") not in _HOST:
            raise ValueError(f"no instruction is named {i.name!r}, with the arguments {[*i.kwargs]}")
        made = self._host.run(i.name, i.args, i.outputs)
        if [isinstance(x, MetaDraw) for x in made] != [y.dtype.kind == "O" for y in i.outputs]:
            raise ValueError(f"it gives {len(made)} results, the file says {len(i.outputs)}")
        if made and isinstance(made[0], MetaDraw):
            self._arrays[i.outputs[0]] = made[0]
        else:
            _compare(i.outputs, made)
        if any([value.of is not None for value in i.outputs]):
            raise ValueError("it returns new arrays")

    def _call(self, i: Instruction) -> None:
        rule = rule_of(i.name)
        if rule is None:
            raise ValueError(f"no instruction is named {i.name!r}")
        if not all([name.isidentifier() for name in i.kwargs]):
            raise ValueError(f"no arguments have the names {list(i.kwargs)}")
        if not i.inputs() and i.name not in CREATION:
            raise ValueError("none of its arguments is an array")
        if isinstance(i.kwargs.get("dtype"), str):
            raise ValueError(f"its dtype is {i.kwargs['dtype']!r}")
        args, kwargs = mapped(self._array, i.args), mapped(self._array, i.kwargs)
        if i.name in _OF_ARRAYS and not (args and isinstance(args[0], MetaArray)):
            raise ValueError("its first argument isn't an array")
        dims = sum([x.ndim for x in leaves((args, kwargs)) if isinstance(x, MetaArray)])
        if i.name == "einsum" and dims > 2 * _MOST_DIMS:
            raise ValueError(f"its arguments have {dims} dims, the limit is {2 * _MOST_DIMS}")
        known = {id(x) for x in leaves((args, kwargs))}
        made = [x for x in leaves(rule(*args, **kwargs)) if isinstance(x, MetaArray) and id(x) not in known]
        _compare(i.outputs, made)
        for value, x in zip(i.outputs, made, strict=True):
            of = next((v.storage for v in i.inputs() if self._arrays[v].storage is x.storage), None)
            if value.of is not of:
                raise ValueError(f"{value} is a view of {of}, the file says of {value.of}")

    def _kernel(self, name: str, *args: object, outputs: Sequence[Value]) -> None:
        if name not in (*KERNELS, *KERNELS_IN_HALF):
            raise ValueError(f"no kernel is named {name!r}")
        *results, saved = outputs
        composite, args = REGISTRY[name], mapped(self._array, args)
        for (name, p), x in zip(composite.signature.parameters.items(), args, strict=False):
            _check_argument(name, p.annotation, _probability(x))
        if composite.checker is not None:
            tensors = mapped(lambda x: from_raw(x) if isinstance(x, MetaArray) else x, args)
            bound = composite.signature.bind(*map(_probability, tensors))
            bound.apply_defaults()
            composite.checker(*bound.args)
        found, _ = composite.manual_variant.forward(*args)
        _compare(results, found if composite.outputs else [found])
        if saved.dtype.kind != "O" or any([value.of is not None for value in outputs]):
            raise ValueError("a kernel returns new arrays, and last what it saves for its vjp")
        self._kernels[saved] = args, results

    def _vjp(
        self, saved: Value, g: Any, *, wanted: dict, dtypes: tuple = (), outputs: Sequence[Value]
    ) -> None:
        args, results = self._kernels[saved]
        grads = [(None if x is None else self._array(x)) for x in (g if isinstance(g, list) else [g])]
        pairs = [(y, x) for y, x in zip(results, grads, strict=True) if x is not None]
        _compare([y for y, _ in pairs], [x for _, x in pairs], strides=False)
        if not pairs:
            raise ValueError("no gradient of its results is given")
        of = [args[k] for k in wanted]
        _compare(outputs, of, strides=False)
        if any([extent_of(y) != max(y.size, 1) * y.dtype.itemsize for y in outputs]):
            raise ValueError(f"the gradients {outputs} don't lie in memory without gaps")
        if [x.shape for x in of] != [*wanted.values()] or any([value.of is not None for value in outputs]):
            raise ValueError(f"the gradients of its arguments don't have the shapes {wanted}")
        if (dtypes or tuple([np.dtype(np.float32)] * len(of))) != tuple([x.dtype for x in of]):
            raise ValueError(f"the gradients of its arguments don't have the dtypes {dtypes}")

    def _check(
        self, x: Value, *, low: int, high: int, ignored: int | None, error: str, text: str,
        outputs: Sequence[Value],
    ) -> None:  # fmt: skip
        numbers = [low, high, *([] if ignored is None else [ignored])]
        if outputs or self._arrays[x].dtype.kind not in "biu" or not all([type(n) is int for n in numbers]):
            raise ValueError(f"{x} isn't of integers, which it could compare with {numbers}")
        if error not in ERRORS or type(text) is not str:
            raise ValueError(f"it raises {error!r}, with the text {text!r}")

    def _loop(self, i: Instruction) -> None:
        rows, n, loop = i.kwargs["rows"], i.kwargs["n"], i.kwargs["loop"]
        if len(i.kwargs) != 3 or not isinstance(loop, Loop) or not i.args:
            raise ValueError(f"a loop has inputs, rows, n and the loop, got {list(i.kwargs)}")
        if not (is_count(rows, 1) and is_count(n, 1)):
            raise ValueError(f"a loop is over {rows!r} rows of {n!r}")
        _check_inputs(loop, i.args)
        shapes = {FULL: (rows, n), ROW: (rows, 1), COLUMN: (n,), SCALAR: ()}
        kinds = {f"x{k}": kind for k, kind in enumerate(loop.inputs)}
        kinds |= {f"v{k}": step.kind for k, step in enumerate(loop.steps)}
        values: dict[str, MetaArray] = {}
        for k, (value, kind) in enumerate(zip(i.args, loop.inputs, strict=True)):
            values[f"x{k}"] = self._arrays[value].reshape(shapes[kind])
        for k, step in enumerate(loop.steps):
            y = values[f"v{k}"] = _result_of(step, values, kinds, shapes[FULL])
            if str(y.dtype) != step.dtype:
                raise ValueError(f"step {k}, {step.name}, doesn't give {step.dtype} for each {step.kind}")
        columns = {k for k, step in enumerate(loop.steps) if step.kind == COLUMN}
        if list(loop.outputs) != sorted({*loop.outputs} | columns):
            raise ValueError(f"the outputs of a loop are in order, with all columns, got {loop.outputs}")
        for k, value in zip(loop.outputs, i.outputs, strict=True):
            if not value.is_c_order:
                raise ValueError(f"{value.described()} has strides {value.strides}, not those of C order")
            y = values[f"v{k}"]
            size = math.prod(shapes[loop.steps[k].kind])
            if value.of is not None or (value.size, value.dtype) != (size, y.dtype):
                raise ValueError(f"{value.described()} isn't what step {k} gives, {size} of {y.dtype}")


def _check_inputs(loop: Loop, given: Sequence[Value]) -> None:
    """Raises ValueError unless loops are compiled for these dtypes: float32, bool, int64 of indices."""
    indices = {step.args[1] for step in loop.steps if step.name == "take"}
    others = {a for step in loop.steps for a in (step.args[:1] if step.name == "take" else step.args)}
    for k, x in enumerate(given):
        allowed = ("int64",) if f"x{k}" in indices - others else ("float32", "bool")
        if x.dtype not in allowed:
            raise ValueError(f"a loop takes no {x.described()} as x{k}, only {' and '.join(allowed)}")


def _result_of(
    step: Step, values: dict[str, MetaArray], kinds: dict[str, str], shape: tuple[int, int]
) -> MetaArray:
    """Returns the meta array that a step gives: of shape (rows, n), (rows, 1) or (n,).

    Args:
        shape: (rows, n)
    """
    args = [values[a] if isinstance(a, str) else np.float32(a) for a in step.args]
    given = [kinds[a] for a in step.args if isinstance(a, str)]
    if step.name in REDUCTIONS:
        fits = len(given) == 1 and (step.kind == ROW or (step.kind == COLUMN and step.name == "sum"))
        args = [_broadcast(x, shape) for x in args] if fits else args
        options = {"axis": int(step.kind == ROW), "keepdims": step.kind == ROW}
    elif step.name == "take":
        fits = given == [FULL, ROW] and step.args[1][0] == "x" and args[1].dtype.kind == "i"
        return rule_of("take_along_axis")(*args, axis=1) if fits and step.kind == ROW else _refuse(step)
    elif step.name in EXPRESSIONS:
        count, options = {"where": 3, ".copy": 1}.get(step.name) or getattr(np, step.name).nin, {}
        fits = step.kind == FULL or (step.kind == ROW and {*given} <= {ROW, SCALAR})
        fits = fits and len(args) == count
    else:
        raise ValueError(f"no step of a loop is named {step.name!r}")
    sums = [a for a in step.args if isinstance(a, str) and a[0] == "v" and kinds[a] == COLUMN]
    if not fits or sums:
        _refuse(step)
    y = rule_of(step.name)(*args, **options)
    return _broadcast(y, shape) if step.kind == FULL else y


def _check_argument(name: str, annotation: str, x: object) -> None:
    """Raises ValueError if an argument of a kernel is to be a number or a string, and isn't."""
    kinds = annotation.split(" | ")
    types = tuple([_TYPES[kind] for kind in kinds if kind in _TYPES])
    if x is not None and len(types) == len(kinds) and not isinstance(x, (*types, MetaDraw)):
        raise ValueError(f"{name} is {x!r}, which is no {annotation}")


def _probability(x: object) -> Any:
    """Returns p of what the checker of attention makes of it, (draw, p)."""
    return x[1] if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], MetaDraw) else x


_broadcast = rule_of("broadcast_to")


def _refuse(step: Step) -> NoReturn:
    raise ValueError(f"{step.name} of {step.args} isn't for each {step.kind}")


def _compare(outputs: Sequence[Value], found: Sequence[Any], strides: bool = True) -> None:
    """Raises ValueError if the outputs in the file aren't what an instruction gives."""
    want, have = [(x.shape, x.dtype) for x in found], [(value.shape, value.dtype) for value in outputs]
    if want != have:
        text = [", ".join(f"{dtype}{list(shape)}" for shape, dtype in pairs) for pairs in (want, have)]
        raise ValueError(f"it gives {text[0] or 'nothing'}, the file says {text[1] or 'nothing'}")
    for x, y in zip(found, outputs, strict=True) if strides else ():
        steps = zip(x.shape, x.strides, y.strides, strict=True)
        if y.size and any([n > 1 and ours != theirs for n, ours, theirs in steps]):
            raise ValueError(f"it gives {y.described()} of strides {x.strides}, the file says {y.strides}")
