"""The GPU benchmark without a GPU: its command on the stand-in for CuPy, and its parts. No time is tested."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mytorch
from benchmarks.gpu import __main__ as program
from benchmarks.gpu import programs, sections, tables, training
from benchmarks.gpu.sizes import SIZES
from tests.every import every
from tests.triton.cases import CASES, COMPILED

ROOT = Path(__file__).parents[2]
PEER = {"who": "PyTorch eager", "library": "torch"}
TINY, HALVES = SIZES["tiny"], ["float16", "bfloat16"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


def command(folder, *args, **env):
    path = os.pathsep.join([str(ROOT / "tests/benchmarks/gpu_stand_in"), str(ROOT)])
    interpreted = {"PYTHONPATH": path, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--out", str(folder), "--no-peer", *args],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **interpreted, **env}, timeout=900,
    )
    return done, json.loads((folder / "gpu.json").read_text())


@linux
def test_the_command_on_the_stand_in(tmp_path):
    chosen, wanted = ["relu", "AdamW", "self_attention"], ["ceilings", "kernels"]
    done, found = command(tmp_path, "--size", "tiny", "--sections", *wanted, "--kernels", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["about"]["gpu"] == "strict CuPy stand-in" and found["about"]["numpy"] == np.__version__
    assert list(found["sections"]) == wanted and found["peer"] == {"missing": "--no-peer"}
    for section in found["sections"].values():
        assert section["rows"] and section["date"].startswith("20")
        assert not any("failed" in row for row in section["rows"])
    ceilings = [row["what"] for row in found["sections"]["ceilings"]["rows"] if row["value"] > 0]
    assert ceilings == ["copy", "add", "float32", "tf32", *HALVES]
    rows = {(row["who"], row["kernel"]): row["both"] for row in found["sections"]["kernels"]["rows"]}
    passes = [f"self_attention, {products} products" for products in (7, 5)]
    assert set(rows) == {(who, name) for who in ("mytorch", "CuPy alone") for name in chosen} | {
        ("mytorch", name) for name in passes
    }
    with_backward = {name for (_, name), both in rows.items() if both}
    assert with_backward == {"relu", "self_attention", *passes}
    assert (tmp_path / "gpu.md").read_text() == tables.markdown(found)
    assert done.stdout.strip().endswith("All is right.")


@linux
def test_a_broken_kernel_is_a_row_and_the_rest_goes_on(tmp_path):
    args = ["--sections", "parity", "--kernels", "sum_of_squares", "scale", "cross_entropy"]
    done, found = command(tmp_path, "--size", "tiny", *args, BREAK="_scale:exit _forward:wrong")
    assert done.returncode == 1 and "8 problems" in done.stderr
    rows = found["sections"]["parity"]["rows"]
    failed, wrong = ([row for row in rows if row.get(key)] for key in ("failed", "wrong"))
    assert len(rows) == 11 and len(failed) == 3 and len(wrong) == 5
    assert {row["kernel"] for row in failed} == {"scale"} and "exit code 7" in failed[-1]["failed"]
    assert {row["kernel"] for row in wrong} == {"cross_entropy"}
    right = [row for row in rows if row not in failed + wrong]
    assert [row["kernel"] for row in right] == ["sum_of_squares"] * 3
    assert max(row["error"] for row in right) < 8e-3
    assert "rows from 30: error" in wrong[-1]["wrong"]


def test_sections_of_an_earlier_run_are_kept(monkeypatch, tmp_path):
    """Those under the same conditions: not those of another size, or of other versions."""
    about, figures = {"gpu": "one", "numpy": "2"}, iter(range(10, 100))
    row = {"unit": "GB/s", "error": 0.0, "wrong": ""}

    def answers(command, env, questions, *limits):
        return [(question, {"result": {**row, "value": float(next(figures))}}) for question in questions]

    monkeypatch.setattr(program, "ask_all", lambda *args: [({}, {"result": dict(about)})])
    monkeypatch.setattr(sections, "ask_all", answers)

    def run(size, section):
        program.main(["--out", str(tmp_path), "--no-peer", "--size", size, "--sections", section,
                      "--kernels", "scale", "--jobs", "1"])
        return json.loads((tmp_path / "gpu.json").read_text())["sections"]

    compared = run("tiny", "parity")["parity"]
    both = run("tiny", "ceilings")
    assert list(both) == ["parity", "ceilings"] and both["parity"] == compared
    assert list(run("quick", "parity")) == ["parity"]
    about["numpy"] = "3"
    assert list(run("quick", "ceilings")) == ["ceilings"]


def test_every_row_is_saved_at_once(monkeypatch):
    answers, saved = [{"result": {"value": 1.5}}, {"error": "Traceback\nValueError: no"}], []
    monkeypatch.setattr(sections, "ask_all", lambda *args: zip(args[2], answers, strict=True))
    group = sections.Group("mytorch", "mytorch", [{"do": "x", "what": what} for what in "ab"])
    sections.run([group], "tiny", 1.0, 1, lambda rows: saved.append(list(rows)))
    assert [len(rows) for rows in saved] == [1, 2] and saved[0][0]["value"] == 1.5
    assert saved[1][1]["failed"] == answers[1]["error"]
    assert tables.problems(result(ceilings=saved[1])) == ["ceilings: mytorch, b: ValueError: no"]


def test_wrong_arguments_and_no_gpu(capsys, monkeypatch, tmp_path):
    wrong = {"--kernels": ("swish", "invalid choice: 'swish'"), "--jobs": ("0", "must be at least 1, got 0")}
    for option, (value, message) in wrong.items():
        with pytest.raises(SystemExit):
            program.parse(["--out", "x", option, value])
        assert message in capsys.readouterr().err
    monkeypatch.setattr(program, "ask_all", lambda *args: [({}, {"error": "RuntimeError: no GPU"})])
    with pytest.raises(SystemExit, match="benchmarks.gpu: no GPU"):
        program.main(["--out", str(tmp_path)])


def test_what_is_asked():
    timed = set(sections.timed_kernels(TINY))
    assert {*CASES} - timed == {"add_rows", "quantized_linear"} and timed - {*CASES} == {"AdamW"}
    groups = sections.parity(SIZES["full"], HALVES, sections.known_kernels())
    asked = {(q["kernel"], q.get("table")) for group in groups for q in group.questions}
    cases = {(name, "odd") for name in CASES} | {(name, "real") for name in COMPILED}
    assert asked == cases | {("cross_entropy", None)}


def result(**sections):
    mine = {"who": "mytorch", "library": "mytorch", "case": "a case"}
    found = {name: {"rows": [mine | row for row in rows], "seconds": 1.0} for name, rows in sections.items()}
    return {"about": {}, "peer": {"pytorch": "2"}, "date": "today", "size": "full", "sections": found}


def test_speeds_are_shares_of_the_ceilings():
    ceilings = [{"what": "copy", "value": 4000.0, "unit": "GB/s"},
                {"what": "float16", "value": 800.0, "unit": "TFLOP/s"}]
    same = {"kernel": "linear", "shape": "8 × 9", "cost": [4e9, 8e9, 8e11, 16e11]}
    rows = [{**same, "forward": {"ms": 2.0}, "both": {"ms": 8.0}},
            {**same, "forward": {"ms": 1.0}, "both": None, **PEER}]
    text = tables.markdown(result(ceilings=ceilings, kernels=rows, train=trained([2.0, 1.0])))
    lines = [" ".join(line.replace("|", " ").split()) for line in text.splitlines()]
    # 4 GB take 1 ms and 0.8 TFLOP take 1 ms: 50 % in 2 ms; 12 GB and 2.4 TFLOP take 3 ms: 38 % in 8 ms
    assert "linear 8 × 9 mytorch 2 2,000 400 0.5 8 1,500 300 0.375" in lines
    assert "linear 8 × 9 PyTorch eager 1 4,000 800 1" in lines
    assert "mytorch, float16 131.1 130 140 5e+05 400 0.5 0.5 1 1 0" in lines


def trained(losses):
    """Runs of mytorch and of PyTorch, which has these losses."""
    ours = {
        "dtype": "float16", "ms": 131.072, "windows_ms": [130.0, 140.0], "tokens_per_second": 500_000.0,
        "tflops": 400.0, "bytes": 1 << 30, "config": "small", "losses": [2.0, 1.0],
    }
    return [ours, {**ours, "ms": 262.144, "losses": losses, **PEER}]


@pytest.mark.parametrize(("losses", "count"), [([2, 1.04], 0), ([2, 1.2], 1), ([math.nan, 1], 1)])
def test_losses_are_compared(losses, count):
    assert len(tables.problems(result(train=trained(losses)))) == count


def test_a_graph_has_the_losses_of_single_steps(fake_cuda):
    eager, captured = (training.train(mytorch, TINY, mode, "float16") for mode in ("eager", "captured"))
    assert len(eager["windows_ms"]) == TINY.windows
    assert len(set(eager["losses"])) == len(eager["losses"]) == (TINY.windows + 1) * TINY.steps
    assert (eager["losses"], eager["scale"]) == (captured["losses"], captured["scale"])


def test_a_profile_has_the_times_of_a_step(fake_cuda):
    found = training.profile(mytorch, TINY, "eager", "bfloat16")
    calls = {name: count for name, count, _ in found["kernels"]}
    assert calls["AdamW.step"] == 1 and calls["self_attention"] == TINY.train.n_layer
    assert 0 < found["host_ms"] <= found["ms"] and "AdamW.step |" in tables.markdown(result(profile=[found]))


def test_programs_compute_the_same(fake_cuda):
    (job,), groups = TINY.programs, sections.programs(TINY, HALVES, [])
    modes = [group.questions[0]["mode"] for group in groups if group.library == "mytorch"]
    try:
        found = [programs.program_time(mytorch, TINY, job, mode) for mode in modes]
    finally:
        mytorch.set_default_device(None)
    assert modes == ["", "default", "reduce-overhead"] and every(row["ms"] > 0 for row in found)
    np.testing.assert_allclose([row["value"] for row in found], found[0]["value"], 1e-5)


def test_values_of_programs_are_compared():
    row = {"job": "MLP", "size": "", "ms": 1.0, "windows_ms": [1.0], "value": 2.0}
    rows = [row, {**row, "who": "mytorch.compile", "value": 2.1}, {**row, "value": 2.001, **PEER, "ms": 4.0}]
    found = result(programs=rows)
    assert len(tables.problems(found)) == 1 and "0.25" in tables.markdown(found)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_losses_are_pytorch_s(dtype, fake_cuda):
    ours, theirs = losses(mytorch, "cuda", dtype), losses(torch, "cpu", dtype)
    assert ours[-1] < ours[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-2)


def losses(library, *how):
    trainer, batches = training.prepare(library, TINY.train, 12, *how)
    return [float(trainer.step(*batch).item()) for batch in batches]
