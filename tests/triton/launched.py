"""Launches as a GPU sees them, with stand-ins for libcuda and CuPy; test_launch.py runs it by itself."""

import ctypes
import itertools
import json
import sys
import types
from importlib.machinery import ModuleSpec

import ml_dtypes
import numpy as np
import pytest
import triton
import triton.language as tl


class FakeArray:
    """As much of a CuPy array as a launch wants to know. No two are at the same address."""

    addresses = itertools.count(0x7F0000000000, 4096)

    def __init__(self, dtype, offset=0, shape=(1000,)):
        self.dtype, self.shape = np.dtype(dtype), shape
        self.data = types.SimpleNamespace(ptr=next(self.addresses) + offset)

    def copy(self):
        return FakeArray(self.dtype, shape=self.shape)

    def fill(self, value):
        pass


class FakeEvent:
    """Knows how many launches there were when it was recorded."""

    def record(self):
        self.launched = driver().fake_launched()

    def synchronize(self):
        pass


STATE = types.SimpleNamespace(device=0, stream=0xBEEF, capturing=False)


def fake_cupy():
    """A module `cupy` on which a launch takes as many ms as it has threads."""

    def elapsed(start, end):
        assert end.launched == start.launched + 1
        return float(last().threads)

    runtime = types.SimpleNamespace(
        getDevice=lambda: STATE.device,
        setDevice=lambda i: None,
        getDeviceProperties=lambda i: {"name": b"NVIDIA H100"},
    )
    stream = types.SimpleNamespace
    cupy = types.ModuleType("cupy")
    cupy.__spec__ = ModuleSpec("cupy", None, origin="a test")
    cupy.ndarray, cupy.empty = FakeArray, lambda n, dtype: FakeArray(dtype, shape=(n,))
    cupy.cuda = types.SimpleNamespace(
        runtime=runtime,
        Device=lambda i: types.SimpleNamespace(compute_capability="90"),
        get_current_stream=lambda: stream(ptr=STATE.stream, is_capturing=lambda: STATE.capturing),
        get_elapsed_time=elapsed,
        Event=FakeEvent,
    )
    return cupy


class Launch(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 64), ("grid", ctypes.c_uint * 3), ("threads", ctypes.c_uint),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_uint64), ("args", ctypes.c_uint64 * 16),
    ]


def driver():
    library = ctypes.CDLL("libcuda.so.1")
    library.fake_launch.restype = ctypes.POINTER(Launch)
    return library


def expect(*sizes):
    """The bytes of each argument of the launches to come."""
    driver().fake_expect(len(sizes), (ctypes.c_int * len(sizes))(*sizes))


def last():
    return driver().fake_launch(driver().fake_launched() - 1).contents


sys.modules["cupy"] = fake_cupy()

from mytorch.nn.fused_ops import triton as kernels  # noqa: E402
from mytorch.nn.fused_ops.triton.launch import chip, launch  # noqa: E402
from mytorch.nn.fused_ops.triton.pointer import Pointer  # noqa: E402
from mytorch.nn.fused_ops.triton.prepared import kind_of  # noqa: E402
from mytorch.nn.fused_ops.triton.tune import Tuned, cache_folder, tuned  # noqa: E402


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) * scale
    if y_ptr is not None:
        total += tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, total, mask=i < n)


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


def arrays(n, dtype="float32"):
    return [FakeArray(dtype) for _ in range(n)]


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("MYTORCH_CACHE", str(tmp_path))
    STATE.device, STATE.stream, STATE.capturing = 0, 0xBEEF, False


def test_grid_stream_and_arguments():
    """It comes first: the very first launch has to bring our driver with it."""
    x, y, out = arrays(3)
    expect(8, 8, 8, 4, 4)
    launch(add, (4, 2, 3), x, y, out, 1000, 0.5, BLOCK=256, num_warps=8)
    seen = last()
    assert seen.name == b"add" and [*seen.grid] == [4, 2, 3] and seen.threads == 256
    assert seen.stream == 0xBEEF
    assert [*seen.args][:4] == [x.data.ptr, y.data.ptr, out.data.ptr, 1000]
    assert seen.args[4] == int(np.float32(0.5).view("uint32"))
    STATE.stream = 0xCAFE
    launch(add, lambda meta: (triton.cdiv(1000, meta["BLOCK"]),), x, y, out, 1000, 0.5, BLOCK=256)
    assert last().stream == 0xCAFE and [*last().grid] == [4, 1, 1] and last().threads == 128


