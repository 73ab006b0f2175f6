"""The examples, as a user runs them: what they say that they learn, they learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(name, *options, **environment):
    """What `python -m examples.<name>` prints, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *map(str, options)], cwd=ROOT, capture_output=True,
        text=True, timeout=300, env={**os.environ, **environment},
    )
    return done.stdout + done.stderr, done.returncode


@pytest.mark.parametrize(("model", "epochs"), [("mlp", 20), ("conv", 3)])
def test_digits_are_read(model, epochs):
    text, code = run("digits", "--model", model, "--epochs", epochs)
    lines = re.findall(r"^epoch +(\d+)  loss ([\d.]+)  test accuracy ([\d.]+)%$", text, re.M)
    assert code == 0 and [int(epoch) for epoch, _, _ in lines] == list(range(1, epochs + 1)), text
    losses = [float(loss) for _, loss, _ in lines]
    assert losses[-1] < 0.1 * losses[0], text
    assert float(lines[-1][2]) >= 97, text


def test_digits_without_scikit_learn(tmp_path):
    """It isn't found, because an empty package of that name comes first."""
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn/__init__.py").write_text("")
    text, code = run("digits", PYTHONPATH=str(tmp_path))
    assert code == 1 and text == "examples/digits.py needs scikit-learn: pip install -e '.[examples]'\n"


def test_lstm_language_model():
    """It knows what no model that sees one character can know."""
    text, code = run("lstm_lm", "--iterations", 100, "--sentences", 1500, OPENBLAS_NUM_THREADS="1")
    found = re.search(
        r"^validation loss ([\d.]+) nats a character; no bigram model is below ([\d.]+)$", text, re.M
    )
    assert code == 0 and found, text
    loss, bound = map(float, found.groups())
    assert 1.4 < bound < 1.8 and loss < 0.6 * bound, text


def test_quantized_weights_are_smaller(tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 1000)
    text, code = run("quantize", "--file", tmp_path / "text.txt", "--iterations", 20)
    found = re.findall(r"^(\w+) +perplexity ([\d.]+), ([\d.]+) MB$", text, re.M)
    assert code == 0 and [name for name, _, _ in found] == ["float32", "q8_0", "q4_0", "q4_1"], text
    (_, exact, whole), (_, perplexity, part) = found[:2]
    assert abs(float(perplexity) / float(exact) - 1) < 0.02 and float(part) < 0.4 * float(whole), text
