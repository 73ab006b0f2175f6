"""The harness of the benchmarks: what counts, processes and turns, others' load. No time is asserted."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import gpt_step, harness
from benchmarks.harness import KERNEL_CHOICES, Chunk, LossMismatch, Measurement, Worker, WorkerError

ABOUT = {"version": "1", "blas": "none", "threads": 2, "peak_memory_without_start": True}


def measurement(*chunks, label="it"):
    return Measurement(label, ABOUT, [Chunk(ms, others) for ms, others in chunks])


# ms and others' cores of each chunk -> the times that count, with 0.05 allowed
CHUNKS = {
    "all quiet": ([(30, 0.0), (31, 0.05)], [30, 31]),
    "one disturbed": ([(30, 0.0), (90, 0.06), (31, -0.01)], [30, 31]),
    "none quiet": ([(80, 0.5), (90, 1.0)], [80, 90]),
    "load unknown": ([(30, None), (31, None)], [30, 31]),
}


@pytest.mark.parametrize(("chunks", "expected"), CHUNKS.values(), ids=CHUNKS.keys())
def test_disturbed_chunks_do_not_count(chunks, expected):
    assert measurement(*chunks).times(0.05) == expected


def test_figures_are_medians_of_the_quiet_chunks():
    peer = measurement((30, 0), (32, 0), (40, 0), (500, 1), label="peer")
    rows = gpt_step.summarize([peer, measurement((24, 0), (8, 0), (1, 1), label="mine")], 768, 0.05)
    assert [(row["ms"], row["ratio"], row["tokens_per_second"]) for row in rows] == [
        (32, 1, 24_000), (16, 0.5, 48_000)
    ]  # fmt: skip
    lines = gpt_step.table(rows).splitlines()
    assert " ".join(lines[1].split()) == "peer 32.0 30.0 – 40.0 24,000 1.00 0 MiB 3 of 4"


# chunks of two rows -> how the sentence begins, and a part of it
QUIETNESS = {
    "too few": ([(30, 0), (90, 1)], "NOT QUIET: 1 of 3 chunks discarded", "0.00 cores in the median"),
    "none": ([(90, 1), (90, 1)], "NOT QUIET: 2 of 3 chunks", "No chunk of it was quiet: all of them"),
    "unknown": ([(30, None), (30, None)], "NOT KNOWN TO BE QUIET", "no /proc/stat"),
}


@pytest.mark.parametrize(("chunks", "begins", "holds"), QUIETNESS.values(), ids=QUIETNESS.keys())
def test_report_says_how_quiet_the_machine_was(chunks, begins, holds):
    rows = gpt_step.summarize([measurement(*chunks), measurement((30, 0))], tokens=1, limit=0.05)
    text = gpt_step.quietness(rows, 2, limit=0.05)
    assert text.startswith(begins) and holds in text


def test_differing_losses_are_an_error():
    assert gpt_step.check_losses("mine", [0.5, 3.00029], "peer", [0.5, 3.0]) < 1e-4
    for wrong in (3.00031, math.nan, math.inf):
        with pytest.raises(LossMismatch, match=r"at step 1, allowed 1e-04: mine .*, peer 3\.0000000"):
            gpt_step.check_losses("mine", [4.0, wrong, 9.0], "peer", [4.0, 3.0, 2.0])
    with pytest.raises(ValueError, match="longer"):
        gpt_step.check_losses("mine", [4.0], "peer", [4.0, 3.0])


def test_two_threads_unless_the_user_set_them():
    for environ, expected in (({}, "2222"), ({"OMP_NUM_THREADS": "4"}, "4444"),
                              ({"OPENBLAS_NUM_THREADS": "1"}, "2122")):  # fmt: skip
        assert "".join(harness.thread_environment(environ).values()) == expected


def test_busy_time_is_the_clock_less_the_idle_time_of_our_cores(tmp_path, monkeypatch):
    lines = ["cpu  9 9 9 999 9 0 0", "cpu0 1 2 3 1000 500 4 5", "cpu1 0 0 0 1 1 0 0", "cpu2 0 0 0 900 0 0 0"]
    (tmp_path / "stat").write_text("\n".join(lines + ["intr 5", "ctxt 7", ""]))
    monkeypatch.setattr(harness, "PROC", tmp_path)
    monkeypatch.setattr(harness, "TICKS", 100)
    monkeypatch.setattr(harness.time, "clock_gettime", lambda clock: 20.0)
    monkeypatch.setattr(harness.os, "sched_getaffinity", lambda pid: {0, 2})
    assert harness.total_busy_seconds() == 2 * 20 - 15 - 9
    (tmp_path / "stat").unlink()
    assert harness.total_busy_seconds() is None


def test_own_busy_time_counts_children(tmp_path, monkeypatch):
    stats = {1: "1 (a b) S 0" + " 0" * 9 + " 1 2 3 4", 7: "7 (c) R 1" + " 0" * 9 + " 10 0 0 0",
             8: "8 (d) R 5" + " 0" * 9 + " 99 0 0 0"}  # fmt: skip
    for pid, text in stats.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(text)
    monkeypatch.setattr(harness, "PROC", tmp_path)
    monkeypatch.setattr(harness, "TICKS", 100)
    assert harness.tree_busy_seconds(1) == 0.2


def test_names_the_blas_that_numpy_loaded():
    facts = harness.openblas()
    if "openblas" in np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]:
        assert facts["core"].isalnum() and facts["core"] != "unknown" and int(facts["threads"]) >= 1
    else:
        assert facts == {"core": "unknown", "threads": "unknown"}


@pytest.mark.parametrize(
    ("loads", "deadline", "looks"),
    [([0.9, 0.2, 0.01, 0.9], math.inf, 3), ([0.9, 0.9], -math.inf, 1), ([None, 0.9], math.inf, 1)],
)
def test_waits_until_others_are_quiet_or_time_is_up(loads, deadline, looks, monkeypatch):
    seen = []
    monkeypatch.setattr(harness, "watch", lambda action: (None, seen.append(1) or loads[len(seen) - 1]))
    harness.wait_for_quiet(0.05, deadline)
    assert len(seen) == looks


# Processes


@pytest.fixture
def fake_worker(tmp_path, monkeypatch):
    """Write a worker module of its own, without any framework; returns its name."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.getcwd()]))
    for name in KERNEL_CHOICES:  # of the system, which a message would name
        monkeypatch.delenv(name, raising=False)

    def write(name, body):
        (tmp_path / f"{name}.py").write_text(f"from benchmarks.harness import serve\nABOUT = {ABOUT}\n{body}")
        return name

    return write


