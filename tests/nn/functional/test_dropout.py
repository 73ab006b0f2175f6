"""Dropout of channels, alpha dropout, and dropout's gradients of gradients."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F
from mytorch.nn.functional.dropout import Draw

FUNCTIONS = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]


@pytest.mark.parametrize(
    ("name", "shape", "mask"),
    [
        ("dropout1d", (200, 30, 4), (200, 30)), ("dropout1d", (2000, 4), (2000,)),
        ("dropout2d", (200, 30, 2, 3), (200, 30)), ("dropout2d", (200, 30, 4), (200, 30)),
        ("dropout3d", (200, 30, 2, 1, 2), (200, 30)), ("dropout3d", (2000, 2, 1, 2), (2000,)),
        ("feature_alpha_dropout", (200, 30, 2, 3), (200, 30)),
    ],
)
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
@pytest.mark.parametrize("variant", [{"auto": True}, {"fused": False}, {"fused": True}], ids=str)
def test_attention_s_second_gradient_has_the_same_mask(variant, is_causal):
    """A second gradient reruns the reference: with another mask the first ones would differ, too."""
    rng = np.random.default_rng(0)
    q, k, v = (Tensor(a, requires_grad=True) for a in rng.standard_normal((3, 2, 40, 3)).astype("float32"))
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=is_causal, **variant)
    loss = (y * y).sum()
    wanted = mytorch.autograd.grad(loss, [q, k, v], retain_graph=True)
    for got, want in zip(mytorch.autograd.grad(loss, [q, k, v], create_graph=True), wanted, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def test_a_draw_of_p_itself_is_kept():
    """Uniform numbers lie in [0, 1): those below p drop an element, so that p = 0 keeps all."""
    x, drawn = np.ones(4, np.float32), np.array([0.0, 0.25, np.nextafter(0.25, 0), 0.75])
    for p, expected in ((0.25, [False, True, False, True]), (0.0, [True] * 4)):
        draw = Draw(mytorch.device("cpu"))
        draw.generator = SimpleNamespace(rng=SimpleNamespace(random=lambda shape, dtype: drawn))
        assert draw.mask(x, p).tolist() == expected
        assert draw.kept(x, p).tolist() == expected  # the mask that was drawn
