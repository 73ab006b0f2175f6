"""The page of a running process, `mytorchrun top` and `mytorchrun trace`."""

import gc
import io
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mytorch
from mytorch import distributed, nn, optim, stream
from mytorch.cli import main, top
from mytorch.core.grad_mode import _state
from mytorch.distributed import processes
from mytorch.stream import page, publishing, record
from mytorch.stream.log import read_log
from tests.every import every
from tests.profiler.test_profile import check_trace

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time, mytorch
from mytorch import stream
assert stream.publish()
print("ready", flush=True)
x = mytorch.ones(300, 300)
for step in range(10**9):
    x @ x
    stream.report(step, 1234.5)
    if "hang" in sys.argv and step == 3:
        @mytorch.core.op.op
        def stuck(x):
            time.sleep(600)
        stuck(x)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Pages in a folder of the test: other tests and programs have theirs elsewhere."""
    pages = tmp_path / "pages"
    pages.mkdir()
    monkeypatch.setattr(page, "folder", lambda: pages)
    monkeypatch.delenv("MYTORCH_TOP", raising=False)
    yield pages
    stream.unpublish()


@pytest.fixture
def running(folder):
    started = []

    def start(*arguments):
        code = "import pathlib\nfrom mytorch.stream import page\n"
        code += f"page.folder = lambda: pathlib.Path({str(folder)!r})"
        command = [sys.executable, "-c", f"{code}\n{PROGRAM}", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def mine():
    (reading,) = page.read_pages(os.getpid())
    return reading


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def test_operations_write_the_page(folder):
    layer = nn.Linear(4, 4)
    optimizer = optim.SGD(layer.parameters())
    assert stream.publish() and stream.publish()
    file = mine().path.stat()
    assert stat.S_IMODE(file.st_mode) == 0o600 and file.st_size == page.SIZE and not list(folder.iterdir())
    assert (mine().count, mine().operation) == (0, "")
    layer(mytorch.ones(2, 4)).sum().backward()
    optimizer.step()
    now = mine()
    assert now.count == 6 and not now.is_running
    assert (now.operation, now.kind) == ("SGD.step", "optimizer")
    assert {kind for kind, seconds in now.seconds.items() if seconds} == {"product", "reduction", "optimizer"}
    assert now.resident > 2**20 and now.job == str(os.getpid()) and (now.rank, now.world_size) == (0, 1)
    stream.report(7, 1000.0)
    assert (mine().step, mine().tokens_per_second) == (7, 1000.0)
    stream.unpublish()
    assert not page.read_pages() and _state.stream is None


def test_a_collective_ends_with_its_work():
    """It may begin while others run, and is no part of them."""

    def ranks():
        distributed.init_process_group()
        work = distributed.all_reduce(mytorch.ones(2), async_op=True)
        mytorch.ones(2).exp()
        before = mine()
        work.wait()
        return before.seconds["communication"], mine().seconds["communication"]

    stream.publish()
    assert every(before < after for before, after in distributed.worlds.run(2, ranks))
    assert not mine().is_running and mine().operation == "exp"


def test_a_request_is_looked_for_every_32_operations(monkeypatch):
    """Also while something else records."""
    polls = []
    monkeypatch.setattr(publishing, "poll", lambda made: polls.append(made.count))
    stream.publish()
    x = mytorch.ones(2)
    for _ in range(40):
        x.exp()
    with record():
        for _ in range(40):
            x.exp()
    assert len(polls) == 2 and polls[1] - polls[0] == 32 and polls[0] % 32 == 0


def test_reading_keeps_no_file_open(folder, monkeypatch):
    stream.publish()
    (folder / f"mytorch-page-{os.getuid()}-{os.getpid()}").write_text("no page")
    for processes_folder in (page._PROCESSES, folder / "none"):
        monkeypatch.setattr(page, "_PROCESSES", processes_folder)
        before = os.listdir("/proc/self/fd")
        for _ in range(2):
            page.read_pages(refused=[])
        assert os.listdir("/proc/self/fd") == before


def test_an_operation_ends_after_the_page():
    gc.collect()  # pages of tests before, which cycles still hold
    started, go_on, results = threading.Event(), threading.Event(), []

    @mytorch.core.op.op
    def slow(x):
        started.set()
        go_on.wait(60)
        return x + 1, None

    assert stream.publish()
    thread = threading.Thread(target=lambda: results.append(slow(mytorch.ones(2)).tolist()))
    thread.start()
    assert started.wait(60)
    stream.unpublish()
    go_on.set()
    thread.join(60)
    gc.collect()
    assert results == [[2.0, 2.0]]
    assert not page.read_pages() and "mytorch-page" not in Path("/proc/self/maps").read_text()


def test_without_proc_the_file_has_a_name(folder, monkeypatch):
    monkeypatch.setattr(page, "_PROCESSES", folder / "none")
    (folder / f"mytorch-page-{os.getuid()}-999999999").touch()  # of a process that was killed
    assert stream.publish() and mine().path.parent == folder
    assert [file.name for file in folder.iterdir()] == [f"mytorch-page-{os.getuid()}-{os.getpid()}"]
    stream.unpublish()
    assert not list(folder.iterdir())


def test_a_forked_process_has_none():
    assert stream.publish()
    child = os.fork()
    if not child:
        mytorch.ones(2).exp()
        os._exit(bool(page.read_pages(os.getpid())) + 2 * (mine_of(os.getppid()) != [0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mine().count == 0


def mine_of(pid):
    return [reading.count for reading in page.read_pages(pid)]


def test_results_are_the_same_and_instructions_can_be_recorded_meanwhile():
    stream.publish()
    background = _state.stream
    assert not stream.is_recording()
    with record() as instructions:
        assert stream.is_recording()
        mytorch.ones(2).exp()
    assert [i.name for i in instructions] == ["exp"] and mine().operation == "exp"
    assert _state.stream is background
    mytorch.ones(2).sin()
    assert len(instructions) == 1 and mine().count == 2
    x = mytorch.ones(3, requires_grad=True)
    (x * 2).exp().sum().backward()
    assert x.grad.tolist() == pytest.approx([2 * 7.38905609893] * 3)
    with record() as instructions:
        stream.unpublish()
        mytorch.ones(2).exp()
    assert len(instructions) == 1 and _state.stream is None


def test_nothing_without_leave(monkeypatch, folder):
    monkeypatch.setenv("MYTORCH_TOP", "0")
    assert not stream.publish() and not list(folder.iterdir()) and _state.stream is None
    monkeypatch.delenv("MYTORCH_TOP")
    folder.rmdir()
    with pytest.warns(UserWarning, match="no page can be made"):
        assert not stream.publish()


def test_top_sees_a_job_and_what_hangs(running, capsys):
    assert main(["top", "--once", "--interval", "0.01"]) == 1
    assert "no running job" in capsys.readouterr().out
    process = running("hang")
    wait_for(lambda: "stuck" in [r.operation for r in page.read_pages()])
    assert main(["top", "--once", "--interval", "0.15", "--pid", str(process.pid)]) == 0
    text = capsys.readouterr().out
    assert f"rank 0 pid {process.pid}" in text and "step 3, 1,234 tokens/s" in text
    assert "stuck for 0." in text and "elementwise 100%" in text and "idle 0%" in text
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(["top", "--once", "--interval", "0.01"]) == 1  # and the page is gone
    assert main(["top", "--interval", "0"]) == 2


def test_top_without_a_terminal_prints_once(running, capsys):
    process = running()
    assert main(["top", "--interval", "0.05"]) == 0
    assert f"rank 0 pid {process.pid}" in capsys.readouterr().out


def test_shares_are_smoothed():
    zero = page.Reading(
        Path(), 1, 0, 1, 0.0, "j", 1, "matmul", "product", False, 0.0, dict.fromkeys(stream.KINDS, 0.0),
        0, 0.0, 0, 0, 0, 0.0,
    )
    activity = top.Activity(zero)
    at = {**zero.__dict__, "seconds": {**zero.seconds, "product": 1.5, "communication": 0.5}, "time": 2.0}
    activity.update(page.Reading(**at))
    assert (activity.shares["product"], activity.idle) == (0.75, 0.25)
    activity.update(page.Reading(**{**at, "time": 4.0}))
    assert activity.shares["product"] == 0.375  # a half-life later
    for elapsed, is_running, text in (
        (0.0, False, "matmul, just ended"), (3.0, False, "matmul, ended 3.0 s ago"),
        (0.0, True, "matmul"), (3.0, True, "matmul for 3.0 s"),
    ):
        activity.last = page.Reading(**{**at, "elapsed": elapsed, "is_running": is_running})
        assert activity.operation == text


def test_a_stopped_process_is_called_so(running, tmp_path, capsys, monkeypatch):
    process = running()
    monkeypatch.setattr("mytorch.cli.trace._PATIENCE", 0.1)
    process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: processes.state_of(process.pid) == "stopped")
        assert main(["top", "--once", "--interval", "0.05"]) == 0
        assert "; process stopped |" in capsys.readouterr().out
        assert main(["trace", "-s", "0.1", "--dir", str(tmp_path)]) == 1
        assert "; the process is stopped" in capsys.readouterr().err
    finally:
        process.send_signal(signal.SIGCONT)


def test_rich_draws(running):
    pytest.importorskip("rich")
    from rich.console import Console

    running()
    ranks = {}
    top.watch(ranks, None)
    wait_for(lambda: page.read_pages()[0].count > 100)
    top.watch(ranks, None)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(top._Screen(ranks))
    text = console.export_text()
    assert "█" in text and "product" in text and "tokens/s" in text and "0/1" in text


@pytest.mark.parametrize("width", [80, 150])
def test_bars_fill_their_column(running, width):
    pytest.importorskip("rich")
    from rich.console import Console

    running()
    ranks = {}
    top.watch(ranks, None)
    (activity,) = ranks.values()
    activity.shares = {"product": 0.25, "data": 0.25, "loss": 0.0}
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(top._Screen(ranks))
    _, row, key = console.export_text().splitlines()
    (bar,) = re.findall("[█·][█·…]*", row)
    assert abs(bar.count("█") - bar.count("·")) <= 2 and "…" not in bar and len(bar) >= 8
    assert "product" in key and "data" in key and "loss" not in key


@pytest.mark.parametrize("width, shown", [
    (150, "job rank time by kind idle step memory operation"),
    (80, "job rank time by kind idle step operation"),
    (60, "job rank time by kind idle operation"), (40, "rank time by kind idle operation"),
])
def test_a_narrow_terminal_shows_the_most_important(width, shown):
    pytest.importorskip("rich")
    from rich.console import Console

    facts = dict.fromkeys(stream.KINDS, 0.0)
    reading = page.Reading(
        Path(), 1, 3, 8, 0.0, "mytorchrun-10947-0hwcou_m", 9, "add", "elementwise", True, 0.0, facts,
        1234, 12345.6, 0, 2**30, 0, 0.0,
    )
    places = set()
    for name in ("add", "scaled_dot_product_attention_backward"):
        now = page.Reading(**{**reading.__dict__, "operation": name})
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(top._Screen({1: top.Activity(now, {"product": 0.5})}))
        head, row, key = console.export_text().splitlines()
        assert head.split() == shown.split() and "3/8" in row and len(row) <= width
        bar = re.search("█+·+", row)
        places.add(bar.span())
    assert len(places) == 1 and 8 <= len(bar[0]) <= 40 and key.strip() == "█ product"


def test_a_colour_of_the_key_stays_with_its_kind(running):
    pytest.importorskip("rich")
    from rich.console import Console

    running()
    ranks = {}
    top.watch(ranks, None)
    (activity,) = ranks.values()
    activity.shares = dict.fromkeys(("product", "communication", "normalization", "loss"), 0.25)
    console = Console(width=34, record=True, file=io.StringIO())
    console.print(top._Screen(ranks))
    key = console.export_text().splitlines()[2:]
    assert len(key) > 1 and sorted(re.findall(r"█ (\w+)", "\n".join(key))) == sorted(activity.shares)


def test_trace_takes_a_window(running, tmp_path, capsys):
    process = running()
    folder = tmp_path / "all traces"
    assert main(["trace", "-s", "60", "-n", "10", "--dir", str(folder)]) == 0
    text = capsys.readouterr().out
    log = folder / f"trace-{process.pid}.log"
    assert text.startswith("10 operations of 1 rank\n") and f" timeline '{log}' " in text  # to be pasted
    found = read_log(log)
    assert [i.name for i in found] == ["matmul"] * 10 and every(i.duration is not None for i in found)
    assert len(check_trace(log.with_suffix(".json"))) >= 10
    assert main(["timeline", str(log), "--output", str(tmp_path / "t.html")]) == 0
    assert main(["trace", "-s", "0.05", "--dir", str(folder)]) == 0  # a second one, by time
    assert len(read_log(log)) > 0
    count = page.read_pages()[0].count
    wait_for(lambda: page.read_pages()[0].count > count)  # the program goes its way


def test_a_window_ends_by_itself(tmp_path):
    """After its time, and after its instructions; a program that does nothing more ends it, too."""
    assert stream.publish()
    made = publishing._page
    for number, (seconds, instructions) in enumerate([(0.01, 0), (60.0, 2)], 1):
        request = page.Request(number, seconds, instructions, str(tmp_path / f"{number}.log"))
        window = publishing.Window(request, made)
        stream.start(window)
        if instructions:
            for _ in range(4):
                mytorch.ones(2).exp()
        else:
            window.timer.join(10)
        assert window.left == 0 and made.is_done(request)
    assert [i.name for i in read_log(tmp_path / "2.log")] == ["exp", "exp"]


def test_a_request_ends_the_window_of_one_before(tmp_path):
    stream.publish()

    def poll_and_run(count):
        publishing.poll(publishing._page)
        for _ in range(count):
            mytorch.ones(2).exp()

    assert page.ask_for_trace(mine(), 600.0, 0, str(tmp_path / "first.log")) == 1
    poll_and_run(2)
    assert page.ask_for_trace(mine(), 600.0, 3, str(tmp_path / "second.log")) == 2
    poll_and_run(4)
    assert mine().done == 2 and not stream.is_recording()
    assert [len(read_log(tmp_path / f"{name}.log")) for name in ("first", "second")] == [2, 3]


def test_a_request_that_is_withdrawn_ends_its_window(tmp_path):
    stream.publish()
    number = page.ask_for_trace(mine(), 600.0, 0, str(tmp_path / "first.log"))
    publishing.poll(publishing._page)
    mytorch.ones(2).exp()
    assert stream.is_recording()
    page.withdraw_request(mine(), number)
    mytorch.ones(2).exp()
    assert not stream.is_recording() and len(read_log(tmp_path / "first.log")) == 1
    gone = page.Reading(**{**mine().__dict__, "path": tmp_path / "none"})
    page.withdraw_request(gone, number)  # it has ended


@pytest.mark.parametrize("command", ["trace", "top"])
def test_an_interrupt_ends_without_a_traceback(running, command, tmp_path, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    running("hang")
    monkeypatch.setattr("time.sleep", interrupt)
    option = {"trace": ["--dir", str(tmp_path)], "top": ["--once"]}[command]
    assert main([command, *option]) == 130
    assert page.read_pages()[0].done == (command == "trace")  # it makes no trace later


def test_a_trace_of_nothing_is_explained(running, tmp_path, capsys, monkeypatch):
    assert main(["trace", "--dir", str(tmp_path)]) == 1
    assert "no running job" in capsys.readouterr().err
    for seconds in ("0", "nan", "inf"):
        assert main(["trace", "-s", seconds]) == main(["top", "--once", "--interval", seconds]) == 2
    running("hang")
    wait_for(lambda: "stuck" in [r.operation for r in page.read_pages()])
    monkeypatch.setattr("mytorch.cli.trace._PATIENCE", 0.1)
    assert main(["trace", "-s", "0.1", "--dir", str(tmp_path)]) == 1
    assert "began no operation; its last is stuck" in capsys.readouterr().err
    assert page.read_pages()[0].done == 1  # it makes no trace later
    assert main(["trace", "-s", "0.1", "--dir", str(tmp_path / ("long" * 50) / ("long" * 60))]) == 2
    assert "at most 400 bytes" in capsys.readouterr().err


def test_a_trace_of_a_job_that_ends_is_explained(running, tmp_path, capsys, monkeypatch):
    process = running("hang")
    wait_for(lambda: "stuck" in [r.operation for r in page.read_pages()])
    waits = time.sleep

    def end(seconds):
        process.kill()
        waits(seconds)

    monkeypatch.setattr("time.sleep", end)
    assert main(["trace", "-s", "30", "--dir", str(tmp_path)]) == 1
    assert "no operation began, or the job ended" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    stream.publish()
    page.ask_for_trace(mine(), 1.0, 0, str(tmp_path / "no" / "trace.log"))
    with pytest.warns(UserWarning, match="no trace for"):
        publishing.poll(publishing._page)
    assert mine().done == 1 and not stream.is_recording()
