"""PyTorch's answer for composites that `torch.nn.functional` doesn't have under their name."""

import torch


def _unrolled(step, gates, states, batch_sizes, reverse):
    """`step` for the rows of every step; the outputs in the order of the rows, and the last states, flat."""
    starts = [sum(batch_sizes[:t]) for t in range(len(batch_sizes))]
    walk = list(zip(starts, batch_sizes, strict=True))
    outputs = {}
    for start, n in reversed(walk) if reverse else walk:
        new = step(gates[start : start + n], *(s[:n] for s in states))
        outputs[start] = new[0]
        states = [torch.cat([a, s[n:]]) for a, s in zip(new, states, strict=True)]
    every = torch.cat([outputs[start] for start, _ in walk])
    return torch.cat([part.flatten() for part in (every, *states)])


def rnn_steps(gates, hx, weight_hh, nonlinearity, batch_sizes, reverse=False):
    cell = getattr(torch, f"rnn_{nonlinearity}_cell")
    eye = torch.eye(hx.shape[1], dtype=hx.dtype)
    return _unrolled(lambda x, h: (cell(x, h, eye, weight_hh),), gates, [hx], batch_sizes, reverse)


def lstm_steps(gates, hx, cx, weight_hh, weight_hr, batch_sizes, reverse=False):
    size = cx.shape[1]
    eye, nothing = torch.eye(4 * size, dtype=hx.dtype), torch.zeros(4 * size, size, dtype=hx.dtype)

    def step(x, h, c):
        h, c = torch.lstm_cell(x + h @ weight_hh.T, (torch.zeros_like(c), c), eye, nothing)
        return (h if weight_hr is None else h @ weight_hr.T), c

    return _unrolled(step, gates, [hx, cx], batch_sizes, reverse)


def gru_steps(gates, hx, weight_hh, bias_hh, batch_sizes, reverse=False):
    eye = torch.eye(3 * hx.shape[1], dtype=hx.dtype)
    zeros = None if bias_hh is None else torch.zeros_like(bias_hh)
    return _unrolled(
        lambda x, h: (torch.gru_cell(x, h, eye, weight_hh, zeros, bias_hh),),
        gates,
        [hx],
        batch_sizes,
        reverse,
    )


def avg_pool3d(input, *args, **kwargs):
    """In float32 for float16, for which PyTorch has none on the CPU."""
    single = input.float() if input.dtype == torch.float16 else input
    return torch.nn.functional.avg_pool3d(single, *args, **kwargs).to(input.dtype)


def interpolate(input, *args, antialias=False, **kwargs):
    """With `antialias` in float32 for float16, for which PyTorch has none on the CPU."""
    single = input.float() if antialias and input.dtype == torch.float16 else input
    return torch.nn.functional.interpolate(single, *args, antialias=antialias, **kwargs).to(input.dtype)


ORACLES = {
    "avg_pool3d": avg_pool3d, "interpolate": interpolate,
    "gru_steps": gru_steps, "lstm_steps": lstm_steps, "rnn_steps": rnn_steps,
}  # fmt: skip
