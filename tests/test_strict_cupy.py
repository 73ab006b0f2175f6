"""The stand-in for CuPy computes what NumPy computes, and gives CuPy arrays only."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests import strict_cupy
from tests.each import each
from tests.strict_cupy import to_numpy
from tests.strict_cupy.names import NAMES

FLOATS = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
INTS = np.array([[3, 1, 2, 0], [5, 4, 7, 6], [0, 2, 2, 9]])


def same(got, expected):
    """Equal values and dtypes, also inside tuples and lists."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for pair in zip(got, expected, strict=True):
            same(*pair)
    else:
        expected = np.asarray(expected)
        assert np.asarray(got).dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6)


# Must give the same with x = FLOATS and i = INTS as NumPy arrays and as CuPy arrays.
EXPRESSIONS = """
np.sum(x); np.sum(x, axis=1); np.sum(x, (0, 1), keepdims=True); x.sum(0); i.sum(); x.sum(1, keepdims=True)
np.sum(x, dtype=np.float64); np.sum(x > 0.5); i.sum(dtype=np.int32); x[1:1].sum(0)
np.mean(x, axis=-1, keepdims=True); np.mean(i); x.mean(); x.astype("e").mean(1); i.mean(0)
np.var(x, axis=0, ddof=1); np.std(i); x.var(1); x.std(ddof=1); np.average(x, axis=0)
np.max(x, 1); np.min(i); np.amax(x); np.amin(i, axis=0); x.max(axis=0, keepdims=True); i.min(1); np.ptp(i, 1)
np.argmax(x); np.argmin(i, axis=1); x.argmax(0); np.argmax(i, 1, keepdims=True); i.argmin(axis=0)
np.cumsum(x, axis=1); np.cumprod(i, axis=0); x.cumsum(); i.cumsum(0); np.prod(x, axis=1); i.prod(); np.diff(x)
np.any(i); np.all(i, axis=1); (x > 0.5).any(0); i.all(); np.count_nonzero(i); np.count_nonzero(i, axis=0)
np.sort(i); np.sort(i, axis=0); np.sort(i, axis=None); np.argsort(i, 1, kind="stable"); i.argsort(axis=0)
np.partition(i, 2, axis=1)[:, 2]; np.median(x, axis=0); np.quantile(x, 0.5); np.percentile(x, [9, 50], 1)
np.take(x, i % 3); np.take(x, [2, 0], axis=1); x.take(i[0] % 3, 0); np.take(x, 1)
np.take_along_axis(x, i % 4, 1); np.compress([True, False, True], x, 0); np.extract(i > 2, x)
np.where(x > 0.5, x, 0); np.where(i > 2, i, -x); np.where(i > 4); np.where(np.True_, x, 0)
np.nonzero(i); i.nonzero(); np.argwhere(i)
np.clip(x, 0.3, 0.6); np.clip(i, 1, None); x.clip(None, 0.5); i.clip(min=2); np.round(x, 1); x.round(2)
np.concatenate([x, x], 1); np.concatenate((x, i)); np.concatenate([x, x], axis=None); np.stack([x, x], axis=1)
np.vstack([x, i]); np.hstack((x, x)); np.dstack([x]); np.append(x, i); np.column_stack([x, x])
np.split(x, 2, axis=1); np.array_split(x, 2); np.hsplit(x, [1]); np.delete(x, 1, axis=0)
x @ x.T; np.matmul(x, x.T); np.dot(x, x[0]); np.vdot(x, x); np.outer(x[0], x[1]); x.dot(x.T); x[0] @ x[0]
np.tensordot(x, x, axes=([1], [1])); np.inner(x, x); np.kron(x, x); np.cross(x[:, :3], x[:, 1:])
np.einsum("ij,kj->ik", x, x); np.einsum("ij->j", x); np.einsum("ii->i", x[:, :3]); np.einsum("ij,ij", x, i)
np.pad(x, 1); np.pad(x, ((1, 0), (0, 2)), constant_values=3); np.pad(x, 1, "reflect")
np.roll(x, 1); np.roll(x, (1, 2), axis=(0, 1)); np.flip(x); np.flip(x, 1); np.rot90(x); np.fliplr(x)
np.repeat(x, 2); np.repeat(x, 2, axis=0); np.tile(x, (2, 1)); x.repeat(3, 1)
np.tril(x); np.triu(x, 1); np.diag(x); np.diag(x[0]); np.diagonal(x, 1); np.trace(x); x.diagonal(); x.trace(1)
x.reshape(4, 3); np.reshape(x, (-1,)); x.T; np.transpose(x, (1, 0)); x.transpose(); x.ravel(); x.flatten("F")
np.moveaxis(x, 0, 1); np.swapaxes(x, 0, 1); np.expand_dims(x, 1); np.squeeze(x[:1]); np.atleast_3d(x)
np.broadcast_to(x[0], (2, 4)); np.broadcast_arrays(x, x[:, :1]); np.meshgrid(x[0], i[0])
np.searchsorted(x[0], x[0, 1]); np.searchsorted(x[0], x[0], side="right"); x[0].searchsorted(x[1])
np.unique(i); np.unique(i, return_inverse=True, return_counts=True); np.isin(i, i[0]); np.union1d(i[0], i[1])
np.bincount(i.ravel()); np.bincount(i[0], x[0], minlength=6); np.histogram(x, 3); np.digitize(x, x[0])
np.isclose(x, 0.1); np.allclose(x, x); np.array_equal(x, i); np.nan_to_num(np.log(x - x)); np.nanmax(x, 1)
np.zeros_like(x); np.ones_like(i); np.full_like(x, 7); np.zeros_like(x, dtype=int, shape=2)
np.zeros((2, 1), like=x); np.arange(2, 8, 3, like=x); np.asarray([1.5], like=x); np.array([[1]], like=x)
np.copy(x); x.copy(); x.astype("d"); np.real(x); np.imag(x); np.ascontiguousarray(x.T, like=x); (x + 1j).imag
np.linalg.norm(x); np.linalg.norm(x, axis=1); np.linalg.inv(x[:, :3] + np.diag(x[0, :3])); np.linalg.svd(x)[1]
np.lib.stride_tricks.sliding_window_view(x, 2, axis=1); np.gradient(x[0])
x[1]; x[1, 2]; x[:, ::-1]; x[..., None]; x[[0, 2]]; x[x > 0.5]; x[i[0] % 3, 1]; x[[True] * 3]; x[[]]; x[()]
x + 1; 2 - x; x * i; x / 2; 1 / x; i // 2; i % 3; x**2; 2**i; -x; +x; abs(x); ~i; i << 1; divmod(i, 2)
x < 0.5; x == x; i != 2; i >= 3; (i > 1) & (i < 5); (x > 1) | (x < 2); x == None; x != None; 3 > i
x * np.float64(2); np.float32(3) * x; i + np.int8(1); np.float64(1) < x; i * np.True_
np.exp(x); np.maximum(x, 0.5); np.divmod(i, 3); np.modf(x); np.sqrt(i); np.add.outer(x, x); np.frexp(x)
np.add.reduce(x); np.multiply.reduce(x, axis=1); np.add.accumulate(i); np.add.reduceat(i, i[2, :2], axis=1)
np.exp(x.T); x[::-1, ::2] + 1; x[:, ::-1].sum(1); np.exp(x[:0]); np.exp(x, dtype=np.float64)
x.astype("e") * 2; np.exp(x.astype("e")); x.astype("e") + x; np.tanh(x.astype("e"))
np.shape(x); np.ndim(x); np.size(x); np.size(x, 1); len(x); x.size; x.nbytes; x.strides; x.itemsize; list(x)
np.result_type(x, i).num; np.can_cast(x.dtype, i.dtype); np.iscomplexobj(x); x.tolist(); x[0, 0].item()
"""


