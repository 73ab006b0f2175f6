"""The stand-in refuses what the real CuPy refuses, and has only names that CuPy 13 and 14 both have."""

import sys

import numpy as np
import pytest

from tests.each import each
from tests.strict_cupy.names import NAMES

FLOATS = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)

REFUSED = {  # statements with a CuPy array a and a NumPy array n, both (3, 4): the error and its message
    # NumPy arrays
    "np.asarray(a)": (TypeError, "Implicit conversion"),
    "np.ascontiguousarray(a)": (TypeError, "Implicit conversion"),
    "np.array([a, a])": (TypeError, "Implicit conversion"),
    "n[0] = a[0]": (TypeError, "Implicit conversion"),
    "a + n": (TypeError, "Unsupported type"),
    "n * a": (TypeError, "Unsupported type"),
    "n += a": (TypeError, "Unsupported type"),
    "a += n": (TypeError, "Unsupported type"),
    "a * np.array(2.0)": (TypeError, "Unsupported type"),
    "a < n": (TypeError, "Unsupported type"),
    "a @ n.T": (TypeError, "matmul"),
    "np.maximum(a, n)": (TypeError, "Unsupported type"),
    "np.exp(a, out=n)": (TypeError, "must be cupy.ndarray"),
    "np.where(a > 0, a, n)": (TypeError, "Unsupported type"),
    "np.concatenate([a, n])": (TypeError, "Unsupported type"),
    "np.putmask(a, n > 0, 0)": (TypeError, "Unsupported type"),
    "np.copyto(n, a)": (TypeError, "must be a cupy.ndarray"),
    "np.random.default_rng(0).permutation(a)": (TypeError, "Implicit conversion"),
    "cupy.ascontiguousarray(n)": (TypeError, "expected cupy.ndarray"),
    "a[:1] = n[:1]": (ValueError, "non-scalar"),
    # lists and other objects
    "a + [1, 2, 3, 4]": (TypeError, "NotImplemented"),
    "a + None": (TypeError, "NotImplemented"),
    "cupy.sum([1, 2])": (TypeError, "must be a cupy.ndarray"),
    "np.dot(a, [1, 2, 3, 4])": (TypeError, "must be a cupy.ndarray"),
    "cupy.concatenate([1, 2])": (TypeError, "must be a cupy.ndarray"),
    "np.where(True, a, 0)": (TypeError, "condition must be"),
    "np.where(a > 0, a, [1, 2, 3, 4])": (TypeError, "expected cupy.ndarrays or numbers"),
    "np.matmul(a, 2)": (TypeError, "matmul"),
    "a[0] = [1, 2, 3, 4]": (ValueError, "non-scalar"),
    "a.set([1.0])": (TypeError, "numpy.ndarray"),
    "a.set(n.astype('d'))": (TypeError, "float32"),
    "a.get(out=n.astype('d'))": (TypeError, "float32"),
    "np.isin(a, 3)": (TypeError, "expected cupy.ndarray"),
    "np.flip(a, [0, 1])": (TypeError, "cannot be interpreted as an integer"),
    "np.flip(a, range(2))": (TypeError, "cannot be interpreted as an integer"),
    "np.squeeze(a[:1, :1], [0, 1])": (TypeError, "cannot be interpreted as an integer"),
    "cupy.array([a[0], 1])": (TypeError, "list of CuPy arrays"),
    # dtypes
    "cupy.array(['a'])": (ValueError, "Unsupported dtype"),
    "cupy.array([object()])": (ValueError, "Unsupported dtype"),
    "cupy.array(n.astype(np.longdouble))": (ValueError, "Unsupported dtype"),
    "cupy.zeros(2, '>f4')": (ValueError, "Unsupported dtype"),
    "np.exp(a, out=a.astype(int))": (TypeError, "Cannot cast"),
    "b = a.astype(int); b += 1.5": (TypeError, "Cannot cast"),
    "a.astype(np.int8) + 300": (OverflowError, "300"),
    "(a > 0) - (a > 1)": (TypeError, "boolean subtract"),
    "a & a": (TypeError, "Wrong type"),
    "np.logical_and(a + 1j, True)": (TypeError, "Wrong type"),
    "np.take(a, 0, out=a.astype(int)[0, 0])": (TypeError, "dtype mismatch"),
    "np.linalg.inv(a[:, :3].astype('e'))": (TypeError, "float16"),
    # indices, and numbers that must be known on the host
    "a[a]": (IndexError, "integer or boolean"),
    "a[[0.5]]": (IndexError, "integer or boolean"),
    "a[3]": (IndexError, "out of bounds"),
    "a[0, 0, 0]": (IndexError, "too many"),
    "a[a[:2] > 0]": (IndexError, "boolean"),
    "a[:0].take(a.argmax(), axis=0)": (IndexError, "empty"),
    "range(a.argmax())": (TypeError, "integer"),
    "a[: a.argmin()]": (TypeError, "slice indices"),
    "a.reshape(a.argmax())": (TypeError, "integer"),
    "cupy.zeros(a.argmax())": (TypeError, "must be a number"),
    "a.sum(axis=a.argmin())": (TypeError, "must be a number"),
    "bool(a)": (ValueError, "ambiguous"),
    "a.item()": (ValueError, "size 1"),
    "float(a)": (TypeError, "0-dimensional|length-1"),
    "hash(a)": (TypeError, "unhashable"),
    "list(a.sum())": (TypeError, "0-d"),
    "np.nonzero(a.sum())": (ValueError, "0d"),
    # arguments and methods of ufuncs
    "np.exp(a, where=a > 0)": (TypeError, "where"),
    "np.exp(a, order='F')": (TypeError, "order"),
    "np.exp(a, out=a[:1])": (ValueError, "Out shape"),
    "np.divmod(a, a, out=(a, a))": (ValueError, "exactly one"),
    "np.add.at(a, ([0], [1]), 1.0)": (TypeError, "NotImplemented"),
    "np.subtract.at(a, cupy.array([0]), 1.0)": (TypeError, "float32"),
    "np.multiply.at(a, cupy.array([0]), 2.0)": (NotImplementedError, "at"),
    "np.maximum.reduce(a)": (NotImplementedError, "reduce"),
    "np.logical_or.reduce(a)": (NotImplementedError, "reduce"),
    "np.maximum.accumulate(a)": (NotImplementedError, "accumulate"),
    "np.multiply.reduceat(a, cupy.array([0]))": (NotImplementedError, "reduceat"),
    # values of arguments
    "np.sort(a, kind='quicksort')": (ValueError, "stable"),
    "a.T.sort()": (NotImplementedError, "non-contiguous"),
    "a.astype('d', casting='safe')": (TypeError, "casting"),
    "np.einsum('ij->j', a, out=a[0])": (TypeError, "out"),
    "np.pad(a, 1, 'median')": (ValueError, "median"),
    "np.lib.stride_tricks.sliding_window_view(a, 2, 0, writeable=True)": (NotImplementedError, "Writeable"),
    "np.ones(3, like=a)": (TypeError, "device"),  # here NumPy hands on `device=None`
    "np.full(3, 1.0, like=a)": (TypeError, "device"),
    "np.eye(3, like=a)": (TypeError, "device"),
    # doors and attributes that aren't there
    "memoryview(a)": (TypeError, "bytes-like"),
    "np.from_dlpack(a, device='cpu', copy=False)": (ValueError, "copy"),
    "cupy.from_dlpack(n)": (TypeError, "CPU"),
    "a.flags.writeable": (AttributeError, "writeable"),
    "a.flags['WRITEABLE']": (KeyError, "WRITEABLE"),
    "a.note = 1": (AttributeError, "note"),
    "a.mT": (AttributeError, "mT"),
    "a.__index__()": (AttributeError, "__index__"),
}


