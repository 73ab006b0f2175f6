"""LoRA against its formula in PyTorch: values, gradients, merging; in GPT-2 and Llama."""

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import mytorch
from mytorch import nn
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig
from mytorch.nn.utils import add_lora, lora_state_dict, merge_lora
from tests.every import every

ACTIVATIONS = {None: lambda x: x, "gelu_tanh": lambda x: TF.gelu(x, approximate="tanh"), "relu": TF.relu}
GPT = GPT2Config(vocab_size=11, context_length=8, n_layer=3, n_head=2, n_embd=8)
LLAMA = LlamaConfig(11, 8, 16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
MLP = "c_fc", "mlp.c_proj"
TARGETS = {  # (a new model, targets, the names of one block that are found)
    "GPT-2's default": (lambda: GPT2(GPT), None, ["transformer.h.{}.attn.c_attn"]),
    "all of GPT-2": (
        lambda: GPT2(GPT), ["c_attn", "c_proj", "c_fc"],
        [f"transformer.h.{{}}.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")],
    ),
    "at a dot": (lambda: GPT2(GPT), "attn.c_proj", ["transformer.h.{}.attn.c_proj"]),
    "Llama's default": (lambda: Llama(LLAMA), None, [f"model.layers.{{}}.self_attn.{x}_proj" for x in "qv"]),
    "Llama's MLP": (
        lambda: Llama(LLAMA), ["gate_proj", "down_proj"],
        [f"model.layers.{{}}.mlp.{x}_proj" for x in ("gate", "down")],
    ),
}


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def randomize(model):
    """Adapters as after some training: B isn't zero."""
    for value in lora_state_dict(model).values():
        nn.init.normal_(value, std=0.3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_gradients(activation, bias):
    linear = nn.LinearActivation(6, 5, bias, activation) if activation else nn.Linear(6, 5, bias)
    layer = nn.LoRALinear(linear, rank=2, alpha=3.0)
    np.testing.assert_array_equal(layer.lora_B.detach().numpy(), np.zeros((5, 2)))
    assert 0 < np.abs(layer.lora_A.detach().numpy()).max() <= 6**-0.5
    nn.init.normal_(layer.lora_B)
    x, g = normal(3, 4, 6), normal(4, 3, 5).swapaxes(0, 1).copy()
    W, A, B, tx = (
        torch.tensor(p.detach().numpy(), requires_grad=True)
        for p in (linear.weight, layer.lora_A, layer.lora_B, mytorch.tensor(x))
    )
    b = torch.tensor(linear.bias.detach().numpy()) if bias else None
    expected = ACTIVATIONS[activation](TF.linear(tx, W + 3 / 2 * B @ A, b))
    expected.backward(torch.tensor(g))
    ours = mytorch.tensor(x, requires_grad=True)
    y = layer(ours)
    y.backward(mytorch.tensor(g))
    assert linear.weight.grad is None and (not bias or linear.bias.grad is None)
    pairs = [(y, expected), (ours.grad, tx.grad), (layer.lora_A.grad, A.grad), (layer.lora_B.grad, B.grad)]
    for got, want in pairs:
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert layer.merge() is linear
    np.testing.assert_allclose(linear(ours).detach().numpy(), y.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_dropout_is_of_the_adapter_and_of_training_only():
    layer, x = nn.LoRALinear(nn.Linear(4, 3), 2, dropout_p=1.0), mytorch.ones(5, 4)
    nn.init.ones_(layer.lora_B)
    plain = layer.linear(x)
    assert (layer(x) == plain).all() and not (layer.eval()(x) == plain).any()


@pytest.mark.parametrize("case", TARGETS)
def test_adapters_in_a_model(case):
    make, targets, names = TARGETS[case]
    model, idx = make().eval(), mytorch.tensor([[1, 2, 3, 4]])
    before = model(idx).detach().numpy()
    shapes = {name: p.shape for name, p in model.named_parameters()}
    blocks = range(model.attention_sizes()[0])
    expected = [name.format(i) for i in blocks for name in names]
    found = add_lora(model, 2, 4, dropout_p=0.5, **({"targets": targets} if targets else {}))
    assert found == expected
    adapters = [f"{name}.lora_{part}" for name in expected for part in "AB"]
    assert list(lora_state_dict(model)) == adapters
    assert [name for name, p in model.named_parameters() if p.requires_grad] == adapters
    assert not any(module.training for module in model.modules())
    np.testing.assert_array_equal(model(idx).detach().numpy(), before)
    randomize(model)
    unmerged = model(idx).detach().numpy()
    assert not np.allclose(unmerged, before, atol=1e-2)
    assert merge_lora(model) is model and lora_state_dict(model) == {}
    np.testing.assert_allclose(model(idx).detach().numpy(), unmerged, atol=1e-5)
    assert {name: p.shape for name, p in model.named_parameters()} == shapes


def test_only_the_adapters_are_trained_and_saved(tmp_path):
    model = GPT2(GPT)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    add_lora(model, 2, targets=MLP)
    optimizer = mytorch.optim.AdamW(model.parameter_groups(0.1), lr=0.1)
    idx, losses = mytorch.tensor([[1, 2, 3, 4, 5, 6]]), []
    for _ in range(20):
        _, loss = model(idx[:, :-1], idx[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert every(value.any() for value in lora_state_dict(model).values())
    mytorch.save(lora_state_dict(model), tmp_path / "adapter.safetensors")
    assert sum(value.numel() for value in lora_state_dict(model).values()) == 3 * 2 * (8 + 32) * 2
    with pytest.raises(ValueError, match="merge_lora"):
        model.save_pretrained(tmp_path / "unmerged")
    other = GPT2(GPT)
    other.load_state_dict(state)
    add_lora(other, 2, targets=MLP)
    found = other.load_state_dict(mytorch.load(tmp_path / "adapter.safetensors"), strict=False)
    assert not found.unexpected_keys
    assert (other(idx) == model(idx)).all()
    for name, value in merge_lora(other).state_dict().items():
        is_frozen = "mlp" not in name or "bias" in name
        assert (value == state[name]).all() == is_frozen, name


def test_wrong_arguments():
    model = GPT2(GPT)
    for call, kind, message in [
        (lambda: add_lora(model, 2, targets=["query"]), ValueError, r"\['query'\]; .*\['c_attn',"),
        (lambda: add_lora(model, 2, targets=["lm_head"]), ValueError, "lm_head shares its weight"),
        (lambda: add_lora(model, 2, targets=["ln_1"]), TypeError, "got AddLayerNorm"),
        (lambda: nn.LoRALinear(nn.Linear(4, 3), 4), ValueError, r"1 to 3 for .* \(3, 4\), got 4"),
        (lambda: nn.LoRALinear(nn.Linear(4, 3), 0), ValueError, "got 0"),
        (lambda: nn.LoRALinear(nn.Linear(4, 3), 2, dropout_p=2.0), ValueError, "2.0"),
        (lambda: nn.LoRALinear(nn.ReLU(), 2), TypeError, "got ReLU"),
    ]:
        with pytest.raises(kind, match=message):
            call()
    add_lora(model, 2)
    with pytest.raises(TypeError, match="got LoRALinear"):
        add_lora(model, 2)
