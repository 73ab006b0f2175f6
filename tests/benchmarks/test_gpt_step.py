"""The pieces of the GPT benchmark, and one small run of it. Nothing here asserts a time."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import gpt_step, machine, report
from benchmarks.problem import (
    CONFIGS,
    EMBEDDING,
    HEAD,
    initial_weights,
    load_problem,
    make_batches,
    save_problem,
)
from benchmarks.protocol import KERNEL_CHOICES, Worker, WorkerError
from benchmarks.report import Chunk, LossMismatch, Measurement

ABOUT = {"version": "1", "blas": "none", "threads": 2, "peak_memory_without_start": True}


def measurement(*chunks: tuple[float, float | None], label: str = "it") -> Measurement:
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
    rows = report.summarize(
        [
            measurement((30, 0), (32, 0), (40, 0), (500, 1), label="peer"),
            measurement((24, 0), (8, 0), (1, 1), label="mine"),
        ],
        tokens=768,
        limit=0.05,
    )
    assert [row["ms"] for row in rows] == [32, 16]
    assert [row["ratio"] for row in rows] == [1, 0.5]
    assert [row["tokens_per_second"] for row in rows] == [24_000, 48_000]
    assert [(row["fastest_ms"], row["slowest_ms"]) for row in rows] == [(30, 40), (8, 24)]
    assert [(row["quiet_chunks"], row["all_chunks"]) for row in rows] == [(3, 4), (2, 3)]
    lines = report.table(rows).splitlines()
    assert " ".join(lines[1].split()) == "peer 32.0 30.0 – 40.0 24,000 1.00 0 MiB 3 of 4"


# chunks of two rows -> how the sentence begins, and a part of it
QUIETNESS = {
    "enough": ([(30, 0), (90, 1), (30, 0)], "1 of 4 chunks discarded", ""),
    "too few": ([(30, 0), (90, 1)], "NOT QUIET: 1 of 3 chunks discarded", "0.00 cores in the median"),
    "none": ([(90, 1), (90, 1)], "NOT QUIET: 2 of 3 chunks", "No chunk of it was quiet: all of them"),
    "unknown": ([(30, None), (30, None)], "NOT KNOWN TO BE QUIET", "no /proc/stat"),
}


@pytest.mark.parametrize(("chunks", "begins", "holds"), QUIETNESS.values(), ids=QUIETNESS.keys())
def test_report_says_how_quiet_the_machine_was(chunks, begins, holds):
    rows = report.summarize([measurement(*chunks), measurement((30, 0))], tokens=1, limit=0.05)
    wanted = 2 if chunks is not QUIETNESS["enough"][0] else 1
    said = report.quietness(rows, wanted, limit=0.05)
    assert said.startswith(begins) and holds in said


LOSSES = {
    "equal": ([4.0, 3.0], [4.0, 3.0], [0, 0]),
    "relative above one": ([4.0, 3.3], [4.0, 3.0], [0, 0.1]),
    "absolute below one": ([0.52, 0.3], [0.5, 0.3], [0.02, 0]),
    "nan": ([1.0, math.nan], [1.0, 1.0], [0, math.inf]),
    "nan on both sides": ([math.nan, 1.0], [math.nan, 1.0], [math.inf, 0]),
    "infinite": ([math.inf], [math.inf], [math.inf]),
}


@pytest.mark.parametrize(("losses", "reference", "expected"), LOSSES.values(), ids=LOSSES.keys())
def test_loss_differences(losses, reference, expected):
    assert report.loss_differences(losses, reference) == pytest.approx(expected, rel=1e-12)


def test_differing_losses_are_an_error():
    close = report.check_losses("mine", [4.0, 3.00029], "peer", [4.0, 3.0])
    assert close == pytest.approx(2.9e-4 / 3, rel=1e-6)
    for wrong in (3.00031, math.nan):
        with pytest.raises(LossMismatch, match=r"at step 1, allowed 1e-04: mine .*, peer 3\.0000000"):
            report.check_losses("mine", [4.0, wrong, 9.0], "peer", [4.0, 3.0, 2.0])
    with pytest.raises(ValueError, match="longer"):
        report.check_losses("mine", [4.0], "peer", [4.0, 3.0])


def test_problem_is_the_same_every_time(tmp_path):
    config = CONFIGS["tiny"]
    save_problem(tmp_path / "problem.npz", config)
    weights, batches = load_problem(tmp_path / "problem.npz")
    assert weights.pop(HEAD) is weights[EMBEDDING]
    for name, value in initial_weights(config).items():
        np.testing.assert_array_equal(weights.pop(name), value, err_msg=name)
    assert not weights
    inputs, targets = make_batches(config)
    for (x, y), x_again, y_again in zip(batches, inputs, targets, strict=True):
        assert x.shape == y.shape == (config.batch_size, config.context_length)
        assert x.dtype == y.dtype == np.int64
        assert x.min() >= 0 and x.max() < config.vocab_size
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
        np.testing.assert_array_equal(x, x_again)
        np.testing.assert_array_equal(y, y_again)


@pytest.mark.parametrize(
    ("set_by_user", "expected"),
    [
        ({}, ["2", "2", "2", "2"]),
        ({"OMP_NUM_THREADS": "4"}, ["4", "4", "4", "4"]),
        ({"OPENBLAS_NUM_THREADS": "1"}, ["2", "1", "2", "2"]),
    ],
)
def test_two_threads_unless_the_user_set_them(set_by_user, expected):
    assert list(gpt_step.thread_environment(set_by_user).values()) == expected


BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
begin = time.process_time()
while time.process_time() - begin < 0.3: pass
print(flush=True); input()
"""


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs Linux's /proc")
def test_cpu_time_of_own_processes_and_of_all(monkeypatch):
    core = min(os.sched_getaffinity(0))  # one is enough: each that is counted adds its errors
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {core})
    own, everyone = machine.tree_busy_seconds(os.getpid()), machine.total_busy_seconds()
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    alive = machine.tree_busy_seconds(os.getpid()) - own
    only_child = machine.tree_busy_seconds(child.pid)
    total = machine.total_busy_seconds() - everyone
    child.communicate(b"\n")
    tick = 0.02  # user and system time are both cut to 10 ms, and so are both idle times of a core
    assert alive >= only_child - tick >= 0.3 - 2 * tick
    assert total >= 0.3 - 2 * tick
    assert machine.tree_busy_seconds(os.getpid()) - own >= 0.3 - 2 * tick  # ended children still count
    assert machine.tree_busy_seconds(child.pid) == 0


