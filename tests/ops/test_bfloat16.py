"""Ops on bfloat16, beyond PyTorch's database of samples: long sums, other dtypes beside, second gradients."""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from tests.each import each
from tests.every import every
from tests.oracle import check

BF16 = mytorch.bfloat16
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(BF16)


def gradient(function):
    """Of the sum of the results, with respect to the input."""

    def call(x):
        x = x.requires_grad_()
        function(x).backward(mytorch.ones_like(function(x).detach()))
        return x.grad

    return call


def zeros(x, *shape):
    return mytorch.zeros(*shape, dtype=mytorch.int64, device=x.device)


# 1000 times 1: added up in bfloat16 it would stop at 256.
THOUSANDS = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.reshape(20, 50).sum(0).sum(),
    "sum as bfloat16": lambda x: x.float().sum(dtype=BF16),
    "sum of integers": lambda x: x.long().sum(dtype="bfloat16"),
    "sum in place of it": lambda x: x.new_zeros(()).add_(x.sum()),
    "nansum": lambda x: x.nansum(),
    "mean": lambda x: x.mean() * 1000,
    "cumsum": lambda x: x.cumsum(0)[-1],
    "cumsum as bfloat16": lambda x: x.float().cumsum(0, dtype=BF16)[-1],
    "norm": lambda x: x.norm(1),
    "dot": lambda x: x @ x,
    "matmul": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
    "batches": lambda x: (x.reshape(1, 1, -1) @ x.reshape(1, -1, 1)).sum(),
    "einsum": lambda x: mytorch.einsum("i,i->", x, x),
    "einsum of one": lambda x: mytorch.einsum("i->", x),
    "linear": lambda x: F.linear(x, x),
    "index_add": lambda x: x[:1].index_add(0, zeros(x, 999), x[1:]),
    "scatter_add": lambda x: x[:1].scatter_add(0, zeros(x, 999), x[1:]),
    "index_put": lambda x: x[:1].index_put((zeros(x, 999),), x[1:], accumulate=True),
    "avg_pool1d": lambda x: F.avg_pool1d(x.reshape(1, 1, -1), 1000) * 1000,
    "conv1d": lambda x: F.conv1d(x.reshape(1, 1, -1), x.reshape(1, 1, -1)),
    "expand's gradient": lambda x: gradient(lambda y: y.expand(1000))(x[:1].clone()),
    "broadcast gradient": lambda x: gradient(lambda y: x * y)(x[0].clone()),
    "index's gradient": lambda x: gradient(lambda y: y[zeros(x, 1000)])(x[:1].clone()),
    "gather's gradient": lambda x: gradient(lambda y: y.gather(0, zeros(x, 1000)))(x[:1].clone()),
    "repeat's gradient": lambda x: gradient(lambda y: y.repeat(1000))(x[:1].clone()),
    "repeat_interleave's": lambda x: gradient(lambda y: y.repeat_interleave(1000))(x[:1].clone()),
    "embedding's gradient": lambda x: gradient(lambda w: F.embedding(zeros(x, 1000), w))(x[:1, None].clone()),
    "bias's gradient": lambda x: gradient(lambda b: F.linear(x[:, None], x[:1, None], b))(x[:1].clone()),
    "weight's gradient": lambda x: gradient(lambda w: F.linear(x[:, None], w))(x[:1, None].clone()),
}


