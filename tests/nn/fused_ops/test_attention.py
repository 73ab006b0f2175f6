"""The CPU's attention kernels where tiles, windows, pieces and layouts meet; plain cases are in `cases`."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.functional.dropout import Draw
from tests.nn.functional.oracles import ORACLES
from tests.oracle import check

pytest.importorskip("numba")
from mytorch.nn.fused_ops.numba import attention as kernels  # noqa: E402
from mytorch.nn.fused_ops.numba import attention_parts  # noqa: E402

TILE = kernels.TILE
rng = np.random.default_rng(11)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


def compare(*arrays, atol=1e-5, **kwargs):
    def ours(*xs):
        return F.scaled_dot_product_attention(*xs, **kwargs, fused=True)

    def theirs(*xs):
        return ORACLES["scaled_dot_product_attention"](*xs, **kwargs)

    check(ours, theirs, *arrays, rtol=1e-4, atol=atol)


LENGTHS = [1, TILE - 1, TILE, TILE + 1, 2 * TILE, 3 * TILE + 5, 4 * TILE, 5 * TILE - 1]


@pytest.mark.parametrize("keys", [1, TILE, 2 * TILE + 3, 5 * TILE])
@pytest.mark.parametrize("queries", LENGTHS)
def test_every_number_of_tiles(queries, keys):
    for is_causal in (False, True):
        compare(normal(1, 2, queries, 6), normal(1, 2, keys, 6), normal(1, 2, keys, 5), is_causal=is_causal)


@pytest.mark.parametrize("window", [1, 2, TILE - 1, TILE, TILE + 1, 2 * TILE, 1000])
@pytest.mark.parametrize("keys", [TILE + 3, 3 * TILE + 5, 6 * TILE])
def test_windows(keys, window):
    queries = 3 * TILE + 5
    compare(
        normal(1, 2, queries, 4), normal(1, 2, keys, 4), normal(1, 2, keys, 4), is_causal=True,
        sliding_window=window,
    )


@pytest.mark.parametrize("window", [0, 1, 5, TILE, 100])
@pytest.mark.parametrize("keys", [40, 200, 300])
def test_keys_that_no_query_of_a_tile_sees_are_not_computed(keys, window):
    """The kernels, forward and backward, multiply a tile with `seen` keys; 0 stands for no window."""
    queries = 200
    sees = np.tril(np.ones((queries, keys), bool))
    sees &= ~np.tril(sees, -window) if window else True
    for first in range(0, queries, TILE):
        last = min(first + TILE, queries)
        visible = np.flatnonzero(sees[first:last].any(0))
        oldest, end = attention_parts.seen.py_func(first, last, keys, (1.0, True, window, 0))
        assert [*range(oldest, end)] == visible.tolist()


@pytest.mark.parametrize("features", [(1, 1), (3, 7), (32, 32), (40, 64), (128, 96), (256, 256)])
def test_sizes_of_heads(features):
    e, ev = features
    compare(normal(2, 3, 70, e), normal(2, 3, 70, e), normal(2, 3, 70, ev), is_causal=True)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (7, 7), (6, 1), (6, 2), (9, 9), (24, 8)])
def test_numbers_of_heads(heads, kv_heads):
    q, k, v = normal(heads, 100, 8), normal(kv_heads, 120, 8), normal(kv_heads, 120, 8)
    compare(q, k, v, enable_gqa=True, is_causal=True)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 11])
def test_pieces_of_a_head_don_t_depend_on_the_threads(heads):
    """Few heads are split up, many aren't; the sums are the same ones with any number of threads."""
    arrays = [normal(1, heads, 200, 8) for _ in range(3)]

    def gradients(threads):
        before = mytorch.get_num_threads()
        mytorch.set_num_threads(threads)
        try:
            xs = [mytorch.Tensor(a, requires_grad=True) for a in arrays]
            F.scaled_dot_product_attention(*xs, is_causal=True, fused=True).square().sum().backward()
        finally:
            mytorch.set_num_threads(before)
        return [x.grad.numpy() for x in xs]

    most = mytorch.get_num_threads()
    for one, many in zip(gradients(1), gradients(most), strict=True):
        np.testing.assert_array_equal(one, many)