NOISY = """
import os
def start():
    print("a library's output")
    return [lambda: 1.0, lambda: 2.0, lambda: 3.0]
serve(ABOUT | {'core': os.getenv('OPENBLAS_CORETYPE')}, start)
"""


def test_a_worker_repeats_its_steps_and_restarts(fake_worker, monkeypatch, capsys):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")  # the libraries choose their kernels themselves
    worker = Worker("rounds", fake_worker("rounds", NOISY), [], {})
    try:
        assert worker.read().items() >= {"version": "1", "threads": 2, "core": None}.items()
        assert worker.run(2, restart=True)["losses"] == [1.0, 2.0]
        answer = worker.run(3)
        assert answer["losses"] == [3.0, 1.0, 2.0]
        assert len(answer["ms"]) == 3 and answer["peak_memory"] > 0
        assert worker.run(1, restart=True)["losses"] == [1.0]
        worker.process.stdin.close()  # as the system does it when the controller dies
        assert worker.process.wait(timeout=300) == 0
    finally:
        worker.process.kill()
    assert "measured without OPENBLAS_CORETYPE=Nehalem" in capsys.readouterr().err


def test_a_worker_that_ends_early_is_an_error(fake_worker):
    worker = Worker("short-lived", fake_worker("ends", "import sys; sys.exit(3)"), [], {})
    with pytest.raises(WorkerError, match="'short-lived' ended with exit code 3"):
        worker.run(1)
    worker.close()


def test_different_losses_end_the_run_with_exit_code_1(fake_worker, monkeypatch, capsys):
    monkeypatch.setattr(harness, "watch", lambda action: (action(), 1.5))
    monkeypatch.setattr(gpt_step, "watch", harness.watch)
    for name, loss in (("right", 1.0), ("wrong", 1.1)):
        module = fake_worker(name, f"serve(ABOUT, lambda: [lambda: {loss}])")
        monkeypatch.setitem(gpt_step.VARIANTS, name, harness.Variant(name, module))
    options = ["--config", "tiny", "--minutes", "0", "--variants"]
    gpt_step.main([*options, "right"])
    printed = capsys.readouterr()
    assert "NOT QUIET: 1 of 1 chunks discarded" in printed.out and "used 1.50 cores" in printed.out
    with pytest.raises(SystemExit, match=r"differ by 1\.0e-01 at step 0, .*: wrong 1\.1000000, right 1\.0"):
        gpt_step.main([*options, "right", "wrong"])


def test_the_controller_imports_no_framework():
    code = "import sys, benchmarks.gpt_step; print(sorted({'torch', 'mytorch'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


class Replay:
    """A worker with the same answer each time."""

    def __init__(self, label, result):
        self.label, self.result, self.requests = label, result, []

    def run(self, steps):
        self.requests.append(steps)
        return {"ms": [99.0] + [1.0] * (steps - 1), "losses": [self.result] * steps}


def test_a_job_isn_t_timed_in_its_first_steps_and_its_results_agree():
    workers = [Replay("one", 1.0), Replay("two", 1.0001)]
    measurements = [Measurement(w.label, {}) for w in workers]
    harness.run_job(workers, measurements, True, 5, 1e-3)
    assert [w.requests for w in workers] == [[5]] * 2  # at once: threads that wait between would sleep
    assert [[chunk.ms for chunk in m.chunks] for m in measurements] == [[1.0], [1.0]]
    for result in (1.01, math.nan):
        with pytest.raises(LossMismatch, match="'two': (1.01|nan)"):
            harness.run_job([workers[0], Replay("two", result)], measurements, False, 3, 1e-3)
