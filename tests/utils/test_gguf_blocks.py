"""Blocks of GGUF against the `gguf` package, bit for bit."""

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from mytorch.utils import gguf_blocks

rng = np.random.default_rng(0)


@pytest.mark.parametrize("format", gguf_blocks.FORMATS)
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_dequantize(format):
    """Random bytes: all codes and scales, also infinite ones."""
    kind = GGMLQuantizationType[format.upper()]
    numbers, size = GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (5, 2, 1024 // numbers * size)).astype(np.uint8)
    got, want = gguf_blocks.dequantize(data, format), quants.dequantize(data, kind)
    assert got.dtype == np.float32 and got.shape == (5, 2, 1024)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    np.testing.assert_array_equal(got.view(np.uint32)[finite], want.view(np.uint32)[finite])


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_quantize(format):
    x = (rng.standard_normal((64, 3, 96)) * np.exp(3 * rng.standard_normal((64, 3, 1)))).astype(np.float32)
    x[0], x[1], x[2, 0, :32] = 0, -1, np.arange(-16, 16) / 2  # halves, which are rounded away from 0
    x[3] = np.arange(96)[::-1] * 1e-7  # scales that are subnormal float16 numbers, or 0
    want = quants.quantize(x, GGMLQuantizationType[format.upper()])
    np.testing.assert_array_equal(gguf_blocks.quantize(x, format), want)


def test_wrong_arguments():
    data = np.zeros((2, 34), np.uint8)
    for call, message in [
        (lambda: gguf_blocks.dequantize(data, "q3_k"), "'q3_k' is unknown; the formats are f32"),
        (lambda: gguf_blocks.dequantize(data[:, 1:], "q8_0"), r"blocks of 34 bytes, got uint8 \(2, 33\)"),
        (lambda: gguf_blocks.dequantize(data.view(np.int8), "q8_0"), "got int8"),
        (lambda: gguf_blocks.quantize(np.zeros((2, 256)), "q4_k"), "q8_0, q4_0, q4_1; got 'q4_k'"),
        (lambda: gguf_blocks.split(data, "f16"), "got 'f16'"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
