"""The benchmarks on the CPU: what they compare, their tables, one small run of each. No time is asserted."""

import json
import math
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import mytorch
from benchmarks import bpe, harness, loader, worker
from benchmarks.gpt import CONFIGS, EMBEDDING, HEAD, Config, chain, flops_per_token, initial_weights
from benchmarks.harness import by_job
from benchmarks.kernel_jobs import Passes, jobs
from tests.every import every

ROOT = Path(__file__).parents[2]


def test_the_problem():
    config = CONFIGS["tiny"]
    weights = initial_weights(config)
    assert weights.pop(HEAD) is weights[EMBEDDING]
    assert sum(a.size for a in weights.values()) == config.parameters
    x, y = chain(config, 3)
    assert x.shape == y.shape == (3, config.batch_size, config.context_length) and x.dtype == np.int64
    assert (x[..., 1:] == y[..., :-1]).all() and 0 <= x.min() <= x.max() < config.vocab_size
    gpt2 = Config(12, 12, 768, 1024, 64, 50304)
    assert gpt2.parameters == 124_373_760  # nanoGPT prints 123.59M for it, without the positions
    assert flops_per_token(gpt2) == 6 * (50304 * 768 + 12 * 12 * 768**2) + 12 * 12 * 768 * 1024


def test_tokenizers(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("low lower lowest, low lower " * 9)
    assert bpe.main([str(tmp_path / "a.txt"), "--vocab_size", "262", "--rounds", "1"]) == 0
    assert re.findall(r"(\w+) +mytorch \d", capsys.readouterr().out) == ["train", "encode", "decode"]


def test_the_published_table_is_that_of_the_committed_figures():
    result = json.loads((ROOT / "benchmarks/results/kernels-cpu.json").read_text("utf-8"))
    assert by_job(result) in (ROOT / "docs/kernels.md").read_text("utf-8")


def test_a_job_is_the_same_in_pytorch():
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


RUNS = {
    "loader": (["--loads", "tiny"], [load.name[0] for load in loader.LOADS["tiny"]]),
    "kernels": (["--kernels", "relu", "gelu"], ["gelu", "relu"]),
    "compile": (["--jobs", "policy", "MLP"], ["policy", "MLP"]),
    "meta": (["--jobs", "x + y", "layer norm"], ["x + y", "layer norm"]),
    "gpt_step": (["--config", "tiny", "--steps", "2"], ["PyTorch eager", "mytorch"]),
    "gpt_step --generate": (["--config", "tiny"], ["PyTorch eager", "mytorch"]),
}


class Here:
    """A worker without a process of its own."""

    def __init__(self, command, env):
        self.tasks = worker.tasks(*command[1:])

    def ask(self, question):
        return {"result": self.tasks[question["do"]](**{k: v for k, v in question.items() if k != "do"})}

    def close(self):
        pass


@pytest.mark.parametrize("name", RUNS)
def test_a_small_run(name, tmp_path, monkeypatch, capsys):
    """Of one as a command, of the others in this process."""
    args, labels = RUNS[name]
    (module, *options), out = name.split(), tmp_path / "figures.json"
    options += [*args, "--rounds", "1", "--other-cores", "1000", "--out", str(out)]
    if name == "gpt_step":
        command = [sys.executable, "-m", "benchmarks.gpt_step", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
        monkeypatch.setattr(harness, "Worker", Here)
        import_module(f"benchmarks.{module}").main(options)
    lines = (done.stdout if name == "gpt_step" else capsys.readouterr().out).splitlines()
    for label in labels:
        (line,) = [line for line in lines if line.startswith(f"| {label} ")]
        assert re.search(r" [\d.,]+ \| .* 1 of 1 \|$", line)
    result = json.loads(out.read_text())
    assert "mytorch" in result["implementations"] and result["date"]
    for row in result["rows"]:
        assert every(0 < by["ms"] < math.inf and by["all"] == 1 for by in row["by"].values())


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_jax_takes_the_same_training_steps():
    """The benchmark compares the losses itself; in processes of its own, because JAX's threads stay."""
    command = [sys.executable, "-m", "benchmarks.compile", "--jobs", "MLP", "nano", "--rounds", "1"]
    command += ["--variants", "mytorch", "jax"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| nano ", done.stdout)