def test_the_kernels_can_run_here():
    assert kernels.why_not() == "" and kernels.available()
    assert chip() == (90, 132, 227 * 1024)


def test_nothing_is_launched_for_an_empty_grid():
    before = driver().fake_launched()
    launch(add, (0,), *arrays(3), 0, 1.0, BLOCK=256)
    assert driver().fake_launched() == before


def test_a_kernel_is_compiled_for_what_it_is_given():
    """Again only where a dtype, an alignment, a number that is 1 or divisible by 16, or the GPU differs."""
    x, y, out = arrays(3)

    def compiled(*args):
        before = driver().fake_modules()
        launch(add, (4,), *args, BLOCK=512)
        return driver().fake_modules() - before

    expect(8, 8, 8, 4, 4)
    assert compiled(x, y, out, 1008, 0.5) == 1
    assert compiled(*arrays(3), 2016, 0.25) == 0
    assert compiled(x, y, out, 1001, 0.5) == 1
    assert compiled(x, y, FakeArray("float32", offset=4), 1008, 0.5) == 1
    assert compiled(x, FakeArray("float16"), out, 1008, 0.5) == 1
    STATE.device = 1
    assert compiled(x, y, out, 1008, 0.5) == 1
    STATE.device = 0
    expect(8, 8, 8, 4)  # 1 is a constant of the kernel, not an argument
    assert compiled(x, y, out, 1, 2.0) == 1 and last().args[3] == int(np.float32(2).view("uint32"))
    expect(8, 8, 4, 4)  # None is one, too
    assert compiled(x, None, out, 1008, 0.5) == 1 and [*last().args][1:3] == [out.data.ptr, 1008]


