"""mytorch.cuda on the strict stand-in for CuPy: devices, streams and events, memory, random numbers."""

import inspect
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import mytorch
from mytorch import cuda
from tests import strict_cupy

# What PyTorch has and we don't: it says how a graph is annotated and checked, and where an event comes from.
LEFT_OUT = {"graph": {"enable_annotations", "check_input_liveness"}, "CUDAGraph": {"keep_graph"}}
NOT_PYTORCH_S = {"make_graphed_step", "DeviceProperties"}
TYPED = {name for name in vars(cuda) if name.endswith("Tensor")}  # classes: tests/ops/test_names.py
NAMES = sorted(
    name for name, value in vars(cuda).items() if not name.startswith("_") and not inspect.ismodule(value)
)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in found if p.kind is not p.VAR_KEYWORD}


@pytest.mark.parametrize("name", sorted(set(NAMES) - NOT_PYTORCH_S - TYPED))
def test_arguments_are_pytorch_s(name):
    ours, theirs = getattr(cuda, name), getattr(torch.cuda, name)
    if name in ("Stream", "Event"):
        theirs = theirs.__new__
    expected = {key: default for key, default in parameters(theirs).items() if key not in ("cls", "external")}
    for left_out in LEFT_OUT.get(name, ()):
        del expected[left_out]
    got = parameters(ours)
    assert list(got) == list(expected)
    if name != "graph":  # CuPy's pool needs another capture_error_mode
        assert got == expected


@pytest.mark.parametrize("owner", ["Stream", "Event", "CUDAGraph"])
def test_methods_are_pytorch_s(owner):
    ours = {name for name in vars(getattr(cuda, owner)) if not name.startswith("_")}
    theirs = set(dir(getattr(torch.cuda, owner))) | {"device", "device_index", "priority", "cuda_stream"}
    assert ours <= theirs


def test_without_a_gpu():
    strict_cupy.install(device_count=0)
    try:
        assert not cuda.is_available() and cuda.device_count() == 0
        for count in (cuda.memory_allocated, cuda.max_memory_allocated, cuda.memory_reserved):
            assert count() == 0
        assert cuda.memory_stats() == {}
        for nothing in (cuda.empty_cache, cuda.seed, cuda.seed_all, lambda: cuda.manual_seed(1)):
            nothing()
        for call in (cuda.current_device, cuda.synchronize, cuda.Stream, cuda.mem_get_info):
            with pytest.raises(RuntimeError, match="0 GPUs"):
                call()
    finally:
        strict_cupy.uninstall()


# Devices.


def test_the_current_device(fake_cuda):
    assert cuda.current_device() == 0
    cuda.set_device("cuda:1")
    assert cuda.current_device() == 1 and mytorch.zeros(1, device="cuda").device == "cuda:1"
    cuda.set_device(-1)
    with cuda.device(0):
        assert cuda.current_device() == 0
        with cuda.device(None), cuda.device(-1), cuda.device_of(mytorch.zeros(1)):
            assert cuda.current_device() == 0
        with cuda.device_of(mytorch.zeros(1, device="cuda:1")):
            assert cuda.current_device() == 1
        assert cuda.current_device() == 0
    assert cuda.current_device() == 1
    cuda.set_device(0)
    for device, error, message in (
        ("cpu", ValueError, "expected a cuda device, got 'cpu'"),
        (7, RuntimeError, "cuda:7.*2 GPUs"),
    ):
        for call in (cuda.set_device, cuda.device, cuda.synchronize, cuda.get_device_name, cuda.Stream):
            with pytest.raises(error, match=message):
                call(device)


def test_properties(fake_cuda):
    properties = cuda.get_device_properties("cuda:1")
    assert cuda.get_device_name() == properties.name == "strict CuPy stand-in"
    assert cuda.get_device_capability(1) == (properties.major, properties.minor) == (9, 0)
    assert properties.total_memory == cuda.mem_get_info()[1] and properties.multi_processor_count == 132
    assert not properties.is_integrated
    assert cuda.can_device_access_peer(0, 1) is False
    named = {"gcnArchName", "uuid", "pci_bus_id"}  # examples of what we leave out
    assert not named & set(vars(properties))


# Streams and events.


def test_streams(fake_cuda):
    assert cuda.current_stream() == cuda.default_stream() and cuda.current_stream().query()
    side = cuda.Stream(1)
    assert side.device == "cuda:1" and side.device_index == 1 and side.priority == 0
    with cuda.stream(side):
        assert cuda.current_device() == 1 and cuda.current_stream() == side
        assert hash(cuda.current_stream()) == hash(side) and cuda.current_stream() != cuda.Stream()
        assert fake_cuda.cuda.get_current_stream().ptr == side.cuda_stream
        x = mytorch.ones(3, device="cuda") * 2
    assert cuda.current_device() == 0 and cuda.current_stream() == cuda.default_stream()
    assert x.device == "cuda:1"
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()
    cuda.default_stream(1).wait_stream(side)
    side.wait_stream(cuda.current_stream())
    side.synchronize()
    cuda.set_stream(side)
    assert cuda.current_device() == 1 and cuda.current_stream() == side
    assert side != 1 and "cuda:1" in repr(side)


