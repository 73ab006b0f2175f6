"""GPT-2's plain and fused blocks compute the usual formula, and hooks see all."""

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, Bert, GPT2Config, Llama
from mytorch.models.gpt2 import Block, FusedBlock

TINY = {"vocab_size": 13, "context_length": 10, "n_layer": 3, "n_head": 2, "n_embd": 8}
IDX = mytorch.tensor([[1, 5, 2], [0, 12, 3]])


@pytest.fixture(params=[False, True], ids=["plain", "fused"])
def model(request):
    mytorch.manual_seed(0)
    return GPT2(GPT2Config(**TINY), fused=request.param)


def plain(model, idx):
    """The features by the formula of the module's docstring."""
    parts = model.transformer
    x = parts.wte(idx) + parts.wpe.weight[: idx.shape[1]]
    for block in parts.h:
        x = x + block.attn(mytorch.nn.functional.layer_norm(x, (8,), block.ln_1.weight, block.ln_1.bias))
        x = x + block.mlp(mytorch.nn.functional.layer_norm(x, (8,), block.ln_2.weight, block.ln_2.bias))
    return mytorch.nn.functional.layer_norm(x, (8,), parts.ln_f.weight, parts.ln_f.bias)


def test_the_numbers_are_those_of_the_formula(model, device):
    model.to(device)
    idx, found = IDX.to(device), []
    for features in (model.features(idx), plain(model, idx)):
        model.zero_grad()
        (features * mytorch.arange(8, device=device)).sum().backward()
        found.append([features.tolist(), *(p.grad.tolist() for p in model.parameters())])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)


def test_hooks_of_all_modules_run(model):
    seen = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, args, result, name=name: seen.append(name))
    model(IDX)
    block = [f"transformer.h.{i}.{part}" for i in range(3) for part in ("ln_1", "attn", "ln_2", "mlp")]
    assert {*block, "transformer.ln_f", *(f"transformer.h.{i}" for i in range(3))} <= {*seen}


def test_a_hook_may_replace_what_a_block_returns(model):
    want = model.features(IDX)
    block = model.transformer.h[0]

    def half(module, args, result):
        return (result[0] * 0, result[1]) if isinstance(result, tuple) else result / 2

    handle = block.register_forward_hook(half)
    assert not mytorch.allclose(model.features(IDX), want)
    handle.remove()
    assert mytorch.equal(model.features(IDX), want)


def test_the_class_of_the_blocks_is_chosen():
    def kind(**options):
        model = GPT2(GPT2Config(**TINY), **options)
        return {type(block) for block in model.transformer.h}

    assert kind(fused=True) == {FusedBlock} and kind(fused=False) == {Block}
    for default, wanted in ((True, FusedBlock), (False, Block)):
        with mytorch.use_fused(default):
            assert kind() == {wanted}


def test_a_pretrained_model_has_the_blocks_that_are_wanted(model, tmp_path):
    model.save_pretrained(tmp_path)
    want = model.eval()(IDX)
    for fused, kind in ((True, FusedBlock), (False, Block)):
        loaded = GPT2.from_pretrained(tmp_path, fused=fused)
        assert {type(block) for block in loaded.transformer.h} == {kind}
        np.testing.assert_allclose(loaded(IDX).detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


WRONG = {
    "fused must be True, False or None, got 'auto'": lambda: GPT2(GPT2Config(**TINY), fused="auto"),
    "fused must be True, False or None, got 1": lambda: GPT2(GPT2Config(**TINY), fused=1),
    "config must be a GPT2Config, got 'nano'": lambda: GPT2("nano"),
    "config must be a LlamaConfig, got None": lambda: Llama(None),
    "config must be a BertConfig, got GPT2Config": lambda: Bert(GPT2Config(**TINY)),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_of_models(message):
    with pytest.raises(TypeError, match=message.replace("(", r"\(")):
        WRONG[message]()


def test_the_names_of_parameters_are_the_published_ones(model):
    names = {name.removeprefix("transformer.h.0.") for name in model.state_dict() if ".h.0.ln" in name}
    assert names == {"ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"}
    assert {"transformer.ln_f.weight", "transformer.ln_f.bias"} <= {*model.state_dict()}


def test_a_norm_without_a_residual():
    x = mytorch.randn(2, 8)
    norm = mytorch.nn.AddLayerNorm(8)
    y, total = norm(x)
    assert total is x and mytorch.equal(y, mytorch.nn.functional.layer_norm(x, (8,), norm.weight, norm.bias))
