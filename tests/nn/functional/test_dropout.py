"""Dropout of channels, alpha dropout, and dropout's gradients of gradients."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F

FUNCTIONS = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]


@pytest.mark.parametrize(
    ("name", "shape", "mask"),
    [
        ("dropout1d", (200, 30, 4), (200, 30)), ("dropout1d", (2000, 4), (2000,)),
        ("dropout2d", (200, 30, 2, 3), (200, 30)), ("dropout2d", (200, 30, 4), (200, 30)),
        ("dropout3d", (200, 30, 2, 1, 2), (200, 30)), ("dropout3d", (2000, 2, 1, 2), (2000,)),
        ("feature_alpha_dropout", (200, 30, 2, 3), (200, 30)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:dropout2d")
def test_whole_channels_are_dropped(name, shape, mask):
    mytorch.manual_seed(0)
    x = mytorch.ones(*shape, requires_grad=True)
    y = getattr(F, name)(x, 0.3, True)
    channels = y.detach().numpy().reshape(*mask, -1)
    assert (channels == channels[..., :1]).all()
    low, high = np.unique(channels)
    assert abs((channels == low).mean() - 0.3) < 0.05
    if name.startswith("dropout"):
        assert low == 0 and high == np.float32(1 / 0.7)
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name):
    mytorch.manual_seed(0)
    x = mytorch.randn(1000, 400, requires_grad=True)
    y = getattr(F, name)(x, 0.2, True)
    assert abs(float(y.mean().item())) < 0.01 and abs(float(y.var().item()) - 1) < 0.01
    torch.manual_seed(0)
    for value in (1.0, -2.0):  # what a 1 and what a -2 become, kept or dropped, are PyTorch's numbers
        got = np.unique(getattr(F, name)(mytorch.full((50, 40), value), 0.2, True).numpy())
        want = np.unique(getattr(torch.nn.functional, name)(torch.full((50, 40), value), 0.2, True).numpy())
        np.testing.assert_allclose(got, want, rtol=1e-6)
    y.sum().backward()
    assert len(np.unique(x.grad.numpy())) == 2


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:dropout")
def test_as_pytorch_at_the_edges(name):
    function, theirs = getattr(F, name), getattr(torch.nn.functional, name)
    x = mytorch.ones(2, 3, 4)
    assert function(x, 0.5, False) is x and function(x, 0.0, True) is x
    assert not function(x, 1.0, True).any()
    for shape in ((), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 1)):
        try:
            want = tuple(theirs(torch.ones(shape), 0.5, True).shape)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                function(mytorch.ones(shape), 0.5, True)
        else:
            assert tuple(function(mytorch.ones(shape), 0.5, True).shape) == want
    with pytest.raises(ValueError, match="between 0 and 1, but got -0.1"):
        function(x, -0.1)
    with pytest.raises(RuntimeError, match="int64"):
        function(mytorch.ones(2, 3, 4, dtype=mytorch.int64), 0.5, True)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:dropout")
def test_in_place(name):
    x = mytorch.ones(30, 20, 3)
    assert getattr(F, name)(x, 0.5, True, True) is x
    assert len(np.unique(x.numpy())) == 2
    leaf = mytorch.ones(3, 2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(F, name)(leaf, 0.5, True, True)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:dropout")
def test_dtypes(name, dtype):
    y = getattr(F, name)(mytorch.ones(2, 3, 4, dtype=getattr(mytorch, dtype)), 0.5, True)
    assert y.dtype == dtype


def test_a_gradient_of_a_gradient_has_the_same_mask():
    mytorch.manual_seed(0)
    x = Tensor(np.linspace(0.5, 2, 40), requires_grad=True)
    y = F.dropout(x * x, 0.5)
    kept = y.detach().numpy() != 0
    (g,) = mytorch.autograd.grad(y.sum(), x, create_graph=True)
    (gg,) = mytorch.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(gg.numpy(), np.where(kept, 4, 0))


@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_s_second_gradient_has_the_same_mask(is_causal):
    """With ones for values a result says how much of its weights was kept."""
    rng = np.random.default_rng(0)
    q, k = (Tensor(rng.standard_normal((2, 4, 3)), requires_grad=True) for _ in range(2))
    v = Tensor(rng.standard_normal((2, 4, 3)), requires_grad=True)

    def second(**variant):
        mytorch.manual_seed(1)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=is_causal, **variant)
        grads = mytorch.autograd.grad((y * y).sum(), [q, k, v], create_graph=True)
        return mytorch.autograd.grad(sum((g * g).sum() for g in grads), [q, k, v])

    for got, want in zip(second(), second(auto=True), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-12)


WRONG = {
    "float": ([0.5], {}, "int64, got float32"),
    "negative": ([-1, 2], {}, "-1 to 2"),
    "too large": ([0, 2], {"num_classes": 2}, "0 to 2 and 2"),
    "empty": (np.zeros(0, "int64"), {}, "empty"),
    "no classes": ([0], {"num_classes": 0}, "0 to 0 and 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_hot_refuses(name):
    values, options, message = WRONG[name]
    for t, match in ((torch, ""), (mytorch, message)):
        with pytest.raises(RuntimeError, match=match):
            t.nn.functional.one_hot(t.tensor(values), **options)


def test_one_hot_of_no_elements():
    assert F.one_hot(mytorch.zeros(0, 2, dtype=mytorch.int64), 3).shape == (0, 2, 3)


X1, X2, W = np.ones((2, 3), "float32"), np.ones((2, 4), "float32"), np.ones((5, 3, 4), "float32")
BILINEAR = {
    "first": ([X2, X2, W], "don't fit"), "second": ([X1, X1, W], "don't fit"),
    "leading dims": ([X1, X2[:1], W], "don't fit"), "weight": ([X1, X2, W[0]], "don't fit"),
    "bias": ([X1, X2, W, W[:4, 0, 0]], r"bias of shape \(5,\), got \(4,\)"),
    "dtypes": ([X1.astype("float64"), X2, W], "float32.*float64"),
    "bool": ([X1 > 0, X2 > 0, W > 0], "bool"), "no dims": ([X1[0, 0], X2[0, 0], W], "at least 1 dimension"),
}  # fmt: skip


@pytest.mark.parametrize("name", BILINEAR)
def test_bilinear_refuses(name):
    arrays, message = BILINEAR[name]
    with pytest.raises(Exception) as theirs:
        torch.nn.functional.bilinear(*(torch.from_numpy(np.array(a)) for a in arrays))
    with pytest.raises(theirs.type, match=message):
        F.bilinear(*(Tensor(np.array(a)) for a in arrays))


def test_bilinear_of_integers():
    shapes = (2, 3), (2, 4), (5, 3, 4), (5,)
    arrays = [np.arange(np.prod(shape)).reshape(shape) for shape in shapes]
    got = F.bilinear(*map(Tensor, arrays))
    want = torch.nn.functional.bilinear(*map(torch.from_numpy, arrays))
    assert got.dtype == np.int64 and got.tolist() == want.tolist()