CASES = [case.strip() for case in EXPRESSIONS.replace("\n", ";").split(";") if case]


@each("expression", CASES)
def test_it_computes_what_numpy_computes(fake_cuda, expression):
    with np.errstate(all="ignore"):
        expected = eval(expression, {"np": np, "x": FLOATS, "i": INTS})
    got = eval(expression, {"np": np, "x": fake_cuda.array(FLOATS), "i": fake_cuda.array(INTS)})
    same(to_numpy(got), expected)


UFUNCS = [name for name, entry in NAMES["cupy"].items() if entry.loops]


@each("dtype", ["int32", "int64", "float32", "float64"])
@each("name", UFUNCS)
def test_every_ufunc_gives_numpy_s_dtype_and_values(fake_cuda, name, dtype):
    function = getattr(fake_cuda, name)
    values = [1, 1, 1] if np.dtype(dtype).kind == "i" else [0.25, 0.5, 1]
    inputs = [np.array(values, dtype)] * function.nin
    try:
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(*inputs)
    except TypeError:
        with pytest.raises(TypeError, match="Wrong type"):
            function(*map(fake_cuda.array, inputs))
    else:
        same(to_numpy(function(*map(fake_cuda.array, inputs))), expected)


PROMOTIONS = {  # o(char) makes an array of that dtype
    "o('e') * 1.5": "float16",
    "o('f') * 3": "float32",
    "o('b') + 1": "int8",
    "o('b') + 1.0": "float64",
    "o('?') + 1": "int64",
    "o('?') * 1.0": "float64",
    "o('f') * np.float64(2)": "float64",
    "o('f') + o('q')": "float64",
    "o('e') + o('f').sum()": "float32",
    "o('B') - o('b')": "int16",
    "o('i') / o('i')": "float64",
    "o('h') ** 2": "int16",
    "o('f') > 0": "bool",
    "o('B') == -1": "bool",
    "np.floor(o('i'))": "int32",
    "np.sqrt(o('b'))": "float16",
    "np.where(o('?'), o('e'), 1.0)": "float16",
    "o('?').sum()": "int64",
    "o('e').mean()": "float16",
    "o('i').var()": "float64",
    "o('f').argmax()": "int64",
}


