"""Modules begin with the distributions that PyTorch's begin with: spread, bounds and constants."""

import numpy as np
import pytest
import torch

import mytorch

MODULES = {
    "Linear": lambda nn: nn.Linear(300, 200),
    "Bilinear": lambda nn: nn.Bilinear(40, 50, 60),
    "Embedding": lambda nn: nn.Embedding(300, 200, padding_idx=3),
    "Conv1d": lambda nn: nn.Conv1d(64, 96, 5),
    "Conv2d": lambda nn: nn.Conv2d(32, 64, 3, groups=2),
    "ConvTranspose1d": lambda nn: nn.ConvTranspose1d(64, 96, 5),
    "ConvTranspose2d": lambda nn: nn.ConvTranspose2d(32, 64, 3),
    "LayerNorm": lambda nn: nn.LayerNorm(7),
    "BatchNorm2d": lambda nn: nn.BatchNorm2d(7),
    "GroupNorm": lambda nn: nn.GroupNorm(2, 8),
    "RMSNorm": lambda nn: nn.RMSNorm(7),
    "PReLU": lambda nn: nn.PReLU(3),
    "RNNCell": lambda nn: nn.RNNCell(100, 120),
    "RNN": lambda nn: nn.RNN(100, 120, 2),
    "LSTM": lambda nn: nn.LSTM(60, 80, 2, bidirectional=True),
    "GRU": lambda nn: nn.GRU(60, 80),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(120, 4),
    "MultiheadAttention, other widths": lambda nn: nn.MultiheadAttention(120, 4, kdim=80, vdim=100),
    "MultiheadAttention, extra bias": lambda nn: nn.MultiheadAttention(400, 4, add_bias_kv=True),
    "TransformerEncoderLayer": lambda nn: nn.TransformerEncoderLayer(64, 4, 128),
    "Transformer": lambda nn: nn.Transformer(64, 4, 1, 1, 128),
}


@pytest.mark.parametrize("name", MODULES)
def test_same_distribution(name):
    mytorch.manual_seed(0)
    torch.manual_seed(0)
    mine = dict(MODULES[name](mytorch.nn).named_parameters())
    theirs = dict(MODULES[name](torch.nn).named_parameters())
    assert list(mine) == list(theirs)
    for key, want in theirs.items():
        got, want = mine[key].detach().numpy(), want.detach().numpy()
        if np.ptp(want) == 0:
            np.testing.assert_array_equal(got, want, key)
            continue
        # n draws of a uniform or normal distribution give its spread to about 1 / sqrt(n)
        room = 5 / np.sqrt(want.size)
        assert abs(got.std() / want.std() - 1) < room, f"{key}: std {got.std()}, PyTorch {want.std()}"
        assert abs(got.mean()) < room * want.std(), f"{key}: mean {got.mean()}"
        bounded = np.abs(want).max() < 2 * want.std()  # uniform: sqrt(3) standard deviations
        assert bounded == (np.abs(got).max() < 2 * got.std()), f"{key}: another kind of distribution"
        if bounded:
            assert np.abs(got).max() == pytest.approx(np.abs(want).max(), rel=room), f"{key}: bound"


def test_the_padding_row_of_an_embedding_is_zero():
    assert not mytorch.nn.Embedding(5, 4, padding_idx=-2).weight.detach().numpy()[3].any()
