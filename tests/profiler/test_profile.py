"""mytorch.profiler beside torch.profiler: schedules, counts, FLOPs; and traces that follow the format."""

import gzip
import itertools
import json
import os
import re
import warnings

import numpy as np
import pytest
import torch
import torch.profiler

import mytorch
from mytorch import nn, profiler, stream
from mytorch.nn import functional as F
from mytorch.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from mytorch.profiler.chrome_trace import trace_events, write_trace
from mytorch.profiler.memory import Change, MemoryRecord
from mytorch.profiler.texts import text_of_number, text_of_time
from tests.every import every


@pytest.mark.parametrize("skip_first_wait", [0, 1])
def test_schedules_are_pytorchs(skip_first_wait):
    names = ("wait", "warmup", "active", "repeat", "skip_first")
    for numbers in itertools.product((0, 2), (1, 2), (1, 3), (0, 2), (0, 3)):
        options = dict(zip(names, numbers, strict=True), skip_first_wait=skip_first_wait)
        ours, theirs = schedule(**options), torch.profiler.schedule(**options)
        assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)], options


def test_a_wrong_schedule_raises():
    for wrong in ({"active": 0}, {"wait": -1}, {"repeat": -1}):
        with pytest.raises(ValueError, match="needs active > 0"):
            schedule(**{"wait": 0, "warmup": 1, "active": 1, **wrong})
    with pytest.warns(UserWarning, match="without warmup"):
        schedule(wait=0, warmup=0, active=1)


def cycles(module, **options):
    """The steps that were recorded, each time that a trace was ready."""
    ready = []

    def handler(prof):
        steps = [e.name for e in prof.events() if e.name.startswith("ProfilerStep")]
        ready.append((prof.step_num, steps))

    with module.profile(
        activities=[module.ProfilerActivity.CPU], schedule=module.schedule(**options), on_trace_ready=handler
    ) as prof:
        for _ in range(9):
            prof.step()
    return ready


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize(
    "options",
    [
        {"wait": 1, "warmup": 1, "active": 2}, {"wait": 0, "warmup": 1, "active": 1, "repeat": 2},
        {"wait": 2, "warmup": 1, "active": 8},
    ],
)
def test_traces_are_ready_when_pytorchs_are(options):
    assert cycles(profiler, **options) == cycles(torch.profiler, **options)


def test_a_schedule_without_an_end_warns():
    actions = [ProfilerAction.RECORD, ProfilerAction.NONE, ProfilerAction.NONE]
    with pytest.warns(UserWarning, match="RECORD followed by"), profile(schedule=actions.__getitem__) as p:
        p.step()


MM = "aten::mm", "matmul"
FLOPS = {
    "product": (lambda m, a, b: a(4, 3) @ a(3, 5), *MM),
    "batched": (lambda m, a, b: a(2, 4, 3) @ a(2, 3, 5), "aten::bmm", "matmul"),
    "linear": (lambda m, a, b: m.nn.functional.linear(a(4, 3), a(5, 3)), "aten::mm", "linear"),
    "conv2d": (lambda m, a, b: m.nn.functional.conv2d(a(2, 4, 6, 6), a(8, 2, 3, 3), None, 1, 0, 1, 2),
               "aten::conv2d", "conv2d"),
    "add": (lambda m, a, b: a(4, 3) + a(4, 3), "aten::add", "add"),
    "mul": (lambda m, a, b: a(4, 3) * a(4, 3), "aten::mul", "mul"),
}


def flops_of(module, function, key, backward=False):
    with module.profiler.profile(
        activities=[module.profiler.ProfilerActivity.CPU], with_flops=True, record_shapes=True
    ) as prof:
        out = function(module, lambda *size: module.randn(*size, requires_grad=True), None)
        if backward:
            out.sum().backward()
    rows = [row for row in prof.key_averages() if row.key.startswith(key)]
    return sum(row.flops for row in rows)


@pytest.mark.parametrize("name", FLOPS)
def test_flops_are_pytorchs(name):
    function, theirs, ours = FLOPS[name]
    backward = theirs in ("aten::mm", "aten::bmm")
    assert flops_of(mytorch, function, ours, backward) == flops_of(torch, function, theirs, backward) > 0


