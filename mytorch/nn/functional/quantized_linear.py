"""quantized_linear: a linear layer whose weight stays quantized in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends.blas import column_sums, product, rows
from ...backends.device import RawArray, on
from ...core.tensor import Tensor, from_raw, raw_of
from .composite import composite, require_float
from .linear import linear
from .quantization import BLOCK, dequantized

INT8, UINT8, UINT16 = np.dtype("int8"), np.dtype("uint8"), np.dtype("uint16")


@composite
def quantized_linear(
    input: Tensor, codes: Tensor, scales: Tensor, offsets: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Returns y = x W^T + b, where each number of W is scale * code + offset; codes of 4 bits without
    offsets count from -8.

    Args:
        input: (..., in_features), in_features a positive multiple of 32.
        codes: (out_features, in_features) int8, or (out_features, in_features / 2) uint8, of 4 bits.
        scales: (out_features, in_features / 32) uint16, the bits of float16.
        offsets: like the scales; only for codes of 4 bits.
        bias: (out_features,), of the input's dtype.

    Returns:
        (..., out_features), with gradients for input and bias, none for the weight.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match.

    >>> layer = nn.QuantizedLinear.from_linear(nn.Linear(64, 3))
    >>> F.quantized_linear(mytorch.ones(2, 64), layer.codes, layer.scales).shape
    Size([2, 3])
    """
    with on(input.device):
        weight = dequantized(*[None if a is None else raw_of(a) for a in (codes, scales, offsets)])
    return linear(input, from_raw(weight).to(input.dtype), bias, auto=True)


@quantized_linear.check
def _check(input, codes, scales, offsets, bias):
    require_float(input.dtype, "quantized_linear")
    x, (c, s), kind = input.data.shape, (codes.data.shape, scales.data.shape), codes.dtype
    o, b = (None if t is None else t.data.shape for t in (offsets, bias))
    halves = 2 if kind == UINT8 else 1
    known = kind == INT8 and offsets is None or kind == UINT8
    if not known or scales.dtype != UINT16 or (offsets is not None and offsets.dtype != UINT16):
        got = ", ".join(str(t.dtype) for t in (codes, scales, offsets) if t is not None)
        raise RuntimeError(
            "quantized_linear(): expected int8 codes and scales, or uint8 ones, scales and maybe offsets, "
            f"where scales and offsets are the bits of float16 as uint16; got {got}"
        )
    if len(s) != 2 or c != (s[0], s[1] * BLOCK // halves) or o not in (None, s) or not s[1]:
        raise RuntimeError(f"quantized_linear(): codes {c}, scales {s}, offsets {o} aren't of one weight")
    if not x or x[-1] != BLOCK * s[1] or b not in (None, s[:1]):
        raise RuntimeError(
            f"quantized_linear(): input {x} and bias {b} don't match a weight {(s[0], BLOCK * s[1])}"
        )
    if b is not None and bias.dtype != input.dtype:
        raise RuntimeError(f"quantized_linear(): the input is {input.dtype}, the bias {bias.dtype}")
    if codes.device is not input.device:
        raise RuntimeError(
            f"quantized_linear(): the input is on {input.device}, the weight on {codes.device}"
        )


@quantized_linear.manual
def _quantized_linear(x, codes, scales, offsets, bias):
    weight = dequantized(codes, scales, offsets).astype(x.dtype, copy=False)
    y = product(rows(x), weight.T)
    if bias is not None:
        y += bias
    return np.reshape(y, (*x.shape[:-1], scales.shape[0])), vjps(x.shape, codes, scales, offsets, bias)


def vjps(
    x_shape: tuple[int, ...], codes: RawArray, scales: RawArray, offsets: RawArray | None,
    bias: RawArray | None,
) -> tuple[Callable | None, ...]:
    """Returns the vjp of each argument; the weight is dequantized again, as it is not kept."""

    def dx(g):
        weight = dequantized(codes, scales, offsets).astype(g.dtype, copy=False)
        return np.reshape(product(rows(g), weight), x_shape)

    def dbias(g):
        return column_sums(rows(g))

    return dx, None, None, None, None if bias is None else dbias
