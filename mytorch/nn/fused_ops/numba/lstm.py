"""
LSTM: all steps in one call. Sequences of a batch are independent, so each thread computes all steps of some
of them and never waits for another; a step is a product with a matrix that was packed before the first one,
and one pass over the cells.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ....backends.blas import add_product
from ....backends.jit import kernel, prange, routine
from ....backends.threads import get_num_threads
from ....backends.tiles import COUNT, LINE, in_panels, matrix_of, multiply, packed
from ....core.grad_accumulator import LazyGrad
from ...functional.composite import Unsupported
from ...functional.recurrent import gradients_of_steps, lstm_steps, step_rows
from .approximations import ONE, ZERO, sigmoid32, tanh32, wide_registers
from .elementwise import require_single

LARGEST = 1 << 19  # elements of weight_hh, which every thread reads in each step and should stay in its cache


@routine
def _cells(gates, z, a, c_before, c, tanh_c, h, y):
    """c = f c_before + i u and h = y = o tanh(c) of a sequence; a gets i, f, u and o, functions of gates + z.

    In two loops, each of which has its numbers in registers.
    """
    n = c.size
    for j in range(n):
        a[j], a[n + j] = sigmoid32(gates[j] + z[j]), sigmoid32(gates[n + j] + z[n + j])
        a[2 * n + j] = tanh32(gates[2 * n + j] + z[2 * n + j])
        a[3 * n + j] = sigmoid32(gates[3 * n + j] + z[3 * n + j])
    for j in range(n):
        c[j] = a[n + j] * c_before[j] + a[j] * a[2 * n + j]
        tanh_c[j] = tanh32(c[j])
        h[j] = a[3 * n + j] * tanh_c[j]
        y[j] = h[j]


@routine
def _derivatives(a, c_before, tanh_c, dy, dh, dc, d_gates):
    """The vjp of `_cells` for the gradient dh + dy of h, and dc of c, which becomes that of `c_before`."""
    n = dc.size
    for j in range(n):
        i, f, u, o, t = a[j], a[n + j], a[2 * n + j], a[3 * n + j], tanh_c[j]
        d = dh[j] + dy[j]
        e = dc[j] + d * o * (ONE - t * t)
        d_gates[j] = e * u * i * (ONE - i)
        d_gates[n + j] = e * c_before[j] * f * (ONE - f)
        d_gates[2 * n + j] = e * i * (ONE - u * u)
        d_gates[3 * n + j] = d * t * o * (ONE - o)
        dc[j] = e * f


@kernel
def _forward(gates, weight, steps, part, y, h, c, acts, before, c_before, tanh_c):
    """Args: `weight` has the panels of (hidden size, 4 hidden size); `steps` has the first row of each and
    the one behind the last; `part` sequences are a task; h and c hold the first states, and then the last;
    `before` and `c_before` get the states before each step, which the step before writes there."""
    n, width = h.shape[1], COUNT * weight.shape[0]
    for task in prange((h.shape[0] + part - 1) // part):
        wide_registers()
        first, entered = task * part, task * part  # sequences before `entered` have had a step
        z = np.empty((part, width), np.float32)
        for k in range(steps.shape[0]):
            start, last = steps[k, 0], min(first + part, steps[k, 1] - steps[k, 0])
            if last <= first:  # its sequences are shorter
                continue
            for b in range(entered, last):
                before[start + b], c_before[start + b] = h[b], c[b]
            entered = max(entered, last)
            x, out = (before[start + first :].ctypes.data, 4 * n, 4), (z.ctypes.data, 4 * width)
            multiply(ONE, x, matrix_of(weight), ZERO, out, last - first, n, weight.shape[0])
            following = steps[k + 1, 0] if k + 1 < steps.shape[0] else 0
            end = steps[k + 1, 1] - following if k + 1 < steps.shape[0] else 0
            for b in range(first, last):
                row = start + b
                to_h, to_c = (before[following + b], c_before[following + b]) if b < end else (h[b], c[b])
                _cells(gates[row], z[b - first], acts[row], c_before[row], to_c, tanh_c[row], to_h, y[row])


@kernel
def _backward(acts, c_before, tanh_c, weight, steps, part, dy, dh, dc, d_gates):
    """Args: `weight` is (4 hidden size, hidden size), or has its panels; dh and dc hold the gradients of the
    last states, and then those of the first ones; others as for `_forward`."""
    n, panels = dh.shape[1], (dh.shape[1] + COUNT - 1) // COUNT
    for task in prange((dh.shape[0] + part - 1) // part):
        wide_registers()
        first, end = task * part, min(dh.shape[0], task * part + part)
        d = np.zeros((part, COUNT * panels), np.float32)  # dh with whole panels
        for b in range(first, end):
            d[b - first, :n] = dh[b]
        for k in range(steps.shape[0] - 1, -1, -1):
            start, last = steps[k, 0], min(end, steps[k, 1] - steps[k, 0])
            if last <= first:
                continue
            for b in range(first, last):
                row, dh_b = start + b, d[b - first]
                _derivatives(acts[row], c_before[row], tanh_c[row], dy[row], dh_b, dc[b], d_gates[row])
            x, out = (d_gates[start + first :].ctypes.data, 16 * n, 4), (d.ctypes.data, LINE * panels)
            multiply(ONE, x, matrix_of(weight), ZERO, out, last - first, 4 * n, panels)
        for b in range(first, end):
            dh[b] = d[b - first, :n]


@lstm_steps.fused("cpu")
def _lstm_steps(
    gates: np.ndarray, hx: np.ndarray, cx: np.ndarray, weight_hh: np.ndarray, weight_hr: np.ndarray | None,
    batch_sizes: Sequence[int], reverse: bool,
) -> tuple:
    require_single(gates, hx, cx, weight_hh)
    if weight_hr is not None or weight_hh.size > LARGEST:
        raise Unsupported("the kernel is for LSTMs without a projection, of a hidden size of at most 362")
    steps = _first_rows(tuple(batch_sizes), reverse)
    part = max(1, -(-len(hx) // get_num_threads()))
    gates, h, c = np.ascontiguousarray(gates, like=gates), hx.copy(), cx.copy()
    acts, y = np.empty_like(gates), np.empty((len(gates), hx.shape[1]), gates.dtype, like=gates)
    before, c_before, tanh_c = (np.empty_like(y) for _ in range(3))
    _forward(gates, packed(weight_hh.T), steps, part, y, h, c, acts, before, c_before, tanh_c)

    def vjp(grads):
        dy, dh, dc = gradients_of_steps(grads, before, hx, cx)
        dy, d_gates = np.ascontiguousarray(dy, like=dy), np.empty_like(acts)
        _backward(acts, c_before, tanh_c, in_panels(weight_hh), steps, part, dy, dh, dc, d_gates)
        weight_grad = LazyGrad(
            weight_hh.shape, weight_hh, lambda out, beta: add_product(d_gates.T, before, out, beta)
        )
        return d_gates, dh, dc, weight_grad, None

    return (y, h, c), vjp


@functools.lru_cache(maxsize=64)
def _first_rows(batch_sizes: tuple[int, ...], reverse: bool) -> np.ndarray:
    """Returns the first row of each step and the one behind the last."""
    steps = np.array([(s.start, s.stop) for s in step_rows(batch_sizes, reverse)])
    steps.flags.writeable = False  # the same for all calls
    return steps
