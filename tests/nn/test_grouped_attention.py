"""Attention with shared keys and values, and gated MLPs, against PyTorch with the same weights."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
import transformers
from transformers.models.bloom import modeling_bloom
from transformers.models.llama import modeling_llama

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from tests.oracle import check, torch_of

rng = np.random.default_rng(3)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


def attention(weights, num_heads, kv_heads, x, context=None, mask=None, is_causal=False, qk_norm=None):
    """The attention of a layer with these weights, by PyTorch."""

    def heads(name, x, count):
        y = TF.linear(x, weights[f"{name}_proj.weight"], weights.get(f"{name}_proj.bias"))
        y = y.unflatten(-1, (count, -1)).transpose(1, 2)
        if qk_norm is None or name == "v":
            return y
        return TF.rms_norm(y, y.shape[-1:], weights[f"{name}_norm.weight"], qk_norm)

    context = x if context is None else context
    q, k, v = heads("q", x, num_heads), heads("k", context, kv_heads), heads("v", context, kv_heads)
    y = TF.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, enable_gqa=True)
    return TF.linear(y.transpose(1, 2).flatten(2), weights["o_proj.weight"], weights.get("o_proj.bias"))


def compare(layer, oracle, *arrays, **options):
    """Results, and gradients of inputs and parameters; `oracle(weights, *tensors)` is PyTorch's."""
    layer.zero_grad()
    for p in layer.parameters():
        with mytorch.no_grad():
            p.add_(mytorch.tensor(0.1 * normal(*p.shape)))  # norms and biases, too
    weights = {name: torch_of(p.detach().numpy()).requires_grad_() for name, p in layer.named_parameters()}
    check(lambda *xs: layer(*xs, **options), lambda *xs: oracle(weights, *xs), *arrays, rtol=1e-4, atol=1e-5)
    for name, p in layer.named_parameters():
        want = weights[name].grad.numpy()
        np.testing.assert_allclose(p.grad.numpy(), want, rtol=1e-4, atol=1e-4, err_msg=name)


