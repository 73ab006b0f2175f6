"""PyTorch's answer for composites that `torch.nn.functional` doesn't have under their name."""

import torch

HALVES = (torch.float16, torch.bfloat16)


def _unrolled(step, gates, states, batch_sizes, reverse):
    """`step` for the rows of every step; the outputs in the order of the rows, and the last states."""
    starts = [sum(batch_sizes[:t]) for t in range(len(batch_sizes))]
    walk = list(zip(starts, batch_sizes, strict=True))
    outputs = {}
    for start, n in reversed(walk) if reverse else walk:
        new = step(gates[start : start + n], *(s[:n] for s in states))
        outputs[start] = new[0]
        states = [torch.cat([a, s[n:]]) for a, s in zip(new, states, strict=True)]
    return torch.cat([outputs[start] for start, _ in walk]), *states


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
    """In float32 for half precision, for which PyTorch has none on the CPU."""
    single = input.float() if input.dtype in HALVES else input
    return torch.nn.functional.avg_pool3d(single, *args, **kwargs).to(input.dtype)


def interpolate(input, *args, antialias=False, **kwargs):
    """With `antialias` in float32 for half precision, for which PyTorch has none on the CPU."""
    single = input.float() if antialias and input.dtype in HALVES else input
    return torch.nn.functional.interpolate(single, *args, antialias=antialias, **kwargs).to(input.dtype)


def scaled_dot_product_attention(query, key, *args, sliding_window=None, is_causal=False, **kwargs):
    """The window is a mask in PyTorch."""
    if sliding_window is not None:
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=bool)
        kwargs["attn_mask"] = seen.tril().triu(1 - sliding_window)
        is_causal = False
    function = torch.nn.functional.scaled_dot_product_attention
    return function(query, key, *args, is_causal=is_causal, **kwargs)


def self_attention(qkv, num_heads, *args, **kwargs):
    q, k, v = (a.unflatten(-1, (num_heads, -1)).transpose(1, 2) for a in qkv.chunk(3, dim=-1))
    return scaled_dot_product_attention(q, k, v, *args, **kwargs).transpose(1, 2).flatten(2)


def linear_cross_entropy(input, linear_weight, target, linear_bias=None, options=None, **kwargs):
    """PyTorch takes the bias by name only; its options change no result."""
    function = torch.nn.functional.linear_cross_entropy
    return function(input, linear_weight, target, linear_bias=linear_bias, **kwargs)


def linear_activation(input, weight, bias=None, activation="gelu"):
    name, _, approximate = activation.partition("_")
    options = {"approximate": approximate} if approximate else {}
    z = torch.nn.functional.linear(input, weight, bias)
    return getattr(torch.nn.functional, name)(z, **options)


def add_layer_norm(input, residual, *args, **kwargs):
    total = input + residual
    return torch.nn.functional.layer_norm(total, *args, **kwargs), total


def _gated(function):
    def oracle(input, dim=-1, **kwargs):
        a, b = input.chunk(2, dim)
        return function(a, **kwargs) * b

    return oracle


def rotary_embedding(input, cos, sin, interleaved=False):
    """As complex numbers."""
    a, b = (input[..., 0::2], input[..., 1::2]) if interleaved else input.chunk(2, -1)
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    turned = torch.complex(a.to(wide), b.to(wide)) * torch.complex(
        *torch.broadcast_tensors(cos.to(wide), sin.to(wide))
    )
    parts = turned.real.to(input.dtype), turned.imag.to(input.dtype)
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


def cached_attention(query, key, value, key_cache, value_cache, position, scale=None, enable_gqa=False):
    """Written into copies of the caches."""
    end = position + key.shape[2]
    keys, values = (
        torch.cat([cache[:, :, :position], new], dim=2)
        for cache, new in ((key_cache, key), (value_cache, value))
    )
    seen = torch.ones(query.shape[2], end, dtype=bool).tril(position)
    function = torch.nn.functional.scaled_dot_product_attention
    return function(query, keys, values, seen, scale=scale, enable_gqa=enable_gqa)


def cached_self_attention(qkv, num_heads, key_cache, value_cache, position, scale=None, cos=None, sin=None):
    heads = qkv.unflatten(-1, (-1, key_cache.shape[3])).transpose(1, 2)
    q, k, v = heads.split((num_heads, key_cache.shape[1], key_cache.shape[1]), 1)
    if cos is not None:
        q, k = rotary_embedding(q, cos, sin), rotary_embedding(k, cos, sin)
    y = cached_attention(q, k, v, key_cache, value_cache, position, scale, True)
    return y.transpose(1, 2).flatten(2)


def quantized_linear(input, codes, scales, offsets=None, bias=None):
    """Dequantized number by number, in float64."""
    if codes.dtype == torch.uint8:
        codes = codes.unflatten(-1, (-1, 16))
        codes = torch.cat([codes % 16, codes // 16], -1).flatten(-2)
    shift = 8 if codes.dtype == torch.uint8 and offsets is None else 0
    scales, offsets = (None if a is None else a.view(torch.float16).double() for a in (scales, offsets))
    weight = (codes.double() - shift) * scales.repeat_interleave(32, -1)
    if offsets is not None:
        weight += offsets.repeat_interleave(32, -1)
    return torch.nn.functional.linear(input, weight.to(input.dtype), bias)


ORACLES = {
    "swiglu": _gated(torch.nn.functional.silu), "geglu": _gated(torch.nn.functional.gelu),
    "squared_relu": lambda input: torch.nn.functional.relu(input).square(),
    "soft_cap": lambda input, cap: cap * torch.tanh(input / cap),
    "rotary_embedding": rotary_embedding,
    "add_layer_norm": add_layer_norm,
    "linear_activation": linear_activation,
    "linear_cross_entropy": linear_cross_entropy,
    "avg_pool3d": avg_pool3d, "interpolate": interpolate,
    "gru_steps": gru_steps, "lstm_steps": lstm_steps, "rnn_steps": rnn_steps,
    "scaled_dot_product_attention": scaled_dot_product_attention, "cached_attention": cached_attention,
    "cached_self_attention": cached_self_attention,
    "self_attention": self_attention, "quantized_linear": quantized_linear,
}
