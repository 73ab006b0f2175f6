"""Devices, memory and random numbers of the stand-in for CuPy."""

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from tests import strict_cupy

FLOATS = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)


def test_devices_don_t_mix(fake_cuda):
    a = fake_cuda.array(FLOATS)
    with fake_cuda.cuda.Device(1):
        b = fake_cuda.array(FLOATS)
        assert [x.device.id for x in (a, a.T, b, b.T, b + 1)] == [0, 0, 1, 1, 1]
        assert fake_cuda.asarray(a).device == a.copy().device == b.device
        calls = (lambda: a + b, lambda: np.concatenate([a, b]), lambda: a + 1, lambda: b.__setitem__(0, a[0]))
        for call in calls:
            with pytest.raises(ValueError, match="device 0 and the current device is 1"):
                call()
        np.testing.assert_array_equal(a.get(), FLOATS)  # reading works from anywhere
    with pytest.raises(ValueError, match="device 1 and the current device is 0"):
        np.exp(b)
    np.copyto(a[0], b[1])
    np.testing.assert_array_equal(a.get()[0], FLOATS[1])


def test_host_memory_is_locked_once(fake_cuda):
    runtime = fake_cuda.cuda.runtime
    memory = np.zeros(8192, np.uint8)
    start = memory.ctypes.data
    runtime.hostRegister(start, 4096, 1)
    runtime.hostRegister(start + 4096, 4096, 0)
    for wrong in ((start, 4096), (start + 4095, 1), (start - 1, 2), (start - 1, 9000)):
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorHostMemoryAlreadyRegistered"):
            runtime.hostRegister(*wrong, 1)
    for wrong in ((0, 4096, 1), (start + 8192, 0, 1), (start + 8192, 1, 16)):
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
            runtime.hostRegister(*wrong)
    runtime.hostUnregister(start)
    for wrong in (start, start + 1, start + 4097):
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorHostMemoryNotRegistered"):
            runtime.hostUnregister(wrong)
    runtime.hostRegister(start, 4096, 1)
    strict_cupy.install(device_count=2)
    runtime.hostRegister(start, 8192, 1)  # a new start has nothing locked


def test_the_current_device(fake_cuda):
    runtime, Device = fake_cuda.cuda.runtime, fake_cuda.cuda.Device
    assert (runtime.getDeviceCount(), runtime.getDevice(), Device().id) == (2, 0, 0)
    Device(1).use()
    with Device(0):
        assert fake_cuda.zeros(1).device == Device(0)
    assert fake_cuda.zeros(1).device.id == 1
    with pytest.raises(runtime.CUDARuntimeError, match="invalid device ordinal"), Device(2):
        pass
    assert runtime.getDevice() == 1
    found = []
    thread = threading.Thread(target=lambda: found.append(runtime.getDevice()))
    thread.start()
    thread.join()
    assert found == [0]  # every thread has its own


def test_streams_events_and_pools(fake_cuda):
    cuda = fake_cuda.cuda
    stream, end = cuda.Stream(non_blocking=True), cuda.Event()
    with stream:
        assert cuda.get_current_stream() is stream
        start = stream.record()
        end.record()
    assert cuda.get_current_stream().ptr == cuda.Stream.null.ptr == 0
    assert cuda.get_elapsed_time(start, end) >= 0
    assert fake_cuda.get_default_memory_pool().used_bytes() == 0
    pinned = np.frombuffer(cuda.alloc_pinned_memory(16), np.float32)
    pinned[:] = 1
    assert pinned.sum() == 4


def test_without_gpus_cupy_is_there_and_says_so():
    cupy = strict_cupy.install(device_count=0)
    try:
        assert not cupy.is_available()
        for call in (cupy.cuda.runtime.getDeviceCount, lambda: cupy.zeros(2)):
            with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="no CUDA-capable device"):
                call()
    finally:
        strict_cupy.uninstall()


def test_uninstall_leaves_nothing():
    def installed():
        return {name: m for name, m in sys.modules.items() if name.split(".")[0] in ("cupy", "cupyx")}

    before = installed()
    strict_cupy.install()
    strict_cupy.install()
    assert sys.modules["cupy"].cuda.runtime is sys.modules["cupy.cuda.runtime"]
    strict_cupy.uninstall()
    assert installed() == before


