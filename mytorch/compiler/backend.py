"""Backends of `compile`: what makes a function of a program that was captured."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain
from typing import Any

import numpy as np

from ..backends.device import RawArray, is_raw
from ..core.array import Array
from ..core.op import as_raw
from ..core.tensor import Tensor, from_raw, raw_of
from .program.program import Program, fits

Backend = str | Callable[[Program, list], Callable]
_TAGS = {"aot_eager": ("debug",), "eager": ("debug",), "inductor": ()}  # PyTorch's


def list_backends(exclude_tags: Collection[str] | None = ("debug", "experimental")) -> list[str]:
    """Returns the names of the backends of `compile`; by default without "eager" and "aot_eager", which are
    for debugging.

    >>> mytorch.compiler.list_backends(), mytorch.compiler.list_backends(None)
    (['inductor'], ['aot_eager', 'eager', 'inductor'])
    """
    return [name for name, tags in _TAGS.items() if not {*tags} & {*(exclude_tags or ())}]


def check_backend(backend: Backend) -> None:
    """Raises RuntimeError if it is neither a function nor one of `list_backends`."""
    if not callable(backend) and backend not in [*_TAGS]:
        known = ", ".join(_TAGS)
        raise RuntimeError(f"Invalid backend: {backend!r}, should be one of {known}, or a function")


class BackendFunction:
    """A program as the function that a backend makes of it, when it runs for the first time.

    Args:
        backend: gets the program, and the tensors and numbers of the first call, and returns a function of
            such. That returns what the program does, nested as its outputs: tensors, or arrays, of the same
            shapes, dtypes and memory order.
    """

    def __init__(self, program: Program, backend: Callable[[Program, list], Callable]):
        self._program, self._backend = program, backend
        self._name = f"the backend {getattr(backend, '__name__', type(backend).__name__)}"
        self._function: Callable | None = None

    def __call__(self, *raws: RawArray) -> Any:
        given = [from_raw(x) if is_raw(x) else x for x in raws]
        if self._function is None:
            made = self._backend(self._program, given)
            if not callable(made):
                raise TypeError(f"compile(): {self._name} returned no function, but {type(made).__name__}")
            self._function = made
        return self._checked(self._function(*given))

    def _checked(self, results: Any) -> list[list]:
        """Returns raw arrays; raises RuntimeError if what follows, as the backward pass, can't take them."""
        outputs, name = self._program.outputs, self._program.name
        if _lengths(results) != _lengths(outputs):
            raise RuntimeError(f"{self._name} should return what {name} returns, tuples nested as {outputs}")
        found = [[*map(_as_raw, part)] for part in results]
        for x, value in zip(chain(*found), chain(*outputs), strict=True):
            if value.dtype.kind != "O" and not (is_raw(x) and fits(x, value, self._program.device)):
                wanted = f"{value.described()} of strides {value.strides}"
                got = f"{x.dtype}{list(x.shape)} of strides {x.strides}" if is_raw(x) else type(x).__name__
                raise RuntimeError(f"{self._name} returned {got}, {name} returns {wanted}")
        return found


def _lengths(x: object) -> list[int]:
    """Returns the lengths of nested tuples."""
    parts = x if isinstance(x, (tuple, list)) else ()
    return [len(part) if isinstance(part, (tuple, list)) else -1 for part in parts]


def _as_raw(x: object) -> Any:
    return as_raw(raw_of(x)) if isinstance(x, (Tensor, Array, np.generic)) else x
