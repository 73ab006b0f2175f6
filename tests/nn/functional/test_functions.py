"""What functions do beside their values: dropout's randomness, saved memory, PyTorch's old arguments."""

import inspect
import operator
import re

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import functional as F
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


# Dropout.


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_dropout_zeroes_p_of_the_elements_and_scales_the_others(auto, dtype):
    mytorch.manual_seed(0)
    x = mytorch.ones(200, 200, dtype=dtype, requires_grad=True)
    y = F.dropout(x, 0.3, auto=auto)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / kept.size)
    np.testing.assert_allclose(y.detach().numpy()[kept], 1 / 0.7, rtol=1e-3)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_dropout_draws_anew_and_a_seed_repeats_it():
    x = mytorch.ones(100)
    mytorch.manual_seed(3)
    first, second = F.dropout(x), F.dropout(x)
    mytorch.manual_seed(3)
    assert (F.dropout(x) == first).all() and not (second == first).all()


@pytest.mark.parametrize("case", ["dropout", "attention"])
def test_the_variants_draw_the_same(case):
    x, q = Tensor(normal(30, 40)), Tensor(normal(2, 3, 20, 8))
    calls = {
        "dropout": lambda **choice: F.dropout(x, 0.4, **choice),
        "attention": lambda **choice: F.scaled_dot_product_attention(q, q, q, None, 0.4, True, **choice),
    }
    results = []
    for auto in (False, True):
        mytorch.manual_seed(1)
        results.append(calls[case](auto=auto).numpy())
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


def test_attention_with_dropout_has_the_gradient_of_its_reference():
    grads = []
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 6)
    for auto in (False, True):
        mytorch.manual_seed(1)
        xs = [Tensor(a, requires_grad=True) for a in (q, k, v)]
        F.scaled_dot_product_attention(*xs, dropout_p=0.3, auto=auto).square().sum().backward()
        grads.append([x.grad.numpy() for x in xs])
    for manual, reference in zip(*grads, strict=True):
        np.testing.assert_allclose(manual, reference, rtol=1e-4, atol=1e-5)


def test_dropout_in_evaluation_returns_its_input():
    x = mytorch.ones(3)
    assert F.dropout(x, 0.5, False) is x and F.dropout(x, 0.0) is x and F.dropout(x, 0.5, False, True) is x


@pytest.mark.parametrize("function", [F.relu, F.silu, F.dropout], ids=repr)
def test_inplace(function):
    x, before = mytorch.randn(50), mytorch.Tensor
    copy = x.clone()
    mytorch.manual_seed(0)
    y = function(x, inplace=True)
    mytorch.manual_seed(0)
    assert y is x and isinstance(y, before)
    np.testing.assert_array_equal(x.numpy(), function(copy).numpy())


# Embedding.


def test_embedding_max_norm_scales_the_rows_in_use():
    weight, index = 3 * normal(6, 4), np.array([[0, 2], [2, 5]])
    ours, theirs = Tensor(weight.copy(), requires_grad=True), torch.tensor(weight, requires_grad=True)
    for norm_type in (2.0, 1.0):
        got = F.embedding(mytorch.tensor(index), ours, max_norm=1.5, norm_type=norm_type)
        want = torch.nn.functional.embedding(torch.tensor(index), theirs, max_norm=1.5, norm_type=norm_type)
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)


# Softmax.


def test_softmax_is_a_method_and_a_function():
    x = normal(3, 4)
    for name in ("softmax", "log_softmax"):
        check(lambda t, n=name: getattr(t, n)(1), lambda t, n=name: getattr(t, n)(1), x)
        check(getattr(mytorch, name), getattr(torch, name), x, dim=0)
        check(getattr(mytorch, name), getattr(torch, name), x, dim=0, dtype=None)
        by_axis, by_dim = getattr(mytorch, name)(Tensor(x), axis=1), getattr(mytorch, name)(Tensor(x), 1)
        np.testing.assert_array_equal(by_axis.numpy(), by_dim.numpy())


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_casts_first(name):
    ours, theirs = getattr(F, name), getattr(torch.nn.functional, name)
    check(lambda t: ours(t, 0, dtype="float64"), lambda t: theirs(t, 0, dtype=torch.float64), normal(3, 4))
    check(lambda t: ours(t, 0, dtype="float32"), lambda t: theirs(t, 0, dtype=torch.float32), np.arange(3))


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")  # PyTorch's
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_softmax_chooses_a_dim_with_a_warning(shape):
    x = np.asarray(rng.standard_normal(shape), "float32")
    with pytest.warns(UserWarning, match="implicit choice of dim"):
        check(F.softmax, torch.nn.functional.softmax, x)


# Losses.


@pytest.mark.parametrize("size_average", [None, True, False])
@pytest.mark.parametrize("reduce", [None, True, False])
@pytest.mark.filterwarnings("ignore:size_average and reduce args")
def test_pytorch_s_old_names_of_the_reduction(size_average, reduce):
    x, y, t = normal(4, 3), normal(4, 3), np.array([0, 2, 1, 1])
    for name, target in (("mse_loss", y), ("nll_loss", t), ("cross_entropy", t)):
        ours, theirs = getattr(F, name), getattr(torch.nn.functional, name)
        check(ours, theirs, x, target, size_average=size_average, reduce=reduce)


