"""
The time steps of RNN, LSTM and GRU layers, after the product of all inputs with weight_ih.

Each function computes all steps of a batch of sequences. The rows of all steps are concatenated, and step t
has `batch_sizes[t]` of them: the first sequences of the batch, which is sorted by length, as in a
`PackedSequence`. Sequences of equal length have the same number of rows in each step.

The results are the hidden states of all steps, in the layout of the inputs, and the last states of each
sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ...backends.blas import column_sums, product
from ...backends.device import RawArray
from ...core.op import index_of
from ...core.tensor import Tensor
from ...ops import cat
from .composite import composite


@composite(outputs=True)
def rnn_steps(
    gates: Tensor, hx: Tensor, weight_hh: Tensor, nonlinearity: str, batch_sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """Computes the steps h <- tanh(gate + W_hh h), or relu

    Args:
        gates: (rows of all steps, hidden size), W_ih x + b_ih + b_hh.
        hx: (sequences, hidden size).
        weight_hh: (hidden size, hidden size).
        nonlinearity: "tanh" or "relu".
        batch_sizes: rows of each step, not increasing.
        reverse: from the last step to the first.

    Source: Elman, 1990. https://doi.org/10.1207/s15516709cog1402_1
    """

    def step(gate: Tensor, h: Tensor) -> tuple[Tensor]:
        a = gate + h @ weight_hh.T
        return (a.tanh() if nonlinearity == "tanh" else a.relu(),)

    return _unrolled(step, gates, [hx], batch_sizes, reverse)


@composite(outputs=True)
def lstm_steps(
    gates: Tensor, hx: Tensor, cx: Tensor, weight_hh: Tensor, weight_hr: Tensor | None,
    batch_sizes: Sequence[int], reverse: bool = False,
) -> tuple[Tensor, ...]:
    """Computes i, f, u, o = gate + W_hh h;  c <- σ(f) c + σ(i) tanh(u);  h <- W_hr (σ(o) tanh(c))

    Args:
        gates: (rows of all steps, 4 hidden size), W_ih x + b_ih + b_hh.
        hx: (sequences, projected size), or hidden size without a projection.
        cx: (sequences, hidden size).
        weight_hh: (4 hidden size, projected size).
        weight_hr: (projected size, hidden size); None: no projection.
        batch_sizes, reverse: see `rnn_steps`.

    Source: Hochreiter & Schmidhuber, 1997, with the forget gate of Gers et al., 2000.
    https://doi.org/10.1162/neco.1997.9.8.1735; projection: Sak et al., 2014. https://arxiv.org/abs/1402.1128
    """

    def step(gate: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, u, o = (gate + h @ weight_hh.T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * u.tanh()
        h = o.sigmoid() * c.tanh()
        return (h if weight_hr is None else h @ weight_hr.T), c

    return _unrolled(step, gates, [hx, cx], batch_sizes, reverse)


@composite(outputs=True)
def gru_steps(
    gates: Tensor, hx: Tensor, weight_hh: Tensor, bias_hh: Tensor | None, batch_sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """Computes r, z = σ(gate + W_hh h + b_hh);  n = tanh(gate + r (W_hh h + b_hh));  h <- (1 - z) n + z h

    Args:
        gates: (rows of all steps, 3 hidden size), W_ih x + b_ih, for r, z and n.
        hx: (sequences, hidden size).
        weight_hh: (3 hidden size, hidden size).
        bias_hh: (3 hidden size,)
        batch_sizes, reverse: see `rnn_steps`.

    Source: Cho et al., 2014, with the reset gate after the product. https://arxiv.org/abs/1406.1078
    """

    def step(gate: Tensor, h: Tensor) -> tuple[Tensor]:
        a = h @ weight_hh.T
        (r, z, n), (hr, hz, hn) = gate.chunk(3, 1), (a if bias_hh is None else a + bias_hh).chunk(3, 1)
        n = (n + (r + hr).sigmoid() * hn).tanh()
        return (n + (z + hz).sigmoid() * (h - n),)

    return _unrolled(step, gates, [hx], batch_sizes, reverse)


@rnn_steps.check
@lstm_steps.check
@gru_steps.check
def _check_steps(gates: Tensor, hx: Tensor, *rest: object) -> None:
    """Raises ValueError unless the sizes are those of the rows: kernels read and write by them."""
    sizes = [*map(index_of, rest[-2])]
    if sum(sizes) != len(gates) or any([a < b for a, b in pairwise((len(hx), *sizes, 0))]):
        raise ValueError(f"steps of {sizes} rows, of {len(gates)} in all, for {len(hx)} sequences")


def _unrolled(
    step: Callable, gates: Tensor, states: list[Tensor], batch_sizes: Sequence[int], reverse: bool
) -> tuple[Tensor, ...]:
    outputs = {}
    for rows in step_rows(batch_sizes, reverse):
        n = rows.stop - rows.start
        now = step(gates[rows], *(s[:n] for s in states))
        outputs[rows.start] = now[0]
        states = [cat([new, old[n:]]) for new, old in zip(now, states, strict=True)]
    return cat([outputs[start] for start in sorted(outputs)]), *states


def step_rows(batch_sizes: Sequence[int], reverse: bool) -> list[slice]:
    """Returns the rows of each step, in the order of computation."""
    steps, start = [], 0
    for n in batch_sizes:
        steps.append(slice(start, start + n))
        start += n
    return steps[::-1] if reverse else steps


def gradients_of_steps(grads: Sequence[RawArray | None], *like: RawArray) -> list[RawArray]:
    """Returns the gradients of the results, which have these shapes: zeros for one that wasn't used (None).
    Those of the states are copies, which each step changes."""
    found = [np.zeros_like(x) if g is None else g for g, x in zip(grads, like, strict=True)]
    return [found[0], *[s if g is None else s.copy() for g, s in zip(grads[1:], found[1:], strict=True)]]


@rnn_steps.manual
def _rnn_steps(gates, hx, weight_hh, nonlinearity, batch_sizes, reverse):
    steps, h, y = step_rows(batch_sizes, reverse), hx.copy(), np.empty_like(gates, order="C")
    before = np.empty_like(y)  # the state before each step
    for s in steps:
        now = h[: s.stop - s.start]
        before[s] = now
        a = gates[s] + product(now, weight_hh.T)
        now[...] = np.tanh(a) if nonlinearity == "tanh" else np.maximum(a, 0)
        y[s] = now

    def vjp(g):
        gy, dh = gradients_of_steps(g, before, hx)
        slope = 1 - y * y if nonlinearity == "tanh" else (y > 0).astype(y.dtype)
        for s in reversed(steps):
            d = dh[: s.stop - s.start]
            d += gy[s]
            slope[s] *= d
            d[...] = product(slope[s], weight_hh)
        return slope, dh, product(slope.T, before)

    return (y, h), vjp


@lstm_steps.manual
def _lstm_steps(gates, hx, cx, weight_hh, weight_hr, batch_sizes, reverse):
    """σ(a) is tanh(a / 2) / 2 + 1 / 2, so one tanh serves all four gates.

    In the backward pass only dh and dc are computed step by step; their factors and the gradients of the
    weights are computed for all steps at once.
    """
    steps, rows, size = step_rows(batch_sizes, reverse), gates.shape[0], cx.shape[1]
    scale, shift = (np.zeros(4 * size, gates.dtype, like=gates) + 0.5 for _ in range(2))
    scale[2 * size : 3 * size], shift[2 * size : 3 * size] = 1, 0
    weight = (weight_hh * scale[:, None]).T.copy()  # in C order: BLAS is faster so for few rows
    h, c = hx.copy(), cx.copy()
    acts, y = gates * scale, np.empty((rows, hx.shape[1]), gates.dtype, like=gates)
    before = np.empty_like(y)
    c_before, tanh_c = (np.empty((rows, size), gates.dtype, like=gates) for _ in range(2))
    hidden = y if weight_hr is None else np.empty_like(tanh_c)
    for s in steps:
        n = s.stop - s.start
        before[s], c_before[s] = h[:n], c[:n]
        a = acts[s]
        a += product(h[:n], weight)
        np.tanh(a, out=a)
        a *= scale
        a += shift
        now = c[:n]
        now *= a[:, size : 2 * size]
        now += a[:, :size] * a[:, 2 * size : 3 * size]
        tanh_c[s] = np.tanh(now)
        hidden[s] = a[:, 3 * size :] * tanh_c[s]
        h[:n] = hidden[s] if weight_hr is None else product(hidden[s], weight_hr.T)
        y[s] = h[:n]

    def vjp(g):
        gy, dh, dc = gradients_of_steps(g, before, hx, cx)
        gate = acts.reshape(rows, 4, size)
        d_gates = scale * scale - (acts - shift) ** 2  # the derivatives σ (1 - σ) and 1 - tanh²
        d_gate = d_gates.reshape(rows, 4, size)
        for k, factor in enumerate((gate[:, 2], c_before, gate[:, 0], tanh_c)):
            d_gate[:, k] *= factor
        dh_to_dc = gate[:, 3] * (1 - tanh_c * tanh_c)
        dy = np.empty_like(y)
        for s in reversed(steps):
            n = s.stop - s.start
            dh[:n] += gy[s]
            dy[s] = dh[:n]
            d_hidden = dh[:n] if weight_hr is None else product(dh[:n], weight_hr)
            dc[:n] += d_hidden * dh_to_dc[s]
            d_gate[s, :3] *= dc[:n, None]
            d_gate[s, 3] *= d_hidden
            dc[:n] *= gate[s, 1]
            dh[:n] = product(d_gates[s], weight_hh)
        d_projection = None if weight_hr is None else product(dy.T, hidden)
        return d_gates, dh, dc, product(d_gates.T, before), d_projection

    return (y, h, c), vjp


@gru_steps.manual
def _gru_steps(gates, hx, weight_hh, bias_hh, batch_sizes, reverse):
    steps, rows, size = step_rows(batch_sizes, reverse), gates.shape[0], hx.shape[1]
    acts, h, y = gates.copy(), hx.copy(), np.empty((rows, size), gates.dtype, like=gates)
    before, inner = np.empty_like(y), np.empty_like(y)
    for s in steps:
        now, a = h[: s.stop - s.start], acts[s]
        before[s] = now
        recurrent = product(now, weight_hh.T)
        if bias_hh is not None:
            recurrent += bias_hh
        rz, new = a[:, : 2 * size], a[:, 2 * size :]
        rz += recurrent[:, : 2 * size]
        rz *= 0.5  # σ(a) = tanh(a / 2) / 2 + 1 / 2
        np.tanh(rz, out=rz)
        rz *= 0.5
        rz += 0.5
        inner[s] = recurrent[:, 2 * size :]
        new += rz[:, :size] * inner[s]
        np.tanh(new, out=new)
        now -= new
        now *= rz[:, size:]
        now += new
        y[s] = now

    def vjp(g):
        gy, dh = gradients_of_steps(g, before, hx)
        r, z, new = (acts[:, k * size : (k + 1) * size] for k in range(3))
        dh_to_dnew = (1 - z) * (1 - new * new)
        dh_to_dz = (before - new) * z * (1 - z)
        dnew_to_dr = inner * r * (1 - r)
        d_gates, d_recurrent = np.empty_like(acts), np.empty_like(acts)  # as d_gates, but dn is scaled by r
        for s in reversed(steps):
            d = dh[: s.stop - s.start]
            d += gy[s]
            d_new = d * dh_to_dnew[s]
            d_gates[s, 2 * size :] = d_new
            d_recurrent[s, :size] = d_new * dnew_to_dr[s]
            d_recurrent[s, size : 2 * size] = d * dh_to_dz[s]
            d_recurrent[s, 2 * size :] = d_new * r[s]
            d *= z[s]
            d += product(d_recurrent[s], weight_hh)
        d_gates[:, : 2 * size] = d_recurrent[:, : 2 * size]
        d_bias = None if bias_hh is None else column_sums(d_recurrent)
        return d_gates, dh, product(d_recurrent.T, before), d_bias

    return (y, h), vjp