def test_a_launch_of_a_known_kind_asks_triton_for_nothing(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("Triton was asked again")

    x, y, out = arrays(3)
    expect(8, 8, 8, 4, 4)
    launch(add, (4,), x, y, out, 1008, 0.5, BLOCK=1024)
    monkeypatch.setattr(type(add), "run", refuse)
    x, y, out = arrays(3)
    STATE.stream = 0xFACE
    launch(add, lambda meta: (meta["BLOCK"] // 512, 3), x, y, out, 32, 0.25, BLOCK=1024)
    seen = last()
    assert [*seen.grid] == [2, 3, 1] and seen.stream == 0xFACE and seen.threads == 128
    assert [*seen.args][:4] == [x.data.ptr, y.data.ptr, out.data.ptr, 32]
    assert seen.args[4] == int(np.float32(0.25).view("uint32"))
    before = driver().fake_launched()
    launch(add, (0,), x, y, out, 32, 0.25, BLOCK=1024)
    assert driver().fake_launched() == before
    for args in ((x, y, out, 33, 0.25), (x, y, FakeArray("float32", offset=4), 32, 0.25)):
        with pytest.raises(AssertionError, match="asked again"):
            launch(add, (4,), *args, BLOCK=1024)
    with pytest.raises(AssertionError, match="asked again"):
        launch(add, (4,), x, y, out, 32, 0.25, BLOCK=1024, num_warps=8)


def test_a_kind_is_as_narrow_as_what_triton_compiles_for():
    numbers = [0, 1, 2, 16, 17, -1, -16, -17, 2**63, 2**64 - 1]
    numbers += [sign * 2**p + d for p in (31, 32, 62) for sign in (1, -1) for d in (-1, 0, 1)]
    others = [0.0, 1.0, 0.5, True, False, None, (1, 2), (16, 2), (16, 3), (1, 3), (3, 1), ()]
    pointers = [FakeArray(dtype, offset) for dtype in ("float32", "int64", "bool") for offset in (0, 8, 32)]
    seen = {}
    for a in [*numbers, *others, *pointers]:
        kind, (value,) = kind_of([a], (), FakeArray)
        pointer = Pointer(a) if isinstance(a, FakeArray) else a
        theirs = add.create_binder()[4](pointer, None, None, 0, 0.0, BLOCK=1)[1][0]
        assert seen.setdefault(tuple(kind), theirs) == theirs, f"{a}: {kind} is of several kinds"
        assert value == (a.data.ptr if isinstance(a, FakeArray) else a)
    assert len(seen) == 20
    assert kind_of([np.float32(1)], (), FakeArray)[0] is None


def test_a_number_for_the_compiler_may_come_by_position():
    x, y, out = arrays(3)
    expect(8, 8, 8, 4, 4)
    for block, grid in ((256, 4), (512, 2), (256, 4)):
        before = driver().fake_modules()
        launch(add, (grid,), x, y, out, 1009, 0.5, block)
    assert driver().fake_modules() == before


def test_a_profiler_sees_every_launch():
    seen, hook = [], triton.knobs.runtime.launch_enter_hook
    x, y, out = arrays(3)
    expect(8, 8, 8, 4, 4)
    hook.add(lambda metadata: seen.append(metadata.get()["name"]))
    try:
        for _ in range(3):
            launch(add, (4,), x, y, out, 1008, 0.5, BLOCK=256)
    finally:
        hook.remove(hook.calls[-1])
    assert seen == ["add"] * 3


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float16", "*fp16"), (ml_dtypes.bfloat16, "*bf16"), ("float32", "*fp32"), ("float64", "*fp64"),
        ("int64", "*i64"), ("int32", "*i32"), ("uint8", "*u8"), ("bool", "*u1"),
    ],
)
def test_dtypes_of_pointers(dtype, name):
    @triton.jit
    def copy(x_ptr, y_ptr):
        tl.store(y_ptr, tl.load(x_ptr))

    expect(8, 8)
    launch(copy, (1,), FakeArray(dtype), FakeArray(dtype))
    (kernel,) = copy.device_caches[0][0].values()
    assert kernel.src.signature == {"x_ptr": name, "y_ptr": name}


CONFIGS = [{"BLOCK": 256, "num_warps": 4}, {"BLOCK": 128, "num_warps": 2}, {"BLOCK": 512, "num_warps": 8}]


def measured(call):
    """The numbers of threads of all launches that a call makes."""
    before = driver().fake_launched()
    call()
    return [driver().fake_launch(i).contents.threads for i in range(before, driver().fake_launched())]


def tuned_add(configs=CONFIGS):
    return tuned(configs, key=("n",))(add)


def call(kernel, n=1000, dtype="float32", y=True):
    x, y, out = arrays(3, dtype)
    expect(8, 8, 8, 4, 4)
    return lambda: launch(kernel, lambda meta: (triton.cdiv(n, meta["BLOCK"]),), x, y, out, n, 0.5)


def test_the_fastest_configuration_is_found_once():
    kernel = tuned_add()
    threads = measured(call(kernel))
    assert {*threads} == {128, 64, 256} and threads[-1] == 64 and len(threads) > 15
    assert last().grid[0] == 8
    assert measured(call(kernel)) == [64] == measured(call(kernel, n=600))  # up to 1024 it is the same kind
    assert len(measured(call(kernel, n=1025))) > 15 < len(measured(call(kernel, dtype="float16")))


def test_the_choice_is_kept_on_disk():
    measured(call(tuned_add()))
    (file,) = cache_folder().iterdir()
    about = json.loads(file.read_text())
    assert (
        about["kernel"] == "add" and about["gpu"] == "NVIDIA H100" and about["triton"] == triton.__version__
    )
    ((kind, choice),) = about["choices"].items()
    assert choice["config"] == CONFIGS[1] and choice["ms"] == 64 and "n=1024" in kind
    assert measured(call(tuned_add())) == [64]
    measured(call(tuned_add(), n=5000))
    assert len(json.loads(file.read_text())["choices"]) == 2
    assert measured(call(tuned_add())) == [64] == measured(call(tuned_add(), n=5000))
    assert len(measured(call(tuned_add([CONFIGS[0], CONFIGS[2]])))) > 10  # the choice is no longer among them


@pytest.mark.parametrize("content", ["", "{", "[]", '{"choices": {"x": 3}}', '{"choices": []}', "\0\xff"])
def test_a_broken_file_is_measured_again(content):
    measured(call(tuned_add()))
    (file,) = cache_folder().iterdir()
    file.write_text(content)
    with pytest.warns(UserWarning, match="measured again"):
        assert len(measured(call(tuned_add()))) > 15
    assert measured(call(tuned_add())) == [64]
    assert [*cache_folder().iterdir()] == [file]


def test_a_folder_that_cannot_be_written_to_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MYTORCH_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="can't be saved"):
        measured(call(kernel := tuned_add()))
    assert measured(call(kernel)) == [64]