def test_flops_of_attention_and_of_modules():
    q = mytorch.randn(2, 3, 5, 4, requires_grad=True)
    layer = nn.Linear(3, 5)
    with profile(with_flops=True) as prof:
        F.scaled_dot_product_attention(q, q, q).sum().backward()
        layer(mytorch.randn(7, 3)).sum().backward()
    rows = {row.key: row for row in prof.key_averages()}
    forward = 2 * (2 * 2 * 3 * 5 * 5 * 4)
    assert rows["scaled_dot_product_attention"].flops == forward
    assert rows["scaled_dot_product_attention_backward"].flops == 2 * forward
    modules = {row.key: row for row in prof.key_averages(group_by_module=True)}
    assert modules["Linear forward"].flops == modules["Linear backward"].flops == 2 * 7 * 3 * 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])

    def forward(self, x):
        for layer in self.h:
            x = layer(x).relu()
        return x.sum()


def test_times_by_operation_and_module():
    net, x = Net(), mytorch.randn(8, 64)
    with profile() as prof, record_function("everything", "why"):
        for _ in range(3):
            net(x).backward()
    rows = {row.key: row for row in prof.key_averages()}
    assert (rows["linear"].count, rows["relu_backward"].count, rows["everything"].count) == (6, 6, 1)
    outer = rows["everything"]
    inner = sum(row.self_cpu_time_total for row in rows.values()) - outer.self_cpu_time_total
    assert outer.cpu_time_total == pytest.approx(outer.self_cpu_time_total + inner)
    assert rows["linear"].cpu_time * 6 == pytest.approx(rows["linear"].cpu_time_total)
    assert prof.events()[0].instruction.keywords == {"args": "why"}
    modules = {row.key: row for row in prof.key_averages(group_by_module=True)}
    children = [modules[f"h.{i} forward"].cpu_time_total for i in range(2)]
    assert modules["h forward"].cpu_time_total == pytest.approx(sum(children))
    assert modules["h forward"].self_cpu_time_total == 0 and modules["Net backward"].count == 9
    assert prof.key_averages().total_average().count == len(prof.events())


def test_the_table():
    with profile(with_flops=True, record_shapes=True, with_stack=True, profile_memory=True) as prof:
        a = mytorch.randn(256, 256)
        a @ a
        a[:2, :2] @ a[:2, :2]
        a + 1
    table = prof.key_averages().table(sort_by="flops", row_limit=1, header="Products")
    lines = table.splitlines()
    assert lines[0] == "Products" and lines[4].split()[0] == "matmul" and len(lines) == 7
    for column in ("Self CPU %", "CPU time avg", "# of Calls", "Total FLOPs", "Self CPU Mem", "Source Loc"):
        assert column in lines[2]
    assert "test_profile.py" in lines[4] and "33.554 M" in lines[4]
    by_shape = prof.key_averages(group_by_input_shape=True)
    assert [r.input_shapes for r in by_shape if r.key == "matmul"] == [[[256, 256]] * 2, [[2, 2]] * 2]
    assert "s" in prof.key_averages().table(time_unit="s").splitlines()[3]
    assert prof.key_averages().table("count").splitlines()[3].split()[0] == "matmul"
    for column in ("cpu_time", "cuda_time", "count"):
        events = prof.events().table(sort_by=column, row_limit=2).splitlines()
        assert len(events) == 7 and events[1].split() == prof.key_averages().table().splitlines()[1].split()
    assert [e.count for e in prof.events()[:2]] == [1, 1]
    with pytest.raises(ValueError, match="can't sort by 'colour'"):
        prof.key_averages().table(sort_by="colour")


def test_the_columns_of_the_table():
    columns = {
        "": "Name", "cpu": "Self CPU % | Self CPU | CPU total % | CPU total | CPU time avg",
        "profile_memory": "CPU Mem | Self CPU Mem | Peak Mem", "calls": "# of Calls",
        "with_flops": "Total FLOPs | Bytes", "record_shapes": "Input Shapes", "with_stack": "Source Location",
    }
    options = ("profile_memory", "with_flops", "record_shapes", "with_stack")
    for chosen in ((), *((name,) for name in options), options):
        with profile(**dict.fromkeys(chosen, True)) as prof:
            mytorch.ones(2).exp()
        header = prof.key_averages(group_by_input_shape="record_shapes" in chosen).table().splitlines()[1]
        wanted = [text for name, text in columns.items() if name in chosen or name not in options]
        assert re.split(r"\s{2,}", header.strip()) == " | ".join(wanted).split(" | "), chosen