def test_array_takes_what_cupy_takes(fake_cuda):
    a = fake_cuda.array(FLOATS)
    assert fake_cuda.asarray(a) is a and fake_cuda.array(a) is not a and fake_cuda.array(a, copy=False) is a
    assert fake_cuda.array([a[0], a[1]]).shape == (2, 4)
    assert [fake_cuda.array(x).dtype.name for x in (3.5, [1], True, np.int8(1))] == [
        "float64", "int64", "bool", "int8"
    ]
    assert fake_cuda.array([1], ndmin=2).shape == (1, 1)
    assert fake_cuda.asarray(FLOATS.T).flags.f_contiguous
    assert fake_cuda.asarray(FLOATS.T, order="C").flags.c_contiguous
    host = FLOATS.copy()
    on_device = fake_cuda.asarray(host)
    host[0] = 0
    np.testing.assert_array_equal(on_device.get(), FLOATS)


def test_memory_from_elsewhere(fake_cuda):
    a = fake_cuda.array(FLOATS)

    class Foreign:
        __cuda_array_interface__ = a[:, 1:].__cuda_array_interface__

    view = fake_cuda.asarray(Foreign())
    view[0, 0] = 42
    assert a.tolist()[0][1] == 42 and view.shape == (3, 3)
    fake_cuda.from_dlpack(a)[0, 0] = 43
    assert a.tolist()[0][0] == 43
    flat = fake_cuda.ndarray(4, np.float32, a.data + a.strides[0])
    assert flat.tolist() == a[1].tolist()
    np.testing.assert_array_equal(np.from_dlpack(a, device="cpu"), a.get())


@pytest.mark.parametrize("duplicate", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_pickle_and_copy(fake_cuda, duplicate):
    other = duplicate(fake_cuda.array(FLOATS).T)
    assert type(other) is fake_cuda.ndarray
    np.testing.assert_array_equal(other.get(), FLOATS.T)


DRAWS = {
    "random": lambda r: r.random((2, 3), dtype=np.float32),
    "standard_normal": lambda r: r.standard_normal(5, dtype="float32"),
    "integers": lambda r: r.integers(0, 10, (4,), dtype=np.int64),
    "uniform": lambda r: r.uniform(-1, 1, 7),
    "exponential": lambda r: r.exponential(size=2),
    "binomial": lambda r: r.binomial(5, 0.5, size=(1, 2)),
    "poisson": lambda r: r.poisson(2.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_draws_the_same_for_the_same_seed(fake_cuda, name):
    draw, random = DRAWS[name], fake_cuda.random
    first, second = draw(random.default_rng(3)), draw(random.default_rng(random.XORWOW(3)))
    assert type(first) is fake_cuda.ndarray
    np.testing.assert_array_equal(first.get(), second.get())
    assert len({draw(random.default_rng(seed)).tobytes() for seed in range(9)}) > 1


def test_a_generator_has_no_more_than_cupy_s(fake_cuda):
    generator = fake_cuda.random.default_rng(0)
    for name in ("normal", "permutation", "shuffle", "choice", "multinomial"):
        assert not hasattr(generator, name)
    for call in (
        lambda: generator.integers(9, size=3, replace=True),
        lambda: generator.standard_normal(shape=3),
        lambda: generator.exponential(size=2, dtype="f"),
        lambda: generator.poisson(FLOATS),
        lambda: fake_cuda.random.Generator(0),
    ):
        with pytest.raises(TypeError):
            call()
    assert generator.standard_normal(out=fake_cuda.empty(3)).shape == (3,)


def test_the_global_generator_repeats_after_seed(fake_cuda):
    random = fake_cuda.random

    def draw():
        random.seed(1)
        return random.rand(2, dtype="f"), random.randint(0, 9, 4), random.normal(), random.permutation(4)

    for first, second in zip(draw(), draw(), strict=True):
        np.testing.assert_array_equal(first.get(), second.get())
    assert random.RandomState(0).permutation(fake_cuda.array(FLOATS)).shape == FLOATS.shape
    assert random.rand(2, dtype="f").dtype == np.float32
