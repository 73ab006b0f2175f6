"""Array: one type over NumPy and CuPy. CuPy is the strict stand-in here."""

import copy
import operator
import pickle

import numpy as np
import pytest

import mytorch
from mytorch import Array
from tests.array_parity import BITS, INDEX, MIXED, ROW, SQUARE, I, J, X, Y, agree, arrays, words
from tests.each import each

METHODS = {
    "all": (),
    "any": (),
    "argmax": (1,),
    "argmin": (),
    "argsort": (),
    "astype": ("float32",),
    "clip": (0.3, 0.6),
    "copy": (),
    "cumprod": (0,),
    "cumsum": (1,),
    "diagonal": (),
    "dot": (SQUARE,),
    "flatten": (),
    "max": {"axis": 0},
    "mean": (1,),
    "min": (),
    "prod": (),
    "ravel": (),
    "repeat": {"repeats": 2, "axis": 1},
    "reshape": (3, 2),
    "round": (1,),
    "searchsorted": None,
    "squeeze": (),
    "std": {"ddof": 0},
    "sum": (0,),
    "swapaxes": (0, 1),
    "take": (INDEX,),
    "trace": (),
    "transpose": (1, 0),
    "var": {"ddof": 0},
    "view": ("int64",),
}


@each("name", METHODS)
def test_methods(name, device):
    x, args = (np.sort(ROW), (X,)) if METHODS[name] is None else (X, METHODS[name])
    args, words = ((), args) if isinstance(args, dict) else (args, {})
    got = getattr(Array(x, device=device), name)(*arrays(args, device), **words)
    agree(got, getattr(x, name)(*args, **words), device)


def test_methods_in_place(device):
    x = Array([[3.0, 1.0], [2.0, 4.0]], device=device)
    x.sort(axis=0)
    assert x.tolist() == [[2, 1], [3, 4]]
    x.fill(7)
    assert x.tolist() == [[7, 7], [7, 7]]


OPERATORS = words("add sub mul truediv floordiv mod pow lt le eq ne gt ge")


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, device):
    op = getattr(operator, name)
    a, b = arrays((X, Y), device)
    agree(op(a, b), op(X, Y), device)
    agree(op(a, 0.5), op(X, 0.5), device)
    agree(op(0.5, b), op(0.5, Y), device)
    agree(op(a, np.float64(0.5)), op(X, 0.5), device)
    if device == "cpu":
        agree(op(X, b), op(X, Y), device)
        agree(op(a, Y), op(X, Y), device)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_integer_operators(name, device):
    agree(getattr(operator, name)(*arrays((I, J), device)), getattr(operator, name)(I, J), device)


def test_unary_and_matrix_operators(device):
    x, square, i = arrays((MIXED, SQUARE, I), device)
    for op in (operator.neg, operator.pos, operator.abs):
        agree(op(x), op(MIXED), device)
    agree(~i, ~I, device)
    agree(x @ square, MIXED @ SQUARE, device)
    agree(divmod(x, 2.0), divmod(MIXED, 2.0), device)


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow"])
def test_in_place_operators_write_into_the_same_memory(name, device):
    x, want = Array(X.copy(), device=device), X.copy()
    before, raw = x, x._array
    x = getattr(operator, name)(x, Array(Y, device=device))
    want = getattr(operator, name)(want, Y)
    assert x is before and x._array is raw
    agree(x, want, device)


def test_an_in_place_operator_keeps_the_dtype(device):
    x = Array([1.0, 2.0], device=device)
    x += Array(np.array([0.5, 0.5]), device=device)
    assert x.dtype == "float32" and x.tolist() == [1.5, 2.5]
    i = Array([1, 2], device=device)
    with pytest.raises(TypeError, match="int64"):
        i += 0.5
    assert i.tolist() == [1, 2]