def facts(module):
    """What users of torch.profiler ask of events and averages, where it doesn't depend on the operations."""
    with module.profiler.profile(activities=[module.profiler.ProfilerActivity.CPU]) as prof:
        with module.profiler.record_function("outer"), module.profiler.record_function("b"):
            pass
        with module.profiler.record_function("a"):
            pass
    outer, inner, a = (event for event in prof.events() if event.name in ("outer", "a", "b"))
    rows = prof.key_averages()
    texts = (outer.cpu_time_str, outer.cpu_time_total_str, outer.self_cpu_time_total_str)
    texts += (rows[0].cpu_time_str, rows[0].cpu_time_total_str, rows[0].self_cpu_time_total_str)
    assert every(re.fullmatch(r"\d+\.\d{3}(us|ms|s)", text) for text in texts), texts
    span = outer.time_range
    assert span.elapsed_us() == pytest.approx(outer.cpu_time_total) and span.start <= inner.time_range.start
    assert inner.id > outer.id and rows.total_average().self_cpu_time_total == rows.self_cpu_time_total
    order = [line.split()[0] for line in rows.table(sort_by="key").splitlines()[3:-2]]
    return [
        outer.cpu_children == [inner], inner.cpu_parent is outer, (outer.cpu_parent, a.cpu_children),
        [child.name for child in rows[0].cpu_children], order, outer.device_time_total,
    ]


def test_events_have_what_pytorchs_have():
    assert facts(mytorch) == facts(torch)
    (event,) = finished().events()
    assert event.cuda_time == finished().key_averages()[0].self_cuda_time_total == 0.0
    with pytest.raises(AttributeError, match="FunctionEvent has no attribute 'colour'"):
        event.colour  # noqa: B018 - it raises


def test_the_list_of_events_writes_a_trace(tmp_path):
    with profile() as prof, record_function("block"):
        Net()(mytorch.randn(8, 64)).backward()
    prof.events().export_chrome_trace(tmp_path / "list.json")
    prof.export_chrome_trace(tmp_path / "profile.json")
    assert check_trace(tmp_path / "list.json") == check_trace(tmp_path / "profile.json")
    profiler.EventList().export_chrome_trace(tmp_path / "empty.json")
    assert check_trace(tmp_path / "empty.json") == []
    with pytest.raises(ValueError, match="these are averages"):
        prof.key_averages().export_chrome_trace(tmp_path / "no.json")


def test_the_profiler_of_autograd(tmp_path):
    """PyTorch's older one; both have the names that are used here."""
    for module in (torch, mytorch):
        older = module.autograd.profiler
        with older.profile(record_shapes=True) as prof, older.record_function("block"):
            module.ones(2).exp()
        assert prof.function_events[0].name == "block"
        assert "# of Calls" in prof.table(sort_by="cpu_time_total")
        assert str(prof).count("block") == 1 and prof.total_average().count == len(prof.function_events)
        assert prof.self_cpu_time_total == pytest.approx(prof.function_events[0].cpu_time_total)
        assert "block" in [row.key for row in prof.key_averages(group_by_input_shape=True)]
        prof.export_chrome_trace(str(tmp_path / f"{module.__name__}.json"))
    with mytorch.autograd.profiler.profile(enabled=False) as prof:
        mytorch.ones(2).exp()
    assert str(prof) == "<profile, which recorded nothing>"
    with pytest.warns(UserWarning, match="disabling CUDA"):
        assert mytorch.autograd.profiler.profile(use_cuda=True).activities == {ProfilerActivity.CPU}


def test_it_may_be_started_again():
    prof = profile()
    for function in (mytorch.exp, mytorch.tanh):
        with prof:
            function(mytorch.ones(2))
        assert [e.key for e in prof.events()] == [function.__name__]


def test_without_a_gpu_cuda_is_left_out(recwarn):
    prof = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    assert prof.activities == {ProfilerActivity.CPU}
    assert [str(w.message) for w in recwarn] == ["CUDA is not available, disabling CUDA profiling"]


def test_wrong_calls_raise():
    for call, message in {
        (lambda: profile(activities=[])): "no activities",
        (lambda: profile(activities=[ProfilerActivity.CUDA])): "CUDA can't be timed",
        (lambda: profile(activities=["CPU"])): "'CPU' can't be timed",
        (lambda: finished().key_averages(group_by_input_shape=True)): "record_shapes=True",
        (lambda: finished().key_averages(group_by_stack_n=1)): "with_stack=True",
        (lambda: finished().memory_summary()): "profile_memory=True",
        (lambda: finished().export_stacks("x")): "with_stack=True",
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="the name is a str, got int"):
        record_function(3)
    with pytest.raises(RuntimeError, match="recorded nothing yet"):
        profile().events()


def finished():
    with profile() as prof:
        mytorch.ones(2).exp()
    return prof


