"""Is every kernel right on this GPU? The cases of the tests, against their references in float64.

The cases are those that the interpreter and the compiler get, too (tests/triton/cases.py): CASES, small and
odd, and COMPILED, of real size, whose arrays of zeros are filled with normal numbers here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from mytorch.backends.device import cupy, is_raw
from tests.triton import harness
from tests.triton.cases import CASES, COMPILED, DTYPES, FUNCTIONS

TABLES = {"odd": CASES, "real": COMPILED}


def items(rows: int | None, real: bool, kernels: Iterable[str] = ()) -> list[dict]:
    """All comparisons, kernel by kernel.

    Args:
        rows: of the odd cases of a kernel; None for all.
        real: the cases of real size, too.
        kernels: only those of them that have cases; all if there are none.
    """
    return [
        {"kernel": name, "table": table, "row": row, "dtype": dtype}
        for name in CASES
        if not kernels or name in kernels
        for table in (("odd", "real") if real else ("odd",))
        for row in range(len(TABLES[table].get(name, ())[: rows if table == "odd" else None]))
        for dtype in DTYPES
    ]


def case_of(kernel: str, table: str, row: int) -> tuple:
    """(arguments, keywords) of a case; large arrays that are all zeros hold normal numbers instead."""
    args, kwargs = TABLES[table][kernel][row]
    if table == "odd":
        return args, kwargs
    random = np.random.default_rng(row)
    return [_filled(a, random) for a in args], kwargs


def _filled(a: Any, random: np.random.Generator) -> Any:
    if not isinstance(a, np.ndarray) or a.size < 2 or a.any():
        return a
    if a.dtype.kind == "i":  # rows of a table: 0 is one, and 65 classes are the fewest in use
        return random.integers(0, 65, a.shape).astype(a.dtype)
    return random.standard_normal(a.shape, dtype=np.float32) if a.dtype == np.float32 else a


def compare(kernel: str, table: str, row: int, dtype: str) -> dict:
    """The errors of one case, and whether they are within the tests' limits.

    Returns:
        {"size": the largest shape, "error": of results, "gradient_error": None without gradients,
        "wrong": message or ""}
    """
    raws = harness.arguments(kernel, case_of(kernel, table, row), dtype)
    if raws is None:
        return {"size": "", "error": 0.0, "gradient_error": None, "wrong": "", "size_note": "no kernel runs"}
    seen = Errors(kernel, dtype)
    if kernel in FUNCTIONS:
        _compare_function(seen, kernel, raws)
    else:
        _compare_composite(seen, kernel, raws, dtype)
    return {"size": size_of(raws), **seen.summary()}


def _compare_composite(seen: Errors, kernel: str, raws: list, dtype: str) -> None:
    want, want_grads, gs = harness.expected(kernel, raws, dtype)
    there = [to_gpu(a) for a in raws]
    result, vjp = harness.kernel(kernel)(*there)
    for k, (y, w) in enumerate(zip(_listed(result), want, strict=True)):
        seen.add("result", k, to_cpu(y), w)
    got = harness.gradients(kernel, vjp, [to_gpu(g) for g in gs], len(raws))
    for k, (d, w) in enumerate(zip(got, want_grads, strict=True)):
        if (d is None) != (w is None):
            seen.say(f"gradient {k}: {type(d).__name__}, of the reference {type(w).__name__}")
        elif w is not None:
            seen.add("gradient", k, to_cpu(d), w)
    for k, (a, b) in enumerate(zip(there, raws, strict=True)):
        if isinstance(b, np.ndarray) and to_cpu(a).tobytes() != b.tobytes():
            seen.say(f"argument {k} was written to")


def _compare_function(seen: Errors, kernel: str, raws: list) -> None:
    wide = [
        a.astype("float64") if harness.is_float(a) else a.copy() if isinstance(a, np.ndarray) else a
        for a in raws
    ]
    there = [to_gpu(a) for a in raws]
    got, want = harness.kernel(kernel)(*there), FUNCTIONS[kernel][1](*wide)
    got, want = ([] if r is None else _listed(r) for r in (got, want))
    for k, (a, w) in enumerate(zip([*got, *there], [*want, *wide], strict=True)):
        if is_raw(a):
            seen.add("result", k, to_cpu(a), np.asarray(w, "float64"))


class Errors:
    """The largest errors of a case, and the first thing that is wrong."""

    def __init__(self, kernel: str, dtype: str):
        self.kernel, self.dtype, self.wrong = kernel, dtype, ""
        self.largest: dict[str, float | None] = {"result": None, "gradient": None}

    def add(self, what: str, number: int, got: np.ndarray, want: np.ndarray) -> None:
        try:
            harness.assert_close(self.kernel, got, want, self.dtype, f"{what} {number}")
        except AssertionError as error:
            self.say(str(error).strip())
        if got.shape == want.shape:
            found = relative_error(got, want)
            self.largest[what] = max(found, self.largest[what] or 0.0)

    def say(self, wrong: str) -> None:
        self.wrong = self.wrong or wrong

    def summary(self) -> dict:
        return {
            "error": self.largest["result"] or 0.0,
            "gradient_error": self.largest["gradient"],
            "wrong": self.wrong,
        }


def relative_error(got: Any, want: Any) -> float:
    """max |got - want| / max |want| over what is finite in both; 1e300 if something else is NaN or inf."""
    got, want = np.asarray(got).astype("float64"), np.asarray(want, "float64")
    finite = np.isfinite(want) & np.isfinite(got)
    if (np.isnan(got) != np.isnan(want)).any():
        return 1e300
    largest = np.max(np.abs(want), where=finite, initial=0.0)
    difference = np.max(np.abs(np.subtract(got, want, where=finite, out=np.zeros_like(want))), initial=0.0)
    return float(difference / (largest or 1.0)) if math.isfinite(difference) else 1e300


def size_of(args: Iterable[Any]) -> str:
    """The shape of the largest array."""
    shapes = [a.shape for a in args if isinstance(a, np.ndarray)]
    return " × ".join(map(str, max(shapes, key=math.prod, default=()))) or "1"


def to_gpu(a: Any) -> Any:
    """An array on the GPU; bfloat16 goes there as the integers that it is made of."""
    if not isinstance(a, np.ndarray):
        return a
    if a.dtype.name == "bfloat16":
        return cupy().asarray(np.ascontiguousarray(a).view(np.uint16)).view(a.dtype).reshape(a.shape)
    return cupy().asarray(a)


def to_cpu(a: Any) -> np.ndarray:
    if isinstance(a, np.ndarray):
        raise TypeError(f"a result of shape {a.shape} came back from the GPU as a NumPy array")
    if a.dtype.name == "bfloat16":
        return cupy().asnumpy(cupy().ascontiguousarray(a).view(np.uint16)).view(a.dtype).reshape(a.shape)
    return cupy().asnumpy(a)


def _listed(result: Any) -> list:
    return list(result) if isinstance(result, (tuple, list)) else [result]
