"""What `cached_attention` does to its caches, and which calls it refuses; `cases.py` is for its values."""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F

VARIANTS = [{"auto": True}, {"fused": False}, {"fused": None}]


def tensors(queries=2, size=6, heads=3, features=4):
    new = [mytorch.randn(1, heads, queries, features) for _ in range(3)]
    return [*new, *(mytorch.randn(1, heads, size, features) for _ in range(2))]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_it_writes_the_new_tokens_and_nothing_else(variant):
    query, key, value, key_cache, value_cache = tensors()
    before = [cache.numpy().copy() for cache in (key_cache, value_cache)]
    F.cached_attention(query, key, value, key_cache, value_cache, 3, **variant)
    for cache, old, new in zip((key_cache, value_cache), before, (key, value), strict=True):
        old[:, :, 3:5] = new.numpy()
        np.testing.assert_array_equal(cache.numpy(), old)


def test_who_saved_a_cache_for_backward_notices():
    query, key, value, key_cache, value_cache = tensors()
    for cache in (key_cache, value_cache):
        x = mytorch.ones(4, requires_grad=True)
        y = (x * cache).sum()
        F.cached_attention(query, key, value, key_cache, value_cache, 0)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.backward()


@pytest.mark.parametrize("which", range(5))
def test_it_has_no_gradient_and_says_so(which):
    arguments = tensors()
    arguments[which].requires_grad_()
    before = arguments[3].detach().numpy().copy()
    with pytest.raises(RuntimeError, match="is not differentiable; call it under no_grad"):
        F.cached_attention(*arguments, 0)
    np.testing.assert_array_equal(arguments[3].detach().numpy(), before)
    with mytorch.no_grad():
        assert not F.cached_attention(*arguments, 0).requires_grad


WRONG = {
    "too many tokens": ({"position": 5}, "2 tokens at position 5 exceed caches of 6"),
    "negative position": ({"position": -1}, "2 tokens at position -1"),
    "three dims": ({"query": (3, 2, 4)}, "shapes do not match"),
    "features of keys": ({"key": (1, 3, 2, 5)}, "shapes do not match"),
    "tokens": ({"value": (1, 3, 1, 4)}, "shapes do not match"),
    "caches of two sizes": ({"value_cache": (1, 3, 7, 4)}, "shapes do not match"),
    "heads": ({"query": (1, 6, 2, 4)}, r"shapes do not match \(enable_gqa=False\)"),
    "batch": ({"query": (2, 3, 2, 4)}, "shapes do not match"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_wrong_calls(changes, message):
    names = ("query", "key", "value", "key_cache", "value_cache")
    arguments = dict(zip(names, tensors(), strict=True)) | {"position": 1}
    arguments |= {n: mytorch.zeros(*s) if isinstance(s, tuple) else s for n, s in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        F.cached_attention(**arguments)


def test_wrong_dtypes():
    query, *rest = tensors()
    with pytest.raises(RuntimeError, match="dtypes or devices differ: float64 on cpu, float32 on cpu"):
        F.cached_attention(query.double(), *rest, 1)
    with pytest.raises(RuntimeError, match="int64"):
        F.cached_attention(*(t.long() for t in (query, *rest)), 1)