def test_memory_who_holds_what():
    x = mytorch.zeros(1000, requires_grad=True)  # 4000 bytes
    with profile(profile_memory=True) as prof:
        y = x.exp()  # kept for backward
        z = mytorch.zeros(250).cos()  # 1000 bytes and 1000
        del z
        y.sum().backward()
        del y
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["exp"].self_cpu_memory_usage == 4000 and rows["cos"].self_cpu_memory_usage == 1000
    assert rows["exp"].peak_memory == 8000 and rows["cos"].peak_memory == 10000
    highest, held = prof._last.memory.peak()
    assert 12000 <= highest <= 12100  # x, y and the gradient
    assert sum(change.nbytes for change in held) == highest
    summary = prof.memory_summary()
    assert summary.startswith("peak 11.7") and "(before the trace)" in summary and "cos" not in summary


def test_a_trace_counts_the_memory_of_each_device():
    memory = MemoryRecord()
    for time, nbytes, place in ((4.0, 100, "cpu"), (5.0, 30, "cuda:0"), (6.0, 7, "cpu"), (7.0, -100, "cpu")):
        memory.changes.append(Change(time, nbytes, place, None))
    events = trace_events([], 5.0, memory)
    assert [(e["ph"], e["ts"]) for e in events] == [("C", 0.0), ("C", 0.0), ("C", 1e6), ("C", 2e6)]
    assert [e["args"] for e in events] == [
        {"cpu": 100}, {"cpu": 100, "cuda:0": 30}, {"cpu": 107, "cuda:0": 30}, {"cpu": 7, "cuda:0": 30}
    ]


def test_counts_and_times_as_text():
    counts = {0: "0", 999: "999", 1000: "1.000 K", 999999: "999.999 K", 1e6: "1.000 M", 2.5e9: "2.500 G"}
    assert {n: text_of_number(n) for n in counts} == counts and text_of_number(1e12) == "1.000 T"
    times = {0.5: "0.500us", 999: "999.000us", 1000: "1.000ms", 1e6: "1.000s", 2.5e7: "25.000s"}
    assert {t: text_of_time(t) for t in times} == times == {t: theirs_of_time(t) for t in times}


def theirs_of_time(microseconds):
    return torch.autograd.profiler_util._format_time(microseconds)


def test_what_a_vjp_keeps_is_held_by_its_operation():
    x = mytorch.randn(100, 100, requires_grad=True)
    with profile(profile_memory=True) as prof, mytorch.use_fused(False):
        y = F.gelu(x)
    kept = sum(row.self_cpu_memory_usage for row in prof.key_averages())
    assert kept >= y.nbytes * 2 and prof._last.memory.peak()[0] == kept + x.nbytes


@pytest.mark.parametrize("gpu", ["cuda:0", "cuda:1"])
def test_a_gpu_is_timed_by_events(fake_cuda, tmp_path, gpu):
    layer = nn.Linear(16, 16).to(gpu)
    with profile(profile_memory=True) as prof:
        layer(mytorch.randn(4, 16, device=gpu)).sum().backward()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["linear"].device_time_total > 0 and rows["linear"].device_memory_usage == 256
    assert "Self CUDA" in prof.key_averages().table(sort_by="self_cuda_time_total").splitlines()[1]
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = check_trace(tmp_path / "trace.json")
    assert "kernel" in {e.get("cat") for e in events}
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        layer(mytorch.randn(4, 16, device=gpu))
    assert every(e.device_time_total == 0 for e in prof.events())


