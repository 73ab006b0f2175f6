"""Loops of programs with arrays for them: for Numba's, and for Triton's kernels, against NumPy."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

import mytorch
from mytorch.compiler import capture
from mytorch.compiler.codegen.loop import COLUMN, EXPRESSIONS, FULL, ROW, SCALAR, Loop, Step
from mytorch.nn import functional as F

SPECIAL = np.float32([0, -0.0, 1, -1, 0.5, -2.5, 3e-5, 87, -87, 1e30, np.inf, -np.inf, np.nan])


class Case(NamedTuple):
    loop: Loop
    rows: int
    n: int
    arrays: list[np.ndarray]  # the inputs

    def outputs(self, function=None) -> list[np.ndarray]:
        """What a kernel `(*inputs, *outputs, rows, n)` computes; by default NumPy."""
        sizes = {FULL: self.rows * self.n, ROW: self.rows, COLUMN: self.n, SCALAR: 1}
        kinds = [self.loop.steps[k] for k in self.loop.outputs]
        made = [np.empty(sizes[step.kind], step.dtype) for step in kinds]
        with np.errstate(all="ignore"):
            (function or self.loop.in_numpy)(*self.arrays, *made, self.rows, self.n)
        return made


def every_expression() -> Case:
    """All functions, of all pairs of special values."""
    steps, bools = [], {"where": "x2", "logical_and": "x2", "logical_or": "x2", "logical_not": "x2"}
    for name, (text, _) in EXPRESSIONS.items():
        count = 3 if name == "where" else 2 if "{1}" in text or text.count("{}") == 2 else 1
        args = ("x0", "x1") if name not in bools else ("x2", "x3") if name != "where" else ("x2", "x0", "x1")
        makes_bools = name.startswith(("logical", "less", "greater")) or "equal" in name
        steps.append(Step(name, args[:count], FULL, "bool" if makes_bools else "float32"))
    outputs = (*range(len(steps)), len(steps) + 1)
    steps += [Step("tanh", ("x0",), FULL), Step("add", (f"v{len(steps)}", 1.0), FULL)]  # in one: no other use
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    loop = Loop((FULL,) * 4, tuple(steps), outputs)
    return Case(loop, len(SPECIAL), len(SPECIAL), [x, y, x > 0, y > 0])


def captured(function, *tensors) -> list[Case]:
    with F.use_fused(False):
        program = capture(function, *tensors).optimized()
    found, random = [], np.random.default_rng(0)
    for i in program.instructions:
        if i.name == "loop":
            arrays = [
                random.integers(-i.kwargs["n"], i.kwargs["n"], x.size) if x.dtype == np.int64
                else (random.standard_normal(x.size) * 2).astype(x.dtype)
                for x in i.args
            ]
            found.append(Case(i.kwargs["loop"], i.kwargs["rows"], i.kwargs["n"], arrays))
    return found


def kinds(x):
    """Elements, rows, columns, numbers, bools, all reductions, and what later passes need."""
    y = F.softmax(x, -1) * x[0] + x.sum()
    z = (y - y.mean(1, keepdim=True)) / (y.amax(1, True) - y.amin(1, True))
    e = (x - x.amax(1, True)).exp()
    f = e / e.sum(1, True) + e.mean(1, True)
    return y, z, x > 0.3, x.mean(1).exp() * 2, mytorch.where(x > 1, 1.0, x).square(), f


def layer_norm_step(x, w, b, g):
    loss = (F.layer_norm(x, x.shape[-1:], w, b) * g).sum()
    return mytorch.autograd.grad(loss, [x, w, b])


def cases(rows: int = 37, n: int = 100) -> dict[str, Case]:
    """All cases; those of rows with this domain."""
    x, v = mytorch.randn(rows, n, requires_grad=True), mytorch.randn(n, requires_grad=True)
    target = mytorch.zeros(rows, dtype="int64")
    found = {"every expression": [every_expression()]}
    found["kinds"] = captured(kinds, x.detach())
    found["layer norm"] = captured(layer_norm_step, x, v, v.detach().requires_grad_(), x.detach())
    losses = partial(F.cross_entropy, reduction="none", auto=True)
    found["cross entropy"] = captured(losses, x.detach(), target)
    found["gelu"] = captured(lambda x: (F.gelu(x), F.gelu(x, "tanh")), x.detach())
    return {f"{name} {k}": case for name, listed in found.items() for k, case in enumerate(listed)}


def assert_close(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    """As close as sums in another order are; NaN, inf and bools are the same."""
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_allclose(a, b, 2e-5, 2e-5, err_msg=f"output {k}")
