"""The benchmarks on the CPU: what they compare, their tables, one small run of each. No time is asserted."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from benchmarks import conv, gpt_step, import_time, kernels, loader
from benchmarks.gpt import CONFIGS, EMBEDDING, HEAD, Config, chain, flops_per_token, initial_weights

ROOT = Path(__file__).parents[2]


def test_the_problem():
    config = CONFIGS["tiny"]
    weights = initial_weights(config)
    assert weights.pop(HEAD) is weights[EMBEDDING]
    assert sum(a.size for a in weights.values()) == config.parameters
    x, y = chain(config, 3)
    assert x.shape == y.shape == (3, config.batch_size, config.context_length)
    assert x.dtype == np.int64 and 0 <= x.min() <= x.max() < config.vocab_size
    assert (x[..., 1:] == y[..., :-1]).all() and (chain(config, 3)[0] == x).all()
    gpt2 = Config(12, 12, 768, 1024, 64, 50304)
    assert gpt2.parameters == 124_373_760  # nanoGPT prints 123.59M for it, without the positions
    assert flops_per_token(gpt2) == 6 * (50304 * 768 + 12 * 12 * 768**2) + 12 * 12 * 768 * 1024


def test_samples_of_the_loader():
    tokens, images = (loader.Samples(loader.Load(kind, 1, 1, 0), np.asarray) for kind in loader.SIZES)
    assert (tokens[3].shape, tokens[3].dtype) == ((1024,), np.int64) and tokens[3].max() > 2**15  # a uint16
    assert (images[3].shape, images[3].dtype) == ((3, 224, 224), np.float32)
    assert images[3].flags.c_contiguous and 0.9 < images[3].max() <= 1
    for load in loader.LOADS["all"]:  # every window is within the text
        samples = loader.Samples(load, np.asarray)
        assert samples[len(samples) - 1].size in (1024, 3 * 224 * 224)


def test_the_checksum_depends_on_all_that_batches_hold():
    batches = [np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])]
    changed = [
        batches[::-1], batches[:1], [batches[0], np.array([[5, 0], [7, 8]])],
        [batch.astype(np.int32) for batch in batches], [np.concatenate(batches)],
    ]  # fmt: skip
    assert loader.checksum(batches) == loader.checksum([batch.copy(order="F") for batch in batches])
    assert loader.checksum(batches) not in {loader.checksum(other) for other in changed}


def test_the_published_table_is_that_of_the_committed_figures():
    page, result = kernels.PAGE.read_text("utf-8"), json.loads(kernels.RESULTS.read_text("utf-8"))
    assert kernels.published(page, result) == page
    assert all(row["name"] in page for row in result["rows"])
    with pytest.raises(ValueError):
        kernels.published("no marks", result)


def test_a_job_is_the_same_in_pytorch():
    import torch

    from benchmarks.kernel_jobs import Passes, jobs

    for job in jobs(CONFIGS["tiny"], (2, 64, 4, 4)):
        if job.name != "dropout":
            ours, theirs = (results(Passes(library, job)) for library in (mytorch, torch))
            assert len(ours) > len(job.sizes) or job.no_grad
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5, err_msg=job.name)


def results(passes):
    """Results and gradients."""
    found = passes.forward() if passes.job.no_grad else passes.both()
    return [y.detach().numpy() for y in found] + [x.grad.numpy() for x in passes.xs if x.grad is not None]


# Small runs

RUNS = {
    "loader": (["--loads", "tiny", "--rounds", "1"], [load.name[0] for load in loader.LOADS["tiny"]]),
    "conv": (["--shapes", "tiny", "--rounds", "1"], [shape.name for shape in conv.SHAPES["tiny"]]),
    "decode": (["--config", "tiny", "--rounds", "1"], ["PyTorch eager", "mytorch"]),
    "kernels": (["--kernels", "relu", "gelu", "--rounds", "1"], ["gelu", "relu"]),
    "gpt_step": (["--config", "tiny", "--chunks", "1", "--steps", "2"], ["PyTorch eager", "mytorch"]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_small_run(name, tmp_path):
    args, rows = RUNS[name]
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", *args, "--other-cores", "1000", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "0 of" in done.stdout and "turns discarded" in done.stdout
    for label in rows:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"| {label} ")]
        assert re.search(r" [\d.,]+ \| .* 1 of 1 \|$", line)
    result = json.loads(out.read_text())
    assert "mytorch" in result["implementations"] and result["date"] and result["cpu"]
    for row in result["rows"]:
        assert all(math.isfinite(by["ms"]) and by["ms"] > 0 and by["all"] == 1 for by in row["by"].values())


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
    "chunks": (gpt_step, ["--chunks", "0"], "argument --chunks: must be at least 1, got 0"),
    "variants": (gpt_step, ["--variants", "torch", "jax"], "invalid choice: 'jax'"),
    "rounds": (loader, ["--rounds", "0"], "argument --rounds: must be at least 1, got 0"),
    "runs": (import_time, ["--runs", "0"], "argument --runs: must be at least 1, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, capsys):
    module, argv, message = WRONG[name]
    with pytest.raises(SystemExit):
        module.main(argv)
    assert message in capsys.readouterr().err
