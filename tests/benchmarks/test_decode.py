"""The benchmark of generation: what it measures and prints, in one small run; no time is asserted."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import decode
from benchmarks.decode_problem import LENGTHS, fingerprint
from benchmarks.problem import CONFIGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("config", LENGTHS)
def test_prompt_and_text_fit_into_the_context(config):
    length = LENGTHS[config]
    prompt = length.prompt_of(config)
    assert prompt.shape == (1, length.prompt) and prompt.max() < CONFIGS[config].vocab_size
    assert length.prompt + length.new <= CONFIGS[config].context_length
    np.testing.assert_array_equal(prompt, length.prompt_of(config))


def test_other_texts_have_other_fingerprints():
    assert len({fingerprint(t) for t in ([1, 2, 3], [1, 3, 2], [1, 2, 4], [1, 2], [0, 1, 2, 3])}) == 5


def test_a_small_run():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.decode", "--config", "tiny", "--rounds", "2"], cwd=ROOT,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "5 tokens after a prompt of 3" in done.stdout
    for label in ("PyTorch eager", "mytorch"):
        line = [line for line in done.stdout.splitlines() if line.startswith(label + "  ")][0]
        each, per_second, ratio = map(float, re.findall(r"\d+\.\d+", line))
        rounding = 0.06 + 0.006 / each * per_second  # of one digit, and of two
        assert per_second == pytest.approx(1e3 / each, rel=0, abs=rounding) and "of 2" in line
        assert (ratio == 1) == (label == "PyTorch eager") or ratio == pytest.approx(1, abs=0.005)


def test_wrong_arguments():
    with pytest.raises(SystemExit):
        decode.main(["--rounds", "0"])
