"""Attention from one projection: what is not copied, the cache, and wrong calls; `cases.py` is for values."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.functional.self_attention import heads_of_thirds, packed, side_by_side
from tests.every import every

VARIANTS = [{"auto": True}, {"fused": False}, {"fused": None}]


def test_nothing_is_taken_apart_or_put_together():
    """The heads are views, the gradients of all three lie in one array, and so does the result."""
    qkv = np.random.default_rng(0).standard_normal((2, 5, 36), "float32")
    q, k, v = heads_of_thirds(qkv, 3)
    assert [a.shape for a in (q, k, v)] == [(2, 3, 5, 4)] * 3
    assert every(np.shares_memory(a, qkv) for a in (q, k, v))
    result = np.zeros((2, 5, 3, 4), "float32").swapaxes(1, 2)

    def vjp(dy, thirds):
        for k, third in enumerate(thirds):
            third[...] = k
        return thirds

    y, grad = packed(lambda *_: (result, vjp), writes=True)(qkv, 3, None, None, False, 1.0, None)
    assert y.shape == (2, 5, 12) and np.shares_memory(y, result)
    np.testing.assert_array_equal(grad(y)[0], np.broadcast_to(np.arange(3).repeat(12), (2, 5, 36)))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_dropout_drops_what_it_drops_in_the_separate_heads(variant):
    """From one seed: the weights that are dropped are those of `scaled_dot_product_attention`."""
    qkv = mytorch.randn(2, 70, 24)
    q, k, v = (mytorch.tensor(a) for a in heads_of_thirds(qkv.numpy(), 2))
    mytorch.manual_seed(3)
    y = F.self_attention(qkv, 2, dropout_p=0.4, is_causal=True, **variant)
    mytorch.manual_seed(3)
    separate = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, is_causal=True, **variant)
    np.testing.assert_allclose(y.numpy(), side_by_side(separate.numpy()), rtol=1e-5, atol=1e-6)
    assert not np.allclose(y.numpy(), F.self_attention(qkv, 2, is_causal=True).numpy(), atol=1e-2)


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("fused", [None, False])
def test_with_a_cache(position, fused):
    qkv, caches = mytorch.randn(1, 3, 24), [mytorch.randn(1, 2, 6, 4) for _ in range(2)]
    expected = [torch.from_numpy(cache.numpy().copy()) for cache in caches]
    q, k, v = (torch.from_numpy(a) for a in heads_of_thirds(qkv.numpy(), 2))
    end = position + 3
    for cache, new in zip(expected, (k, v), strict=True):
        cache[:, :, position:end] = new
    seen = torch.ones(3, end, dtype=bool).tril(position)
    keys, values = (cache[:, :, :end] for cache in expected)
    want = torch.nn.functional.scaled_dot_product_attention(q, keys, values, seen)
    y = F.cached_self_attention(qkv, 2, *caches, position, fused=fused)
    np.testing.assert_allclose(y.numpy(), want.transpose(1, 2).flatten(2).numpy(), rtol=1e-5, atol=1e-6)
    for cache, written in zip(caches, expected, strict=True):
        np.testing.assert_array_equal(cache.numpy(), written.numpy())


def test_with_a_cache_there_is_no_gradient():
    caches = [mytorch.zeros(1, 2, 6, 4) for _ in range(2)]
    with pytest.raises(RuntimeError, match="is not differentiable"):
        F.cached_self_attention(mytorch.ones(1, 3, 24, requires_grad=True), 2, *caches, 0)


WRONG = {
    "two dims": (lambda: F.self_attention(mytorch.ones(3, 12), 2), r"expected qkv to be \(B, T, 3 C\)"),
    "not divisible": (lambda: F.self_attention(mytorch.ones(1, 3, 12), 3), r"num_heads=3, got shape"),
    "no heads": (lambda: F.self_attention(mytorch.ones(1, 3, 12), 0), "positive int, got 0"),
    "integers": (lambda: F.self_attention(mytorch.ones(1, 3, 12, dtype="int64"), 2), "int64"),
    "mask and causal": (
        lambda: F.self_attention(mytorch.ones(1, 3, 12), 2, mytorch.ones(3, 3), is_causal=True),
        "should not be set when is_causal=True",
    ),
    "mask": (lambda: F.self_attention(mytorch.ones(1, 3, 12), 2, mytorch.ones(3, 4)), "can't be broadcast"),
    "window": (lambda: F.self_attention(mytorch.ones(1, 3, 12), 2, sliding_window=2), "needs is_causal=True"),
    "cache": (
        lambda: F.cached_self_attention(
            mytorch.ones(1, 3, 24), 2, mytorch.ones(1, 2, 6, 4), mytorch.ones(1, 2, 6, 4), 4
        ),
        "3 tokens at position 4",
    ),
    "angles of other rows": (
        lambda: F.cached_self_attention(
            mytorch.ones(3, 1, 24), 2, *[mytorch.ones(3, 2, 6, 4)] * 2, 0, None, *[mytorch.ones(3, 2)] * 2
        ),
        r"cos \(3, 2\), sin \(3, 2\) can't be broadcast to \(3, 1, 1, 2\)",
    ),
    "odd heads": (
        lambda: F.cached_self_attention(
            mytorch.ones(1, 1, 18), 2, *[mytorch.ones(1, 2, 6, 3)] * 2, 0, None, *[mytorch.ones(1, 1)] * 2
        ),
        "3 features of a head",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_calls(call, message):
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        call()
