"""mytorchrun estimate-memory, against what a training step is measured to take."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mytorch.backends import threads
from mytorch.cli import main
from mytorch.cli.estimate_memory import count_parameters, estimate, text_of
from mytorch.models import GPT2, GPT2Config
from tests.distributed.launched import ROOT, surroundings

PEAK = Path(__file__).parent / "peak.py"
OBJECTS = 400_000  # bytes of Python objects that tracemalloc counts, too: the graph, the model's modules
TOLERANCE = 0.03

MEASURED = {  # (config, batch size, optimizer)
    "tiny, SGD, no biases": (GPT2Config(65, 64, 3, 4, 64, bias=False), 16, "sgd"),
    "nano, dropout": (GPT2Config.of_size("nano", vocab_size=65, context_length=128, dropout_p=0.1), 4, "sgd"),
    "nano, many tokens": (GPT2Config.of_size("nano", vocab_size=8000, context_length=128), 4, "adamw"),
}


@pytest.mark.skipif(not threads.installed(), reason="the formulas are those of the kernels, without Numba")
@pytest.mark.parametrize("name", MEASURED)
def test_a_real_step_takes_what_was_estimated(name):
    config, batch_size, optimizer = MEASURED[name]
    done = subprocess.run(
        [sys.executable, str(PEAK), json.dumps(config.to_dict()), str(batch_size), optimizer],
        capture_output=True, text=True, timeout=600, check=False, cwd=ROOT, env=surroundings(),
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    found = estimate(config, batch_size, optimizer=optimizer, cpu=True)
    assert found.number_of_parameters == measured["number_of_parameters"]
    assert -TOLERANCE * found.total < measured["total"] - found.total < TOLERANCE * found.total + OBJECTS


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(65, 32, 1, 2, 16), (100, 8, 3, 4, 24)])
def test_count_of_parameters(shape, bias):
    config = GPT2Config(*shape, bias=bias)
    assert count_parameters(config) == GPT2(config).num_parameters()
    C, of_block = config.n_embd, 13 if bias else 2  # the output layer shares the embedding's weight
    embeddings, norm = (config.vocab_size + config.context_length) * C, (2 if bias else 1) * C
    assert count_parameters(config) == embeddings + config.n_layer * (12 * C * C + of_block * C) + norm


def test_gpt2_has_124_million():
    assert count_parameters(GPT2Config()) == 124_439_808


MILLION = GPT2Config(1000, 10, 1, 1, 1)  # 12 (1 + 1) + ... parameters: small, counted below
P = count_parameters(MILLION)
RULES = {  # options: bytes of (parameters, gradients, optimizer)
    "single": ({}, (4 * P, 4 * P, 8 * P + 8 * P)),
    "sgd": ({"optimizer": "sgd"}, (4 * P, 4 * P, 8 * P)),
    "half": ({"mixed_precision": "fp16"}, (6 * P, 6 * P, 8 * P + 8 * P)),
    "bfloat16": ({"mixed_precision": "bf16"}, (6 * P, 6 * P, 8 * P + 8 * P)),
    "ZeRO": ({"zero_stage": 1, "num_processes": 4}, (4 * P, 4 * P, 2 * P + 8 * P)),
    "ZeRO in half": (
        {"zero_stage": 1, "num_processes": 4, "mixed_precision": "fp16"}, (6 * P, 6 * P, 2 * P + 8 * P)),
    "DDP": ({"num_processes": 4}, (4 * P, 4 * P, 8 * P + 8 * P)),
}


@pytest.mark.parametrize("name", RULES)
def test_parameters_gradients_and_state(name):
    options, expected = RULES[name]
    found = estimate(MILLION, 1, **options)
    assert (found.parameters, found.gradients, found.optimizer) == expected
    assert found.total == sum(expected) + found.activations


N, C, H, V = 6, 8, 2, 1000
LARGE_VOCABULARY, LARGE_BLOCK = GPT2Config(V, 3, 2, H, C), GPT2Config(5, 3, 2, H, C)
KEPT = {  # (config, precision): bytes
    "single": (LARGE_VOCABULARY, "no", 2 * (64 * N * C + 8 * N * H) + 12 * N * C + 8 * N * V + 16 * N),
    "half": (LARGE_VOCABULARY, "fp16", 2 * (32 * N * C + 8 * N * H) + 6 * N * C + 12 * N * V + 16 * N),
    "block": (LARGE_BLOCK, "no", 2 * (64 * N * C + 8 * N * H) + 24 * N * C + 4 * N * 5 + 16 * N),
    "half block": (LARGE_BLOCK, "fp16", 2 * (32 * N * C + 8 * N * H) + 12 * N * C + 4 * N * 5 + 16 * N),
}


@pytest.mark.parametrize("name", KEPT)
def test_activations(name):
    config, precision, expected = KEPT[name]
    assert estimate(config, 2, mixed_precision=precision).activations == expected


def test_activations_go_with_tokens():
    config = GPT2Config.of_size("nano")
    one, two = (estimate(config, n).activations for n in (1, 2))
    assert two == 2 * one
    assert estimate(config, 2, sequence_length=512).activations == one


def test_the_command(capsys):
    arguments = ["estimate-memory", "--model_size", "nano", "--vocab_size", "65", "--context_length", "64"]
    arguments.append("--no_bias")
    assert main([*arguments, "--json"]) == 0
    config = GPT2Config.of_size("nano", vocab_size=65, context_length=64, bias=False)
    found = json.loads(capsys.readouterr().out)
    expected = estimate(config, 12)
    assert found == {**vars(expected), "total": expected.total}
    assert main([*arguments, "--n_layer", "2", "--num_processes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    fewer = count_parameters(GPT2Config(65, 64, 2, 4, 128, bias=False))
    assert lines[0] == f"{fewer:,} parameters; on each of 2 devices:"
    assert [line.split()[0] for line in lines[1:]] == [
        "parameters",
        "gradients",
        "optimizer",
        "activations",
        "total",
    ]
    assert lines[-1].split()[-1] == "100%"


@pytest.mark.parametrize("size, text", [(17, "17.0 B"), (1536, "1.5 KiB"), (3 << 40, "3,072.0 GiB")])
def test_units(size, text):
    assert text_of(size) == text