@pytest.mark.parametrize("place", ["nn", "nn.functional"])
def test_the_old_names_are_where_pytorch_has_them(place):
    """By position, too: nn.CrossEntropyLoss(weight, size_average, ignore_index, reduce, reduction)."""
    theirs, ours = (operator.attrgetter(place)(package) for package in (torch, mytorch))
    wanted = {
        name: [*inspect.signature(getattr(theirs, name)).parameters]
        for name in dir(theirs) if re.search("_loss$|Loss$|cross_entropy|kl_div", name)
    }
    wanted = {name: names for name, names in wanted.items() if "size_average" in names}
    found = {name: [*inspect.signature(getattr(ours, name)).parameters] for name in wanted}
    assert len(wanted) > 15
    assert {name: names[: len(wanted[name])] for name, names in found.items()} == wanted


@pytest.mark.filterwarnings("ignore:size_average and reduce args")
def test_the_old_names_by_position():
    x, y, t = np.abs(normal(4, 3)), np.abs(normal(4, 3)), np.array([0, 2, 1, 1])
    calls = {
        "mse_loss": [(y, None, False), (y, None, None, "sum"), (y, True, True, "none")],
        "nll_loss": [(t, None, False), (t, None, None, 2), (t, None, None, 2, False)],
        "cross_entropy": [(t, None, False, -100, None, "mean", 0.1), (t, None, None, 1, None, "sum")],
        "poisson_nll_loss": [(y, True, False, False), (y, False, False, None, 1e-3, None, "sum")],
        "soft_margin_loss": [(np.sign(y), False, None)],
    }
    for name, rows in calls.items():
        for target, *rest in rows:
            ours = getattr(F, name)(mytorch.tensor(x), mytorch.tensor(target), *rest)
            theirs = getattr(torch.nn.functional, name)(torch.tensor(x), torch.tensor(target), *rest)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, err_msg=f"{name} {rest}")
    assert nn.CrossEntropyLoss(None, False, 3).ignore_index == 3
    assert nn.CrossEntropyLoss(None, False).reduction == nn.L1Loss(False).reduction == "sum"
    assert (
        nn.SmoothL1Loss(None, None, "none", 2.0).beta == 2
        and nn.BCELoss(None, None, False).reduction == "none"
    )


def test_wrong_calls_of_losses_with_old_names():
    x = Tensor(normal(3))
    for call, message in (
        (
            lambda: F.mse_loss(x, x, None, None, "sum", None, 1),
            r"^mse_loss\(\): too many positional arguments",
        ),
        (
            lambda: F.soft_margin_loss(x, x, None, size_average=True),
            r"^soft_margin_loss\(\): multiple values",
        ),
        (lambda: F.l1_loss(x, x, sizeaverage=True), r"^l1_loss\(\): got an unexpected keyword argument"),
        (lambda: nn.L1Loss(1, 2, "sum", 4), "too many positional arguments"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.filterwarnings("ignore:Using a target size")  # PyTorch's
def test_mse_loss_broadcasts_with_a_warning():
    with pytest.warns(UserWarning, match=r"\(4,\) is different from the input's, \(3, 4\)"):
        check(F.mse_loss, torch.nn.functional.mse_loss, normal(3, 4), normal(4))


def test_class_probabilities_have_a_gradient_and_so_has_their_weight():
    x, p, w = normal(5, 4), np.abs(normal(5, 4)), np.abs(normal(4))
    for kwargs in ({}, {"label_smoothing": 0.1}, {"reduction": "none"}):
        for auto in (False, True):
            check(
                lambda *xs, kw=kwargs, auto=auto: F.cross_entropy(*xs, auto=auto, **kw),
                lambda *xs, kw=kwargs: torch.nn.functional.cross_entropy(*xs, **kw), x, p, w,
            )


def test_an_overwritten_input_is_noticed():
    x = Tensor(normal(3, 4), requires_grad=True)
    h = x * 1
    y = F.layer_norm(h, (4,), fused=False)
    h += 1  # this variant saved no input, only what it made of it
    y.sum().backward()
    w = Tensor(normal(5, 4), requires_grad=True)
    y = F.linear(x * 1, w)
    with mytorch.no_grad():
        w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation: linear"):
        y.sum().backward()


# Attention.


def test_attention_lays_the_heads_of_a_token_side_by_side():
    qkv = Tensor(normal(2, 5, 36), requires_grad=True)
    q, k, v = (t.view(2, 5, 3, 4).transpose(1, 2) for t in qkv.split(12, 2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert y.shape == (2, 3, 5, 4) and y.transpose(1, 2).is_contiguous()


def test_attention_without_keys_in_sight_at_all():
    q, k = Tensor(normal(3, 4), requires_grad=True), Tensor(normal(2, 4), requires_grad=True)
    mask = mytorch.zeros(3, 2, dtype=bool)
    for auto in (False, True):
        y = F.scaled_dot_product_attention(q, k, k, mask, auto=auto)
        y.sum().backward()
        for result in (y.detach().numpy(), q.grad.numpy(), k.grad.numpy()):
            np.testing.assert_array_equal(result, 0)