LAYERS = {  # arguments of the layer after the size of the embedding, heads of queries and of keys first
    "as many": (4, None), "one": (4, 1), "groups": (4, 2), "six and two": (6, 2, 4), "wide heads": (2, 1, 9),
    "biases": (4, 2, None, True), "no bias of the result": (4, 2, None, True, False),
    "norms": (4, 2, None, False, None, 1e-5), "norms and biases": (4, 4, 6, True, None, 1e-2),
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
def test_self_attention(arguments, is_causal):
    layer = nn.GroupedQueryAttention(16, *arguments)
    heads, kv_heads, *_ = arguments
    qk_norm = arguments[5] if len(arguments) > 5 else None

    def oracle(weights, x):
        return attention(weights, heads, kv_heads or heads, x, is_causal=is_causal, qk_norm=qk_norm)

    compare(layer, oracle, normal(2, 7, 16), is_causal=is_causal)


@pytest.mark.parametrize("window", [1, 3, 50])
def test_windows(window):
    """Of causal attention; what a mask lets be seen is up to the mask."""
    layer = nn.GroupedQueryAttention(16, 4, 2, window=window)
    seen = torch.ones(7, 7, dtype=torch.bool).tril().triu(1 - window)
    compare(layer, lambda w, x: attention(w, 4, 2, x, mask=seen), normal(2, 7, 16), is_causal=True)
    compare(layer, lambda w, x: attention(w, 4, 2, x), normal(2, 7, 16))


MASKS = {
    "queries and keys": normal(5, 7), "keys": normal(7) > 0, "of each sequence": normal(2, 1, 1, 7),
    "of each head": normal(4, 5, 7), "of all": normal(2, 4, 5, 7), "one number": normal(1, 1),
    "bool": normal(2, 1, 5, 7) > -0.5, "bool of each head": normal(1, 4, 5, 1) > 0,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_cross_attention_with_masks_of_any_shape(mask):
    layer = nn.GroupedQueryAttention(16, 4, 2, context_dim=6)
    compare(
        layer,
        lambda w, x, context: attention(w, 4, 2, x, context, torch.atleast_2d(torch.tensor(mask))),
        normal(2, 5, 16), normal(2, 7, 6), attn_mask=mytorch.tensor(mask),
    )


def test_rotated_queries_and_keys():
    """As the attention of transformers' Llama, whose parameters have the same names."""
    config = transformers.LlamaConfig(hidden_size=16, num_attention_heads=4, num_key_value_heads=2)
    config._attn_implementation = "eager"
    theirs = modeling_llama.LlamaAttention(config, 0)
    layer, rotary = nn.GroupedQueryAttention(16, 4, 2), nn.RotaryEmbedding(4)
    layer.load_state_dict({name: mytorch.tensor(p.numpy()) for name, p in theirs.state_dict().items()})
    x = normal(2, 7, 16)
    angles = modeling_llama.LlamaRotaryEmbedding(config)(torch.ones(1), torch.arange(7)[None])
    mask = torch.full((7, 7), -math.inf).triu(1)[None, None]
    check(
        lambda x: layer(x, angles=rotary.angles(slice(0, 7)), is_causal=True),
        lambda x: theirs(x, angles, mask)[0], x, rtol=1e-4, atol=1e-5,
    )


def test_dropout_of_the_weights():
    """With equal weights 1 / S, a sum of kept ones has the mean 1 and the variance p / (1 - p) / S."""
    layer = nn.GroupedQueryAttention(2, 2, 1, dropout=0.3)
    with mytorch.no_grad():
        for p, value in zip(layer.parameters(), (0.0, 0.0, 1.0, 0.0), strict=True):
            p.fill_(value)
        layer.v_proj.weight.copy_(mytorch.tensor([[0.5, 0.5]]))
        layer.o_proj.weight.copy_(mytorch.eye(2))
    x = mytorch.ones(20, 50, 2)
    y = layer(x).detach().numpy()
    assert abs(y.mean() - 1) < 0.01 and y.var() == pytest.approx(0.3 / 0.7 / 50, rel=0.15)
    assert abs(np.corrcoef(y.reshape(-1, 2).T)[0, 1]) < 0.1  # heads drop weights of their own
    np.testing.assert_allclose(layer.eval()(x).detach().numpy(), 1, rtol=1e-5)


@pytest.mark.parametrize("qk_norm", [None, 1e-5])
def test_attention_computed_elsewhere(qk_norm):
    """`attend` gets queries, keys and values side by side, as a cache does."""
    layer, given = nn.GroupedQueryAttention(16, 4, 2, qk_norm=qk_norm), []

    def attend(qkv, num_heads, angles):
        given.append((qkv.shape, num_heads, angles))
        heads = qkv.unflatten(-1, (8, 4)).transpose(1, 2)
        y = F.scaled_dot_product_attention(*heads.split((4, 2, 2), 1), is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).flatten(2)

    x = mytorch.randn(2, 7, 16)
    assert mytorch.equal(layer(x, attend=attend), layer(x, is_causal=True))
    assert given == [((2, 7, 32), 4, None)]
    with pytest.raises(ValueError, match="takes no context"):
        layer(x, x, attend=attend)


def test_on_a_gpu_and_in_half_precision(fake_cuda):
    layer, x = nn.GroupedQueryAttention(16, 4, 2, qk_norm=1e-5, window=3), mytorch.randn(2, 7, 16)
    want = layer(x, is_causal=True)
    found = layer.to("cuda:0")(x.to("cuda:0"), is_causal=True)
    np.testing.assert_allclose(found.cpu().detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    half = layer.to("cpu").half()(x.half(), is_causal=True)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.detach().numpy(), want.detach().numpy(), atol=5e-3)


WRONG = {
    "no multiple": ((12, 4, 3), "num_heads=4 is no multiple of num_kv_heads=3"),
    "none": ((12, 4, 0), "num_heads=4 is no multiple of num_kv_heads=0"),
    "no heads": ((12, 0), "num_heads=0 is no multiple of num_kv_heads=0"),
    "size": ((10, 4), "embed_dim=10 is no multiple of num_heads=4: give head_dim"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_wrong_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        nn.GroupedQueryAttention(*arguments)


def test_wrong_calls():
    layer, x = nn.GroupedQueryAttention(8, 4, 2, context_dim=6), mytorch.ones(2, 5, 8)
    with pytest.raises(RuntimeError, match="8"):  # without a context of 6 features
        layer(x)
    with pytest.raises(RuntimeError, match="should not be set when is_causal=True"):
        layer(x, mytorch.ones(2, 5, 6), attn_mask=mytorch.ones(5, 5), is_causal=True)
    with pytest.raises(RuntimeError, match=r"attn_mask of shape \(3, 5\) can't be broadcast"):
        layer(x, mytorch.ones(2, 5, 6), attn_mask=mytorch.ones(3, 5))


@pytest.mark.parametrize("heads", [*range(1, 9), 12, 16, 20, 32, 71, 112])
def test_alibi_is_that_of_transformers(heads):
    """Theirs is the slope times the key's position: the same but for a constant for each query."""
    want = modeling_bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32).numpy()
    bias = F.alibi_bias(heads, 9).numpy()
    seen = np.tril(np.ones((9, 9), bool))
    assert bias.shape == (heads, 9, 9) and (bias[:, ~seen] == -np.inf).all()
    moved = np.where(seen, want - want.swapaxes(1, 2), -np.inf)
    np.testing.assert_allclose(bias, moved, rtol=1e-5, atol=1e-6)
    two_sided = F.alibi_bias(heads, 9, is_causal=False).numpy()
    np.testing.assert_array_equal(two_sided, np.maximum(bias, bias.swapaxes(1, 2)))


@pytest.mark.parametrize("variant", [{"auto": True}, {"fused": False}, {}], ids=str)
def test_alibi_as_the_mask_of_a_layer(variant):
    layer = nn.GroupedQueryAttention(24, 6, 2, **variant)
    bias = modeling_bloom.build_alibi_tensor(torch.ones(1, 9), 6, torch.float32)
    mask = bias + torch.full((9, 9), -math.inf).triu(1)
    compare(layer, lambda w, x: attention(w, 6, 2, x, mask=mask), normal(2, 9, 24),
            attn_mask=F.alibi_bias(6, 9))


def test_alibi_of_the_last_queries(device):
    whole = F.alibi_bias(3, 9, device=device)
    assert mytorch.equal(F.alibi_bias(3, 2, 9, device=device), whole[:, 7:]) and whole.device == device
    assert F.alibi_bias(3, 9, dtype="float16").dtype == np.float16
    with pytest.raises(ValueError, match="last of the keys, but there are 9 of 2"):
        F.alibi_bias(3, 9, 2)
    with pytest.raises(ValueError, match="num_heads must be at least 1, got 0"):
        F.alibi_bias(0, 9)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (6,), (0, 6)], ids=str)
def test_gated_mlp(bias, shape):
    """As the MLP of transformers' Llama, whose parameters have the same names."""
    options = {"hidden_size": 6, "intermediate_size": 10, "num_attention_heads": 1}
    config = transformers.LlamaConfig(**options, mlp_bias=bias)
    theirs = modeling_llama.LlamaMLP(config)
    names = [name for name, _ in theirs.named_parameters()]
    layer = nn.GatedMLP(6, 10, bias)
    assert [name for name, _ in layer.named_parameters()] == names
    compare(layer, lambda w, x: torch.func.functional_call(theirs, w, x), normal(*shape))


def test_soft_cap():
    """Between -cap and cap, nearly the number itself near 0, and with the slope 1 there."""
    x = mytorch.tensor([-1e6, -0.01, 0.0, 0.01, 1e6], requires_grad=True)
    y = F.soft_cap(x, 30.0)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), [-30, -0.01, 0, 0.01, 30], rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), [0, 1, 1, 1, 0], rtol=1e-6)
    for cap in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"soft_cap\(\): cap must be positive, got"):
            F.soft_cap(x, cap)
    with pytest.raises(NotImplementedError, match="int64"):
        F.soft_cap(mytorch.arange(3), 1.0)
