"""Rotary embeddings: the frequencies of transformers' models, both layouts, all ways to give positions."""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama import modeling_llama

import mytorch
from mytorch import nn
from mytorch.nn.layers.rotary import rotary_frequencies
from tests.oracle import check

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "yarn": YARN,
    "yarn, other turns": YARN | {"beta_fast": 16, "beta_slow": 2},
    "yarn, not truncated": YARN | {"truncate": False},
    "yarn, attention factor": YARN | {"attention_factor": 0.7},
    "yarn, mscale": YARN | {"mscale": 0.8, "mscale_all_dim": 1.2},
    "yarn, one mscale": YARN | {"mscale": 0.8},
    "yarn, short": YARN | {"original_max_position_embeddings": 4},
    "yarn, factor below 1": YARN | {"factor": 0.5},
    "llama3": LLAMA3,
    "llama3, long": LLAMA3 | {"original_max_position_embeddings": 8192, "factor": 32.0},
    "llama3, other turns": LLAMA3 | {"low_freq_factor": 2.0, "high_freq_factor": 3.0},
}


def theirs(scaling, base, head_dim):
    """The rotary embedding of transformers' Llama."""
    config = transformers.LlamaConfig(
        head_dim=head_dim, hidden_size=head_dim, num_attention_heads=1, max_position_embeddings=256,
        rope_parameters={"rope_theta": base, **scaling},
    )
    return modeling_llama.LlamaRotaryEmbedding(config)


@pytest.mark.parametrize(("base", "head_dim"), [(1e4, 16), (5e5, 64), (100.0, 2)])
@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_frequencies_and_angles_are_those_of_transformers(scaling, base, head_dim):
    ours, oracle = nn.RotaryEmbedding(head_dim, base, scaling), theirs(scaling, base, head_dim)
    np.testing.assert_allclose(ours.frequencies, oracle.inv_freq.double(), rtol=2e-6)
    assert ours.factor == pytest.approx(oracle.attention_scaling, rel=1e-12)
    angles = oracle(torch.ones(1), torch.arange(100)[None])  # cos and sin, for both features of each pair
    for found, want in zip(ours.angles(slice(0, 100)), angles, strict=True):
        want = want[:, :, : head_dim // 2].numpy()
        np.testing.assert_allclose(found.numpy(), want, rtol=0, atol=2e-5)  # theirs: of float32 angles


def test_old_names_of_the_kind():
    scaling = {"type": "linear", "factor": 2.0}
    assert (nn.RotaryEmbedding(8, scaling=scaling).frequencies * 2 == nn.RotaryEmbedding(8).frequencies).all()


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_ntk_divides_the_lowest_frequency_by_the_factor_and_leaves_the_highest(factor):
    found, attention = rotary_frequencies(64, 1e4, {"rope_type": "ntk", "factor": factor})
    plain, _ = rotary_frequencies(64, 1e4, {})
    np.testing.assert_allclose(found, (1e4 * factor ** (64 / 62)) ** (-np.arange(32) / 32), rtol=1e-12)
    np.testing.assert_allclose(found[[0, -1]], plain[[0, -1]] / [1, factor], rtol=1e-12)
    assert attention == 1


@pytest.mark.parametrize("interleaved", [False, True])
def test_both_layouts(interleaved):
    """The first as in transformers, the second with its rows in another order, and as complex numbers."""
    rotary = nn.RotaryEmbedding(8, scaling=YARN, interleaved=interleaved)
    oracle = theirs(YARN, 1e4, 8)
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 8)).astype("float32")

    def want(x):
        cos, sin = oracle(x, torch.arange(5)[None])
        if not interleaved:
            return modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)[0]
        pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)))
        return torch.view_as_real(pairs * torch.complex(cos, sin)[..., :4]).flatten(-2)

    check(rotary, want, x, rtol=1e-5, atol=1e-5)
    double = rotary(mytorch.tensor(x.astype("float64")))
    assert double.dtype == np.float64
    np.testing.assert_allclose(double.numpy(), want(torch.tensor(x)).numpy(), rtol=1e-5, atol=1e-5)
    half = rotary(mytorch.tensor(x.astype("float16")))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.numpy(), double.numpy(), atol=5e-3)


def test_products_depend_on_the_distance_only():
    rotary = nn.RotaryEmbedding(16)
    q, k = (mytorch.randn(1, 1, 1, 16).expand(1, 1, 50, 16) for _ in range(2))
    scores = (rotary(q) @ rotary(k).transpose(-1, -2))[0, 0].numpy()
    for distance in (-30, 0, 7):
        np.testing.assert_allclose(np.diag(scores, distance), np.diag(scores, distance)[0], atol=1e-4)


def test_positions_as_slices_and_tensors(device):
    rotary = nn.RotaryEmbedding(8)
    x = mytorch.randn(2, 3, 40, 8, device=device)
    whole = rotary(x)
    assert mytorch.equal(rotary(x[:, :, 10:30], slice(10, 30)), whole[:, :, 10:30])
    order = mytorch.tensor([7, 39, 0, 7], device=device)
    assert mytorch.equal(rotary(x[:, :, order], order), whole[:, :, order])
    rows = mytorch.tensor([[3, 4], [30, 0]], device=device)  # for each sequence its own
    found = rotary(mytorch.stack([x[0][:, rows[0]], x[1][:, rows[1]]]), rows)
    assert mytorch.equal(found, mytorch.stack([whole[0][:, rows[0]], whole[1][:, rows[1]]]))
    assert found.device == x.device


def test_the_table_grows_with_the_positions():
    rotary = nn.RotaryEmbedding(4)
    first = rotary.angles(slice(0, 3))[0]
    rows = [len(table[0]) for table in rotary._tables.values()]
    far = rotary.angles(slice(100, 131))[0]
    assert rows == [64] and [len(table[0]) for table in rotary._tables.values()] == [256]
    assert mytorch.equal(rotary.angles(slice(0, 3))[0], first)
    np.testing.assert_allclose(far[0, :, 0].numpy(), np.cos(np.arange(100, 131)), rtol=1e-5, atol=1e-6)
    assert not rotary.state_dict()


WRONG = {
    "odd": (lambda: nn.RotaryEmbedding(5), "head_dim must be even and positive, got 5"),
    "none": (lambda: nn.RotaryEmbedding(0), "head_dim must be even and positive, got 0"),
    "kind": (
        lambda: nn.RotaryEmbedding(4, scaling={"rope_type": "x"}),
        "'x' is unknown; the kinds are default, linear, ntk, yarn, llama3",
    ),
    **{
        kind: (lambda kind=kind: nn.RotaryEmbedding(4, scaling={"rope_type": kind}), f"{kind}'}} lacks '")
        for kind in ("linear", "ntk", "yarn", "llama3")
    },
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_options(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_inputs():
    with pytest.raises(RuntimeError, match="can't be broadcast"):
        nn.RotaryEmbedding(8)(mytorch.ones(1, 2, 5, 6))
    with pytest.raises(RuntimeError, match="can't be broadcast"):
        nn.RotaryEmbedding(8)(mytorch.ones(1, 2, 5, 8), slice(0, 4))
