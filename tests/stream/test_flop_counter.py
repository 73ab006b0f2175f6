"""FlopCounterMode, against PyTorch's on the same calls; and what models say of themselves."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode as Oracle

import mytorch
import mytorch.nn.functional as F
from mytorch.backends.meta import products
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig
from mytorch.stream import flops, record
from mytorch.utils.flop_counter import FlopCounterMode

CALLS = {  # (the call, shapes of its inputs)
    "linear": (lambda m, x, w, b: m.nn.functional.linear(x, w, b), (2, 3, 4), (5, 4), (5,)),
    "matmul": (lambda m, x, y: x @ y, (2, 3, 4), (4, 5)),
    "batches": (lambda m, x, y: x @ y, (6, 2, 3, 4), (2, 4, 5)),
    "bmm": (lambda m, x, y: m.bmm(x, y), (2, 3, 4), (2, 4, 5)),
    "addmm": (lambda m, b, x, y: m.addmm(b, x, y), (5,), (3, 4), (4, 5)),
    "baddbmm": (lambda m, b, x, y: m.baddbmm(b, x, y), (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "einsum": (lambda m, x, y: m.einsum("bij,bjk->bik", x, y), (2, 3, 4), (2, 4, 5)),
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
}  # fmt: skip
# Where only the forward pass is as in PyTorch: its formula for the gradient of the weight ignores groups, and
# in three dims the gradients are computed with more products than there need be.
FORWARD = {
    "groups": (lambda m, x, w: m.nn.functional.conv2d(x, w, groups=2), (2, 4, 10, 12), (6, 2, 3, 3)),
    "conv3d": (lambda m, x, w: m.nn.functional.conv3d(x, w), (2, 4, 5, 6, 7), (6, 4, 3, 3, 3)),
}


def counted(module, mode, call, shapes):
    inputs = [module.empty(s, device="meta", requires_grad=True) for s in shapes]
    with mode(display=False) as forward:
        y = call(module, *inputs)
    with mode(display=False) as backward:
        y.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("name", {**CALLS, **FORWARD})
def test_as_pytorch(name):
    call, *shapes = {**CALLS, **FORWARD}[name]
    got, want = counted(mytorch, FlopCounterMode, call, shapes), counted(torch, Oracle, call, shapes)
    assert got[: 1 if name in FORWARD else 2] == want[: 1 if name in FORWARD else 2]
    assert got[1] >= 2 * got[0]


@pytest.mark.parametrize("name", ["linear", "matmul", "no product"])
def test_as_the_formulas_of_instructions(name):
    """`flops` has a formula by operation, here what runs is counted."""
    call, *shapes = CALLS[name]
    inputs = [mytorch.empty(s, device="meta", requires_grad=True) for s in shapes]
    with record() as instructions, FlopCounterMode(display=False) as counter:
        call(mytorch, *inputs).sum().backward()
    products = [i for i in instructions if not i.name.startswith("mul")]
    assert counter.get_total_flops() == sum(map(flops, products))


@pytest.mark.parametrize("make", [lambda: GPT2(GPT2Config(65, 32, 2, 2, 8)), lambda: Llama(
    LlamaConfig.of_size("15m", num_key_value_heads=2))])  # fmt: skip
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
    ]  # fmt: skip
    assert products.observers == []


def test_only_meta_tensors():
    message = "counts the operations of meta tensors, got relu on cpu"
    with pytest.raises(RuntimeError, match=message), FlopCounterMode():
        F.relu(mytorch.tensor(np.ones(3)))
    assert products.observers == []
