"""The benchmark of loading: what it measures and prints, in one small run; no time is asserted."""

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from benchmarks import loader
from benchmarks.loader_problem import LOADS, REPEATS, TINY, Load, Samples, passes, sample_function
from tests.benchmarks.printed import is_quotient

ROOT = Path(__file__).parents[2]


def test_samples():
    tokens, images = (sample_function(kind) for kind in ("tokens", "images"))
    assert (tokens(3).shape, tokens(3).dtype) == ((1024,), np.int64)
    assert tokens(3).max() > 2**15  # a uint16
    assert (images(3).shape, images(3).dtype) == ((3, 224, 224), np.float32)
    assert images(3).flags.c_contiguous and 0.9 < images(3).max() <= 1
    np.testing.assert_array_equal(tokens(5), sample_function("tokens")(5))
    for load in LOADS:  # every window is within the text
        assert sample_function(load.kind)(load.samples - 1).size in (1024, 3 * 224 * 224)
    assert len(Samples(Load("tokens", 3, 5, 1), str)) == 15


BATCHES = [np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])]
CHANGES = {
    "another order": BATCHES[::-1],
    "one is missing": BATCHES[:1],
    "one number": [BATCHES[0], np.array([[5, 0], [7, 8]])],
    "another dtype": [batch.astype(np.int32) for batch in BATCHES],
    "another shape": [batch.reshape(4) for batch in BATCHES],
    "other limits": [np.concatenate(BATCHES)],
}


def figures(batches):
    steps = list(passes([TINY[0]], lambda load: [mytorch.from_numpy(batch) for batch in batches]))
    assert len(steps) == REPEATS
    return [step() for step in steps]


def test_the_untimed_pass_compares_all_that_batches_hold():
    first, *rest = figures(BATCHES)
    assert rest == [4 + 8] * (REPEATS - 1)
    assert first == figures([batch.copy(order="F") for batch in BATCHES])[0]
    for name, changed in CHANGES.items():
        assert not math.isclose(first, figures(changed)[0], rel_tol=loader.TOLERANCE), name


def test_a_small_run():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.loader", "--loads", "tiny", "--rounds", "1"], cwd=ROOT,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "PyTorch: PyTorch" in done.stdout and "mytorch: mytorch" in done.stdout
    for load in TINY:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{load} ")]
        theirs, ours, ratio = re.findall(r"[\d.]+", line[42:])[:3]
        assert is_quotient(ratio, ours, theirs) and line.endswith(" of 1")


def test_wrong_arguments():
    with pytest.raises(SystemExit):
        loader.main(["--rounds", "0"])