@each("statement", REFUSED)
def test_it_refuses(fake_cuda, statement):
    error, message = REFUSED[statement]
    names = {"np": np, "cupy": fake_cuda, "a": fake_cuda.array(FLOATS), "n": FLOATS.copy()}
    with pytest.raises(error, match=message):
        exec(statement, names)


ARGUMENTS = {  # arguments that NumPy takes and CuPy doesn't
    "sum": ({"where": True}, {"initial": 0}),
    "mean": ({"where": True},),
    "var": ({"where": True}, {"correction": 1}, {"mean": 0}),
    "std": ({"where": True}, {"correction": 1}),
    "prod": ({"where": True}, {"initial": 1}),
    "max": ({"initial": 0}, {"where": True}),
    "min": ({"initial": 0}, {"where": True}),
    "any": ({"where": True},),
    "all": ({"where": True},),
    "count_nonzero": ({"keepdims": True},),
    "sort": ({"order": "f"}, {"stable": True}),
    "argsort": ({"order": "f"}, {"stable": True}),
    "unique": ({"sorted": True},),
    "copy": ({"subok": True},),
    "zeros_like": ({"device": "cpu"}, {"subok": False}),
    "ones_like": ({"device": "cpu"},),
    "empty_like": ({"device": "cpu"},),
    "full_like": ({"fill_value": 1, "device": "cpu"},),
    "quantile": ({"q": 0.5, "weights": None},),
    "clip": ({"min": 0, "max": 1},),
    "take": ({"indices": [0], "mode": "clip"},),
    "take_along_axis": ({"indices": [0]},),
    "reshape": ({"shape": -1}, {"newshape": -1, "copy": False}),
    "broadcast_to": ({"shape": (3, 4), "subok": True},),
    "partition": ({"kth": 1, "kind": "introselect"},),
    "argpartition": ({"kth": 1, "order": "f"},),
    "isin": ({"test_elements": 1, "kind": "sort"},),
    "trim_zeros": ({"axis": 0},),
}
METHODS = {
    "sum": ({"where": True}, {"initial": 0}),
    "mean": ({"where": True},),
    "max": ({"initial": 0},),
    "argsort": ({"kind": "stable"},),
    "sort": ({"kind": "stable"},),
    "take": ({"indices": [0], "mode": "wrap"},),
    "reshape": ({"shape": -1}, {"copy": True}),
    "item": ({"args": 0},),
    "view": ({"order": "C"},),
    "get": ({"dtype": float},),
}


