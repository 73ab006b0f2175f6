"""Checks instructions that come from a file: each is run on meta arrays, which have no elements.

So the rules of shapes, dtypes and views are those of capturing, and nothing is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.functions import writes
from ...backends.meta.array import MetaArray, new_of, view
from ...backends.meta.creation import CREATION
from ...backends.meta.layout import layout
from ...core.tensor import Tensor, from_raw
from ...nn.functional.composite import REGISTRY, Composite
from ...ops.bounds import ERRORS
from ...utils.nested import leaves, mapped
from ..program.instruction import Instruction, Value
from ..program.kernels import KERNELS, KERNELS_IN_HALF, MetaDraw
from ..program.rules import OF_ARRAYS, rule_of
from ..running.host_functions import HOST
from .checking_host import HostChecker
from .checking_loops import check_loop

_HOST = HOST.keys() - {"number", "outcome"}  # numbers are inputs of compiled functions only
_TYPES = {
    "float": (int, float, np.number), "int": (int, np.integer), "bool": bool, "str": str, "None": (),
}
_MOST_DIMS = 12  # samples have two elements along each
_MOST_BYTES = 1 << 62


def is_known(name: str) -> bool:
    """Whether a program in a file may have instructions of this name."""
    is_host = name.startswith("host.") and name.removeprefix("host.") in _HOST
    return is_host or name in ("loop", "kernel", "kernel.vjp", "check") or rule_of(name) is not None


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
            check_loop(i, [*map(self._array, i.args)])
        elif i.name in ("kernel", "kernel.vjp", "check"):
            check = {"kernel": self._kernel, "kernel.vjp": self._vjp, "check": self._check}[i.name]
            check(*i.args, **i.kwargs, outputs=i.outputs)
        elif i.is_host:
            self._call_host(i)
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
        _require_new(i.outputs)

    def _call(self, i: Instruction) -> None:
        _check_call(i)
        args, kwargs = mapped(self._array, i.args), mapped(self._array, i.kwargs)
        if i.name in OF_ARRAYS and not (args and isinstance(args[0], MetaArray)):
            raise ValueError("its first argument isn't an array")
        dims = sum([self._arrays[x].ndim for x in i.inputs()])
        if i.name == "einsum" and dims > 2 * _MOST_DIMS:
            raise ValueError(f"its arguments have {dims} dims, the limit is {2 * _MOST_DIMS}")
        results, given = leaves(rule_of(i.name)(*args, **kwargs)), [self._arrays[x] for x in i.inputs()]
        made = [x for x in results if isinstance(x, MetaArray) and not any([x is y for y in given])]
        _compare(i.outputs, made)
        self._compare_views(i, made)

    def _compare_views(self, i: Instruction, made: Sequence[MetaArray]) -> None:
        for value, x in zip(i.outputs, made, strict=True):
            of = next((v.storage for v in i.inputs() if self._arrays[v].storage is x.storage), None)
            if value.of is not of:
                raise ValueError(f"{value} is a view of {of}, the file says of {value.of}")

    def _kernel(self, name: str, *args: object, outputs: Sequence[Value]) -> None:
        if name not in (*KERNELS, *KERNELS_IN_HALF):
            raise ValueError(f"no kernel is named {name!r}")
        *results, saved = outputs
        composite, args = REGISTRY[name], mapped(self._array, args)
        _check_arguments(composite, args)
        found, _ = composite.manual_variant.forward(*args)
        _compare(results, found if composite.outputs else [found])
        if saved.dtype.kind != "O":
            raise ValueError("a kernel returns last what it saves for its vjp")
        _require_new(outputs)
        self._kernels[saved] = args, results

    def _vjp(
        self, saved: Value, g: Any, *, wanted: dict, dtypes: tuple = (), outputs: Sequence[Value]
    ) -> None:
        args, results = self._kernels[saved]
        pairs = zip(results, g if isinstance(g, list) else [g], strict=True)
        given = [(y, self._array(x)) for y, x in pairs if x is not None]
        _compare([y for y, _ in given], [x for _, x in given], strides=False)
        if not given:
            raise ValueError("no gradient of its results is given")
        of = [args[k] for k in wanted]
        _compare(outputs, of, strides=False)
        _require_new(outputs)
        _check_gradients(of, outputs, wanted, dtypes)

    def _check(
        self, x: Value, *, low: int, high: int, ignored: int | None, error: str, text: str,
        outputs: Sequence[Value],
    ) -> None:
        numbers = [low, high, *([] if ignored is None else [ignored])]
        if outputs or self._arrays[x].dtype.kind not in "biu" or not all([type(n) is int for n in numbers]):
            raise ValueError(f"{x} isn't of integers, which it could compare with {numbers}")
        if error not in ERRORS or type(text) is not str:
            raise ValueError(f"it raises {error!r}, with the text {text!r}")


def _check_call(i: Instruction) -> None:
    """Raises ValueError unless there is such a function, and its arguments may be those of a call."""
    if rule_of(i.name) is None:
        raise ValueError(f"no instruction is named {i.name!r}")
    if not all([name.isidentifier() for name in i.kwargs]):
        raise ValueError(f"no arguments have the names {list(i.kwargs)}")
    if not i.inputs() and i.name not in CREATION:
        raise ValueError("none of its arguments is an array")
    if isinstance(i.kwargs.get("dtype"), str):
        raise ValueError(f"its dtype is {i.kwargs['dtype']!r}")


def _check_gradients(of: list[MetaArray], outputs: Sequence[Value], wanted: dict, dtypes: tuple) -> None:
    """Raises ValueError unless outputs of these shapes and dtypes can be gradients of arrays."""
    if any([extent_of(y) != max(y.size, 1) * y.dtype.itemsize for y in outputs]):
        raise ValueError(f"the gradients {outputs} don't lie in memory without gaps")
    if [x.shape for x in of] != [*wanted.values()]:
        raise ValueError(f"the gradients of its arguments don't have the shapes {wanted}")
    if [x.dtype for x in of] != [*(dtypes or [np.dtype(np.float32)] * len(of))]:
        raise ValueError(f"the gradients of its arguments don't have the dtypes {dtypes}")


def _check_arguments(composite: Composite, args: Sequence[Any]) -> None:
    """Raises an error unless the composite takes these arguments."""
    for (name, p), x in zip(composite.signature.parameters.items(), args, strict=False):
        _check_argument(name, p.annotation, _probability(x))
    if composite.checker is not None:
        tensors = mapped(lambda x: from_raw(x) if isinstance(x, MetaArray) else x, args)
        bound = composite.signature.bind(*map(_probability, tensors))
        bound.apply_defaults()
        composite.checker(*bound.args)


def _check_argument(name: str, annotation: str, x: object) -> None:
    """Raises ValueError if an argument of a kernel is to be a number or a string, and isn't."""
    kinds = annotation.split(" | ")
    types = tuple([_TYPES[kind] for kind in kinds if kind in _TYPES])
    if x is not None and len(types) == len(kinds) and not isinstance(x, (*types, MetaDraw)):
        raise ValueError(f"{name} is {x!r}, which is no {annotation}")