def test_streams_with_a_priority(fake_cuda, monkeypatch):
    monkeypatch.setattr(fake_cuda, "__version__", "13.6.0")
    with pytest.raises(RuntimeError, match=r"Stream\(priority=-1\) needs CuPy 14, this is 13.6.0"):
        cuda.Stream(priority=-1)

    class Stream(fake_cuda.cuda.Stream):  # CuPy 14's
        def __init__(self, priority=0, **options):
            super().__init__(**options)
            self.priority = priority

    monkeypatch.setattr(fake_cuda, "__version__", "14.2.0")
    monkeypatch.setattr(fake_cuda.cuda, "Stream", Stream)
    assert cuda.Stream(priority=-1).priority == -1


def test_streams_don_t_wait_for_the_default_one(fake_cuda, monkeypatch):
    made = []
    real = fake_cuda.cuda.Stream
    monkeypatch.setattr(fake_cuda.cuda, "Stream", lambda **options: made.append(options) or real(**options))
    cuda.Stream()
    assert made == [{"non_blocking": True}]


def test_events(fake_cuda, monkeypatch):
    clock = SimpleNamespace(perf_counter=itertools.count(1.0, 0.25).__next__)
    monkeypatch.setattr(strict_cupy.device, "time", clock)
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert start.query()
    start.synchronize()
    start.wait()
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    assert cuda.current_stream().record_event(end) is end
    assert start.elapsed_time(end) == 250  # milliseconds
    end.wait(cuda.Stream(1))
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(cuda.Event())
    with pytest.raises(RuntimeError, match="the event is on cuda:0, got .*cuda:1"):
        start.record(cuda.Stream(1))
    start._raw.done = False
    with pytest.raises(RuntimeError, match="over"):
        start.elapsed_time(end)
    elsewhere = cuda.Event()
    elsewhere.record(cuda.Stream(1))
    assert elsewhere._raw._device == 1 and "cuda:1" in repr(elsewhere) and "not" in repr(cuda.Event())
    with pytest.raises(ValueError, match="no timing"):
        cuda.Event(enable_timing=True, interprocess=True)


def test_events_are_made_as_asked(fake_cuda, monkeypatch):
    made = []
    real = fake_cuda.cuda.Event
    monkeypatch.setattr(fake_cuda.cuda, "Event", lambda **options: made.append(options) or real(**options))
    cuda.Event().record()
    cuda.Event(True, True).record()
    assert made == [
        {"block": False, "disable_timing": True, "interprocess": False},
        {"block": True, "disable_timing": False, "interprocess": False},
    ]


# Memory.

KIB = 1024


def kib(size, device="cuda:0"):
    return mytorch.empty(size * KIB, dtype=mytorch.uint8, device=device)


def test_memory(fake_cuda):
    assert cuda.memory_allocated() == cuda.memory_reserved() == 0
    x, y = kib(3), kib(5, "cuda:1")
    view = x[:10]
    assert cuda.memory_allocated() == 3 * KIB and cuda.memory_allocated("cuda:1") == 5 * KIB
    del x
    assert cuda.memory_allocated() == 3 * KIB  # the view needs it
    del view, y
    assert cuda.memory_allocated() == 0 and cuda.memory_reserved() == 3 * KIB
    cuda.empty_cache()
    assert cuda.memory_reserved() == cuda.memory_reserved(1) == 0


def test_peaks(fake_cuda):
    before = kib(9)
    del before
    x = kib(2)
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == 2 * KIB
    y, z = kib(4), kib(16, "cuda:1")
    del y
    y = kib(1)
    assert cuda.memory_allocated() == 3 * KIB and cuda.max_memory_allocated() == 6 * KIB
    assert cuda.max_memory_allocated(1) == 16 * KIB
    assert cuda.memory_stats() == {
        "allocated_bytes.all.current": 3 * KIB, "allocated_bytes.all.peak": 6 * KIB,
        "reserved_bytes.all.current": 9 * KIB, "reserved_bytes.all.peak": 9 * KIB,
    }
    del z
    cuda.reset_peak_memory_stats(0)
    cuda.empty_cache()
    assert cuda.max_memory_allocated() == 3 * KIB and cuda.max_memory_allocated(1) == 16 * KIB
    assert cuda.max_memory_reserved() == 9 * KIB
    del x, y


def test_the_peak_hook_is_there_only_once_it_is_needed(fake_cuda):
    hooks = fake_cuda.cuda.memory_hook.get_memory_hooks()
    cuda.memory_allocated()
    assert hooks == {}
    cuda.max_memory_allocated()
    cuda.reset_peak_memory_stats()
    assert list(hooks) == ["mytorch.cuda.memory"]
    found = []

    def work():
        cuda.reset_peak_memory_stats()
        x = kib(64)
        del x
        found.append(cuda.max_memory_allocated())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [64 * KIB]


# Random numbers.


def test_seeds_and_states(fake_cuda):
    def draw(device):
        return mytorch.rand(4, device=device).tolist()

    cuda.manual_seed_all(5)
    assert cuda.initial_seed() == 5
    states = cuda.get_rng_state_all()
    first = [draw("cuda:0"), draw("cuda:1")]
    cuda.set_rng_state_all(states)
    assert [draw("cuda:0"), draw("cuda:1")] == first
    cuda.manual_seed(5)
    assert draw("cuda:0") == first[0] and draw("cuda:1") != first[1]
    state = cuda.get_rng_state(1)
    second = draw(1)
    cuda.set_rng_state(state, "cuda:1")
    assert draw(1) == second and state.device == "cpu" and state.dtype == np.uint8
    cuda.seed()
    assert cuda.initial_seed() != 5 and draw(0) != first[0]
    cuda.seed_all()
    assert draw(1) != first[1]
    with pytest.raises(ValueError, match="expected a cuda device"):
        cuda.get_rng_state("cpu")
