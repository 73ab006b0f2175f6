"""The harness of the benchmarks: what counts, processes and turns, others' load. No time is asserted."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import harness, machine, processes
from benchmarks.harness import Plan, Turn, Turns

ROOT = Path(__file__).parents[2]


def test_disturbed_turns_do_not_count():
    for turns, ms, quiet in (
        ([(30, 0.0), (90, 0.06), (32, -0.01)], 31, 2), ([(80, 0.5), (90, 1.0)], 85, 0),
        ([(30, None), (31, None)], 30.5, 2),  # the system doesn't tell
    ):
        found = harness.figures([Turn(*turn) for turn in turns], 0.05)
        assert (found["ms"], found["quiet"], found["all"]) == (ms, quiet, len(turns))


def test_busy_time_is_the_clock_less_the_idle_time_of_our_cores(monkeypatch):
    cores = [SimpleNamespace(idle=idle, iowait=waited) for idle, waited in ((10, 5), (0.01, 0.01), (9, 0))]
    monkeypatch.setattr(machine.psutil, "cpu_times", lambda percpu: cores)
    monkeypatch.setattr(machine.time, "clock_gettime", lambda clock: 20.0)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 2})
    busy, own = machine.busy_seconds()
    assert busy == 2 * 20 - 15 - 9 and own >= time.process_time() - 0.1
    monkeypatch.setattr(machine, "busy_seconds", iter([(5.0, 1.0), (9.0, 2.0)]).__next__)
    monkeypatch.setattr(machine.time, "perf_counter", iter([100.0, 102.0]).__next__)
    assert machine.watch(lambda: "done") == ("done", 1.5)  # 3 s in 2 s


def test_libraries_choose_their_kernels_and_have_two_threads(monkeypatch):
    monkeypatch.setattr(os, "environ", {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_NUM_THREADS": "1"})
    assert list(machine.environment().values()) == ["2", "2", "2", "1"]


def test_the_controller_imports_no_framework():
    code = "import sys, benchmarks.kernels; print(sorted({'torch', 'mytorch'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).strip() == "[]"


ECHO = """
import os, time
from benchmarks.processes import serve
state = []
def check(): assert not state, "no GPU"
def fail(text): raise ValueError(text)
def spoil(): state.append("gone"); fail("the last")
def echo(text): print("noise"); return [text, os.getpid()]
def die(): os._exit(3)
def hang(): time.sleep(60)
serve({"echo": echo, "fail": fail, "spoil": spoil, "die": die, "hang": hang}, check)
"""


@pytest.fixture
def ask(tmp_path, monkeypatch):
    (tmp_path / "echo_worker.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))

    def answers(*dos, limit=30.0, seconds=90.0):
        questions = [{"do": do, "text": do} if do in ("echo", "fail") else {"do": do} for do in dos]
        found = processes.ask_all(["echo_worker"], {}, questions, limit, time.monotonic() + seconds)
        return [answer for _, answer in found]

    return answers


def test_a_failure_leaves_the_process_and_a_broken_gpu_ends_it(ask):
    first, failed, second, spoilt, third = ask("echo", "fail", "echo", "spoil", "echo")
    assert first["result"] == second["result"] and first["result"][0] == "echo"
    assert failed["error"].startswith("Traceback") and "ValueError: fail" in failed["error"]
    assert "ValueError: the last" in spoilt["error"] and "can't be used after it: no GPU" in spoilt["error"]
    assert third["result"][1] != first["result"][1]


def test_a_process_that_ends_or_hangs_is_replaced(ask):
    died, first, hung, second = ask("die", "echo", "hang", "echo", limit=5.0)
    assert ask("echo", seconds=0.0) == [{"error": "not run: the time is over"}]
    assert died["error"] == "the process ended with exit code 3"
    assert hung["error"] == "no answer within 5 s; it said:\nnoise"
    assert first["result"][1] != second["result"][1]


def turns(**values):
    workers = {}  # that always give the same numbers
    for label, each in values.items():
        answer = {"result": {"ms": [1.0, 3.0, 8.0], "values": each, "peak_memory": 5}}
        workers[label] = SimpleNamespace(ask=lambda question, answer=answer: answer)
    return Turns(Plan("x", 3, 0, 1e-4), workers)


def test_a_turn_is_the_median_of_its_steps_and_the_numbers_agree():
    row, both = {"peer": [], "mine": []}, turns(peer=[0.5, 3.0], mine=[0.5, 3.00029])
    both.take(0, row, True)
    assert both.largest_difference == pytest.approx(1e-4, rel=0.1)
    assert [(t.ms, t.peak_memory) for (t,) in row.values()] == [(3.0, 5), (3.0, 5)]
    for wrong in (3.00031, math.nan, math.inf):
        with pytest.raises(SystemExit, match=r"x: mine: .* instead of 3\.0000000 at step 1, allowed 1e-04"):
            turns(peer=[0.5, 3.0], mine=[0.5, wrong]).take(0, row, False)