def test_busy_time_is_the_clock_less_the_idle_time_of_our_cores(tmp_path, monkeypatch):
    lines = ["cpu  9 9 9 999 9 0 0", "cpu0 1 2 3 1000 500 4 5", "cpu1 0 0 0 1 1 0 0", "cpu2 0 0 0 900 0 0 0"]
    (tmp_path / "stat").write_text("\n".join(lines + ["intr 5", "ctxt 7", ""]))
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "TICKS", 100)
    monkeypatch.setattr(machine.time, "clock_gettime", lambda clock: 20.0)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 2})
    assert machine.total_busy_seconds() == 2 * 20 - 15 - 9
    (tmp_path / "stat").unlink()
    assert machine.total_busy_seconds() is None


def test_names_the_blas_that_numpy_loaded():
    facts = machine.openblas()
    if "openblas" in np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]:
        assert facts["core"].isalnum() and facts["core"] != "unknown" and int(facts["threads"]) >= 1
    else:
        assert facts == {"core": "unknown", "threads": "unknown"}


LARGE = """
import numpy as np
from benchmarks import machine
before = machine.peak_memory()
filled = np.ones(before + (64 << 20), np.uint8)  # larger than anything before it
assert machine.peak_memory() >= filled.size
"""


def test_peak_memory_sees_a_large_array():
    subprocess.run([sys.executable, "-c", LARGE], check=True)  # this process may have had much already


@pytest.mark.parametrize(
    ("loads", "deadline", "looks"),
    [
        ([0.9, 0.2, 0.01, 0.9], math.inf, 3),
        ([0.9, 0.9], -math.inf, 1),
        ([None, 0.9], math.inf, 1),
    ],
)
def test_waits_until_others_are_quiet_or_time_is_up(loads, deadline, looks, monkeypatch):
    seen = []
    monkeypatch.setattr(gpt_step, "watch", lambda action: (None, seen.append(1) or loads[len(seen) - 1]))
    gpt_step.wait_for_quiet(0.05, deadline)
    assert len(seen) == looks


def test_a_run_that_is_never_quiet_ends_and_says_so(fake_worker, monkeypatch, capsys):
    module = fake_worker("alone", "serve(ABOUT, lambda: [lambda: 1.0])")
    monkeypatch.setitem(gpt_step.VARIANTS, "alone", gpt_step.Variant("alone", module))
    monkeypatch.setattr(gpt_step, "watch", lambda action: (action(), 1.5))
    gpt_step.main(["--config", "tiny", "--variants", "alone", "--minutes", "0"])
    printed = capsys.readouterr()
    assert "NOT QUIET: 1 of 1 chunks discarded" in printed.out and "used 1.50 cores" in printed.out
    assert printed.err.startswith("alone ") and printed.err.endswith(" ms (disturbed)\n")


