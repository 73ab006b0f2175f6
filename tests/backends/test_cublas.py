"""Products on the GPU through cuBLAS: here one that computes with NumPy, on the strict stand-in for CuPy."""

import functools
import sys
import threading
import types

import ml_dtypes
import numpy as np
import pytest

import mytorch
from mytorch.backends import blas, cublas
from tests.each import each
from tests.every import every
from tests.strict_cupy import cublas as stand_in

LIBRARY = cublas.library  # which `fake_cuda` replaces
RNG = np.random.default_rng(0)
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}
SHAPES = {
    "matrices": ((3, 4), (4, 5)),
    "rows": ((2, 3, 4), (4, 5)),
    "batch": ((2, 3, 4), (2, 4, 5)),
    "two batch dims": ((2, 3, 4, 5), (2, 3, 5, 2)),
    "broadcast": ((3, 1, 2, 4), (5, 4, 3)),
    "one by one": ((1, 1), (1, 1)),
    "no rows": ((0, 4), (4, 5)),
    "no columns": ((3, 4), (4, 0)),
    "nothing to sum": ((2, 3, 0), (0, 5)),
    "empty batch": ((0, 3, 4), (0, 4, 5)),
}


@pytest.fixture
def fake(fake_cuda):
    """The functions of the cuBLAS that stands in: they know their calls."""
    return cublas.library().functions


def arrays(cupy, *shapes, dtype="float32"):
    return [cupy.asarray(RNG.normal(size=shape).astype(dtype)) for shape in shapes]


@each("beta", [0, 1, 0.5])
@each("dtype", TOLERANCE)
@each("name", SHAPES)
def test_values(fake_cuda, fake, name, dtype, beta):
    x, y = arrays(fake_cuda, *SHAPES[name], dtype=dtype)
    expected = x.get().astype(float) @ y.get().astype(float)
    (out,) = arrays(fake_cuda, expected.shape, dtype=dtype)
    if beta == 0 and out.size:
        out[...] = np.nan  # it doesn't count
    else:
        expected += beta * out.get().astype(float)
    assert cublas.matmul(x, y, out, beta=beta) is out
    np.testing.assert_allclose(out.get(), expected, TOLERANCE[dtype], TOLERANCE[dtype])
    new = cublas.matmul(x, y, alpha=-2.0)
    assert new.dtype == dtype and new.flags.c_contiguous
    np.testing.assert_allclose(
        new.get(), -2 * (x.get().astype(float) @ y.get()), 2 * TOLERANCE[dtype], 2 * TOLERANCE[dtype]
    )


def test_half_precision_is_summed_in_float32_and_added_to_float32(fake_cuda, fake):
    ones = fake_cuda.ones((1, 4096), np.float16)
    assert cublas.matmul(ones, ones.T).item() == 4096  # a float16 sum of ones ends at 2048
    total = fake_cuda.full((1, 1), 0.25, np.float32)
    cublas.matmul(ones, ones.T, total, beta=1)
    assert total.item() == 4096.25
    assert {handle.math_mode for handle in fake.handles.values()} == {16}


LAYOUTS = {
    "transposed": lambda cupy, shape: cupy.empty(shape[::-1], np.float32).T,
    "part": lambda cupy, shape: cupy.empty((shape[0], 9), np.float32)[:, 2 : 2 + shape[1]],
    "every other": lambda cupy, shape: cupy.empty((shape[0], 2 * shape[1]), np.float32)[:, ::2],
    "reversed": lambda cupy, shape: cupy.empty(shape, np.float32)[::-1],
}


@pytest.mark.parametrize("beta", [0, 1])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_result_may_have_any_strides(fake_cuda, fake, name, beta):
    x, y, before = arrays(fake_cuda, (3, 4), (4, 5), (3, 5))
    out = LAYOUTS[name](fake_cuda, (3, 5))
    out[...] = before
    cublas.matmul(x, y, out, beta=beta)
    np.testing.assert_allclose(out.get(), x.get() @ y.get() + beta * before.get(), 1e-5, 1e-6)
    assert len(fake.calls) == 1


def test_nothing_is_copied_where_blas_can_read(fake_cuda, fake, monkeypatch):
    monkeypatch.setattr(cublas, "dense", lambda array: pytest.fail("a copy"))
    x, w, g = arrays(fake_cuda, (2, 3, 4), (5, 4), (2, 3, 5))
    blas.product(x, w.T)
    blas.product(g, w)
    blas.product(blas.rows(g).T, blas.rows(x))
    assert [call[0] for call in fake.calls] == ["GemmEx"] * 3
    (m, n, k), (a, b, c) = fake.calls[0][2:4]
    assert (m, n, k) == (5, 6, 4) and [p[0] for p in (a, b)] == [w.data.ptr, x.data.ptr]
    assert fake.calls[0][1] == (1, 0) and fake.calls[2][1] == (0, 1)  # w and g are read transposed


