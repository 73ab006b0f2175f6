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
from benchmarks.gpu import parity, tables, training, vectors
from benchmarks.gpu.sizes import SIZES
from benchmarks.kernel_jobs import jobs
from tests.triton.cases import CASES, COMPILED

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "benchmarks" / "gpu_stand_in"
TINY = SIZES["tiny"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


def command(folder, *args, **env):
    path = os.pathsep.join([str(STAND_IN), str(ROOT)])
    interpreted = {"PYTHONPATH": path, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--out", str(folder), "--no-peer", *args],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **interpreted, **env}, timeout=900,
    )  # fmt: skip
    file = folder / "gpu.json"
    return done, json.loads(file.read_text()) if file.exists() else None


@linux
def test_the_command_on_the_stand_in(tmp_path):
    chosen = ["relu", "scale", "AdamW", "softmax"]
    wanted = ["ceilings", "parity", "kernels"]
    done, found = command(tmp_path, "--size", "tiny", "--sections", *wanted, "--kernels", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["about"]["gpu"] == "strict CuPy stand-in" and found["about"]["numpy"] == np.__version__
    assert list(found["sections"]) == wanted and found["peer"] == {"missing": "--no-peer"}
    for section in found["sections"].values():
        assert section["error"] == "" and section["failures"] == [] and section["date"].startswith("20")
    ceilings = {row["what"]: row["value"] for row in found["sections"]["ceilings"]["rows"]}
    assert list(ceilings) == ["copy", "add", "float32", "tf32", "float16", "bfloat16"]
    assert all(value > 0 for value in ceilings.values())
    compared, limits = found["sections"]["parity"], {"float32": 1e-3, "float16": 1e-3, "bfloat16": 8e-3}
    assert {row["kernel"] for row in compared["rows"]} == {"relu", "scale", "softmax"}
    assert {row["dtype"] for row in compared["rows"]} == set(limits)
    assert all(row["wrong"] == "" and row["error"] < limits[row["dtype"]] for row in compared["rows"])
    rows = {row["kernel"]: row["times"] for row in found["sections"]["kernels"]["rows"]}
    assert set(rows) == set(chosen) and all(set(row) == {"mytorch", "CuPy alone"} for row in rows.values())
    assert {name for name, row in rows.items() if row["mytorch"]["both"]} == {"relu", "softmax"}
    assert (tmp_path / "gpu.md").read_text() == tables.markdown(found)
    assert done.stdout.strip().endswith("All is right.")
    _, again = command(tmp_path, "--size", "tiny", "--sections", "ceilings")
    assert again["sections"]["parity"] == compared
    _, other = command(tmp_path, "--quick", "--sections", "parity", "--kernels", "scale")
    assert list(other["sections"]) == ["parity"]  # not of the same size


@linux
@pytest.mark.parametrize("how", ["wrong", "exit"])
def test_a_broken_kernel_is_written_down_and_the_rest_goes_on(how, tmp_path):
    args = ["--size", "tiny", "--sections", "parity", "--kernels", "sum_of_squares", "scale"]
    done, found = command(tmp_path, *args, BREAK=f"_scale:{how}")
    assert done.returncode == 1 and "3 problems" in done.stderr
    section = found["sections"]["parity"]
    right, wrong = (
        [row["wrong"] for row in section["rows"] if row["kernel"] == kernel]
        for kernel in ("sum_of_squares", "scale")
    )
    assert right == [""] * 3 and all("times the limit" in text for text in wrong)
    assert len(wrong) + len(section["failures"]) == 3
    assert all("exit code 7" in failure["error"] for failure in section["failures"])


def test_without_cupy_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(program.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"CuPy is not installed: pip install 'mytorch\[cuda12\]'"):
        program.who_is_there(True)


def test_wrong_arguments(capsys):
    with pytest.raises(SystemExit):
        program.parse(["--out", "x", "--kernels", "relu", "swish"])
    assert "there is no kernel swish; there are AdamW, add_layer_norm" in capsys.readouterr().err


def test_every_kernel_is_timed_and_compared():
    timed = {job.name for job in jobs(TINY.kernels, TINY.images)} | set(vectors.BYTES)
    assert {*CASES} - timed == {"add_rows"} and timed - {*CASES} == {"AdamW"}
    asked = {(q["kernel"], q["table"]) for q in parity.questions(None, True, [])}
    assert asked == {(name, "odd") for name in CASES} | {(name, "real") for name in COMPILED}


# The tables.

ABOUT = {"gpu": "Chip", "mytorch": "0"}


def result(**rows):
    found = {name: {"rows": each, "failures": [], "error": "", "seconds": 1.0} for name, each in rows.items()}
    return {"about": ABOUT, "peer": {"pytorch": "2"}, "date": "today", "size": "full", "sections": found}


def cells(text, begin):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_speeds_are_shares_of_the_ceilings():
    ceilings = [{"what": "copy", "value": 4000.0, "unit": "GB/s"},
                {"what": "float16", "value": 800.0, "unit": "TFLOP/s"}]  # fmt: skip
    row = {
        "kernel": "linear", "size": "8 × 9", "cost": [4e9, 8e9, 8e11, 16e11],
        "times": {"mytorch": {"forward": {"ms": 2.0}, "both": {"ms": 8.0}},
                  "PyTorch eager": {"forward": {"ms": 1.0}, "both": {"ms": 5.0}}},
    }  # fmt: skip
    train = {
        "who": "mytorch", "ms": 131.072, "windows_ms": [130.0, 140.0], "tokens_per_second": 500_000.0,
        "flops_per_token": 800_000_000, "bytes": 1 << 30, "config": "small",
    }  # fmt: skip
    eager = {**train, "who": "PyTorch eager", "ms": 262.144}
    text = tables.markdown(result(ceilings=ceilings, kernels=[row], train=[train, eager]))
    # 4 GB take 1 ms and 0.8 TFLOP take 1 ms: 50 % in 2 ms; 12 GB and 2.4 TFLOP take 3 ms: 38 % in 8 ms
    speeds = ["2.000", "2,000", "400", "50%", "8.000", "1,500", "300", "38%", "", "5.000", ""]
    assert cells(text, "linear") == ["linear", "8 × 9", *speeds]
    expected = ["mytorch", "131.1", "130.0 – 140.0", "500,000", "400.0", "50%", "0.50", "1.0 GiB"]
    assert cells(text, "mytorch") == expected
    assert cells(tables.markdown(result(kernels=[row])), "linear")[5] == ""  # no ceilings


@pytest.mark.parametrize(("losses", "count"), [([2, 1.04], 0), ([2, 1.2], 1), ([math.nan, 1], 1)])
def test_losses_are_compared(losses, count):
    rows = [{"library": "mytorch", "dtype": "float16", "losses": [2.0, 1.0], "scale": 1024.0}]
    found = result(fp16=[*rows, {**rows[0], "library": "torch", "losses": losses}])
    assert len(tables.problems(found)) == count
    assert cells(tables.markdown(found), "mytorch") == ["mytorch float16", "2.0000", "1.0000", "1,024"]


# Training in half precision.


def test_a_graph_has_the_losses_of_single_steps(fake_cuda):
    eager, captured = (training.train(mytorch, "tiny", mode) for mode in ("eager", "captured"))
    assert len(eager["windows_ms"]) == TINY.windows
    assert len(set(eager["losses"])) == len(eager["losses"]) == (TINY.windows + 1) * TINY.steps
    assert (eager["losses"], eager["scale"]) == (captured["losses"], captured["scale"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_losses_are_pytorch_s(dtype, fake_cuda):
    ours, theirs = training.losses(mytorch, "tiny", dtype), training.losses(torch, "tiny", dtype, "cpu")
    assert len(ours["losses"]) == TINY.half_steps and ours["losses"][-1] < ours["losses"][0]
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=1e-2)