def test_ufunc_methods(device):
    x, row = arrays((X, ROW), device)
    agree(np.add.reduce(x, axis=1, keepdims=True), np.add.reduce(X, axis=1, keepdims=True), device)
    agree(np.multiply.outer(row, row), np.multiply.outer(ROW, ROW), device)
    if device == "cpu":  # CuPy's ufuncs don't have these
        agree(np.maximum.reduce(x, axis=0), np.maximum.reduce(X, axis=0), device)
        agree(np.add.accumulate(x), np.add.accumulate(X), device)
        total = Array(np.zeros(3))
        assert np.add.at(total, Array(np.array([0, 0, 2])), 1.0) is None
        assert total.tolist() == [2, 0, 1]


def test_out(device):
    x, y, out = *arrays((X, Y), device), Array(np.zeros((2, 3)), device=device)
    assert np.multiply(x, y, out=out) is out
    agree(out, X * Y, device)
    total = Array(np.zeros(3), device=device)
    assert np.sum(x, axis=0, out=total) is total
    agree(total, X.sum(0), device)
    if device == "cpu":  # CuPy takes one `out`
        parts = Array(np.zeros((2, 3))), Array(np.zeros((2, 3)))
        assert np.modf(x, out=parts)[1] is parts[1]
        agree(parts, np.modf(X), device)


def test_functions_of_arrays_and_numpys_arrays():
    x = Array(X)
    for got, want in (
        (np.concatenate([x, Y]), np.concatenate([X, Y])),
        (np.concatenate([Y, x]), np.concatenate([Y, X])),
        (np.where(BITS, x, Y), np.where(BITS, X, Y)),
        (np.dot(X, Array(SQUARE)), np.dot(X, SQUARE)),
        (np.allclose(x, X), True),
    ):
        agree(got, want, "cpu")


def test_named_tuples(device):
    values, vectors = np.linalg.eigh(Array(SQUARE, device=device))
    result = np.linalg.eigh(Array(SQUARE, device=device))
    assert isinstance(values, Array) and isinstance(result.eigenvectors, Array)
    agree(vectors @ np.diag(values) @ vectors.T, SQUARE, device)


INDICES = {
    "integer": 1,
    "negative": -1,
    "slice": slice(0, 1),
    "step": slice(None, None, -1),
    "ellipsis": (..., 0),
    "newaxis": (None, 0),
    "tuple": (1, 2),
    "mixed": (slice(None), 1),
    "list": [1, 0],
    "array": np.array([[0, 1]]),
    "two arrays": (np.array([0, 1]), np.array([2, 0])),
    "mask": X > 0.5,
    "row mask": np.array([True, False]),
}


@pytest.mark.parametrize("name", INDICES)
def test_reading_and_writing_by_index(name, device):
    index, x = INDICES[name], Array(X.copy(), device=device)
    agree(x[arrays(index, device)], X[index], device)
    want = X.copy()
    x[arrays(index, device)], want[index] = 9.0, 9.0
    agree(x, want, device)


def test_writing_an_array_and_through_a_slice(device):
    x = Array(np.zeros((2, 3)), device=device)
    x[0] = Array(ROW, device=device)
    view = x[1]
    view[...] = 5
    assert x[1].tolist() == [5, 5, 5]
    agree(x[0], ROW, device)
    if device == "cpu":
        x[0] = ROW * 2
        agree(x[0], ROW * 2, device)


def test_what_an_array_shares_and_copies():
    raw = np.array([1.0, 2.0])
    x = Array(raw)
    assert x._array is raw and Array(x)._array is raw and x.numpy() is raw
    assert np.asarray(x) is raw and np.array(x) is not raw
    assert Array(raw, dtype="float64")._array is raw
    assert not np.shares_memory(Array(raw, dtype="float32")._array, raw)
    assert not np.shares_memory(x.copy()._array, raw) and not np.shares_memory(x.clone()._array, raw)
    assert x.to("cpu")._array is raw and x.cpu()._array is raw
    with pytest.raises(ValueError, match="copy"):
        np.array(x, dtype="float32", copy=False)