def test_what_is_written_in_place_is_measured_on_copies():
    kernel, x = tuned(CONFIGS, key=("n",), inplace=("x_ptr",))(double), FakeArray("float32")
    before = driver().fake_launched()
    expect(8, 4)
    launch(kernel, (4,), x, 1000)
    addresses = [driver().fake_launch(i).contents.args[0] for i in range(before, driver().fake_launched())]
    assert addresses.count(x.data.ptr) == 1 and addresses[-1] == x.data.ptr and len(addresses) > 15


def test_nothing_is_measured_where_it_cannot_or_must_not_be(monkeypatch):
    STATE.capturing = True
    assert measured(call(kernel := tuned_add())) == [128]
    STATE.capturing = False
    assert len(measured(call(kernel))) > 15
    monkeypatch.setenv("MYTORCH_TUNE", "0")
    assert measured(call(tuned_add())) == [128]


def test_configurations_may_depend_on_the_call():
    def configs(arguments, gpu):
        assert gpu.capability == 90 and arguments["n"] == 1000 and arguments["x_ptr"].dtype == np.float32
        return CONFIGS[2:]

    assert measured(call(tuned_add(configs))) == [256]


def test_a_configuration_that_is_too_large_is_passed_over():
    @triton.jit
    def product(x_ptr, y_ptr, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
        i, k = tl.arange(0, BLOCK), tl.arange(0, 64)
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for step in range(0, 1024, 64):
            a = tl.load(x_ptr + i[:, None] * 1024 + k[None, :] + step)
            total = tl.dot(a, tl.load(y_ptr + (k[:, None] + step) * BLOCK + i[None, :]), total)
        tl.store(x_ptr + i[:, None] * BLOCK + i[None, :], total)

    fits, big = ({"BLOCK": b, "num_stages": s, "num_warps": 4} for b, s in ((32, 2), (128, 8)))
    expect(8, 8)
    args = [FakeArray("float16"), FakeArray("float16")]
    kernel = tuned([big, fits])(product)
    launch(kernel, (1,), *args, DEPTH=1)
    assert [*kernel._chosen.values()] == [fits]
    with pytest.raises(RuntimeError, match="too few resources"):
        launch(tuned([big, big])(product), (1,), *args, DEPTH=1)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="add has no argument m"):
        Tuned(add, CONFIGS, ("m",), ())


def test_pytorch_is_not_imported():
    assert "torch" not in sys.modules


def test_loops_of_programs():
    """A flat one in blocks, rows in programs of their own; what is launched is found again."""
    from mytorch.compiler.codegen.loop import FULL, ROW, Loop, Step
    from mytorch.compiler.codegen.triton_source import launched

    flat = Loop((FULL,), (Step("multiply", ("x0", 2.0), FULL), Step("exp", ("v0",), FULL)), (1,))
    by_rows = Loop((FULL,), (Step("exp", ("x0",), FULL), Step("sum", ("v0",), ROW)), (1,))
    for loop, sizes, grid, threads in ((flat, (8, 8, 4), 3, 128), (by_rows, (8, 8, 4, 4), 5, 64)):
        x, y = arrays(2)
        expect(*sizes)
        for _ in range(2):
            launched(loop, x, y, 5, 500)
            assert last().name == b"loop" and last().grid[0] == grid and last().threads == threads
            assert [*last().args][:2] == [x.data.ptr, y.data.ptr]