@pytest.mark.parametrize("expression", PROMOTIONS)
def test_dtypes_follow_numpy_2(fake_cuda, expression):
    for ones in (np.ones, fake_cuda.ones):
        result = eval(expression, {"np": np, "o": lambda char, ones=ones: ones(3, char)})
        assert result.dtype == PROMOTIONS[expression]


@pytest.mark.parametrize("reduce", ["sum", "mean", "var", "std"])
def test_half_precision_is_summed_in_float32(fake_cuda, reduce):
    halves = np.linspace(0, 1, 5000).astype(np.float16).reshape(2500, 2)
    expected = getattr(halves.astype(np.float32), reduce)(0).astype(np.float16)
    same(to_numpy(getattr(fake_cuda.array(halves), reduce)(0)), expected)


@pytest.mark.parametrize(("owner", "at_least"), [("cupy", 60), ("cupy.ndarray", 25)])
def test_nothing_leaks_from_any_function_of_one_array(fake_cuda, owner, at_least):
    functions, ran = vars(fake_cuda if owner == "cupy" else fake_cuda.ndarray), 0
    for name, entry in NAMES[owner].items():
        if entry.parameters is None or name not in functions or name in ("asnumpy", "get"):
            continue
        try:
            result = functions[name](fake_cuda.array(INTS))
        except (TypeError, ValueError):  # it needs other arguments
            continue
        to_numpy(result)
        ran += 1
    assert ran > at_least


@given(data=st.data())
def test_indexing_reads_and_writes_as_numpy_does(data):
    cupy = strict_cupy.install()
    try:
        shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
        index = data.draw(hnp.basic_indices(shape, allow_newaxis=True) | hnp.integer_array_indices(shape))
        items = index if isinstance(index, tuple) else (index,)
        key = tuple(cupy.array(item) if isinstance(item, np.ndarray) else item for item in items)
        host = np.arange(np.prod(shape)).reshape(shape)
        array = cupy.array(host)
        np.testing.assert_array_equal(array[key].get(), host[index])
        array[key], host[index] = -1, -1
        np.testing.assert_array_equal(array.get(), host)
    finally:
        strict_cupy.uninstall()


def test_results_are_arrays_of_no_dimensions(fake_cuda):
    a = fake_cuda.array(FLOATS)
    for result in (a.sum(), a[0, 0], a.argmax(), np.max(a), a[0] @ a[0], 1 * a[0, 0], np.vdot(a, a)):
        assert type(result) is fake_cuda.ndarray
        assert result.shape == ()


def test_python_numbers_and_text_come_out_on_request(fake_cuda):
    a, one = fake_cuda.array(FLOATS), fake_cuda.array([1.5])
    assert (float(one[0]), int(one[0]), bool(one), complex(one[0])) == (1.5, 1, True, 1.5 + 0j)
    assert (one.item(), type(one.item()), a.tolist()) == (1.5, float, FLOATS.tolist())
    assert f"{one[0]:.2f} {fake_cuda.array([1, 2])}" == "1.50 [1 2]"
    assert repr(fake_cuda.array([1, 2])) == "array([1, 2])"
    assert type(a.get()) is type(fake_cuda.asnumpy(a)) is np.ndarray
    assert a.tobytes() == FLOATS.tobytes()


