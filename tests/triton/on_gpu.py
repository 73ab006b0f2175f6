"""Kernels on a real GPU, for benchmarks.gpu: the cases of the tests, against their references in float64.

The cases are those that the interpreter and the compiler get, too (tests/triton/cases.py): CASES, small and
odd, and COMPILED, of real size, whose arrays of zeros are filled with normal numbers here.
"""

import functools
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.gpu.sizes import Size
from mytorch.backends.device import CPU, as_device, is_raw, move
from tests.triton import harness
from tests.triton.cases import CASES, COMPILED, FUNCTIONS

CHUNKS = 16
TABLES = {"odd": CASES, "real": COMPILED}


def questions(kernel: str, size: Size, dtypes: list[str]) -> list[dict]:
    """Returns all comparisons of a kernel."""
    cases = [("odd", row) for row in range(len(CASES[kernel]))][: size.rows]
    if size.rows is None:
        cases += [("real", row) for row in range(len(COMPILED.get(kernel, ())))]
    found = [
        {"do": "compare", "kernel": kernel, "table": table, "row": row, "dtype": dtype}
        for table, row in cases
        for dtype in dtypes
    ]
    halves = [dtype for dtype in dtypes if dtype != "float32" and kernel == "cross_entropy"]
    return found + [{"do": "compare_chunks", "kernel": kernel, "dtype": dtype} for dtype in halves]


def case_of(kernel: str, table: str, row: int) -> tuple:
    """Returns (arguments, keywords); large arrays that are all zeros hold normal numbers instead."""
    args, kwargs = TABLES[table][kernel][row]
    random = np.random.default_rng(row)
    return args if table == "odd" else [_filled(a, random) for a in args], kwargs


def _filled(a: Any, random: np.random.Generator) -> Any:
    if not isinstance(a, np.ndarray) or a.size < 2 or a.any():
        return a
    if a.dtype.kind == "i":  # rows of a table: 0 is one, and 65 classes are the fewest in use
        return random.integers(0, 65, a.shape).astype(a.dtype)
    return random.standard_normal(a.shape, dtype=np.float32) if a.dtype == np.float32 else a


def compare(library: Any, size: Size, kernel: str, table: str, row: int, dtype: str) -> dict:
    """Returns {"error": the largest of results and gradients, "wrong": what is outside the tests' limits}.

    Odd cases run with the configuration that comes first, those of real size with the fastest one.
    """
    os.environ["MYTORCH_TUNE"] = "0" if table == "odd" else "1"
    raws = harness.arguments(kernel, case_of(kernel, table, row), dtype)
    if raws is None:  # the result needs no kernel
        return {"error": 0.0, "wrong": ""}
    largest, wrong = 0.0, ""
    pairs = _function(kernel, raws) if kernel in FUNCTIONS else _composite(kernel, raws, dtype)
    for what, got, want in pairs:
        try:
            harness.assert_close(kernel, got, want, dtype, what)
        except AssertionError as error:
            wrong = wrong or " ".join(str(error).split())
        largest = max(largest, relative_error(got, want))
    return {"error": largest, "wrong": wrong}


def compare_chunks(library: Any, size: Size, kernel: str, dtype: str) -> dict:
    """Compares losses of all tokens of a training step with those of chunks of them, computed in float32.

    There are more logits than 32 bits can count: an offset that overflows shows here.
    """
    losses = functools.partial(getattr(library.nn.functional, kernel), reduction="none")
    N, V, half = size.train.tokens, size.train.vocab_size, getattr(library, dtype)
    count = N // CHUNKS
    logits = [library.randn(count, V, device="cuda").to(half) for _ in range(CHUNKS)]
    x, targets = library.cat(logits).requires_grad_(), library.randint(0, V, (N,), device="cuda")
    del logits
    whole = losses(x, targets, fused=True)
    g = library.randn(N, device="cuda").to(whole.dtype)
    whole.backward(g)
    errors = []
    for begin in range(0, N, count):
        rows = slice(begin, begin + count)
        part = x.detach()[rows].float().requires_grad_()
        want = losses(part, targets[rows], fused=False)
        want.backward(g[rows].float())
        for a, b in ((whole.detach()[rows], want.detach()), (x.grad[rows], part.grad)):
            errors.append(((a.float() - b).abs().max() / b.abs().max()).item())
    limit = sum(harness.LIMITS[dtype])
    wrong = [f"rows from {k // 2 * count}: error {e:.1e}" for k, e in enumerate(errors) if not e <= limit]
    return {"error": max(errors) if all(map(math.isfinite, errors)) else math.inf, "wrong": "; ".join(wrong)}


def _composite(kernel: str, raws: list, dtype: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields results and gradients beside what they should be."""
    want, want_grads, gs = harness.expected(kernel, raws, dtype)
    result, vjp = harness.kernel(kernel)(*map(_on_gpu, raws))
    got = harness.gradients(kernel, vjp, [_on_gpu(g) for g in gs], len(raws))
    for k, (y, w) in enumerate(zip([*_listed(result), *got], [*want, *want_grads], strict=True)):
        if y is not None or w is not None:  # a missing one has another shape
            nothing = np.empty(0)
            what = f"result {k}" if k < len(want) else f"gradient {k - len(want)}"
            yield what, nothing if y is None else _on_cpu(y), nothing if w is None else w


def _function(kernel: str, raws: list) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields results, and the arguments afterwards, beside what they should be."""
    wide = [a.astype("float64") if harness.is_float(a) else np.copy(a) if is_raw(a) else a for a in raws]
    there = [_on_gpu(a) for a in raws]
    got, want = _listed(harness.kernel(kernel)(*there)), _listed(FUNCTIONS[kernel][1](*wide))
    for k, (a, w) in enumerate(zip([*got, *there], [*want, *wide], strict=True)):
        if is_raw(a):
            yield f"result {k}", _on_cpu(a), np.asarray(w, "float64")


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Returns max |got - want| / max |want| of what is finite in both; inf if shapes or NaN differ."""
    got = got.astype("float64")
    if got.shape != want.shape or (np.isnan(got) != np.isnan(want)).any():
        return math.inf
    finite = np.isfinite(want) & np.isfinite(got)
    largest = np.max(np.abs(want[finite]), initial=0.0) or 1.0
    return float(np.max(np.abs(got[finite] - want[finite]), initial=0.0) / largest)


def _on_gpu(a: Any) -> Any:
    return move(a, as_device("cuda")) if isinstance(a, np.ndarray) else a


def _on_cpu(a: Any) -> np.ndarray:
    assert not isinstance(a, np.ndarray), f"a result of shape {a.shape} came back as a NumPy array"
    return move(a, CPU)


def _listed(result: Any) -> list:
    return [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
