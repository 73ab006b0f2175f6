"""The benchmark of convolutions: what it measures and prints, in one small run; no time is asserted."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from benchmarks import conv, turns
from benchmarks.conv_problem import SHAPES, Shape
from benchmarks.report import LossMismatch, Measurement
from tests.benchmarks.printed import is_quotient

ROOT = Path(__file__).parents[2]


class Replay:
    """A worker that says the same each time."""

    def __init__(self, label, result):
        self.label, self.result, self.asked = label, result, []

    def run(self, steps):
        self.asked.append(steps)
        return {"ms": [99.0] + [1.0] * (steps - 1), "losses": [self.result] * steps}


def test_the_job_of_a_shape():
    job = Shape(2, 4, 9, 6, 3, 2, 2).job()
    x, w = job.arrays()
    assert (x.shape, w.shape, x.dtype) == ((2, 4, 9, 9), (6, 2, 3, 3), np.float32)
    y = job.call(mytorch.nn.functional, mytorch.from_numpy, mytorch.from_numpy(x), mytorch.from_numpy(w))
    assert y.shape == (2, 6, 5, 5)
    assert job.name == "2 x 4 x 9 x 9 -> 6, 3x3 / 2, 2 groups" and job.backward
    assert Shape(2, 4, 9, 6, 3, backward=False).job().name == "2 x 4 x 9 x 9 -> 6, 3x3 / 1, forward"


@pytest.mark.parametrize("result", [1.01, float("nan")])
def test_other_results_are_an_error(result):
    workers = [Replay("one", 1.0), Replay("two", result)]
    with pytest.raises(LossMismatch, match="'two': (1.01|nan)"):
        turns.run_job(workers, [Measurement(w.label, {}) for w in workers], False, 3, conv.TOLERANCE)


def test_the_first_step_of_a_shape_is_not_timed():
    workers = [Replay("one", 1.0), Replay("two", 1.0001)]
    measurements = [Measurement(w.label, {}) for w in workers]
    turns.run_job(workers, measurements, True, 5, conv.TOLERANCE)
    assert [w.asked for w in workers] == [[5]] * 2  # in one go: threads that wait between would sleep
    assert [[chunk.ms for chunk in m.chunks] for m in measurements] == [[1.0], [1.0]]


def test_a_small_run():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.conv", "--shapes", "tiny", "--rounds", "1"], cwd=ROOT,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "PyTorch eager: PyTorch" in done.stdout and "mytorch: mytorch" in done.stdout
    for shape in SHAPES["tiny"]:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(str(shape) + " ")]
        theirs, ours, ratio = re.findall(r"\d+\.\d+", line)
        assert is_quotient(ratio, ours, theirs) and line.endswith(" of 1")