def test_views_share_memory_and_know_their_base(fake_cuda):
    a = fake_cuda.array(FLOATS)
    row = a[1]
    row[0] = 7
    row[1:] += 1
    np.testing.assert_allclose(a.get()[1], [7, *(FLOATS[1, 1:] + 1)])
    assert row.base is a[1:][0].base is a.reshape(4, 3).base is a.T.base is a.ravel().base is a
    empty = a[:0]
    assert empty.reshape(4, 0).base is empty.T.base is fake_cuda.transpose(empty).base is a
    assert empty.copy().base is fake_cuda.exp(empty).base is None
    assert a.base is a.copy().base is a.T.reshape(-1).base is a[[0]].base is None
    assert a.data.ptr == a[0].data.ptr == row.data.ptr - a.strides[0]
    a[0, 0][...] = -1
    assert a.tolist()[0][0] == -1
    np.diagonal(a)[...] = 0  # NumPy's would be read-only
    assert a.trace().item() == 0


def test_results_are_in_c_order(fake_cuda):
    t = fake_cuda.array(FLOATS).T
    assert not t.flags.c_contiguous and t.flags.f_contiguous and not t.flags.owndata
    for result in (np.exp(t), t + 1, t[[1, 0]], t.sum(0), np.where(t > 0, t, 2), np.clip(t, 0, 1), t.copy()):
        assert result.flags["C_CONTIGUOUS"] and result.flags.owndata
    assert t.astype("d").flags.f_contiguous  # astype keeps the order, as NumPy's does


def test_setitem(fake_cuda):
    a = fake_cuda.array(FLOATS)
    a[0] = 1
    a[1] = np.float64(2)
    a[2] = a[0]
    a[a > 1.5] = 9
    a[[0, 0], [1, 2]] = fake_cuda.array([3, 4])
    a[fake_cuda.array([2])] = np.array([[5, 6, 7, 8]], np.float32)  # CuPy copies it to the GPU
    assert a.tolist() == [[1, 3, 4, 1], [9, 9, 9, 9], [5, 6, 7, 8]]


def test_integer_arrays_wrap_around(fake_cuda):
    a = fake_cuda.array(FLOATS)
    np.testing.assert_array_equal(a[fake_cuda.array([3, -4])].get(), FLOATS[[0, 2]])
    assert np.take(a[:0, :0], fake_cuda.array([0, -1]), axis=0).shape == (2, 0)
    np.testing.assert_array_equal(np.take(a, fake_cuda.array([5]), axis=1).get(), FLOATS[:, [1]])
    np.testing.assert_array_equal(a[np.array([4]), [5]].get(), FLOATS[[1], [1]])  # NumPy's too


def test_in_place_operators_and_out_keep_the_array(fake_cuda):
    a = before = fake_cuda.array(FLOATS)
    a += 1
    a *= a
    a -= np.float64(1)
    assert a is before and a.dtype == np.float32
    np.testing.assert_allclose(a.get(), (FLOATS + 1) ** 2 - 1, rtol=1e-6)
    for result in (np.exp(a, out=a), np.add(a, 1, a), fake_cuda.exp(a, a), np.matmul(a[:, :3], a, out=a)):
        assert result is a


def test_operators_leave_the_word_to_classes_that_want_it(fake_cuda):
    class Wants:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "mine"

        def __eq__(self, other):
            return "mine"

        __hash__ = None

    a = fake_cuda.array(FLOATS)
    assert a + Wants() == "mine" and (a == Wants()) == "mine"
    assert not (a == object()).any() and (a != object()).all()


def test_scatter(fake_cuda):
    a = fake_cuda.zeros((3, 2))
    fake_cuda.add.at(a, (fake_cuda.array([0, 0, 2]), [1, 1, 0]), fake_cuda.array([1.0, 2, 3]))
    fake_cuda.add.at(a, 1, 5)
    np.add.at(a, fake_cuda.array([2, 2]), 1.0)
    assert a.tolist() == [[0, 3], [5, 5], [5, 2]]
    np.maximum.at(a, fake_cuda.array([0]), 4.0)
    sys.modules["cupyx"].scatter_add(a, 0, 1.0)
    assert a.tolist()[0] == [5, 5]


def test_special_functions(fake_cuda):
    erf = sys.modules["cupyx"].scipy.special.erf
    assert erf(fake_cuda.array([0.0, 1.0])).tolist() == [0.0, 0.8427007929497149]
    assert [erf(fake_cuda.ones(2, char)).dtype.char for char in "efd"] == ["d", "f", "d"]  # no half precision
