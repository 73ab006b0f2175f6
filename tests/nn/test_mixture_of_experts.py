"""Mixture of experts, against transformers' Mixtral with the same weights, and its capacity by counting."""

import math

import numpy as np
import pytest
import torch
import transformers
from transformers.models.mixtral import modeling_mixtral

import mytorch
from mytorch import nn
from tests.oracle import check

rng = np.random.default_rng(5)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


def mixtral(experts, top_k):
    """Mixtral's block with random weights, and ours with the same ones."""
    theirs = modeling_mixtral.MixtralSparseMoeBlock(transformers.MixtralConfig(
        hidden_size=6, intermediate_size=10, num_attention_heads=1, num_key_value_heads=1,
        num_local_experts=experts, num_experts_per_tok=top_k, experts_implementation="eager",
    ))
    for p in theirs.parameters():
        torch.nn.init.normal_(p)
    ours = nn.MixtureOfExperts(6, 10, experts, top_k)
    assert ours.load_state_dict(by_our_names({name: p.data for name, p in theirs.named_parameters()}))
    return ours, theirs


def by_our_names(tensors):
    """Mixtral's stacked tensors as those of single experts."""
    found = {"gate.weight": tensors["gate.weight"]}
    for e, (both, down) in enumerate(
        zip(tensors["experts.gate_up_proj"], tensors["experts.down_proj"], strict=True)
    ):
        gate, up = both.chunk(2)
        parts = {"gate": gate, "up": up, "down": down}
        found |= {f"experts.{e}.{name}_proj.weight": t for name, t in parts.items()}
    return {name: mytorch.tensor(t.numpy()) for name, t in found.items()}


@pytest.mark.parametrize("shape", [(2, 7, 6), (5, 6), (1, 6)], ids=str)
@pytest.mark.parametrize(("experts", "top_k"), [(4, 2), (8, 3), (3, 3)])
def test_it_is_mixtral_s(experts, top_k, shape):
    """With a gradient through the result and one through the loss."""
    ours, theirs = mixtral(experts, top_k)

    def oracle(x):
        logits = theirs.gate(x.reshape(-1, 6))[0]
        loss = modeling_mixtral.load_balancing_loss_func((logits,), experts, top_k)
        return theirs(x.reshape(-1, *x.shape[-2:])).reshape(x.shape), loss

    check(ours, oracle, normal(*shape), rtol=1e-4, atol=1e-4)
    gradients = by_our_names({name: p.grad for name, p in theirs.named_parameters()})
    for name, p in ours.named_parameters():
        want = gradients[name].numpy()
        np.testing.assert_allclose(p.grad.numpy(), want, rtol=1e-4, atol=2e-4, err_msg=name)


def test_the_weights_are_the_softmax_of_the_chosen_logits():
    moe, x = nn.MixtureOfExperts(6, 10, 5), mytorch.randn(9, 6)
    weights, chosen, _ = moe.route(x)
    logits = np.sort(moe.gate(x).detach().numpy())[:, :-3:-1]
    want = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(weights.detach().numpy(), want, rtol=1e-5)
    assert chosen.dtype == np.int64 and (chosen[:, 0] != chosen[:, 1]).all()


def test_one_expert_is_weighted_by_its_probability():
    """Equation 2 of Switch Transformers; the router learns through it."""
    moe, x = nn.MixtureOfExperts(6, 10, 4, top_k=1), mytorch.randn(9, 6)
    y, loss = moe(x)
    p = moe.gate(x).softmax(-1)
    for row in range(9):
        best = int(p[row].argmax())
        want = p[row, best] * moe.experts[best](x[row])
        np.testing.assert_allclose(y[row].detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    y.sum().backward()
    assert moe.gate.weight.grad.abs().sum() > 0
    shares = np.bincount(p.argmax(-1).numpy(), minlength=4) / 9
    assert loss.item() == pytest.approx(4 * (shares * p.mean(0).detach().numpy()).sum(), rel=1e-5)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_loss_is_least_where_experts_are_chosen_equally_often(top_k):
    moe = nn.MixtureOfExperts(4, 3, 4, top_k)
    tokens = mytorch.tensor([[3.0, 2, 1, 0], [0, 3, 2, 1], [1, 0, 3, 2], [2, 1, 0, 3]])
    with mytorch.no_grad():
        moe.gate.weight.copy_(mytorch.eye(4))
    assert moe(tokens)[1].item() == pytest.approx(top_k, rel=1e-6)
    assert moe(tokens[:1].expand(4, 4))[1].item() > top_k + 0.1


@pytest.mark.parametrize("factor", [0.3, 0.75, 1.0, 2.0, 100.0])
@pytest.mark.parametrize("top_k", [1, 2])
def test_tokens_beyond_the_capacity_are_dropped(top_k, factor):
    """First choices before second ones, earlier tokens before later ones."""
    moe, x = nn.MixtureOfExperts(6, 10, 3, top_k, factor), mytorch.randn(20, 6)
    weights, chosen, _ = moe.route(x)
    want, room = np.zeros((20, 6)), [math.ceil(factor * top_k * 20 / 3)] * 3
    for choice in range(top_k):
        for token in range(20):
            e = int(chosen[token, choice])
            room[e] -= 1
            if room[e] >= 0:
                want[token] += (weights[token, choice] * moe.experts[e](x[token])).detach().numpy()
    if factor != 1:
        assert (min(room) < 0) == (factor < 1)
    np.testing.assert_allclose(moe(x)[0].detach().numpy(), want, rtol=1e-5, atol=1e-6)


def test_the_loss_spreads_the_tokens():
    moe, x = nn.MixtureOfExperts(6, 10, 4, top_k=1), mytorch.randn(64, 6) + 2
    optimizer = mytorch.optim.Adam(moe.gate.parameters(), lr=0.1)
    first = moe(x)[1].item()
    for _ in range(50):
        optimizer.zero_grad()
        loss = moe(x)[1]
        loss.backward()
        optimizer.step()
    assert 1 < loss.item() < 0.6 * first


def test_on_a_gpu_and_in_half_precision(fake_cuda):
    moe, x = nn.MixtureOfExperts(6, 10, 4, capacity_factor=1.0), mytorch.randn(2, 7, 6)
    want, loss = moe(x)
    found = moe.to("cuda:0")(x.to("cuda:0"))
    np.testing.assert_allclose(found[0].cpu().detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert found[1].item() == pytest.approx(loss.item(), rel=1e-5)
    half, loss = moe.to("cpu").half()(x.half())
    assert half.dtype == np.float16 and loss.dtype == np.float32
    np.testing.assert_allclose(half.detach().numpy(), want.detach().numpy(), atol=1e-2)


def test_no_tokens():
    y, loss = nn.MixtureOfExperts(6, 10, 4)(mytorch.ones(0, 6))
    assert y.shape == (0, 6) and loss.item() == 0


@pytest.mark.parametrize(("options", "message"), [
    ({"top_k": 0}, "top_k must be between 1 and num_experts=4, got 0"),
    ({"top_k": 5}, "top_k must be between 1 and num_experts=4, got 5"),
    ({"capacity_factor": 0}, "capacity_factor must be positive, got 0"),
    ({"capacity_factor": math.nan}, "capacity_factor must be positive, got nan"),
])
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        nn.MixtureOfExperts(6, 10, 4, **options)
