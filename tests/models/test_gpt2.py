"""GPT-2 against the same model in PyTorch, and its generation with and without cache."""

import math

import numpy as np
import pytest
import torch
from torch import nn as tnn
from torch.nn import functional as TF

import mytorch
from mytorch.models import GPT2, GPT2Config, KVCache, Sampler
from tests.every import every

TINY = {"vocab_size": 13, "context_length": 10, "n_layer": 2, "n_head": 2, "n_embd": 8}


class TorchGPT2(tnn.Module):
    """The published architecture, written for PyTorch with the same parameter names."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        block = lambda: tnn.ModuleDict({  # noqa: E731
            "ln_1": tnn.LayerNorm(c.n_embd, bias=c.bias),
            "attn": tnn.ModuleDict({
                "c_attn": tnn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias),
                "c_proj": tnn.Linear(c.n_embd, c.n_embd, bias=c.bias),
            }),
            "ln_2": tnn.LayerNorm(c.n_embd, bias=c.bias),
            "mlp": tnn.ModuleDict({
                "c_fc": tnn.Linear(c.n_embd, 4 * c.n_embd, bias=c.bias),
                "c_proj": tnn.Linear(4 * c.n_embd, c.n_embd, bias=c.bias),
            }),
        })
        self.transformer = tnn.ModuleDict({
            "wte": tnn.Embedding(c.vocab_size, c.n_embd), "wpe": tnn.Embedding(c.context_length, c.n_embd),
            "h": tnn.ModuleList([block() for _ in range(c.n_layer)]),
            "ln_f": tnn.LayerNorm(c.n_embd, bias=c.bias),
        })
        self.lm_head = tnn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, idx, targets):
        B, T = idx.shape
        t = self.transformer
        x = t["wte"](idx) + t["wpe"](torch.arange(T))
        for b in t["h"]:
            qkv = b["attn"]["c_attn"](b["ln_1"](x)).view(B, T, 3, self.c.n_head, -1).permute(2, 0, 3, 1, 4)
            y = TF.scaled_dot_product_attention(*qkv, is_causal=True)
            x = x + b["attn"]["c_proj"](y.transpose(1, 2).reshape(B, T, -1))
            x = x + b["mlp"]["c_proj"](TF.gelu(b["mlp"]["c_fc"](b["ln_2"](x))))
        logits = self.lm_head(t["ln_f"](x))
        return logits, TF.cross_entropy(logits.view(B * T, -1), targets.view(-1), ignore_index=-1)


def tiny(**changes):
    mytorch.manual_seed(0)
    return GPT2(GPT2Config(**{**TINY, **changes})).eval()


@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients_are_pytorchs(bias):
    ours = tiny(bias=bias)
    theirs = TorchGPT2(ours.config)
    state = {name: torch.from_numpy(p.detach().numpy().copy()) for name, p in ours.state_dict().items()}
    missing, unexpected = theirs.load_state_dict(state, strict=True)
    assert not missing and not unexpected
    rng = np.random.default_rng(0)
    x, y = rng.integers(13, size=(2, 3, 10))
    y[0, 0] = -1
    logits, loss = ours(mytorch.from_numpy(x), mytorch.from_numpy(y))
    want_logits, want = theirs(torch.from_numpy(x), torch.from_numpy(y))
    np.testing.assert_allclose(logits.detach().numpy(), want_logits.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert loss.item() == pytest.approx(want.item(), rel=1e-6)
    loss.backward()
    want.backward()
    named = dict(theirs.named_parameters())
    assert {n for n, _ in ours.named_parameters()} == set(named)
    for name, p in ours.named_parameters():
        want = named[name].grad.numpy()
        np.testing.assert_allclose(p.grad.numpy(), want, rtol=1e-4, atol=1e-6, err_msg=name)


def test_sizes_have_the_published_numbers_of_parameters():
    counts = {size: GPT2Config.of_size(size) for size in ("base", "medium", "large", "xl")}

    def parameters(c):
        block = 12 * c.n_embd**2 + 13 * c.n_embd
        return c.vocab_size * c.n_embd + c.context_length * c.n_embd + c.n_layer * block + 2 * c.n_embd

    millions = {size: round(parameters(c) / 1e6) for size, c in counts.items()}
    assert millions == {"base": 124, "medium": 355, "large": 774, "xl": 1558}
    model = tiny(bias=True)
    assert model.num_parameters() == parameters(model.config)


def test_initial_loss_is_that_of_guessing():
    model = tiny(vocab_size=65)
    x = mytorch.randint(0, 65, (4, 10))
    assert model(x, x)[1].item() == pytest.approx(math.log(65), abs=0.1)


@pytest.mark.parametrize(("width", "std"), [(768, 0.02), (48, 0.08)])
def test_initial_weights_have_the_published_spread_and_more_in_narrow_models(width, std):
    model = tiny(n_embd=width, n_layer=3, vocab_size=50)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            want = std if name.startswith("transformer.h") else 0.02
            want /= math.sqrt(6) if name.endswith("c_proj.weight") else 1
            assert float(p.detach().numpy().std()) == pytest.approx(want, rel=0.15), name


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 0.9, "top_k": 5}, {}], ids=str)
def test_the_cache_changes_no_token(options, batch):
    model = tiny()
    prompt = mytorch.randint(0, 13, (batch, 4))

    def text(use_cache):  # 16 tokens: beyond the context of 10
        generator = mytorch.Generator().manual_seed(3)
        return model.generate(prompt, 12, generator=generator, use_cache=use_cache, **options).tolist()

    texts = [text(use_cache) for use_cache in (True, False)]
    assert texts[0] == texts[1] and len(texts[0][0]) == 16


def test_cached_logits_are_those_of_the_whole_sequence():
    model = tiny()
    idx = mytorch.randint(0, 13, (2, 9))
    with mytorch.no_grad():
        whole = model(idx)
        cache = KVCache(model.config, 2)
        parts = [model(idx[:, a:b], cache=cache) for a, b in ((0, 3), (3, 4), (4, 9))]
    np.testing.assert_allclose(mytorch.cat(parts, dim=1).numpy(), whole.numpy(), rtol=1e-4, atol=1e-6)


def test_sampling_follows_the_probabilities():
    def sample(logits, temperature, top_k, generator):
        return Sampler(temperature, top_k)(logits, generator=generator)

    logits = mytorch.tensor([[0.0, math.log(3.0), -math.inf, 5.0]]).expand(4000, 4)
    drawn = sample(logits[:, :3], 1.0, None, mytorch.Generator().manual_seed(0)).numpy()
    assert np.bincount(drawn[:, 0], minlength=3)[2] == 0
    assert np.mean(drawn == 1) == pytest.approx(0.75, abs=0.03)
    assert set(sample(logits, 1.0, 1, None).numpy()[:, 0]) == {3}
    assert set(sample(logits, 0, None, None).numpy()[:, 0]) == {3}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GPT2Config(n_embd=10, n_head=3), "n_embd=10.*n_head=3"),
        (lambda: GPT2Config(n_layer=0), "n_layer must be at least 1 and at most 10000, got 0"),
        (lambda: GPT2Config(n_layer=10**30), "n_layer must be at least 1 and at most 10000, got 10"),
        (lambda: GPT2Config(n_embd=2**31), "n_embd must be .* at most 2147483647, got 2147483648"),
        (lambda: GPT2Config.of_size("huge"), "'huge' is unknown; the sizes are nano, small, base"),
        (lambda: tiny()(mytorch.zeros((1, 11), dtype=int)), "11 tokens exceed the context length of 10"),
        (lambda: tiny().generate(mytorch.zeros((1, 0), dtype=int), 1),
         r"at least one token, got shape \(1, 0\)"),
        (lambda: tiny().generate(mytorch.zeros((1, 1), dtype=int), 1, temperature=-1), "temperature.*-1"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_loss_of_a_float16_model_is_float32():
    """In float16 it would have three digits, and loss scaling would overflow at its very beginning."""
    model = GPT2(GPT2Config.of_size("nano", vocab_size=65, context_length=16))
    idx = mytorch.randint(0, 65, (2, 16))
    single = model(idx, idx)[1].item()
    logits, loss = model.half()(idx, idx)
    assert (logits.dtype, loss.dtype) == (np.float16, np.float32)
    assert loss.item() == pytest.approx(single, rel=1e-3)
    (loss * 2.0**16).backward()
    assert every(np.isfinite(p.grad.numpy()).all() for p in model.parameters())


def test_the_loss_of_a_float32_model_copies_no_logits():
    x = mytorch.ones(2, requires_grad=True)
    assert x.float() is x