CONSTRUCTED = {
    "floats": ([1.0, 2.0], "float32"),
    "ints": ([1, 2], "int64"),
    "bools": ([True, False], "bool"),
    "mixed": ([1, 2.5], "float32"),
    "complex": ([1j, 2.0], "complex64"),
    "a number": (2.5, "float32"),
    "nothing": ([], "float32"),
    "float64": (np.array([1.0]), "float64"),
    "numpy scalar": (np.float64(1), "float64"),
    "numpy scalars": ([np.float64(1), np.float64(2)], "float64"),
    "range": (range(3), "int64"),
    "arrays": ([Array([1.0]), Array([2.0])], "float32"),
    "arrays and numbers": ([Array(1.0), 0.5], "float32"),
    "int and float arrays": ([Array(1), Array(2.0)], "float32"),
    "tuple": ((1.0, 2.0), "float32"),
}


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_dtype_of_what_it_is_made_from(name, device):
    data, dtype = CONSTRUCTED[name]
    assert Array(data, device=device).dtype == dtype
    assert Array(data, dtype="float16", device=device).dtype == "float16" if dtype != "complex64" else True


WRONG = {
    "text": ("abc", None, TypeError, "str"),
    "text as a number": ("1.5", "float32", TypeError, "str"),
    "None": ([None], "float32", TypeError, "None"),
    "a set": ({1}, None, TypeError, "set"),
    "ragged": ([[1], [2, 3]], None, ValueError, "inhomogeneous"),
    "too large": ([300], "uint8", RuntimeError, "300"),
    "above int64": (2**63, None, ValueError, "int64"),
    "far above int64": (2**64, None, TypeError, "int"),
    "complex as float": ([1j], "float32", TypeError, "complex"),
    "unknown dtype": ([1], "float99", TypeError, "float99"),
    "text dtype": ([1], "U3", TypeError, "U3"),
    "text array": (np.array(["a"]), None, TypeError, "U1"),
    "byte order": (np.array([1.0], ">f4"), None, TypeError, ">f4"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_array_can_be_made_from(name):
    data, dtype, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        Array(data, dtype)


def test_repr(fake_cuda):
    assert repr(Array([8.0], device="cuda")) == "Array([8.00000], dtype=float32, device='cuda:0')"
    assert repr(Array([[1, 2], [3, 4]])) == "Array([[1 2]\n       [3 4]], dtype=int64)"
    assert repr(Array(np.array([0.1], "float16"))) == "Array([0.09998], dtype=float16)"
    assert repr(Array([1e-7, 1.0])) == "Array([1.00000e-07 1.00000e+00], dtype=float32)"
    assert repr(Array([np.inf, np.nan, -1.0])) == "Array([     inf      nan -1.00000], dtype=float32)"
    assert repr(Array([8.0], device="meta")) == "Array(..., shape=(1,), dtype=float32, device='meta')"
    assert repr(Array(np.zeros((2, 0)))) == "Array([], shape=(2, 0), dtype=float64)"
    assert repr(Array(np.zeros(2000))).count("...") == 1


def test_numbers():
    x = Array([2.5])
    assert (float(x), int(x), x.item(), bool(x), len(x)) == (2.5, 2, 2.5, True, 1)
    assert (
        [10, 20, 30][Array(1)] == 20
        and f"{Array(1.23456):.2f}" == "1.23"
        and f"{Array([1])}" == repr(Array([1]))
    )
    assert 2.5 in x and 1.0 not in x and [float(v) for v in Array([1.0, 2.0])] == [1, 2]
    for call, message in (
        (lambda: Array([1, 2]).item(), r"\(2,\)"),
        (lambda: float(Array([1, 2])), r"\(2,\)"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    with pytest.raises(TypeError, match="unsized"):
        len(Array(1.0))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(Array([1, 2]))
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_what_training_loops_do_with_a_gradient(device):
    x = Array([3.0, -4.0], device=device)
    assert x.norm().item() == 5 and x.norm(1).item() == 7 and x.norm(float("inf")).item() == 4
    assert x.abs().tolist() == [3, 4] and x.detach() is x
    x.mul_(2).add_(Array([1.0, 1.0], device=device), alpha=0.5).clamp_(max=5).div_(2)
    assert x.tolist() == [2.5, -3.75]
    assert x.zero_() is x and x.tolist() == [0, 0] and x.fill_(2).tolist() == [2, 2]
    assert x.copy_(Array([5.0, 6.0], device=device)).tolist() == [5, 6] and (x.numel(), x.dim()) == (2, 1)
    half = Array(np.full(1000, 60, "float16"), device=device)  # its squares overflow
    assert half.norm().dtype == "float16" and abs(half.norm().item() - 60 * 1000**0.5) < 1


def test_pickle_and_deepcopy(device):
    x = Array([1.0, 2.0], device=device)
    for twin in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert twin.device == device and twin.dtype == "float32" and twin.tolist() == [1, 2]
        twin[0] = 9
        assert x.tolist() == [1, 2]


def test_factories_like_an_array(device):
    x = Array([1.0], device=device)
    for made, want in (
        (np.zeros((2, 3), "float32", like=x), np.zeros((2, 3), "float32")),
        (np.ones(2, like=x), np.ones(2)),
        (np.full((2,), 3, like=x), np.full((2,), 3)),
        (np.arange(3, like=x), np.arange(3)),
        (np.eye(2, like=x), np.eye(2)),
        (np.array([1, 2], like=x), np.array([1, 2])),
    ):
        agree(made, want, device)


def test_moving(fake_cuda):
    x = Array([1.0, 2.0])
    y = x.to("cuda:1")
    assert (x.device, y.device, y.cpu().device, x.cuda().device) == ("cpu", "cuda:1", "cpu", "cuda:0")
    assert y.to("float16").dtype == "float16" and y.to("float16").device == "cuda:1"
    assert y.to("cuda:0", "float64").dtype == "float64" and y.to("cuda:1")._array is y._array
    with pytest.raises(TypeError, match="cuda:1"):
        y.numpy()
    with pytest.raises(TypeError, match="cuda:1"):
        np.asarray(y)


def test_devices_do_not_mix(fake_cuda):
    on_cpu, on_gpu, on_other = Array([1.0]), Array([1.0], device="cuda"), Array([1.0], device="cuda:1")
    for wrong in (
        lambda: on_cpu + on_gpu,
        lambda: on_gpu + on_other,
        lambda: np.concatenate([on_cpu, on_gpu]),
        lambda: on_gpu + np.array([1.0]),
        lambda: np.array([1.0]) * on_gpu,
        lambda: np.where(on_gpu > 0, on_cpu, 0),
        lambda: on_gpu.__setitem__(0, on_other),
        lambda: on_gpu[Array([0])],
        lambda: np.add(on_cpu, 1, out=on_gpu),
    ):
        with pytest.raises(RuntimeError, match="one device, got .*cuda"):
            wrong()
    agree(on_gpu + np.array(2.0), np.array([3.0]), "cuda:0")  # no dimensions: a number
    agree(on_gpu * np.float32(2), np.array([2.0]), "cuda:0")


def test_what_cupy_lacks_says_so(fake_cuda):
    with pytest.raises(TypeError, match="trapezoid"):
        np.trapezoid(Array([1.0, 2.0], device="cuda"))


def test_a_gpu_that_is_not_there(fake_cuda):
    with pytest.raises(RuntimeError, match="cuda:7.*2 GPUs"):
        Array([1.0], device="cuda:7")


def test_a_gpu_without_cupy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(RuntimeError, match="CuPy.*pip install"):
        Array([1.0], device="cuda:0")


def test_dlpack(fake_cuda):
    x = Array([1.0, 2.0])
    assert np.shares_memory(np.from_dlpack(x), x._array) and x.__dlpack_device__()[0] == 1
    assert mytorch.Array([1.0], device="cuda:1").__dlpack_device__() == (2, 1)


def test_view_takes_a_shape_or_a_dtype(device):
    a = Array(np.arange(6, dtype="float32"), device=device)
    v = a.view(2, -1)
    v[0, 0] = 7.0
    assert v.shape == (2, 3) and a[0].item() == 7 and a.data is a
    assert a.view((3, 2)).shape == (3, 2) and a.view(np.int32).dtype == np.int32
    with pytest.raises(RuntimeError, match=r"size \[6\] is not compatible with size \[3, 2\]"):
        v.transpose().view(6)
