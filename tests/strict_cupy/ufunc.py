"""CuPy's ufuncs: fewer arguments than NumPy's, no `where=`, and only the dtypes that names.txt lists."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import array as arrays
from . import graph, indexing
from .array import ndarray, operand, wrap

# What mytorch does in bfloat16 itself: adding gradients up, and looking for inf and NaN. CuPy 14 can do more.
_IN_BFLOAT16 = {"add", "isfinite", "isnan"}
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}


class ufunc:
    """`cupy.exp` and the like.

    Args:
        name: as in `cupy.<name>`.
        loops: the dtypes, in the order in which CuPy tries them: ["ff->f", "dd->d"].
        compute: what does the work on NumPy arrays.
    """

    def __init__(self, name: str, loops: list[str], compute: Callable):
        self.name = self.__name__ = f"cupy_{name}"
        self.types = loops
        self.nin, self.nout = (len(side) for side in loops[0].split("->"))
        self.nargs = self.nin + self.nout
        self._short_name = name
        self._compute = compute
        self._loop_for = functools.cache(self._first_loop_for)
        self._loops = [tuple(tuple(map(np.dtype, side)) for side in loop.split("->")) for loop in loops]

    def __repr__(self):
        return f"<ufunc {self.name!r}>"

    @graph.taped
    def __call__(self, *args, out=None, dtype=None, casting="same_kind", **unknown):
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}: {self.name} takes out, dtype and casting")
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(f"{self.name} takes {self.nin} to {self.nargs} arguments, got {len(args)}")
        outs = self._outs(args[self.nin :], out)
        inputs = [operand(x) for x in args[: self.nin]]
        takes, gives = self._loop(inputs, dtype)
        with np.errstate(all="ignore"):  # CuPy never warns
            results = self._compute(*(np.asarray(x, t) for x, t in zip(inputs, takes, strict=True)))
        results = results if self.nout > 1 else (results,)
        results = tuple(map(_deliver, results, gives, outs, [casting] * self.nout))
        return results if self.nout > 1 else results[0]

    def _outs(self, positional: tuple, out: Any) -> tuple:
        if out is None:
            return positional + (None,) * (self.nout - len(positional))
        if positional:
            raise ValueError("'out' was given both by position and by keyword")
        outs = out if isinstance(out, tuple) else (out,)
        if len(outs) != self.nout:
            raise ValueError(f"{self.name} has {self.nout} results, got {len(outs)} arrays in 'out'")
        return outs

    def _loop(self, inputs: list, dtype: Any) -> tuple:
        kinds = ((np.asarray(x).dtype, type(x) if type(x) in (int, float, complex) else None) for x in inputs)
        return self._loop_for(tuple(kinds), dtype)

    def _first_loop_for(self, kinds: tuple, dtype: Any) -> tuple:
        """Dtypes of inputs and results: the first loop that gives `dtype`, or that all inputs fit in.

        Args:
            kinds: for each input (dtype, type of a Python number or None).
        """
        chars = {given.char for given, _ in kinds}
        if "E" in chars and dtype is None and not chars & set("fdFD"):
            if chars != {"E"} or self._short_name not in _IN_BFLOAT16:
                raise TypeError(f"{self.name}: bfloat16 is to be computed in float32, got {sorted(chars)}")
            like = next(loop for loop in self._loops if loop[0][0] == np.float16)
            bfloat16 = kinds[0][0]
            return tuple([tuple(bfloat16 if t == np.float16 else t for t in side) for side in like])
        wishes = self._wishes(kinds)
        for takes, gives in self._loops:
            if dtype is not None:
                if all(given == dtype for given in gives):
                    return takes, gives
            elif all(map(_fits, wishes, takes)):
                return takes, gives
        given = dtype or [each.name for each, _ in kinds]
        raise TypeError(f"Wrong type ({given}) of arguments for {self.name}")

    def _wishes(self, kinds: tuple) -> list:
        """The dtype of every input; of a Python number only its type, if an array's kind is not below it."""
        dtypes = [dtype for dtype, _ in kinds]
        ranks = [_RANK.get(dtype.kind, 3) for dtype in dtypes]
        of_arrays = [rank for rank, (_, weak) in zip(ranks, kinds, strict=True) if not weak]
        if max(of_arrays, default=-1) < max(ranks):
            return dtypes
        if self._compute in arrays.COMPARISONS and max(ranks) == 1:
            return dtypes  # a Python int may lie outside the array's dtype
        return [weak or dtype for dtype, weak in kinds]

    @graph.taped
    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        indexing.scatter(a, indices, b, self._short_name)

    def outer(self, A: ndarray, B: ndarray, **kwargs) -> ndarray:
        return self(A.reshape(A.shape + (1,) * B.ndim), B, **kwargs)

    def reduce(self, array: ndarray, axis=0, dtype=None, out=None, keepdims=False) -> ndarray:
        return self._fold(array, "reduce", add="sum", multiply="prod")(axis, dtype, out, keepdims)

    def accumulate(self, array: ndarray, axis=0, dtype=None, out=None) -> ndarray:
        return self._fold(array, "accumulate", add="cumsum", multiply="cumprod")(axis, dtype, out)

    def reduceat(self, array: ndarray, indices: Any, axis=0, dtype=None, out=None) -> ndarray:
        if self._short_name != "add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported by CuPy")
        return wrap(np.add.reduceat(arrays.raw(array), operand(indices), axis, dtype))

    def _fold(self, array: ndarray, method: str, **methods: str) -> Callable:
        if self._short_name not in methods:
            raise NotImplementedError(f"`{self.name}.{method}` is not supported by CuPy")
        return getattr(array, methods[self._short_name])


def _fits(wish: Any, takes: np.dtype) -> bool:
    if isinstance(wish, type):
        return np.result_type(wish(0), takes) == takes
    return np.can_cast(wish, takes)


def _deliver(result: Any, dtype: np.dtype, out: Any, casting: str) -> ndarray:
    """The result as a new array in C order, or written into `out`."""
    result = np.asarray(result, dtype, order="C")
    if out is None:
        return wrap(result)
    if not isinstance(out, ndarray):
        raise TypeError(f"Output arguments type must be cupy.ndarray, got {type(out)}")
    memory = arrays.raw(out)
    if np.broadcast_shapes(result.shape, memory.shape) != memory.shape:
        raise ValueError(f"Out shape is mismatched: expected {result.shape}, got {memory.shape}")
    if not np.can_cast(dtype, memory.dtype, casting):
        raise TypeError(f"Cannot cast output from {dtype} to {memory.dtype} with casting rule {casting!r}")
    np.copyto(memory, result, casting="unsafe")
    return out
