"""The GPU benchmark without a GPU: its command on the stand-in for CuPy, and its parts. No time is tested."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mytorch
from benchmarks.gpu import costs, parity, peers, stream, tables, times, worker
from benchmarks.gpu.jobs import jobs
from benchmarks.gpu.sizes import SIZES, chain, flops_per_token, least_loss, parameters
from benchmarks.problem import Config, initial_weights
from tests.triton.cases import CASES, COMPILED

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "benchmarks" / "gpu_stand_in"
TINY = SIZES["tiny"]
GPT2 = SIZES["full"].train

linux = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


def environment(**more):
    path = os.pathsep.join([str(STAND_IN), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", **more}


def command(folder, *args, env=None):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--out", str(folder), *args],
        cwd=ROOT, capture_output=True, text=True, env=env or environment(), timeout=900,
    )  # fmt: skip


def read(folder):
    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads((folder / "gpu.json").read_text(), parse_constant=refuse)


@linux
def test_the_command_on_the_stand_in(tmp_path):
    chosen = ["relu", "scale", "AdamW", "softmax"]
    done = command(
        tmp_path, "--size", "tiny", "--no-peer", "--sections", "ceilings", "parity", "kernels",
        "--kernels", *chosen,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(tmp_path)
    assert found["peer"] == {"missing": "--no-peer"} and found["size"] == "tiny"
    about = found["about"]
    assert about["gpu"] == "strict CuPy stand-in" and about["driver"] and about["numpy"] == np.__version__
    assert list(found["sections"]) == ["ceilings", "parity", "kernels"]
    for section in found["sections"].values():
        assert section["error"] == "" and section["failures"] == [] and section["date"].startswith("20")
    ceilings = {row["what"]: row for row in found["sections"]["ceilings"]["rows"]}
    assert list(ceilings) == ["copy", "triad", "float32", "tf32", "float16", "bfloat16"]
    assert all(row["value"] > 0 for row in ceilings.values())
    assert ceilings["triad"]["tried"][0]["bytes"] == 3 * TINY.copied
    compared = found["sections"]["parity"]
    assert {row["kernel"] for row in compared["rows"]} == {"relu", "scale", "softmax"}
    limits = {"float32": 1e-3, "float16": 1e-3, "bfloat16": 8e-3}  # bfloat16 has three bits less
    assert {row["dtype"] for row in compared["rows"]} == set(limits)
    assert all(row["wrong"] == "" and row["error"] < limits[row["dtype"]] for row in compared["rows"])
    rows = {row["kernel"]: row for row in found["sections"]["kernels"]["rows"]}
    assert set(rows) == set(chosen)
    for row in rows.values():
        assert set(row["times"]) == {"mytorch", "CuPy alone"}
        assert row["times"]["mytorch"]["forward"]["ms"] > 0
        assert (row["times"]["mytorch"]["total"] is None) == (row["kernel"] in ("AdamW", "scale"))
    assert (tmp_path / "gpu.md").read_text() == tables.markdown(found)
    assert done.stdout.strip().endswith("All is right.")
    again = command(tmp_path, "--size", "tiny", "--no-peer", "--sections", "ceilings")
    assert again.returncode == 0 and read(tmp_path)["sections"]["parity"] == compared
    other = command(tmp_path, "--quick", "--no-peer", "--sections", "parity", "--kernels", "scale")
    assert other.returncode == 0 and list(read(tmp_path)["sections"]) == ["parity"]  # not of the same size


# how a kernel breaks: (what its rows say, what is in a failure)
BROKEN = {
    "wrong": ("times the limit", None),
    "exit": ("it failed", "the process ended with exit code 7"),
}


@linux
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_kernel_is_written_down_and_the_rest_goes_on(how, tmp_path):
    said, error = BROKEN[how]
    done = command(
        tmp_path, "--size", "tiny", "--no-peer", "--sections", "parity", "ceilings",
        "--kernels", "sum_of_squares", "scale", env=environment(BREAK=f"_scale:{how}"),
    )  # fmt: skip
    assert done.returncode == 1 and "problems" in done.stderr
    sections = read(tmp_path)["sections"]
    rows = sections["parity"]["rows"]
    right = [row for row in rows if row["kernel"] == "sum_of_squares"]
    wrong = [row for row in rows if row["kernel"] == "scale"]
    assert len(right) == len(wrong) == 3 and not any(row["wrong"] for row in right)
    assert all(said in row["wrong"] for row in wrong)
    failures = sections["parity"]["failures"]
    assert len(failures) == (0 if error is None else 3) and len(sections["ceilings"]["rows"]) == 6
    assert all(error in failure["error"] and failure["item"]["kernel"] == "scale" for failure in failures)


def test_why_there_is_no_bfloat16(fake_cuda, monkeypatch):
    assert worker._why_no_bfloat16() == ""
    monkeypatch.setattr(worker.parity, "to_cpu", lambda a: np.zeros(2, np.int16))
    assert worker._why_no_bfloat16() == "this CuPy made [0 0] of [1 1]"
    monkeypatch.setattr(worker.parity, "to_gpu", lambda a: np.dtype("such arrays"))
    assert "this CuPy has no such arrays (TypeError: data type" in worker._why_no_bfloat16()
    monkeypatch.setattr(worker.harness, "BFLOAT16", None)
    assert worker._why_no_bfloat16() == "CuPy needs the package ml_dtypes for it: pip install ml_dtypes"


def test_without_cupy_it_says_what_to_install(tmp_path):
    env = environment(PYTHONPATH=str(ROOT))
    code = (
        "import runpy, sys; sys.modules['cupy'] = None; runpy.run_module('benchmarks.gpu', None, '__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, env=env, timeout=600,
    )  # fmt: skip
    said = "benchmarks.gpu: CuPy is not installed: pip install 'mytorch[cuda12]' or 'mytorch[cuda13]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@linux
def test_without_triton_s_kernels_it_says_why(tmp_path):
    env = environment()
    del env["TRITON_INTERPRET"]
    done = command(tmp_path, env=env)
    assert done.returncode == 1 and done.stdout == ""
    assert (
        done.stderr
        == "benchmarks.gpu: Triton's kernels can't run here: this CuPy is a stand-in without a GPU\n"
    )


WRONG_ARGUMENTS = {
    ("--sections", "speed"): "invalid choice: 'speed'",
    ("--kernels", "relu", "swish"): "there is no kernel swish; there are AdamW, add_layer_norm",
    ("--minutes", "0"): "--minutes and --jobs must be positive, got 0 and",
}


@pytest.mark.parametrize("args", WRONG_ARGUMENTS, ids=lambda args: args[0])
def test_wrong_arguments(args, capsys):
    from benchmarks.gpu.__main__ import parse

    with pytest.raises(SystemExit):
        parse(["--out", "x", *args])
    assert WRONG_ARGUMENTS[args] in capsys.readouterr().err


# Items and their answers.

ECHO = """
import os, sys, time
from benchmarks.gpu.stream import serve
def works():
    if "gone" in state: raise RuntimeError("no GPU")