@pytest.fixture
def fake_worker(tmp_path, monkeypatch):
    """Write a worker module of its own, without any framework; returns its name."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.getcwd()]))
    for name in KERNEL_CHOICES:  # of the system, which a message would name
        monkeypatch.delenv(name, raising=False)

    def write(name: str, body: str) -> str:
        head = f"from benchmarks.protocol import serve\nABOUT = {ABOUT}\n"
        (tmp_path / f"{name}.py").write_text(head + body)
        return name

    return write


NOISY = """
def start():
    print("what a library has to say")
    return [lambda: 1.0, lambda: 2.0, lambda: 3.0]
serve(ABOUT, start)
"""


def test_a_worker_goes_round_its_batches_and_restarts(fake_worker):
    module = fake_worker("rounds", NOISY)
    worker = Worker("rounds", module, [], {})
    try:
        assert worker.read().items() >= {"version": "1", "threads": 2}.items()
        assert worker.run(2, restart=True)["losses"] == [1.0, 2.0]
        answer = worker.run(3)
        assert answer["losses"] == [3.0, 1.0, 2.0]
        assert len(answer["ms"]) == 3 and answer["peak_memory"] > 0
        assert worker.run(1, restart=True)["losses"] == [1.0]
    finally:
        worker.close()
    assert worker.process.returncode is not None


def test_a_worker_that_ends_early_is_an_error(fake_worker):
    worker = Worker("short-lived", fake_worker("ends", "import sys; sys.exit(3)"), [], {})
    with pytest.raises(WorkerError, match="'short-lived' ended with exit code 3"):
        worker.run(1)
    worker.close()


def test_the_libraries_choose_their_kernels_themselves(fake_worker, monkeypatch, capsys):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    module = fake_worker("choosy", "import os\nserve(ABOUT | {'core': os.getenv('OPENBLAS_CORETYPE')}, list)")
    for _ in range(2):
        worker = Worker("choosy", module, [], {})
        try:
            assert worker.read()["core"] is None
        finally:
            worker.close()
    assert capsys.readouterr().err.count("measured without OPENBLAS_CORETYPE=Nehalem") == 1


def test_a_worker_ends_with_its_controller(fake_worker):
    worker = Worker("idle", fake_worker("idle", "serve(ABOUT, list)"), [], {})
    worker.read()
    worker.process.stdin.close()  # as the system does it when the controller dies
    assert worker.process.wait(timeout=300) == 0
    worker.process.stdout.close()


def test_different_losses_end_the_run_with_exit_code_1(fake_worker, monkeypatch):
    for name, loss in (("right", 1.0), ("wrong", 1.1)):
        module = fake_worker(name, f"serve(ABOUT, lambda: [lambda: {loss}])")
        monkeypatch.setitem(gpt_step.VARIANTS, name, gpt_step.Variant(name, module))
    with pytest.raises(SystemExit, match=r"differ by 1\.0e-01 at step 0, .*: wrong 1\.1000000, right 1\.0"):
        gpt_step.main(["--config", "tiny", "--variants", "right", "wrong", "--minutes", "0"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--config", "huge"], "invalid choice: 'huge'"),
        (["--chunks", "0"], "at least 1; got 0 and 40"),
        (["--variants", "torch", "jax"], "mytorch-numpy, mytorch-untuned; got jax"),
    ],
)
def test_wrong_arguments(argv, message, capsys):
    with pytest.raises(SystemExit):
        gpt_step.main(argv)
    assert message in capsys.readouterr().err


def test_the_controller_imports_no_framework():
    seen = "import sys, benchmarks.gpt_step; print(sorted({'torch', 'mytorch'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", seen], text=True).strip() == "[]"


def test_a_small_run_beside_pytorch(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # other tests run beside this one
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    out = tmp_path / "figures.json"
    gpt_step.main(
        [
            "--config",
            "tiny",
            "--variants",
            *[name for name in gpt_step.VARIANTS if name != "torch-tuned"],  # it compiles for a minute
            "--chunks",
            "2",
            "--steps",
            "4",
            "--other-cores",
            "100000",
            "--out",
            str(out),
        ]
    )
    printed = capsys.readouterr().out
    result = json.loads(out.read_text())
    assert [row["label"] for row in result["rows"]] == [
        "PyTorch eager",
        "mytorch",
        "mytorch, NumPy alone",
        "mytorch, MYTORCH_TUNE=0",
    ]
    assert result["largest_loss_difference"] <= report.TOLERANCE and result["quiet"]
    assert all(row["label"] in printed and row["version"] in printed for row in result["rows"])
    assert all(len(row["chunks"]) == 2 and row["peak_memory"] > 1 << 20 for row in result["rows"])
    assert "Losses agree to 1e-04" in printed and "0 of 8 chunks discarded" in printed
    assert os.listdir(tmp_path) == ["figures.json"]