def _probability(x: object) -> Any:
    """Returns p of what the checker of attention makes of it, (draw, p)."""
    return x[1] if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], MetaDraw) else x


def _require_new(outputs: Sequence[Value]) -> None:
    if views := [value for value in outputs if value.of is not None]:
        raise ValueError(f"it returns new arrays, the file says that {views[0]} is a view")


def _compare(outputs: Sequence[Value], found: Sequence[Any], strides: bool = True) -> None:
    """Raises ValueError if the outputs in the file aren't what an instruction gives."""
    want, have = [(x.shape, x.dtype) for x in found], [(value.shape, value.dtype) for value in outputs]
    if want != have:
        text = [", ".join(f"{dtype}{list(shape)}" for shape, dtype in pairs) for pairs in (want, have)]
        raise ValueError(f"it gives {text[0] or 'nothing'}, the file says {text[1] or 'nothing'}")
    for x, y in zip(found, outputs, strict=True) if strides else ():
        if not _has_strides(y, x.strides):
            raise ValueError(f"it gives {y.described()} of strides {x.strides}, the file says {y.strides}")


def _has_strides(y: Value, strides: tuple[int, ...]) -> bool:
    """Whether a value has these strides, where they matter."""
    dims = zip(y.shape, y.strides, strides, strict=True)
    return not y.size or all([n < 2 or ours == theirs for n, ours, theirs in dims])
