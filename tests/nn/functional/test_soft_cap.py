"""Soft caps of attention's scores, against transformers' Gemma 2; `cases.py` has those of `soft_cap`."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.models.gemma2 import modeling_gemma2

import mytorch
from mytorch.nn import functional as F
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


CAUSAL = np.tril(np.ones((70, 70), bool))
MASKS = {  # options here, and the mask there
    "none": ({}, None),
    "causal": ({"is_causal": True}, CAUSAL),
    "window": ({"is_causal": True, "sliding_window": 9}, np.triu(CAUSAL, -8)),
    "bool": ({"attn_mask": CAUSAL[::-1].copy()}, CAUSAL[::-1]),
    "float": ({"attn_mask": (bias := normal(1, 2, 70, 70))}, bias),
}


@pytest.mark.parametrize("variant", [{"auto": True}, {"fused": False}, {}], ids=str)
@pytest.mark.parametrize(("options", "mask"), MASKS.values(), ids=MASKS)
def test_gemma_2_s_attention(options, mask, variant):
    """Scores of 1 to 20 are capped at 3, also in several tiles of queries."""
    options = {name: mytorch.tensor(a) if isinstance(a, np.ndarray) else a for name, a in options.items()}
    module = SimpleNamespace(num_key_value_groups=2, training=False)
    if mask is not None and mask.dtype == bool:
        mask = np.where(mask, 0, -np.inf).astype("float32")
    mask = None if mask is None else torch.tensor(mask).expand(1, 2, 70, 70)

    def oracle(q, k, v):
        y, _ = modeling_gemma2.eager_attention_forward(module, q, k, v, mask, scaling=0.5, softcap=3.0)
        return y.transpose(1, 2)

    check(
        lambda *xs: F.scaled_dot_product_attention(
            *xs, scale=0.5, enable_gqa=True, soft_cap=3.0, **options, **variant
        ),
        oracle, 3 * normal(2, 2, 70, 8), 3 * normal(2, 1, 70, 8), normal(2, 1, 70, 8), rtol=1e-4, atol=2e-5,
    )


def test_several_tiles_and_the_gradient_of_a_mask():
    q, k, v, mask = normal(1, 2, 200, 8), normal(1, 2, 150, 8), normal(1, 2, 150, 8), normal(200, 150)

    def run(variant, **options):
        xs = [mytorch.tensor(a, requires_grad=True) for a in (q, k, v, mask)]
        chosen = xs[:3] if options else xs
        y = F.scaled_dot_product_attention(*chosen, soft_cap=0.5, **options, **variant)
        (y * mytorch.tensor(v[:, :, :1])).sum().backward()
        return [y.detach().numpy(), *(x.grad.numpy() for x in chosen)]

    for options in ({}, {"is_causal": True}, {"is_causal": True, "sliding_window": 30}):
        for got, want in zip(run({"fused": False}, **options), run({"auto": True}, **options), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_is_refused():
    q = mytorch.ones(1, 2, 5, 8)
    with pytest.raises(RuntimeError, match="soft_cap must be positive, got 0"):
        F.scaled_dot_product_attention(q, q, q, soft_cap=0)
    with pytest.raises(RuntimeError, match="fused=True, but the kernel has no soft cap"):
        F.scaled_dot_product_attention(q, q, q, soft_cap=1.0, fused=True)
