"""Attention without batches, heads, queries or keys: results are empty or zeros, and so are gradients."""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.fused_ops import registry

SHAPES = {  # what is missing: (query, key, value)
    "batches": ((0, 2, 5, 4), (0, 2, 7, 4), (0, 2, 7, 6)),
    "heads": ((2, 0, 5, 4), (2, 0, 7, 4), (2, 0, 7, 6)),
    "heads of one": ((2, 0, 5, 4), (2, 1, 7, 4), (2, 1, 7, 6)),
    "queries": ((2, 3, 0, 4), (2, 3, 7, 4), (2, 3, 7, 6)),
    "keys": ((2, 3, 5, 4), (2, 3, 0, 4), (2, 3, 0, 6)),
    "features of values": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 0)),
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("missing", SHAPES)
def test_nothing(missing, fused, is_causal):
    if fused and registry.why_not("cpu"):
        pytest.skip(registry.why_not("cpu"))
    shapes = SHAPES[missing]
    q, k, v = (mytorch.ones(*shape, requires_grad=True) for shape in shapes)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, fused=fused)
    y.sum().backward()
    assert y.shape == (*shapes[0][:-1], shapes[2][-1]) and not np.any(y.detach().numpy())
    for x, shape in zip((q, k, v), shapes, strict=True):
        assert x.grad.shape == shape and not np.any(x.grad.numpy())