def test_what_blas_can_t_read_is_copied(fake_cuda, fake):
    x, y = arrays(fake_cuda, (6, 8), (8, 10))
    np.testing.assert_allclose(
        cublas.matmul(x[::-2, ::2], y[::2, ::-2]).get(), x.get()[::-2, ::2] @ y.get()[::2, ::-2], 1e-5, 1e-6
    )


def test_products_of_tensors_go_through_it(fake_cuda, fake):
    x = mytorch.randn(4, 3, requires_grad=True, device="cuda:1")
    (x @ x.T).sum().backward()
    assert len(fake.calls) == 3 and [handle.device for handle in fake.handles.values()] == [1]
    integers = mytorch.ones(2, 2, dtype=mytorch.int64, device="cuda:0")
    assert (integers @ integers).tolist() == [[2, 2], [2, 2]] and len(fake.calls) == 3


def test_add_product(fake_cuda, fake):
    x, y, out = arrays(fake_cuda, (3, 4), (4, 5), (3, 5))
    expected = x.get() @ y.get() + out.get()
    blas.add_product(x, y, out)
    np.testing.assert_allclose(out.get(), expected, 1e-5, 1e-6)
    blas.add_product(x, y, out, 0)
    np.testing.assert_allclose(out.get(), x.get() @ y.get(), 1e-5, 1e-6)
    assert len(fake.calls) == 2
    ones = fake_cuda.ones((2, 2), np.int64)
    blas.add_product(ones, ones, ones)
    assert ones.tolist() == [[3, 3], [3, 3]]


