"""The calls that a product is put to, made here with NumPy: right results, nothing touched outside."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mytorch.backends.cublas import dense
from mytorch.backends.strided_gemm import Gemm, Strided, layout, plan, strided

# Ways to lay an array out: what memory it is cut from.
LAYOUTS = {
    "C": lambda a: a.copy(),
    "F": lambda a: np.asfortranarray(a),
    "matrices transposed": lambda a: np.swapaxes(np.swapaxes(a, -1, -2).copy(), -1, -2),
    "batch dims exchanged": lambda a: np.swapaxes(np.swapaxes(a, 0, -3).copy(), 0, -3) if a.ndim > 3 else a,
    "heads": lambda a: np.swapaxes(np.swapaxes(a, -3, -2).copy(), -3, -2) if a.ndim > 2 else a,
    "part of rows": lambda a: np.repeat(a, 2, axis=-1)[..., : a.shape[-1]],
    "part of batch": lambda a: np.repeat(a, 3, axis=0)[::3],
    "every other column": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed rows": lambda a: a[..., ::-1, :].copy()[..., ::-1, :],
    "reversed batch": lambda a: a[::-1].copy()[::-1],
    "part of numbers": lambda a: (a + 0j).real,
    "odd bytes": lambda a: _in_records(a),
}


def _in_records(a):
    records = np.zeros(
        a.shape, np.dtype({"names": ["x"], "formats": [a.dtype], "offsets": [1], "itemsize": 13})
    )
    records["x"] = a
    return records["x"]


@st.composite
def products(draw):
    """(x, y, out): operands of whole numbers, in any layout, with batch dims that broadcast."""
    size = st.integers(1, 4)
    m, k, n = draw(size), draw(size), draw(size)
    batch = draw(st.lists(size, max_size=3))
    x, y = (_operand(draw, batch, shape) for shape in ((m, k), (k, n)))
    out = np.full((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), m, n), 7.0)
    return x, y, LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](out)


def _operand(draw, batch, shape):
    batch = [draw(st.sampled_from([1, size])) for size in batch[draw(st.integers(0, len(batch))) :]]
    a = np.arange(1.0, math.prod(batch + list(shape)) + 1).reshape(*batch, *shape) % 11 - 4
    a = LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](a)
    if batch and draw(st.booleans()):  # as `expand` makes it
        a = np.broadcast_to(a[:1], a.shape)
    return a


def execute(how, x, y, out, beta):
    """Make the calls of a plan."""
    x, y = (dense(a) if copied else a for a, copied in ((x, how.copy_x), (y, how.copy_y)))
    a, b = (x, y) if how.swapped else (y, x)
    for call in how.calls:
        shapes = ((call.m, call.k), call.a), ((call.k, call.n), call.b), ((call.m, call.n), call.c)
        for i in range(call.batch):
            left, right, c = (
                column_major(array, shape, place, i)
                for array, (shape, place) in zip((a, b, out), shapes, strict=True)
            )
            c[...] = left @ right + beta * c


def column_major(array, shape, place, index):
    """The matrix that BLAS sees: a view of the memory of `array`, which it must not leave."""
    rows, cols = shape[::-1] if place.transposed else shape
    assert place.ld >= rows and place.stride >= 0
    first, size = place.offset + index * place.stride, array.itemsize
    begin, end = np.lib.array_utils.byte_bounds(array)
    start = array.__array_interface__["data"][0]
    last = start + (first + rows - 1 + (cols - 1) * place.ld + 1) * size
    assert begin <= start + first * size and last <= end, "outside of the array"
    base = np.lib.stride_tricks.as_strided(array, (first + 1,), (size,))[first:]
    view = np.lib.stride_tricks.as_strided(base, (rows, cols), (size, place.ld * size))
    return view.T if place.transposed else view


@settings(max_examples=600, deadline=None)
@given(products(), st.sampled_from([0, 1]))
def test_the_calls_compute_the_product(operands, beta):
    x, y, out = operands
    how = plan(strided(x), strided(y), strided(out), x.itemsize)
    if how is None:
        assert layout(*out.shape[-2:], *strided(out).strides[-2:]) is None or min(strided(out).strides) < 0
        return
    expected = x @ y + beta * out
    assert sum(call.batch for call in how.calls) <= math.prod(out.shape[:-2])
    if beta == 0:
        out[...] = 0  # `execute` reads it
    execute(how, x, y, out, beta)
    np.testing.assert_array_equal(out, expected)


@settings(max_examples=300, deadline=None)
@given(products())
def test_a_dense_copy_is_laid_out_as_foreseen(operands):
    for a in operands[:2]:
        copied, foreseen = dense(a), strided(a).dense()
        matters = [size > 1 for size in foreseen.shape]
        assert copied.shape == foreseen.shape
        assert [s for s, m in zip(strided(copied).strides, matters, strict=True) if m] == [
            s for s, m in zip(foreseen.strides, matters, strict=True) if m
        ]
        np.testing.assert_array_equal(np.broadcast_to(copied, a.shape), a)


def heads(batch, length, num_heads, head_dim):
    """Queries as attention sees them: (B, H, T, D), a view of (B, T, 3 H D)."""
    qkv = np.zeros((batch, length, 3, num_heads, head_dim), np.float32)
    return np.swapaxes(qkv[:, :, 0], 1, 2)


ONES = np.ones
# x, y -> (calls, batch of a call, copied operands)
SHAPES = {
    "linear": (ONES((4, 5, 6)), ONES((7, 6)).T, 1, 1, ""),
    "gradient of the input": (ONES((4, 5, 7)), ONES((7, 6)), 1, 1, ""),
    "gradient of the weight": (ONES((20, 7)).T, ONES((20, 6)), 1, 1, ""),
    "logits of the last token": (ONES((4, 5, 6))[:, -1:], ONES((7, 6)).T, 1, 1, ""),
    "one row each": (ONES((9, 1, 6)), ONES((6, 7)), 1, 1, ""),
    "matrix and vectors": (ONES((5, 6)), ONES((9, 6, 1)), 1, 1, ""),
    "batch": (ONES((2, 4, 5, 6)), ONES((2, 4, 6, 7)), 1, 8, ""),
    "a matrix for each of a batch": (ONES((5, 6)), ONES((4, 6, 7)), 1, 4, ""),
    "time first": (np.swapaxes(ONES((5, 4, 6)), 0, 1), ONES((6, 7)), 1, 4, ""),
    "one of two batch dims": (ONES((3, 4, 5, 6)), ONES((3, 1, 6, 7)), 1, 3, ""),
    "the other batch dim": (ONES((3, 4, 5, 6)), ONES((4, 6, 7)), 3, 4, ""),
    "large heads": (heads(2, 512, 8, 256), np.swapaxes(heads(2, 512, 8, 256), -1, -2), 2, 8, ""),
    "small heads": (heads(8, 4, 4, 8), np.swapaxes(heads(8, 4, 4, 8), -1, -2), 1, 32, "xy"),
    "reversed": (ONES((5, 6))[::-1], ONES((6, 7)), 1, 1, "x"),
    "every other column": (ONES((5, 6)), ONES((6, 14))[:, ::2], 1, 1, "y"),
    "overlapping windows": (
        np.lib.stride_tricks.sliding_window_view(np.ones(9), 4), ONES((4, 7)), 1, 1, "x"
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_how_many_calls_and_copies(name):
    x, y, calls, batch, copied = SHAPES[name]
    how = plan(strided(x), strided(y), strided(np.matmul(x, y)), x.itemsize)
    found = "x" * how.copy_x + "y" * how.copy_y
    assert (len(how.calls), how.calls[0].batch, found) == (calls, batch, copied)


def test_what_repeats_is_copied_once():
    """An expanded operand that has to be copied stays small."""
    x = np.broadcast_to(np.ones((5, 12))[:, ::2], (100, 5, 6))
    assert strided(x).dense() == Strided((1, 5, 6), (30, 6, 1))
    how = plan(strided(x), strided(np.ones((100, 6, 7))), strided(np.ones((100, 5, 7))), 8)
    assert how.copy_x and how.calls[0].batch == 100 and how.calls[0].b.stride == 0


def test_a_transposed_result_is_written_in_place():
    x, y, out = np.ones((5, 6)), np.ones((6, 7)), np.zeros((7, 5)).T
    how = plan(strided(x), strided(y), strided(out), 8)
    assert how.swapped and how.calls == (Gemm(5, 7, 6, how.calls[0].a, how.calls[0].b, how.calls[0].c, 1),)
    assert plan(strided(x), strided(y), strided(np.zeros((5, 14))[:, ::2]), 8) is None


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_the_stride_of_a_size_1_doesn_t_matter(sizes):
    rows, cols = sizes
    for row_stride, col_stride in ((cols, 1), (cols + 4, 1), (1, rows), (1, rows + 4)):
        transposed, ld = layout(rows, cols, row_stride, col_stride)
        for i, j in itertools.product(range(rows), range(cols)):
            assert i * row_stride + j * col_stride == (i + j * ld if transposed else j + i * ld)
        for nonsense in (0, -1, 17):
            assert cols > 1 or layout(rows, cols, row_stride, nonsense) is not None
            assert rows > 1 or layout(rows, cols, nonsense, col_stride) is not None