@each("name", THOUSANDS)
def test_long_sums_are_added_in_float32(name, device):
    x = mytorch.ones(1000, dtype=BF16, device=device)
    total = THOUSANDS[name](x)
    assert total.dtype == BF16 and total.tolist() in (1000.0, [1000.0], [[1000.0]], [[[1000.0]]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_sum_in_another_dtype_keeps_it(dtype):
    x, their = normal(500), getattr(torch, dtype)
    for name in ("sum", "mean", "nansum", "cumsum", "prod"):
        dim = (0,) if name == "cumsum" else ()
        check(
            lambda x, name=name, dim=dim: getattr(x, name)(*dim, dtype=dtype),
            lambda x, name=name, dim=dim: getattr(x, name)(*dim, dtype=their),
            x, grad=name != "cumsum", rtol=4e-3 if dtype == "float16" else 1e-5, atol=1e-4,
        )


def test_indices_and_truths_keep_their_dtype():
    x = normal(4, 5)
    for name in (
        "argmax",
        "argmin",
        "argsort",
        "isnan",
        "nonzero",
        "count_nonzero",
        "logical_not",
        "signbit",
    ):
        check(lambda x, name=name: getattr(mytorch, name)(x), lambda x, name=name: getattr(torch, name)(x), x)
    for function in (lambda x: x.max(1), lambda x: x.sort(), lambda x: x > 0.5, lambda x: x == x):
        check(function, function, x)


# Together with another dtype: promoted as PyTorch does, or refused as PyTorch does.

X, WIDE = normal(3, 3), rng.standard_normal((3, 3)).astype(np.float32)
MIXED = {
    "add": lambda F, x, y: x + y,
    "comparison": lambda F, x, y: x < y,
    "where": lambda F, x, y: F.where(y > 0, x, y),
    "where of numbers": lambda F, x, y: F.where(y > 0, x, 0.1),
    "cat": lambda F, x, y: F.cat([x, y]),
    "stack": lambda F, x, y: F.stack([y, x]),
    "masked_fill": lambda F, x, y: x.masked_fill(x > 0, y[0, 0]),
    "clamp": lambda F, x, y: F.clamp(x, y, None),
    "copy_": lambda F, x, y: (x * 1).copy_(y),
    "in place": lambda F, x, y: (x * 1).mul_(y),
    "half": lambda F, x, y: x * y.half(),
    "integers": lambda F, x, y: x * (100 * y).to(F.int64),
}


@pytest.mark.parametrize("name", MIXED)
def test_beside_float32(name):
    function = MIXED[name]
    check(
        lambda x, y: function(mytorch, x, y), lambda x, y: function(torch, x, y), X, WIDE,
        grad=name != "comparison", rtol=2**-7, atol=2**-9,
    )


def test_a_number_of_another_dtype_fills_it(device):
    x = mytorch.tensor(X, device=device, requires_grad=True)
    for value in (0.1, mytorch.tensor(0.1, device=device), mytorch.tensor(0.1, dtype=BF16, device=device)):
        y = x.masked_fill(x > 0, value)
        assert y.dtype == mytorch.where(x > 0, x, x).dtype == BF16 and y.max().item() == 0.10009765625
        assert (x * 1).masked_fill_(x > 0, value).tolist() == y.tolist()


REFUSED = {
    "matmul": lambda F, x, y: x @ y,
    "linear": lambda F, x, y: F.nn.functional.linear(x, y),
    "lerp": lambda F, x, y: F.lerp(x, y, 0.5),
    "index_add": lambda F, x, y: x.index_add(0, F.tensor([0, 1, 2]), y),
    "scatter": lambda F, x, y: x.scatter(0, F.zeros(3, 3, dtype=F.int64), y),
    "index_put": lambda F, x, y: x.index_put((F.tensor([0, 1, 2]),), y),
    "masked_scatter": lambda F, x, y: x.masked_scatter(x > 0, y),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_one_dtype_says_which_two_it_got(name):
    with pytest.raises(RuntimeError, match="(?s)(bfloat16.*float32|float32.*bfloat16)"):
        REFUSED[name](mytorch, mytorch.tensor(X), mytorch.tensor(WIDE))
    with pytest.raises(RuntimeError):
        REFUSED[name](torch, torch.ones(3, 3, dtype=torch.bfloat16), torch.ones(3, 3))


@pytest.mark.parametrize("name", ["svdvals", "cdist"])
def test_what_wants_more_digits_says_so(name):
    x = mytorch.tensor(X)
    call = mytorch.linalg.svdvals if name == "svdvals" else lambda x: mytorch.cdist(x, x)
    with pytest.raises((RuntimeError, NotImplementedError), match=f"{name.removesuffix('vals')}.*bfloat16"):
        call(x)


def test_the_largest_number_is_its_own():
    x = np.array([math.inf, -math.inf, math.nan, 1]).astype(BF16)
    check(lambda x: x.nan_to_num(), lambda x: x.nan_to_num(), x, rtol=0, atol=0)


def test_running_statistics_in_float32_stay_exact():
    x = normal(2, 3, 500) + np.float32(1)
    running = [mytorch.zeros(3), mytorch.ones(3)]
    F.instance_norm(mytorch.tensor(x, dtype=BF16), *running, use_input_stats=True, momentum=1.0)
    wide = x.astype(BF16).astype(np.float64)
    np.testing.assert_allclose(running[0].numpy(), wide.mean(2).mean(0), 1e-5)
    np.testing.assert_allclose(running[1].numpy(), wide.var(2, ddof=1).mean(0), 1e-5)


TWICE = {
    "exp": lambda x: x.exp(),
    "tanh": lambda x: x.tanh() * x,
    "matmul": lambda x: x @ x.T,
    "std": lambda x: x.std(0),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (5,)) * x,
    "gelu": lambda x: F.gelu(x),
    "indices": lambda x: x[:, [0, 0, 1]] ** 3,
}


@pytest.mark.parametrize("name", TWICE)
def test_second_gradients(name):
    """As those in float32 of the same numbers, but for the roundings of a few steps."""
    start = normal(4, 5)

    def second(dtype):
        x = mytorch.tensor(start, dtype=dtype, requires_grad=True)
        (g,) = mytorch.autograd.grad((TWICE[name](x) ** 2).sum(), x, create_graph=True)
        assert g.dtype == dtype
        (gg,) = mytorch.autograd.grad((g * g).sum(), x)
        assert gg.dtype == dtype
        return gg.float().numpy()

    want = second("float32")
    assert np.abs(second(BF16) - want).max() <= 0.05 * np.abs(want).max()


def test_a_second_backward_of_one_op_is_rounded_once():
    """An op's gradient is computed in float32, also where it is recorded."""
    start = normal(100)
    grads = {}
    for create_graph in (False, True):
        x = mytorch.tensor(start, requires_grad=True)
        y = mytorch.sigmoid(x)
        (grads[create_graph],) = mytorch.autograd.grad(y.sum(), x, create_graph=create_graph)
    assert grads[True].tolist() == grads[False].tolist()


def test_a_layer_of_each_kind_learns():
    x = mytorch.tensor(normal(2, 4, 6, 6))
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 4)
    ).bfloat16()
    y = model(x)
    F.mse_loss(y, mytorch.zeros_like(y)).backward()
    assert y.dtype == BF16 and every(p.grad.dtype == BF16 and np.any(p.grad) for p in model.parameters())
