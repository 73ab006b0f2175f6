"""FlopCounterMode, against PyTorch's on the same calls; and what models say of themselves."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode as Oracle

import mytorch
import mytorch.nn.functional as F
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig
from mytorch.utils.flop_counter import FlopCounterMode

CALLS = {  # (the call, shapes of its inputs)
    "linear": (lambda m, x, w, b: m.nn.functional.linear(x, w, b), (2, 3, 4), (5, 4), (5,)),
    "matmul": (lambda m, x, y: x @ y, (2, 3, 4), (4, 5)),
    "batches": (lambda m, x, y: x @ y, (6, 2, 3, 4), (2, 4, 5)),
    "bmm": (lambda m, x, y: m.bmm(x, y), (2, 3, 4), (2, 4, 5)),
    "addmm": (lambda m, b, x, y: m.addmm(b, x, y), (5,), (3, 4), (4, 5)),
    "baddbmm": (lambda m, b, x, y: m.baddbmm(b, x, y), (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "einsum": (lambda m, x, y: m.einsum("bij,bjk->bik", x, y), (2, 3, 4), (2, 4, 5)),
    "einsum without a batch": (lambda m, x, y: m.einsum("ij,kj->ki", x, y), (2, 3), (4, 3)),
    "einsum of an ellipsis": (lambda m, x, y: m.einsum("...ij,jk", x, y), (5, 2, 3), (3, 4)),
    "tensordot": (lambda m, x, y: m.tensordot(x, y, 2), (2, 3, 4), (3, 4, 5)),
    "conv1d": (lambda m, x, w: m.nn.functional.conv1d(x, w, padding=1), (2, 3, 10), (5, 3, 3)),
    "conv2d": (
        lambda m, x, w, b: m.nn.functional.conv2d(x, w, b, padding=1, stride=2), (2, 4, 10, 12), (6, 4, 3, 3),
        (6,)),
    "pointwise": (lambda m, x, w: m.nn.functional.conv2d(x, w), (2, 4, 10, 12), (6, 4, 1, 1)),
    "transposed": (
        lambda m, x, w: m.nn.functional.conv_transpose2d(x, w, stride=2), (2, 4, 10, 12), (4, 6, 3, 3)),
    "attention": (
        lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v), (2, 4, 8, 16),
        (2, 4, 10, 16), (2, 4, 10, 16)),
    "causal": (
        lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        (2, 4, 8, 16), (2, 4, 8, 16), (2, 4, 8, 16)),
    "no product": (lambda m, x: x.exp() * x, (3, 4)),
}
CONVOLUTIONS = {  # (the call, shapes of the image and of the weight)
    "conv3d": (lambda f, x, w: f.conv3d(x, w), (2, 4, 5, 6, 7), (6, 4, 3, 3, 3)),
    "dilated": (lambda f, x, w: f.conv2d(x, w, dilation=2, padding=2), (2, 4, 10, 12), (6, 4, 3, 3)),
    "same": (lambda f, x, w: f.conv2d(x, w, padding="same"), (2, 4, 10, 12), (6, 4, 3, 5)),
    "one image": (lambda f, x, w: f.conv2d(x, w, stride=3, dilation=2), (4, 10, 12), (6, 4, 3, 3)),
    "transposed 1d": (lambda f, x, w: f.conv_transpose1d(x, w, padding=1), (2, 4, 10), (4, 6, 3)),
    "transposed dilated": (
        lambda f, x, w: f.conv_transpose2d(x, w, stride=2, dilation=3, padding=1, output_padding=1),
        (2, 4, 10, 12), (4, 6, 3, 3)),
    "transposed 3d": (
        lambda f, x, w: f.conv_transpose3d(x, w, stride=2, dilation=2), (2, 4, 5, 6, 7), (4, 6, 3, 2, 1)),
}
CALLS |= {
    name: (lambda m, x, w, call=call: call(m.nn.functional, x, w), *shapes)
    for name, (call, *shapes) in CONVOLUTIONS.items()
}
GROUPED = {  # the number of groups, the call, shapes of its inputs
    "grouped": (2, lambda f, x, w: f.conv2d(x, w, groups=2), (2, 4, 10, 12), (6, 2, 3, 3)),
    "depthwise": (4, lambda f, x, w: f.conv1d(x, w, groups=4), (2, 4, 10), (8, 1, 3)),
    "grouped and dilated": (
        2, lambda f, x, w: f.conv2d(x, w, stride=2, dilation=2, groups=2), (2, 4, 10, 12), (6, 2, 3, 3)),
    "grouped and transposed": (
        2, lambda f, x, w: f.conv_transpose2d(x, w, stride=2, groups=2), (2, 4, 10, 12), (4, 3, 3, 3)),
}


def counted(module, mode, call, shapes, device="meta"):
    inputs = [module.ones(s, device=device, requires_grad=True) for s in shapes]
    with mode(display=False) as forward:
        y = call(module, *inputs)
    with mode(display=False) as backward:
        y.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name):
    call, *shapes = CALLS[name]
    got = counted(mytorch, FlopCounterMode, call, shapes)
    assert got == counted(torch, Oracle, call, shapes) and got[1] >= 2 * got[0]
    for fused in (True, False):
        with F.use_fused(fused):
            assert counted(mytorch, FlopCounterMode, call, shapes, "cpu") == got


@pytest.mark.parametrize("name", GROUPED)
def test_groups_have_no_products_with_one_another(name):
    """PyTorch's formula for the gradient of the weight multiplies all channels with all: `groups` times as
    many products as there are, in the backward pass alone (see docs/meta.md)."""
    groups, function, *shapes = GROUPED[name]

    def call(m, x, w):
        return function(m.nn.functional, x, w)

    forward, backward = counted(mytorch, FlopCounterMode, call, shapes)
    assert (forward, forward * (1 + groups)) == counted(torch, Oracle, call, shapes)
    assert backward == 2 * forward
    for fused in (True, False):
        with F.use_fused(fused):
            assert counted(mytorch, FlopCounterMode, call, shapes, "cpu") == (forward, backward)


def steps(kind, bias=True, **options):
    return lambda x: getattr(mytorch.nn, kind)(6, 8, bias=bias, **options).to(x.device)(x)[0]


# What PyTorch's has no formula for, or computes with other products: the call, shapes of its inputs, the
# numbers of multiplications forward and backward.
LSTM = 15 * 4 * 8 * 6 + 15 * 4 * 8 * 5  # the products of the inputs, and those of the steps with weight_hr
OURS = {
    "three operands": (
        lambda x, y, z: mytorch.einsum("ij,jk,kl->il", x, y, z), [(2, 30), (30, 4), (4, 5)],
        2 * 30 * 4 + 2 * 4 * 5, 3 * (2 * 30 * 4 + 2 * 4 * 5)),
    "an operand is summed alone": (
        lambda x, y, z: mytorch.einsum("bij,bjk,ck->bc", x, y, z), [(2, 3, 4), (2, 4, 5), (6, 5)],
        2 * 4 * 5 + 2 * 5 * 6, 3 * 2 * 5 * 6 + 2 * 2 * 4 * 5),
    "einsum without a sum": (lambda x, y: mytorch.einsum("i,j->ij", x, y), [(2,), (3,)], 0, 2 * 2 * 3),
    "bilinear": (F.bilinear, [(7, 3), (7, 4), (5, 3, 4)], 7 * 3 * 4 * 5, 2 * 7 * 3 * 4 * 5),
    "vector": (mytorch.matmul, [(7, 4), (4,)], 28, 56),
    "RNN": (steps("RNN"), [(5, 3, 6)], 15 * 8 * (6 + 8), 30 * 8 * (6 + 8)),
    "GRU": (steps("GRU", False), [(5, 3, 6)], 15 * 24 * (6 + 8), 30 * 24 * (6 + 8)),
    "LSTM": (steps("LSTM", proj_size=5), [(5, 3, 6)], LSTM + 15 * 8 * 5, 2 * (LSTM + 15 * 8 * 5)),
    "LSTM of one size": (steps("LSTM"), [(5, 3, 6)], 15 * 32 * (6 + 8), 30 * 32 * (6 + 8)),
    "attention with a bias": (
        F.scaled_dot_product_attention, [(2, 4, 8, 16)] * 3 + [(8, 8)], 8 * 8 * 8 * 32, 2 * 8 * 8 * 8 * 32),
    "self-attention": (lambda x: F.self_attention(x, 2), [(3, 7, 24)], 2 * 3 * 49 * 8, 4 * 3 * 49 * 8),
    "linear_cross_entropy": (
        lambda x, w, b: F.linear_cross_entropy(x, w, x[:, 0].to(mytorch.int64), linear_bias=b),
        [(7, 4), (9, 4), (9,)], 7 * 9 * 4, 2 * 7 * 9 * 4),
}


@pytest.mark.parametrize("device, fused", [("meta", False), ("cpu", False), ("cpu", True)])
@pytest.mark.parametrize("name", OURS)
def test_products_of_other_operations(name, device, fused):
    call, shapes, *expected = OURS[name]
    with F.use_fused(fused):
        got = counted(mytorch, FlopCounterMode, lambda _, *inputs: call(*inputs), shapes, device)
    assert got == tuple(2 * n for n in expected)


def test_of_new_tokens():
    qkv, q, cache = mytorch.ones(2, 3, 8 * 4), mytorch.ones(2, 4, 3, 4), mytorch.ones(2, 2, 9, 4)
    with FlopCounterMode(display=False) as counter:
        F.cached_attention(q, cache[:, :, :3], cache[:, :, :3], cache, cache, 5, enable_gqa=True)
        F.cached_self_attention(qkv[:, :1], 4, cache, cache, 7)
    counts = counter.get_flop_counts()["Global"]
    assert counts["cached_attention"] == 2 * 2 * 4 * 3 * (5 + 3) * (4 + 4)
    assert counts["cached_self_attention"] == 2 * 2 * 4 * (7 + 1) * (4 + 4)


def test_a_gradient_of_a_gradient():
    """The forward pass runs again to be differentiated; no product is counted twice."""
    x, y = (mytorch.ones(n, n, requires_grad=True) for n in (8, 8))
    with FlopCounterMode(display=False) as counter:
        (grad,) = mytorch.autograd.grad((x @ y).square().sum(), x, create_graph=True)
        grad.square().sum().backward()
    assert counter.get_total_flops() == 8 * 2 * 8**3


@pytest.mark.parametrize("make", [lambda: GPT2(GPT2Config(65, 32, 2, 2, 8)), lambda: Llama(
    LlamaConfig.of_size("15m", num_key_value_heads=2))])
def test_flops_per_token(make):
    with mytorch.device("meta"):
        model, tokens = make(), mytorch.empty(3, 16, dtype=mytorch.int64)
    with FlopCounterMode(display=False) as counter:
        model(tokens, tokens)[1].backward()
    assert counter.get_total_flops() == 3 * 16 * model.flops_per_token(16)


def test_checkpointing_counts_the_second_forward():
    with mytorch.device("meta"):
        model, tokens = GPT2(GPT2Config(65, 32, 2, 2, 8)), mytorch.empty(3, 16, dtype=mytorch.int64)
    with FlopCounterMode(display=False) as forward:
        model(tokens)
    model.gradient_checkpointing_enable()
    with FlopCounterMode(display=False) as counter:
        model(tokens, tokens)[1].backward()
    blocks = forward.get_flop_counts()["transformer.h"]
    assert counter.get_total_flops() == 3 * forward.get_total_flops() + sum(blocks.values())


def test_by_module(capsys):
    with mytorch.device("meta"):
        model = mytorch.nn.Sequential(mytorch.nn.Linear(3, 5), mytorch.nn.Linear(5, 2))
        x = mytorch.empty(4, 3)
    with FlopCounterMode() as counter:
        model(x).sum().backward()
    counts = counter.get_flop_counts()
    assert counts["0"] == {"linear": 120, "linear_backward.1": 120}
    assert counts["1"] == {"linear": 80, "linear_backward": 80, "linear_backward.1": 80}
    assert sum(counts["Global"].values()) == counter.get_total_flops() == 480
    assert capsys.readouterr().out.splitlines()[:4] == [
        "Module                  FLOP  % Total", "-------------------------------------",
        "Global                   480  100.00%", " - linear                200   41.67%",
    ]