WRONG = {
    "inner sizes": ((3, 4), (5, 6), {}, ValueError, r"\(3, 4\) and \(5, 6\)"),
    "batches": ((2, 3, 4), (3, 4, 5), {}, ValueError, r"\(2, 3, 4\) and \(3, 4, 5\)"),
    "vectors": ((4,), (4,), {}, ValueError, r"\(4,\) and \(4,\)"),
    "shape of out": ((3, 4), (4, 5), {"out": (3, 4)}, ValueError, r"\(3, 5\), `out` has \(3, 4\)"),
    "beta alone": ((3, 4), (4, 5), {"beta": 1}, ValueError, "beta=1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_shapes(fake_cuda, fake, name):
    x, y, options, error, message = WRONG[name]
    if "out" in options:
        options = {"out": fake_cuda.empty(options["out"], np.float32)}
    with pytest.raises(error, match=message):
        cublas.matmul(*arrays(fake_cuda, x, y), **options)
    assert fake.calls == []


def test_wrong_dtypes_and_places(fake_cuda, fake):
    single, double = arrays(fake_cuda, (2, 2))[0], arrays(fake_cuda, (2, 2), dtype="float64")[0]
    for operands in ((single, double), (single.astype(int), single.astype(int)), (double, double, single)):
        with pytest.raises(TypeError, match=f"{operands[0].dtype} and {operands[1].dtype} into"):
            cublas.matmul(*operands)
    with (
        fake_cuda.cuda.Device(1),
        pytest.raises(RuntimeError, match=r"devices \[0, 0, 1\].*current one is 1"),
    ):
        cublas.matmul(single, single)
    with pytest.raises(ValueError, match="one address for several elements"):
        cublas.matmul(single, single, fake_cuda.broadcast_to(single[:1], (2, 2)))


def test_a_failure_says_what_failed(fake_cuda, fake):
    x, y = arrays(fake_cuda, (3, 4), (4, 5))
    fake.status = 13
    with pytest.raises(
        RuntimeError, match=r"cublasGemmEx_64: CUBLAS_STATUS_EXECUTION_FAILED \(13\).*m=5, n=3, k=4"
    ):
        cublas.matmul(x, y)
    fake.status = 99
    with pytest.raises(RuntimeError, match=r"unknown status \(99\)"):
        cublas.matmul(x, y)


def test_precision(fake_cuda, fake):
    x, y = arrays(fake_cuda, (3, 4), (4, 5))
    assert mytorch.get_float32_matmul_precision() == "highest"
    try:
        for word, compute in (("highest", 68), ("high", 77), ("medium", 77)):
            mytorch.set_float32_matmul_precision(word)
            assert mytorch.get_float32_matmul_precision() == word
            for dtype, expected in (("float32", compute), ("float16", 68), ("float64", 70)):
                cublas.matmul(x.astype(dtype), y.astype(dtype))
                assert fake.calls[-1][-1] == expected
        with pytest.raises(ValueError, match="'low'"):
            mytorch.set_float32_matmul_precision("low")
    finally:
        mytorch.set_float32_matmul_precision("highest")


def test_bfloat16_goes_in_as_it_is(fake_cuda, fake):
    x, y = (a.astype(mytorch.bfloat16) for a in arrays(fake_cuda, (3, 300), (300, 2)))
    z = cublas.matmul(x, y)
    want = x.get().astype("float32") @ y.get().astype("float32")  # one rounding, at the end
    assert z.dtype == mytorch.bfloat16 and (z.get() == want.astype(mytorch.bfloat16)).mean() > 0.9
    np.testing.assert_allclose(z.get().astype("float32"), want, 2**-7)
    assert [operand[1] for operand in fake.calls[-1][3]] == [14, 14, 14] and fake.calls[-1][-1] == 68


def test_every_stream_has_its_workspace_for_good(fake_cuda, fake):
    x, y = arrays(fake_cuda, (3, 4), (4, 5))
    streams = [fake_cuda.cuda.Stream(), fake_cuda.cuda.Stream()]
    seen = []
    for stream in (*streams, *streams):
        with stream:
            cublas.matmul(x, y)
            (handle,) = fake.handles.values()
            assert handle.stream == stream.ptr
            seen.append(handle.workspace)
    assert seen[:2] == seen[2:] and seen[0] != seen[1]
    assert {size for _, size in seen} == {cublas.WORKSPACE_BYTES}


def test_threads_and_devices_have_handles_of_their_own(fake_cuda, fake):
    def work():
        for device in (0, 1):
            with fake_cuda.cuda.Device(device):
                cublas.matmul(*arrays(fake_cuda, (3, 4), (4, 5)))
        used.append({id(lease.handle) for lease in cublas.library()._mine.__dict__.values()})
        barrier.wait()

    used, barrier = [], threading.Barrier(2)
    for _ in range(3):  # threads that come later get the handles of those that are gone
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(handle.device for handle in fake.handles.values()) == [0, 0, 1, 1]
    assert every(len(mine) == 2 for mine in used)
    assert every(not used[i] & used[i + 1] for i in (0, 2, 4))


def test_the_prototypes_are_nvidia_s():
    assert cublas._PROTOTYPES == stand_in.PROTOTYPES


def test_without_cublas(fake_cuda, monkeypatch):
    """Products work through cupy.matmul, and one warning says so."""
    monkeypatch.setattr(cublas, "library", functools.cache(LIBRARY.__wrapped__))
    x, y = arrays(fake_cuda, (2, 3, 4), (4, 5))
    with pytest.warns(UserWarning, match="cuBLAS can't be loaded.*cupy.matmul") as caught:
        for _ in range(2):
            np.testing.assert_allclose(cublas.product(x, y).get(), x.get() @ y.get(), 1e-5)
    assert len(caught) == 1
    out = fake_cuda.ones((2, 3, 5), np.float32)
    np.testing.assert_allclose(cublas.product(x, y, out, 1).get(), x.get() @ y.get() + 1, 1e-5)
    with pytest.raises(RuntimeError, match="cuBLAS can't be loaded"):
        cublas.matmul(x, y)
    with pytest.raises(RuntimeError, match="bfloat16 need cuBLAS"):
        cublas.product(types.SimpleNamespace(dtype=np.dtype(ml_dtypes.bfloat16)), None)


@pytest.mark.parametrize("version", [13, 14])
def test_cupy_s_own_cublas_is_taken(fake_cuda, monkeypatch, version):
    loaded = []
    libraries = types.ModuleType("cupy_backends.cuda.libs")
    if version == 14:
        libraries.cublas = object()
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libraries)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", types.ModuleType("cublas"))
    monkeypatch.setattr(cublas.ctypes, "CDLL", lambda name: loaded.append(name))
    cublas._load()
    assert loaded == ["libcublas.so.12"]
    fake_cuda.cuda.runtime.is_hip = True
    try:
        with pytest.raises(ImportError, match="AMD"):
            cublas._load()
    finally:
        fake_cuda.cuda.runtime.is_hip = False