def _cases(table):
    return [(name, arguments) for name, several in table.items() for arguments in several]


@pytest.mark.parametrize(("name", "arguments"), _cases(ARGUMENTS))
def test_arguments_that_cupy_lacks(fake_cuda, name, arguments):
    a = fake_cuda.array(FLOATS)
    for module in (fake_cuda, np):
        with pytest.raises(TypeError):
            getattr(module, name)(a, **arguments)


@pytest.mark.parametrize(("name", "arguments"), _cases(METHODS))
def test_method_arguments_that_cupy_lacks(fake_cuda, name, arguments):
    with pytest.raises(TypeError):
        getattr(fake_cuda.array(FLOATS), name)(**arguments)


MISSING = """
insert(a, 0, 1); block([a, a]); put_along_axis(a, a.astype(int), a, 0); matrix_transpose(a); geomspace(a, a)
nanquantile(a, 0.5); einsum_path("ij->j", a); polyder(a[0]); spacing(a); astype(a, int); cumulative_sum(a[0])
linalg.cond(a); linalg.multi_dot([a, a.T]); linalg.vector_norm(a); linalg.eig(a)
"""


@pytest.mark.parametrize("call", [call.strip() for call in MISSING.replace("\n", ";").split(";") if call])
def test_functions_that_cupy_lacks(fake_cuda, call):
    with pytest.raises(TypeError, match="no implementation found|all returned NotImplemented"):
        eval(f"np.{call}", {"np": np, "a": fake_cuda.array(FLOATS)})
    with pytest.raises(AttributeError):
        eval(call.split("(")[0], {}, _Attributes(fake_cuda))


class _Attributes(dict):
    def __init__(self, module):
        self.module = module

    def __missing__(self, name):
        return getattr(self.module, name)


def test_names_that_only_the_stand_in_lacks_say_so(fake_cuda):
    a = fake_cuda.array(FLOATS)
    for call in (lambda: fake_cuda.fft, lambda: fake_cuda.mgrid, lambda: np.fft.fft(a), lambda: a.flat):
        with pytest.raises(NotImplementedError, match="strict CuPy has no"):
            call()
    with pytest.raises(NotImplementedError, match="kernels"):
        fake_cuda.RawKernel("code", "name")((1,), (1,), ())


def test_the_array_has_no_more_names_than_cupy_s(fake_cuda):
    public = {name for name in dir(fake_cuda.ndarray) if not name.startswith("_")}
    assert public <= set(NAMES["cupy.ndarray"])
    protocols = {name for name in dir(fake_cuda.ndarray) if name.startswith("__")} - set(dir(object))
    ours = {"__module__", "__slots__", "__weakref__", "__getattr__"}
    assert protocols - ours <= set(NAMES["cupy.ndarray"])


@pytest.mark.parametrize("path", ["cupy", "cupy.linalg", "cupy.random", "cupy.lib.stride_tricks", "cupyx"])
def test_no_module_has_more_names_than_cupy_s(fake_cuda, path):
    assert {name for name in vars(sys.modules[path]) if not name.startswith("_")} <= set(NAMES[path])
