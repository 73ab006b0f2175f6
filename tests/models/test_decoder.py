"""All blocks for one new token in one kernel: the numbers of their layers, and whatever happens to these."""

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.models import Llama, LlamaConfig
from mytorch.models.decoder import decode
from mytorch.models.llama import LlamaBlock
from mytorch.nn import functional as F

pytest.importorskip("numba")

SIZES = {
    "vocab_size": 50, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 300,
}
PROMPT = mytorch.tensor([[3, 1, 4, 1, 5]])


def llama(format=None, **options):
    mytorch.manual_seed(0)
    model = Llama(LlamaConfig(**SIZES | options)).eval()
    for _, p in model.named_parameters():
        if p.ndim == 1:
            p.data = p.data + mytorch.randn(len(p)).data * 0.5
    return mytorch.quantize(model, format) if format else model


@mytorch.no_grad()
def logits(model, tokens=3, between=lambda i: None, capacity=300):
    cache = model.new_cache(1, capacity, [0])
    found = [model.lm_head(model.features(PROMPT, cache)[:, -1])]
    for i in range(tokens):
        between(i)
        found.append(model.lm_head(model.features(mytorch.tensor([[7 * i % 50]]), cache)[:, -1]))
    return mytorch.cat(found).numpy()


@pytest.fixture
def decoded(monkeypatch):
    """Whether the blocks of each call of the model were those of the kernel."""
    calls = []

    def spy(*args):
        y = decode(*args)
        calls.append(y is not None)
        return y

    monkeypatch.setattr("mytorch.models.llama.decode", spy)
    return calls


@pytest.mark.parametrize(
    ("format", "options"),
    [
        (None, {}),
        (None, {"qkv_bias": True, "num_key_value_heads": 6, "hidden_size": 60, "intermediate_size": 50}),
        ("q8_0", {"qkv_bias": True, "o_bias": True, "mlp_bias": True}),
    ],
    ids=["float32", "sizes that fill no vector", "q8_0"],
)
def test_the_numbers_of_the_layers(format, options, decoded):
    model = llama(format, **options)
    ours = logits(model, 140)  # more than a chunk of keys
    assert decoded == [False] + [True] * 140
    with F.use_fused(False):
        np.testing.assert_allclose(ours, logits(model, 140), 1e-4, 2e-6)
    assert decoded[141:] == [False] * 141


def test_a_window_and_padding_take_the_layers(decoded):
    logits(llama(sliding_window=7), 4)
    assert decoded == [False, True, True, False, False]
    decoded.clear()
    llama().generate([[1, 2], [3]], 3, temperature=0)
    assert not any(decoded)


def other_norms(model):
    model.model.layers[1].post_attention_layernorm.eps = 0.1


def a_norm_without_weight(model):
    model.model.layers[1].input_layernorm = nn.RMSNorm(96, model.config.rms_norm_eps, False)


def a_subclass(model):
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model.model.layers[1].mlp.down_proj = Doubled(160, 96, bias=False)


def a_narrower_mlp(model):
    model.model.layers[1].mlp = nn.GatedMLP(96, 64, False)


def a_subclass_of_the_block(model):
    class Doubled(LlamaBlock):
        def forward(self, *args):
            return 2 * super().forward(*args)

    model.model.layers[1].__class__ = Doubled


@pytest.mark.parametrize(
    "change", [other_norms, a_norm_without_weight, a_subclass, a_narrower_mlp, a_subclass_of_the_block],
    ids=lambda change: change.__name__,
)
def test_other_blocks_run_their_layers(change, decoded):
    model = llama()
    change(model)
    ours = logits(model)
    assert not any(decoded)
    with F.use_fused(False):
        np.testing.assert_allclose(ours, logits(model), 1e-4, 2e-6)


def test_weights_of_several_formats(decoded):
    model = llama()
    for layer, format in (("q_proj", "q8_0"), ("k_proj", "q4_0"), ("o_proj", "q4_1")):
        attention = model.model.layers[1].self_attn
        setattr(attention, layer, nn.QuantizedLinear.from_linear(getattr(attention, layer), format))
    mlp = model.model.layers[0].mlp
    mlp.down_proj = nn.QuantizedLinear.from_linear(mlp.down_proj, "q4_1")
    ours = logits(model)
    assert decoded == [False] + [True] * 3
    with F.use_fused(False):
        np.testing.assert_allclose(ours, logits(model), 1e-4, 2e-6)


def test_a_recording_has_each_operation(decoded):
    model = llama()
    with mytorch.stream.record() as instructions:
        logits(model)
    assert not any(decoded)
    assert sum(each.name == "cached_self_attention" for each in instructions) == 2 * 3


def test_norms_of_queries_and_keys(decoded):
    logits(llama(qk_norm=True))
    assert not any(decoded)


def replaced_weight(model):
    model.model.layers[0].self_attn.q_proj.weight = nn.Parameter(mytorch.randn(96, 96))


def replaced_data(model):
    model.model.layers[0].self_attn.q_proj.weight.data = mytorch.randn(96, 96)


def weight_in_place(model):
    model.model.layers[0].self_attn.q_proj.weight.mul_(-2)


def replaced_layer(model):
    model.model.layers[0].mlp.up_proj = nn.Linear(96, 160, bias=False)


def new_epsilon(model):
    model.model.layers[0].input_layernorm.eps = model.model.layers[0].post_attention_layernorm.eps = 0.1


def new_hook(model):
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda module, args, y: y * -2)


@pytest.mark.parametrize(
    "change",
    [replaced_weight, replaced_data, weight_in_place, replaced_layer, new_epsilon, new_hook],
    ids=lambda change: change.__name__,
)
def test_a_change_while_text_is_generated_is_seen(change):
    def found():
        model = llama()
        return logits(model, 3, lambda i: change(model) if i == 1 else None)

    ours = found()
    with F.use_fused(False):
        want = found()
    np.testing.assert_allclose(ours, want, 1e-4, 2e-6)
    assert abs(ours[2] - logits(llama(), 3)[2]).max() > 1e-3


def test_a_new_activation_is_seen():
    def found():
        model = llama("q8_0")

        def change(i):
            model.model.layers[0].mlp.down_proj.activation = "relu" if i else None

        return logits(model, 3, change)

    ours = found()
    with F.use_fused(False):
        want = found()
    np.testing.assert_allclose(ours, want, 1e-4, 2e-6)
    assert abs(ours[2] - logits(llama("q8_0"), 3)[2]).max() > 1e-3


def test_gradients_take_the_layers(decoded):
    model = llama()
    with mytorch.no_grad():
        cache = model.new_cache(1, 20, [0])
        model.features(PROMPT, cache)
    decoded.clear()
    with pytest.raises(RuntimeError, match="not differentiable"):
        model.features(mytorch.tensor([[1]]), cache)
    assert decoded == [False]


def test_the_caches_are_written(decoded):
    model, found = llama(), []
    for fused in (True, False):
        cache = model.new_cache(1, 20, [0])
        with mytorch.no_grad(), F.use_fused(fused):
            model.features(PROMPT, cache)
            versions = cache.layers[0][0]._version.count
            model.features(mytorch.tensor([[9]]), cache)
        assert cache.layers[0][0]._version.count > versions and cache.length == 6
        found.append([t.numpy() for layer in cache.layers for t in layer])
    assert decoded == [False, True, False, False]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-6)
