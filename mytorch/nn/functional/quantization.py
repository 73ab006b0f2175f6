"""
Weights quantized in blocks: 32 neighbouring numbers of a row share a scale, and each is a small integer.

    w = scale * code            q8_0: code from -127 to 127
    w = scale * (code - 8)      q4_0: code from 0 to 15, two of them in a byte
    w = scale * code + offset   q4_1

These are GGUF's formats, bit for bit. A weight (out, in) becomes the arrays

    codes: (out, in) int8 or, for 4 bits, (out, in / 2) uint8; in a block, byte j holds numbers j and j + 16
    scales, offsets: (out, in / 32) uint16, the bits of float16 numbers; offsets only in q4_1

The bits of float16 are stored as integers because a cast of a model must leave them as they are.

Source: ggml's quantization, https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends.device import RawArray

BLOCK = 32
FORMATS = ("q8_0", "q4_0", "q4_1")


class Quantized(NamedTuple):
    """The arrays of a quantized weight."""

    codes: RawArray
    scales: RawArray
    offsets: RawArray | None


def require_format(format: str, name: str) -> None:
    """Raises ValueError for an unknown format."""
    if format not in FORMATS:
        raise ValueError(f"{name}: format is one of {', '.join(FORMATS)}; got {format!r}")


def quantized(weight: RawArray, format: str) -> Quantized:
    """Returns a float32 weight (..., in) in blocks; `in` is a multiple of 32, the format one of FORMATS.

    The scale is the largest magnitude / 127 in q8_0, the number of largest magnitude / -8 in q4_0, and
    (maximum - minimum) / 15 in q4_1, whose offset is the minimum. Codes are computed with the scale before
    it is rounded to float16.

    Raises:
        ValueError: `in` isn't a multiple of 32; a number is not finite, or too large for a float16 scale.
    """
    if not weight.shape or weight.shape[-1] % BLOCK:
        raise ValueError(f"a weight of shape {weight.shape} can't be split into blocks of {BLOCK} numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        found = _quantized(weight, format)
    for bits in found[1:]:
        if bits is not None and not np.isfinite(bits.view(np.float16)).all():
            raise ValueError(f"a weight can't be quantized to {format}: not finite, or too large for float16")
    return found


def _quantized(weight: RawArray, format: str) -> Quantized:
    blocks = weight.reshape(*weight.shape[:-1], -1, BLOCK)
    if format == "q8_0":
        scale = np.max(np.abs(blocks), -1) / np.float32(127)
        codes = _round(blocks * _inverse(scale)).astype(np.int8)
        return Quantized(codes.reshape(weight.shape), _bits(scale), None)
    if format == "q4_0":
        place = np.argmax(np.abs(blocks), -1)[..., None]
        scale = np.take_along_axis(blocks, place, -1)[..., 0] / np.float32(-8)
        return Quantized(_pairs(blocks * _inverse(scale) + np.float32(8.5)), _bits(scale), None)
    low = np.min(blocks, -1)
    scale = (np.max(blocks, -1) - low) / np.float32(15)
    codes = _pairs((blocks - low[..., None]) * _inverse(scale) + np.float32(0.5))
    return Quantized(codes, _bits(scale), _bits(low))


def dequantized(codes: RawArray, scales: RawArray, offsets: RawArray | None) -> RawArray:
    """Returns the weight (..., in), float32."""
    blocks = codes.reshape(*scales.shape, -1)
    if codes.dtype == np.uint8:
        blocks = np.concatenate([blocks & 15, blocks >> 4], -1)
    w = blocks.astype(np.float32)
    if codes.dtype == np.uint8 and offsets is None:
        w -= 8
    w *= _floats(scales)
    if offsets is not None:
        w += _floats(offsets)
    return w.reshape(*scales.shape[:-1], BLOCK * scales.shape[-1])


def _inverse(scale: RawArray) -> RawArray:
    """Returns 1 / scale as a column, 0 where the scale is 0."""
    zero = scale == 0
    return np.where(zero, np.float32(0), 1 / np.where(zero, np.float32(1), scale))[..., None]


def _round(x: RawArray) -> RawArray:
    """Returns the nearest integers, halves away from 0; `np.round` takes them to even ones."""
    size = np.abs(x)
    whole = np.floor(size)
    return np.copysign(whole + np.floor(2 * (size - whole)), x)


def _pairs(x: RawArray) -> RawArray:
    """Returns codes of 4 bits from blocks of numbers, 0 to 15 without their fractions, as bytes."""
    codes = np.minimum(x.astype(np.uint8), 15)
    halves = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
    return halves.reshape(*x.shape[:-2], -1)


def _bits(x: RawArray) -> RawArray:
    return x.astype(np.float16).view(np.uint16)


def _floats(bits: RawArray) -> RawArray:
    return bits.view(np.float16).astype(np.float32)[..., None]