NUMBER = (int, float)
FIELDS = {  # https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    "X": {"name": str, "cat": str, "ts": NUMBER, "dur": NUMBER, "pid": int, "tid": int, "args": dict},
    "B": {"name": str, "cat": str, "ts": NUMBER, "pid": int, "tid": int, "args": dict},
    "M": {"name": str, "pid": int, "args": dict},
    "C": {"name": str, "ts": NUMBER, "pid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "ts": NUMBER, "pid": int, "tid": int},
    "f": {"name": str, "cat": str, "id": int, "ts": NUMBER, "pid": int, "tid": int, "bp": str},
}


def check_trace(path):
    """Returns the events of a trace, which follows the Trace Event Format."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = json.loads(data)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    lanes, arrows = {}, {}
    for event in trace["traceEvents"]:
        for name, kind in FIELDS[event["ph"]].items():
            assert isinstance(event[name], kind), (name, event)
        assert event.get("dur", 0) >= 0 and event.get("ts", 0) >= 0
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
        if event["ph"] in "sf":
            arrows.setdefault(event["id"], []).append(event["ph"])
        if event["ph"] == "C":
            assert every(isinstance(v, NUMBER) and v >= 0 for v in event["args"].values())
    for ends in arrows.values():
        assert sorted(ends) == ["f", "s"]
    for events in lanes.values():  # nested or apart, or a viewer drops them
        ends = []
        for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= e["ts"] + 0.002:
                ends.pop()
            assert not ends or e["ts"] + e["dur"] <= ends[-1] + 0.002, e
            ends.append(e["ts"] + e["dur"])
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert set(lanes) <= named
    return trace["traceEvents"]


def test_chrome_traces(tmp_path):
    net, x = Net(), mytorch.randn(8, 64)
    with profile(profile_memory=True) as prof, record_function("block"):
        net(x).backward()
    prof.add_metadata("who", "me")
    prof.add_metadata_json("numbers", "[1, NaN]")
    for name in ("trace.json", "trace.json.gz"):
        prof.export_chrome_trace(tmp_path / name)
        events = check_trace(tmp_path / name)
    content = json.loads((tmp_path / "trace.json").read_text(), parse_constant=pytest.fail)
    assert content["numbers"] == [1, None] and content["numbers_nonfinite"] == [None, "NaN"]
    linear = next(e for e in events if e["name"] == "linear")
    assert linear["args"]["module"] == "h.0" and linear["args"]["weight"].endswith("float32[64,64]")
    assert sum(e["ph"] == "s" for e in events) == sum(e["name"].endswith(("_backward", ".1")) for e in events)
    assert {e["ph"] for e in events} == {"X", "M", "C", "s", "f"}


def test_a_broken_trace_would_be_found(tmp_path):
    overlapping = [
        {"ph": "X", "name": "a", "cat": "x", "ts": ts, "dur": 2.0, "pid": 0, "tid": 0, "args": {}}
        for ts in (0.0, 1.0)
    ]
    named = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": [*overlapping, named]}))
    with pytest.raises(AssertionError):
        check_trace(path)


def test_files_for_tensorboard_and_flame_graphs(tmp_path):
    handler = profiler.tensorboard_trace_handler(tmp_path / "runs", "me", use_gzip=True)
    with profile(on_trace_ready=handler, with_stack=True) as prof:
        mytorch.ones(2).exp()
    (trace,) = (tmp_path / "runs").iterdir()
    assert trace.name.startswith("me.") and trace.name.endswith(".pt.trace.json.gz")
    check_trace(trace)
    prof.export_stacks(tmp_path / "stacks")
    assert "test_profile.py" in (tmp_path / "stacks").read_text()


def test_record_function_decorates_and_survives_errors():
    @record_function("mine")
    def fails():
        raise KeyError

    fails_outside = pytest.raises(KeyError)
    with fails_outside:
        fails()
    with profile() as prof:
        with pytest.raises(KeyError):
            fails()
        mytorch.ones(2).exp()
    assert [(e.name, e.instruction.parent) for e in prof.events()] == [("mine", None), ("exp", None)]


def test_profiling_changes_no_result():
    net, x = Net(), mytorch.randn(8, 64)
    net(x).backward()
    expected = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    with profile(profile_memory=True, with_stack=True), warnings.catch_warnings():
        net(x).backward()
    assert every(map(np.array_equal, expected, [p.grad.numpy() for p in net.parameters()]))


def test_work_of_a_gpu_that_runs_behind_is_shown_in_order(tmp_path):
    class Mark:
        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return 5.0  # ms; a launch takes microseconds

    with stream.record() as instructions:
        x = mytorch.ones(2)
        x.exp(), x.sin()
    for i in instructions:
        i.events = Mark(), Mark()
    write_trace(tmp_path / "trace.json", trace_events(instructions, instructions[0].start), {})
    kernels = [e for e in check_trace(tmp_path / "trace.json") if e.get("cat") == "kernel"]
    assert [e["dur"] for e in kernels] == [5000.0, 5000.0] and kernels[1]["ts"] == 5000.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_ends_the_blocks_of_its_parent_and_is_not_profiled():
    child = code = None
    try:
        with stream.record() as recording, profile() as prof, record_function("block"):
            mytorch.ones(3).exp()
            child = os.fork()
            mytorch.ones(3).log()
        names = [row.key for row in prof.key_averages()]
        with profile() as own:
            mytorch.ones(3).tan()
        found = [i.name for i in recording], names, [row.key for row in own.key_averages()]
        code = found != (["exp", "block"], ["block", "exp"], ["tan"])
    finally:
        if child == 0:
            os._exit(1 if code is None else code)
    assert names == ["block", "exp", "log"] and [i.name for i in recording] == ["exp", "log", "block"]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(ValueError, match="doesn't record"):
        stream.stop(recording)
