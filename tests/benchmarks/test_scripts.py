"""The benchmarks on the CPU: what they compare, their tables, one small run of each. No time is asserted."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from benchmarks import conv, decode, gpt_step, import_time, kernels, loader
from benchmarks.harness import Chunk, Measurement
from benchmarks.kernel_problem import JOBS
from benchmarks.problem import CONFIGS, EMBEDDING, HEAD, initial_weights, load_problem, save_problem
from mytorch.nn import functional as F
from mytorch.nn.functional.composite import REGISTRY

ROOT = Path(__file__).parents[2]


def test_problem_is_the_same_every_time(tmp_path):
    config = CONFIGS["tiny"]
    save_problem(tmp_path / "problem.npz", config)
    weights, batches = load_problem(tmp_path / "problem.npz")
    assert weights.pop(HEAD) is weights[EMBEDDING]
    for name, value in initial_weights(config).items():
        np.testing.assert_array_equal(weights.pop(name), value, err_msg=name)
    assert not weights
    for x, y in batches:
        assert x.shape == y.shape == (config.batch_size, config.context_length)
        assert x.dtype == y.dtype == np.int64 and 0 <= x.min() <= x.max() < config.vocab_size
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])


def test_samples_of_the_loader():
    tokens, images = (loader.sample_function(kind) for kind in ("tokens", "images"))
    assert (tokens(3).shape, tokens(3).dtype) == ((1024,), np.int64) and tokens(3).max() > 2**15  # a uint16
    assert (images(3).shape, images(3).dtype) == ((3, 224, 224), np.float32)
    assert images(3).flags.c_contiguous and 0.9 < images(3).max() <= 1
    for load in loader.LOADS["all"]:  # every window is within the text
        assert loader.sample_function(load.kind)(load.samples - 1).size in (1024, 3 * 224 * 224)


BATCHES = [np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])]
CHANGES = {
    "another order": BATCHES[::-1],
    "one is missing": BATCHES[:1],
    "one number": [BATCHES[0], np.array([[5, 0], [7, 8]])],
    "another dtype": [batch.astype(np.int32) for batch in BATCHES],
    "other limits": [np.concatenate(BATCHES)],
}


def figures(batches):
    load = loader.LOADS["tiny"][0]
    return [step() for step in loader.passes([load], lambda load: map(mytorch.from_numpy, batches[:]))]


def test_the_untimed_pass_compares_all_that_batches_hold():
    first = figures(BATCHES)[0]
    assert first == figures([batch.copy(order="F") for batch in BATCHES])[0]
    for name, changed in CHANGES.items():
        assert not math.isclose(first, figures(changed)[0], rel_tol=loader.TOLERANCE), name


def test_prompts_and_fingerprints():
    for config, length in decode.LENGTHS.items():
        prompt = length.prompt_of(config)
        assert prompt.shape == (1, length.prompt) and prompt.max() < CONFIGS[config].vocab_size
        assert length.prompt + length.new <= CONFIGS[config].context_length
    texts = ([1, 2, 3], [1, 3, 2], [1, 2, 4], [1, 2], [0, 1, 2, 3])
    assert len({decode.fingerprint(text) for text in texts}) == 5


# The kernels


def measured():
    table = [[Measurement(v.label, {}) for v in kernels.VARIANTS] for _ in JOBS]
    for row in table:
        for measurement, times in zip(row, ([4.0, 2.0, 3.0], [1.5, 9.0, 1.5], [6.0] * 3), strict=True):
            measurement.chunks += [Chunk(ms, 0.0) for ms in times]
    return table


def test_the_table_of_kernels():
    versions = ("PyTorch 9.9", *["mytorch 0.1, NumPy 9.8"] * 2)
    about = [{"version": version, "threads": 3} for version in versions]
    text = kernels.markdown(kernels.summarize(measured(), about, 0.05))
    assert "3 threads, float32" in text and "NumPy 9.8" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(JOBS) and all(row.endswith("| 3.00 | 1.50 | 0.50 | 6.00 |") for row in rows)
    page = f"before\n{kernels.BEGIN}old\n{kernels.END}\nafter\n"
    assert kernels.in_readme(page, "new\n") == page.replace("old", "new")
    with pytest.raises(ValueError, match="has no lines"):
        kernels.in_readme("no marks", "new\n")


def test_the_published_table_is_that_of_the_committed_figures():
    table = kernels.markdown(json.loads(kernels.RESULTS.read_text("utf-8")))
    readme = kernels.README.read_text("utf-8")
    assert kernels.in_readme(readme, table) == readme and table.count("\n| `") == len(JOBS)


@pytest.mark.parametrize("job", [job for job in JOBS if job.sizes[-1] != (50304, 384)], ids=lambda j: j.name)
def test_a_job_runs_the_kernel_that_it_is_named_after(job, monkeypatch):
    name = {"attention": "scaled_dot_product_attention", "attention, causal": "scaled_dot_product_attention"}
    composite = REGISTRY[name.get(job.name, job.name)]
    calls = []
    composite.kernel("cpu")
    kernel = composite.kernels["cpu"]
    monkeypatch.setitem(composite.kernels, "cpu", lambda *args: calls.append(1) or kernel(*args))
    job.call(F, mytorch.from_numpy, *[mytorch.from_numpy(a).requires_grad_() for a in job.arrays()])
    assert calls


# Small runs

RUNS = {
    "loader": (["--loads", "tiny", "--rounds", "1"], list(map(str, loader.LOADS["tiny"]))),
    "conv": (["--shapes", "tiny", "--rounds", "1"], list(map(str, conv.SHAPES["tiny"]))),
    "decode": (["--config", "tiny", "--rounds", "1"], ["PyTorch eager", "mytorch"]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_small_run(name):
    args, rows = RUNS[name]
    command = [sys.executable, "-m", f"benchmarks.{name}", *args, "--other-cores", "1000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for label in rows:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{label}  ")]
        found = [float(x) for x in re.findall(r"[\d.]+", line.removeprefix(label))][:3]
        assert all(x > 0 for x in found) and line.endswith("1 of 1")
        if name != "decode":  # the ratio is that of the two figures, which are rounded
            theirs, ours, ratio = found
            assert abs(ratio * theirs - ours) <= 0.006 * theirs + 0.6 * (1 + ratio)


def test_a_small_run_of_training_beside_pytorch(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "figures.json"
    names = ["torch", "mytorch"]
    args = ["--config", "tiny", "--chunks", "1", "--steps", "4", "--other-cores", "1000", "--out", str(out)]
    gpt_step.main([*args, "--variants", *names])
    printed = capsys.readouterr().out
    result = json.loads(out.read_text())
    assert [row["label"] for row in result["rows"]] == [gpt_step.VARIANTS[name].label for name in names]
    assert result["largest_loss_difference"] <= gpt_step.TOLERANCE and result["quiet"]
    assert all(row["label"] in printed and row["version"] in printed for row in result["rows"])
    assert all(len(row["chunks"]) == 1 and row["peak_memory"] > 1 << 20 for row in result["rows"])
    assert "Losses agree to 1e-04" in printed and os.listdir(tmp_path) == ["figures.json"]


def test_the_time_of_an_import(monkeypatch, capsys):
    monkeypatch.setattr(import_time, "import_ms", {"numpy": 100.0, "mytorch": 250.0}.__getitem__)
    import_time.main(["--runs", "2"])
    text = "import numpy 100 ms, import mytorch 250 ms: 150 ms beyond NumPy (medians of 2)\n"
    assert capsys.readouterr().out == text
    monkeypatch.undo()
    assert import_time.import_ms("sys") > 0
    with pytest.raises(subprocess.CalledProcessError):
        import_time.import_ms("no_such_module")


WRONG = {
    "huge": (gpt_step, ["--config", "huge"], "invalid choice: 'huge'"),
    "chunks": (gpt_step, ["--chunks", "0"], "at least 1; got 0 and 40"),
    "variants": (gpt_step, ["--variants", "torch", "jax"], "mytorch-numpy, mytorch-untuned; got jax"),
    "rounds": (loader, ["--rounds", "0"], "--rounds must be at least 1, got 0"),
    "runs": (import_time, ["--runs", "0"], "--runs must be at least 1; got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, capsys):
    module, argv, message = WRONG[name]
    with pytest.raises(SystemExit):
        module.main(argv)
    assert message in capsys.readouterr().err
