"""Multi-head attention and the Transformer's layers: every kind of mask, batches, hints and errors."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import functional as F
from tests.oracle import check

rng = np.random.default_rng(0)
L, S, N, E, HEADS = 3, 5, 2, 4, 2


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def blocked(*shape):
    """A bool mask that leaves every query a key."""
    mask = rng.random(shape) < 0.4
    mask[..., 0] = False
    return mask


MASKS = {
    "none": {},
    "bool": {"attn_mask": blocked(L, S)},
    "float": {"attn_mask": normal(L, S)},
    "of heads": {"attn_mask": blocked(N * HEADS, L, S)},
    "keys": {"key_padding_mask": blocked(N, S)},
    "float keys": {"key_padding_mask": normal(N, S)},
    "both": {"attn_mask": blocked(L, S), "key_padding_mask": blocked(N, S)},
    "of heads and keys": {"attn_mask": normal(N * HEADS, L, S), "key_padding_mask": normal(N, S)},
}
MODULES = {
    "plain": {},
    "no bias": {"bias": False},
    "more keys": {"add_bias_kv": True, "add_zero_attn": True},
    "other features": {"kdim": 3, "vdim": 6},
    "batch first": {"batch_first": True, "add_zero_attn": True},
}


def pair(options):
    ours, theirs = (t.nn.MultiheadAttention(E, HEADS, **options) for t in (mytorch, torch))
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.from_numpy(normal(*p.shape)))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def in_both(masks):
    return tuple({k: make(v) for k, v in masks.items()} for make in (Tensor, torch.from_numpy))


@pytest.mark.parametrize("need", [{}, {"need_weights": False}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("options", MODULES.values(), ids=MODULES)
def test_masks(options, masks, need):
    ours, theirs = pair(options)
    shapes = [(L, N, E), (S, N, options.get("kdim", E)), (S, N, options.get("vdim", E))]
    inputs = [normal(*shape) for shape in shapes]
    if options.get("batch_first"):
        inputs = [x.swapaxes(0, 1).copy() for x in inputs]
    mine, his = in_both(masks)
    check(
        lambda *xs: [y for y in ours(*xs, **mine, **need) if y is not None],
        lambda *xs: [y for y in theirs(*xs, **his, **need) if y is not None],
        *inputs, rtol=1e-4, atol=1e-4,
    )
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("masks", ["none", "bool", "of heads", "keys"])
def test_one_sequence(masks):
    masks = {
        k: v[0] if k == "key_padding_mask" else v[: HEADS if v.ndim == 3 else L]
        for k, v in MASKS[masks].items()
    }
    ours, theirs = pair({})
    mine, his = in_both(masks)
    check(lambda *xs: ours(*xs, **mine), lambda *xs: theirs(*xs, **his), normal(L, E), *[normal(S, E)] * 2)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_attention_of_a_tensor_over_itself_is_one_product(need_weights, batched, monkeypatch):
    ours, theirs = pair({"batch_first": True})
    x = normal(N, L, E) if batched else normal(L, E)

    def call(module):
        return lambda x: module(x, x, x, need_weights=need_weights)[0]

    check(call(ours), call(theirs), x, atol=1e-5)
    calls = []
    linear = F.multi_head_attention.linear
    monkeypatch.setattr(F.multi_head_attention, "linear", lambda *args: calls.append(1) or linear(*args))
    ours(*[Tensor(x)] * 3)
    assert len(calls) == 2  # and the one that joins the heads


def test_a_causal_hint_stands_for_the_mask():
    ours, _ = pair({})
    x = Tensor(normal(L, N, E))
    mask = nn.Transformer.generate_square_subsequent_mask(L)
    for need_weights in (True, False):
        want = ours(x, x, x, attn_mask=mask, need_weights=need_weights)[0]
        got = ours(x, x, x, attn_mask=mask, need_weights=need_weights, is_causal=True)[0]
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_given_keys_and_values():
    ours, theirs = pair({})
    k, v, x = normal(N * HEADS, 6, E // HEADS), normal(N * HEADS, 6, E // HEADS), normal(L, N, E)

    def call(t, module):
        def function(x, k, v):
            m = module
            return t.nn.functional.multi_head_attention_forward(
                x, x, x, E, HEADS, m.in_proj_weight, m.in_proj_bias, None, None, False, 0.0,
                m.out_proj.weight, m.out_proj.bias, static_k=k, static_v=v,
            )

        return function

    check(call(mytorch, ours), call(torch, theirs), x, k, v, rtol=1e-4, atol=1e-5)


def test_dropped_weights_are_returned():
    layer = nn.MultiheadAttention(E, HEADS, dropout=0.5)
    x = mytorch.ones(50, 4, E)
    weights = layer(x, x, x, average_attn_weights=False)[1].detach().numpy()
    assert set(np.unique(weights.round(5))) == {0, np.float32(0.04)}
    assert abs((weights == 0).mean() - 0.5) < 0.05
    assert (layer.eval()(x, x, x)[1].detach().numpy() > 0).all()


X, K = normal(L, N, E), normal(S, N, E)
WRONG = {
    "heads": (lambda t: t.nn.MultiheadAttention(5, 2), "embed_dim 5 must be divisible by num_heads 2"),
    "no features": (lambda t: t.nn.MultiheadAttention(0, 2), "greater than 0"),
    "features": (lambda t: call(t, X[..., :2], K, K), r"query \(3, 2, 2\)"),
    "dims": (lambda t: call(t, X[None], K, K), "2-D, or batched and 3-D"),
    "batched keys": (lambda t: call(t, X[:, 0], K, K), "2-D, or batched and 3-D"),
    "values": (lambda t: call(t, X, K, K[:2]), "same length"),
    "mask": (lambda t: call(t, X, K, K, attn_mask=blocked(S, L)), r"\(5, 3\), but should be \(3, 5\)"),
    "mask of heads": (lambda t: call(t, X, K, K, attn_mask=blocked(3, L, S)), r"but should be .*\(4, 3, 5\)"),
    "mask's dims": (lambda t: call(t, X, K, K, attn_mask=blocked(S)), "2 or 3 dims"),
    "mask's dtype": (lambda t: call(t, X, K, K, attn_mask=np.ones((L, S), int)), "int64"),
    "keys' mask": (lambda t: call(t, X, K, K, key_padding_mask=blocked(N, L)), r"\(2, 5\), got \(2, 3\)"),
    "keys' mask's dims": (lambda t: call(t, X, K, K, key_padding_mask=blocked(S)), "2 dims"),
    "hint": (lambda t: call(t, X, K, K, is_causal=True), "is_causal needs an attn_mask"),
    "activation": (lambda t: t.nn.TransformerEncoderLayer(4, 2, activation="tanh"), "'tanh'"),
    "encoder's mask": (
        lambda t: t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(4, 2, 6, 0.0), 1)(
            tensor(t, X), tensor(t, blocked(L, S))
        ),
        r"\(3, 5\), but should be \(3, 3\)",
    ),
    "batches": (lambda t: t.nn.Transformer(4, 2, 1, 1, 5)(tensor(t, X), tensor(t, K[:, :1])), "batch number"),
    "d_model": (lambda t: t.nn.Transformer(8, 2, 1, 1, 5)(tensor(t, X), tensor(t, K)), "d_model, 8"),
}


def tensor(t, a):
    return t.tensor(a.tolist(), dtype=getattr(t, str(a.dtype)))


def call(t, *inputs, **masks):
    layer = t.nn.MultiheadAttention(E, HEADS)
    masks = {k: v if v is True else tensor(t, v) for k, v in masks.items()}
    return layer(*(tensor(t, x) for x in inputs), **masks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    function, message = WRONG[name]
    with pytest.raises(Exception) as theirs:
        function(torch)
    with pytest.raises(theirs.type, match=message):
        function(mytorch)


# The Transformer's layers.

CAUSAL = np.triu(np.full((L, L), -np.inf, "float32"), 1)
PADDING = np.array([[False, False, True], [False, False, False]])


def same_weights(ours, theirs):
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.from_numpy(normal(*p.shape)))
    ours.load_state_dict(theirs.state_dict())


def compare(make, inputs, masks):
    """`make` in both, with random weights: the same result, the same gradients of all weights."""
    ours, theirs = make(mytorch), make(torch)
    same_weights(ours, theirs)
    mine = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()}
    his = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()}
    check(lambda *xs: ours(*xs, **mine), lambda *xs: theirs(*xs, **his), *inputs, rtol=1e-3, atol=1e-4)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(
    "masks",
    [
        {}, {"mask": CAUSAL}, {"mask": CAUSAL < 0}, {"mask": CAUSAL, "is_causal": True},
        {"mask": blocked(L, L)}, {"mask": CAUSAL < 0, "src_key_padding_mask": PADDING},
    ],
    ids=["none", "causal", "bool", "hint", "other", "padding"],
)
def test_encoder(masks, norm_first):
    def make(t):
        layer = t.nn.TransformerEncoderLayer(E, HEADS, 6, 0.0, norm_first=norm_first)
        return t.nn.TransformerEncoder(layer, 2, t.nn.LayerNorm(E), enable_nested_tensor=False)

    compare(make, [normal(L, N, E)], masks)


@pytest.mark.parametrize(
    "masks",
    [
        {}, {"tgt_mask": CAUSAL}, {"tgt_mask": CAUSAL < 0, "tgt_is_causal": True},
        {"memory_mask": blocked(L, S), "tgt_key_padding_mask": PADDING},
        {"memory_key_padding_mask": blocked(N, S), "tgt_mask": CAUSAL < 0},
    ],
    ids=["none", "causal", "hint", "memory", "padding"],
)
def test_decoder(masks):
    def make(t):
        return t.nn.TransformerDecoder(t.nn.TransformerDecoderLayer(E, HEADS, 6, 0.0, "gelu"), 2)

    compare(make, [normal(L, N, E), normal(S, N, E)], masks)


def test_transformer_with_all_masks():
    masks = {
        "src_mask": blocked(S, S), "tgt_mask": CAUSAL < 0, "memory_mask": blocked(L, S),
        "src_key_padding_mask": blocked(N, S), "tgt_key_padding_mask": PADDING,
        "memory_key_padding_mask": blocked(N, S),
    }
    compare(lambda t: t.nn.Transformer(E, HEADS, 1, 1, 6, 0.0), [normal(S, N, E), normal(L, N, E)], masks)


def test_a_transformer_of_other_parts():
    class Sum(nn.Module):
        def forward(self, x, *args):
            return x.sum(0, True)

    class Add(nn.Module):
        def forward(self, x, memory, *args):
            return x + memory

    model = nn.Transformer(4, 2, custom_encoder=Sum(), custom_decoder=Add())
    y = model(mytorch.ones(3, 2, 4), mytorch.ones(5, 2, 4))
    assert y.tolist() == mytorch.full((5, 2, 4), 4.0).tolist()


def test_the_copies_of_a_layer_begin_alike_and_learn_apart():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6), 2)
    first, second = (layer.linear1.weight for layer in encoder.layers)
    assert first is not second and (first == second).all()
    matrices = [p for p in nn.Transformer(4, 2, 2, 1, 6).encoder.parameters() if p.ndim > 1]
    assert (matrices[0] != matrices[4]).any()  # the Transformer draws them anew


def test_generate_square_subsequent_mask():
    mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=mytorch.float64)
    np.testing.assert_array_equal(mask.numpy(), CAUSAL)
    assert mask.dtype == np.float64
