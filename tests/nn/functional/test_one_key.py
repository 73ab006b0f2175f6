"""A query that sees one key: its weight is 1 whatever the scores are, so their gradients are 0, not rounding
errors of sums that cancel. So is the gradient of the softmax of one number."""

import importlib.util

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F

LENGTH = 70  # two or three tiles, the last of which isn't full
VARIANTS = [{"auto": True}, {"fused": False}]
if importlib.util.find_spec("numba"):
    VARIANTS.append({"fused": True})
ONLY = np.eye(LENGTH, dtype=bool)
rng = np.random.default_rng(3)

# name: options, heads and number of the keys, the queries that see one key
ATTENTION = {
    "the first query of a causal mask": ({"is_causal": True}, 4, LENGTH, slice(1)),
    "a window of one key": ({"is_causal": True, "sliding_window": 1}, 4, LENGTH, slice(None)),
    "the last key of a window": ({"is_causal": True, "sliding_window": 30}, 4, 40, slice(68, 69)),
    "one key": ({}, 4, 1, slice(None)),
    "one key, causal": ({"is_causal": True}, 4, 1, slice(None)),
    "a bool mask": ({"attn_mask": ONLY}, 4, LENGTH, slice(None)),
    "a float mask": ({"attn_mask": np.where(ONLY, 3, -np.inf).astype("float32")}, 4, LENGTH, slice(None)),
    "shared keys": ({"is_causal": True, "enable_gqa": True}, 2, LENGTH, slice(1)),
    "dropout": ({"attn_mask": ONLY, "dropout_p": 0.5}, 4, LENGTH, slice(None)),
}


def tensor(*shape, dtype="float32"):
    x = 3 + 50 * rng.standard_normal(shape)
    return mytorch.tensor(x.astype(dtype), requires_grad=True)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name, variant):
    options, heads, keys, alone = ATTENTION[name]
    options = {k: mytorch.tensor(v) if k == "attn_mask" else v for k, v in options.items()}
    q, k, v = tensor(2, 4, LENGTH, 24), tensor(2, heads, keys, 24), tensor(2, heads, keys, 24)
    y = F.scaled_dot_product_attention(q, k, v, **options, **variant)
    g = np.zeros(y.shape, "float32")
    g[:, :, alone] = 50 * rng.standard_normal(g[:, :, alone].shape)
    y.backward(mytorch.tensor(g))
    assert not q.grad.numpy().any() and not k.grad.numpy().any()
    assert v.grad.numpy().any()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_gradient_of_a_mask(variant):
    q, k, v = (tensor(1, 2, LENGTH, 24) for _ in range(3))
    mask = mytorch.tensor(np.where(ONLY, 3, -np.inf).astype("float32"), requires_grad=True)
    F.scaled_dot_product_attention(q, k, v, mask, **variant).pow(2).sum().backward()
    assert not mask.grad.numpy().any()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_self_attention(variant):
    x = tensor(2, LENGTH, 3 * 32)
    y = F.self_attention(x, 2, is_causal=True, **variant)
    g = np.zeros(y.shape, "float32")
    g[:, 0] = 50 * rng.standard_normal(g[:, 0].shape)
    y.backward(mytorch.tensor(g))
    assert not x.grad.numpy()[..., :64].any() and x.grad.numpy()[..., 64:].any()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, variant):
    for shape, dim in (((30, 1), -1), ((1, 30), 0), ((7, 1, 5), 1)):
        x = tensor(*shape)
        getattr(F, name)(x, dim, **variant).mul(tensor(*shape)).sum().backward()
        assert not x.grad.numpy().any()
    x, g = tensor(30, 37), np.zeros((30, 37), "float32")  # and where only one weight isn't 0
    with mytorch.no_grad():
        x[:, 5] += 1e5
    g[:, 5] = 50 * rng.standard_normal(30)
    getattr(F, name)(x, -1, **variant).backward(mytorch.tensor(g))
    assert not x.grad.numpy().any()