MASKS = {
    "bool": normal(90, 80) > -0.5,
    "heads": normal(3, 90, 80) > 0,
    "keys": normal(2, 1, 1, 80) > 0,
    "queries": normal(2, 3, 90, 1) > 0,
    "added": normal(2, 1, 90, 80),
    "added to keys": normal(1, 1, 1, 80),
    "all hidden": np.zeros((90, 80), bool),
    "one number": np.float32(2).reshape(1, 1),
    "transposed": normal(80, 90).T,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks(mask):
    compare(normal(2, 3, 90, 8), normal(2, 3, 80, 8), normal(2, 3, 80, 8), mask)


def test_rows_without_keys_give_zeros_and_no_gradient():
    mask = np.ones((70, 50), bool)
    mask[[0, 33, 69]] = False
    q, k, v = (mytorch.Tensor(normal(2, n, 8), requires_grad=True) for n in (70, 50, 50))
    y = F.scaled_dot_product_attention(q, k, v, mytorch.Tensor(mask), fused=True)
    y.sum().backward()
    assert not y.detach().numpy()[:, [0, 33, 69]].any() and not q.grad.numpy()[:, [0, 33, 69]].any()
    assert np.isfinite(k.grad.numpy()).all() and np.isfinite(v.grad.numpy()).all()


def test_huge_scores():
    """The largest of a row is subtracted before powers are taken, in backward, too. Gradients reach 300."""
    q, k, v = 300 * normal(2, 40, 8), 300 * normal(2, 40, 8), normal(2, 40, 8)
    compare(q, k, v, is_causal=True, atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", range(3))
def test_what_isn_t_finite_comes_out_as_in_the_hand_derived_variant(which, value):
    arrays = [normal(1, 40, 4) for _ in range(3)]
    arrays[which][0, 37, 1] = value

    def run(**variant):
        xs = [mytorch.Tensor(a, requires_grad=True) for a in arrays]
        y = F.scaled_dot_product_attention(*xs, **variant)
        y.sum().backward()
        return [y.detach().numpy(), *(x.grad.numpy() for x in xs)]

    for got, want in zip(run(fused=True), run(fused=False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("which", "value"),
    [(0, np.nan), (0, np.inf), (0, -np.inf), (1, np.nan), (2, np.nan), (2, np.inf), (2, -np.inf)],
)
def test_newer_keys_have_no_part_in_what_isn_t_finite(which, value):
    """In one tile, where PyTorch has one, too: the zeros of others' gradients times NaN are NaN there.

    An infinite query has no weights but NaN, as one with NaN. In PyTorch that depends on how the processor's
    matrix product pads.
    """
    arrays = [normal(1, 2, TILE - 2, 8) for _ in range(3)]
    arrays[which][0, 0, 17, 3] = value

    def ours(*xs):
        return F.scaled_dot_product_attention(*xs, is_causal=True, fused=True)

    def theirs(q, k, v):
        q = q * torch.where(q.isinf(), np.nan, 1)
        return ORACLES["scaled_dot_product_attention"](q, k, v, is_causal=True)

    check(ours, theirs, *arrays, rtol=1e-4, atol=1e-5)


def test_the_gradients_of_one_projection_lie_side_by_side():
    x = mytorch.Tensor(normal(2, 40, 3, 4, 8), requires_grad=True)
    doubled, seen = x * 2, []
    doubled.register_hook(lambda g: seen.append(g.numpy()))
    y = F.scaled_dot_product_attention(*doubled.permute(2, 0, 3, 1, 4).unbind(), is_causal=True, fused=True)
    assert y.transpose(1, 2).is_contiguous()  # joining heads needs no copy, either
    y.square().sum().backward()
    assert seen[0].base is not None and seen[0].flags.c_contiguous
    want = torch.tensor(x.detach().numpy(), requires_grad=True)
    y = torch.nn.functional.scaled_dot_product_attention(
        *(want * 2).permute(2, 0, 3, 1, 4).unbind(), is_causal=True
    )
    y.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy(), rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"is_causal": True, "sliding_window": 20}], ids=str
)
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_is_that_of_the_reference(p, options):
    arrays = [normal(2, 3, n, 8) for n in (70, 50, 50)]

    def run(**variant):
        mytorch.manual_seed(5)
        xs = [mytorch.Tensor(a, requires_grad=True) for a in arrays]
        y = F.scaled_dot_product_attention(*xs, dropout_p=p, **options, **variant)
        y.square().sum().backward()
        return [y.detach().numpy(), *(x.grad.numpy() for x in xs)]

    for got, want in zip(run(fused=True), run(auto=True), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_dropout_keeps_no_mask():
    q = mytorch.Tensor(normal(1, 2, 40, 8), requires_grad=True)
    draws = []
    original = Draw.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draw, "__init__", lambda self, like: (original(self, like), draws.append(self))[0])
        F.scaled_dot_product_attention(q, q, q, dropout_p=0.5, fused=True).sum().backward()
    assert len(draws) == 1 and draws[0]._mask is None


def test_what_the_kernel_doesn_t_take():
    q, k, v = (mytorch.Tensor(normal(heads, 5, 4)) for heads in (6, 3, 2))
    with pytest.raises(RuntimeError, match="the same number of heads, got 3 and 2"):
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True, fused=True)
    with pytest.raises(RuntimeError, match="kernels compute in float32: none for float64"):
        F.scaled_dot_product_attention(q.double(), q.double(), q.double(), fused=True)


@pytest.mark.parametrize("queries", [1, 3])
def test_the_cache_is_read_where_it_lies(queries):
    """In any layout whose rows are contiguous, as in (batch, size, heads, features), or in none."""
    layouts = [lambda a: a, lambda a: a.transpose(1, 2).contiguous().transpose(1, 2), lambda a: a[..., ::2]]
    query, key, value = (mytorch.randn(2, 3, queries, 8) for _ in range(3))
    for layout in layouts:
        features = 8 * (1 + (layout is layouts[-1]))
        caches = [layout(mytorch.randn(2, 3, 200, features)) for _ in range(2)]
        got = F.cached_attention(query, key, value, *caches, 150, fused=True)
        want = F.cached_attention(query, key, value, *caches, 150, auto=True)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)
