"""
The blocks in which GGUF files store weights, read and written as bytes.

A row of numbers is a sequence of blocks, each with its scales: of 32 numbers (Q8_0, Q4_0, Q4_1), of 256 in
eight or sixteen groups (Q4_K, Q6_K), or of a single one (F32, F16, BF16). Values equal those of the `gguf`
package bit for bit.

Source: ggml's types, https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

import numpy as np

from ..nn.functional.quantization import Quantized, dequantized, quantized, require_format

FORMATS = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
    "q8_0": np.dtype([("scale", "<u2"), ("codes", "i1", 32)]),
    "q4_0": np.dtype([("scale", "<u2"), ("codes", "u1", 16)]),
    "q4_1": np.dtype([("scale", "<u2"), ("offset", "<u2"), ("codes", "u1", 16)]),
    "q4_k": np.dtype([("scale", "<f2"), ("offset", "<f2"), ("packed", "u1", 12), ("codes", "u1", (4, 32))]),
    "q6_k": np.dtype([
        ("low", "u1", (2, 1, 64)), ("high", "u1", (2, 1, 32)), ("scales", "i1", 16), ("scale", "<f2"),
    ]),
}


def dequantize(data: np.ndarray, format: str) -> np.ndarray:
    """Returns the numbers of rows of blocks.

    Args:
        data: (..., bytes of a row) uint8
        format: a key of FORMATS.

    Returns:
        (..., numbers of a row) float32

    Raises:
        ValueError: an unknown format, or rows that aren't whole blocks of it.

    >>> from mytorch.utils import gguf_blocks
    >>> gguf_blocks.dequantize(gguf_blocks.quantize(np.ones((2, 64), np.float32), "q8_0"), "q8_0").shape
    (2, 64)
    """
    if format in ("q8_0", "q4_0", "q4_1"):
        return dequantized(*split(data, format))
    blocks = _blocks(data, format)
    if format == "bf16":
        return (blocks.astype(np.uint32) << 16).view(np.float32)
    if format in ("f32", "f16"):
        return blocks.astype(np.float32)
    w = _q4_k(blocks) if format == "q4_k" else _q6_k(blocks)
    return w.reshape(*data.shape[:-1], 256 * blocks.shape[-1])


def quantize(x: np.ndarray, format: str) -> np.ndarray:
    """Returns numbers (..., n) as rows of blocks (..., bytes of a row) uint8; for q8_0, q4_0 and q4_1.

    Raises:
        ValueError: another format; n isn't a multiple of 32; a number is not finite or too large.
    """
    require_format(format, "quantize()")
    codes, scales, offsets = quantized(np.asarray(x, np.float32), format)
    blocks = np.empty(scales.shape, FORMATS[format])
    blocks["scale"], blocks["codes"] = scales, codes.reshape(*scales.shape, -1)
    if offsets is not None:
        blocks["offset"] = offsets
    return blocks.view(np.uint8)


def split(data: np.ndarray, format: str) -> Quantized:
    """Returns the arrays of an `nn.QuantizedLinear` for rows of blocks, in q8_0, q4_0 or q4_1.

    Raises:
        ValueError: see `dequantize`.
    """
    require_format(format, "split()")
    blocks = _blocks(data, format)
    codes = np.ascontiguousarray(blocks["codes"]).reshape(*data.shape[:-1], -1)
    offsets = np.ascontiguousarray(blocks["offset"]) if format == "q4_1" else None
    return Quantized(codes, np.ascontiguousarray(blocks["scale"]), offsets)


def _blocks(data: np.ndarray, format: str) -> np.ndarray:
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is unknown; the formats are {', '.join(FORMATS)}")
    size = FORMATS[format].itemsize
    if data.dtype != np.uint8 or not data.ndim or data.shape[-1] % size:
        raise ValueError(
            f"{format}: expected uint8 rows of blocks of {size} bytes, got {data.dtype} {data.shape}"
        )
    return np.ascontiguousarray(data).view(FORMATS[format])


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """w = (scale s) q - (offset m) for eight groups of 32 numbers q of 4 bits; s and m have 6 bits.

    Of the 12 packed bytes the first four hold the low six bits of s 0 to 3, the next four those of m 0 to 3;
    the last four have the low four bits of s and m 4 to 7, whose high two are on top of the others.
    """
    a, b, c = (blocks["packed"][..., i : i + 4] for i in (0, 4, 8))
    s = np.concatenate([a & 63, (c & 15) | (a >> 6 << 4)], -1).astype(np.float32)
    m = np.concatenate([b & 63, (c >> 4) | (b >> 6 << 4)], -1).astype(np.float32)
    s *= blocks["scale"].astype(np.float32)[..., None]
    m *= blocks["offset"].astype(np.float32)[..., None]
    codes = blocks["codes"]
    q = np.stack([codes & 15, codes >> 4], -2).reshape(*s.shape, 32)
    return s[..., None] * q.astype(np.float32) - m[..., None]


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """w = (scale s) (q - 32) for sixteen groups of 16 numbers q of 6 bits; s is an int8.

    Four bits of a number are in `low`, two in `high`. Each half of a block has its bytes: 64 numbers in the
    low four bits of `low`, then 64 in the high ones; and four times 32 in pairs of bits of `high`.
    """
    low = blocks["low"] >> np.array([0, 4], np.uint8)[:, None] & 15
    high = blocks["high"] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    shape = (*blocks.shape, 16, 16)
    q = (low.reshape(shape) | high.reshape(shape) << 4).astype(np.int8) - np.int8(32)
    s = blocks["scale"].astype(np.float32)[..., None] * blocks["scales"].astype(np.float32)
    return s[..., None] * q.astype(np.float32)