state = []
def fail(text): raise ValueError(text)
def spoil(): state.append("gone"); fail("the last")
def echo(text): print("noise"); return [text, os.getpid()]
def die(): os._exit(3)
def hang(): time.sleep(60)
serve({"echo": echo, "fail": fail, "spoil": spoil, "die": die, "hang": hang}, works)
"""


@pytest.fixture
def ask(tmp_path, monkeypatch):
    (tmp_path / "gpu_echo.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))

    def answers(*dos, limit=20.0, seconds=60.0):
        items = [{"do": do, "text": do} if do in ("echo", "fail") else {"do": do} for do in dos]
        deadline = stream.time.monotonic() + seconds
        return [answer for _, answer in stream.ask_all("gpu_echo", {}, items, limit, deadline)]

    return answers


def test_a_failure_leaves_the_process_and_a_broken_gpu_ends_it(ask):
    first, failed, second, spoilt, third = ask("echo", "fail", "echo", "spoil", "echo")
    assert first["result"] == second["result"] and first["result"][0] == "echo"
    assert failed["error"].startswith("Traceback") and "ValueError: fail" in failed["error"]
    assert "ValueError: the last" in spoilt["error"] and "can't be used after it: no GPU" in spoilt["error"]
    assert third["result"][1] != first["result"][1]


def test_a_process_that_ends_or_hangs_is_replaced(ask):
    died, first, hung, second = ask("die", "echo", "hang", "echo", limit=10.0)
    assert died["error"] == "the process ended with exit code 3"
    assert hung["error"] == "no answer within 10 s; it said:\nnoise"
    assert first["result"][1] != second["result"][1]


def test_after_three_ends_in_a_row_or_too_late_nothing_is_begun(ask):
    *ended, late = ask("die", "die", "die", "echo")
    assert late["error"] == "not run: 3 processes ended, one after another" and len(ended) == 3
    hung, late = ask("hang", "echo", limit=100.0, seconds=4.0)
    assert re.match("no answer within [0-4] s", hung["error"])  # what was left of them when it began
    assert late["error"] == "not run: the section's time is over"
    assert ask("echo", seconds=0.0) == [{"error": "not run: the section's time is over"}]


def test_a_module_that_is_not_there_says_so():
    ((_, answer),) = stream.ask_all(
        "benchmarks.gpu.nothing", {}, [{"do": "x"}], 20, stream.time.monotonic() + 20
    )
    assert "No module named benchmarks.gpu.nothing" in answer["error"]


# Formulas, by hand: batch 2, context 4, 3 heads of 8, float16.

COSTS = {  # (bytes forward, bytes backward, operations forward, operations backward)
    "elementwise": (costs.elementwise(10, 2), (40, 60, 0, 0)),
    "dropout": (costs.linear_map(10, 2), (40, 40, 0, 0)),
    "gated": (costs.gated(10, 2), (60, 100, 0, 0)),
    "batch_norm": (costs.norm_of_channels(10, 4), (120, 200, 0, 0)),
    "add_layer_norm": (costs.after_addition(costs.elementwise(10, 2), 10, 2), (80, 80, 0, 0)),
    "cross_entropy": (costs.cross_entropy(5, 7, 2), (70, 140, 0, 0)),
    "linear": (costs.linear(2, 3, 5, 2), (62, 104, 60, 120)),
    "linear_activation": (costs.linear_activation(2, 3, 5, 2), (62, 124, 60, 120)),
    "linear_cross_entropy": (costs.linear(2, 3, 5, 2, written=False), (42, 84, 60, 120)),
    "attention": (costs.attention(2, 3, 4, 8, 2, causal=False), (1536, 3072, 3072, 7680)),
    "causal": (costs.attention(2, 3, 4, 8, 2), (1536, 3072, 1536, 3840)),
    "cached": (costs.cached_attention(2, 3, 4, 8, 2), (768, 0, 768, 0)),
    "convolution": (costs.convolution(10, 4, 9, 2), (40, 60, 720, 1440)),
    "embedding": (costs.embedding(6, 9, 4, 2), (96, 120, 0, 0)),
    "adamw": (costs.adamw(10), (280, 0, 0, 0)),
}


@pytest.mark.parametrize(("cost", "expected"), COSTS.values(), ids=COSTS.keys())
def test_costs(cost, expected):
    got = cost.forward_bytes, cost.backward_bytes, cost.forward_flops, cost.backward_flops
    assert got == expected and cost.bytes == sum(expected[:2]) and cost.flops == sum(expected[2:])


def test_the_model_s_numbers():
    assert parameters(TINY.train) == sum(a.size for a in initial_weights(TINY.train).values())
    assert parameters(GPT2) == 124_373_760  # nanoGPT prints 123.59M for it, without the positions
    assert (
        flops_per_token(GPT2) == 6 * (50304 * 768 + 12 * 12 * 768 * 768) + 12 * 12 * 768 * 1024 == 854_654_976
    )


def test_the_tokens_are_a_chain_whose_entropy_is_known():
    config = Config(1, 1, 8, 500, 20, 50)
    x, y = chain(config, 10)
    assert x.shape == y.shape == (10, 20, 500) and (x[..., 1:] == y[..., :-1]).all()
    counts = np.zeros((50, 50))
    np.add.at(counts, (x.reshape(-1), y.reshape(-1)), 1)
    p = counts / counts.sum(1, keepdims=True)
    entropy = -(counts * np.log(p, where=p > 0, out=np.zeros_like(p))).sum() / counts.sum()
    assert entropy == pytest.approx(least_loss(config), abs=0.02)
    np.testing.assert_array_equal(chain(config, 10)[0], x)
    assert (chain(config, 10, seed=5)[0] != x).any()


# The jobs and the cases.


def test_every_kernel_is_timed_and_compared():
    timed = {job.name for job in jobs(GPT2, 2)}
    assert {*CASES} - timed == {"add_rows"}  # the backward pass of embedding
    assert timed - {*CASES} == {"AdamW"}
    items = parity.items(None, True)
    assert {(i["kernel"], i["table"]) for i in items} == (
        {(kernel, "odd") for kernel in CASES} | {(kernel, "real") for kernel in COMPILED}
    )
    assert {*CASES} - {*COMPILED} == {"conv1d", "self_attention"}  # the kernels of conv2d and attention
    assert len(items) > 500 and len(parity.items(2, False, ["relu"])) == 2 * 3


def test_the_cases_of_real_size_are_no_zeros():
    for name, rows in COMPILED.items():
        for row in range(len(rows)):
            if sum(a.size for a in rows[row][0] if isinstance(a, np.ndarray)) > 1 << 22:
                continue  # only time
            args, _ = parity.case_of(name, "real", row)
            assert all(a.any() for a in args if isinstance(a, np.ndarray) and a.size > 1), name


def on_cpu(library, job, functions=None, compiled=None):
    """Results and gradients of a job."""
    forward, both = times.passes(library, job, "float32", "cpu", functions, compiled)
    xs = forward.__closure__ and next(
        c.cell_contents for c in forward.__closure__ if type(c.cell_contents) is list
    )
    results = forward()
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if both is not None:
        both()
    grads = [x.grad.numpy() for x in xs if x.grad is not None]
    return [y.detach().numpy() for y in results], grads


JOBS = [job for job in jobs(TINY.kernels, 4) if job.build is None and job.name != "dropout"]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_is_the_same_in_pytorch(job):
    ours, theirs = on_cpu(mytorch, job), on_cpu(torch, job, peers)
    assert len(ours[1]) == (0 if job.no_grad else len(job.sizes))
    for a, b in zip(sum(ours, []), sum(theirs, []), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


# kernels that PyTorch can't be compared in, at their first case
MISSING = {"dropout": "it drops other elements"} | dict.fromkeys(
    ["add_rows", "sum_of_squares", "scale", "cast_and_check", "unscale_and_check"],
    "there is no such function",
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pytorch_s_own_errors_are_those_of_the_dtype(dtype):
    """So what it computes is the same function, and its error that of rounding."""
    from benchmarks.gpu.torch_worker import compare

    rounding = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    largest = 0.0
    for name in CASES:
        found = compare(name, "odd", 0, dtype)
        assert found.get("missing") == MISSING.get(name), name
        if name not in MISSING:
            assert max(found["error"], found["gradient_error"] or 0) < 20 * rounding, (name, found)
            largest = max(largest, found["error"])
    assert largest > rounding / 4
