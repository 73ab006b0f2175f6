"""QuantizedLinear, QuantizedEmbedding and `mytorch.quantize`; `cases.py` is for values of the function."""

import copy

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.models.gpt2 import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.nn.functional.quantization import FORMATS, quantized

LARGEST_ERROR = {"q8_0": 1 / 127, "q4_0": 1 / 7, "q4_1": 1 / 7}  # of a weight, as a part of the largest


def made(format, bias=True, activation=None):
    mytorch.manual_seed(0)
    linear = nn.LinearActivation(64, 10, bias, activation) if activation else nn.Linear(64, 10, bias)
    return linear, nn.QuantizedLinear.from_linear(linear, format)


@pytest.mark.parametrize("activation", [None, "relu", "gelu_tanh"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_it_is_the_linear_layer_of_the_dequantized_weight(format, bias, activation):
    linear, layer = made(format, bias, activation)
    weight = layer.dequantize()
    error = abs(weight - linear.weight).max() / abs(linear.weight).max()
    assert 0 < error < LARGEST_ERROR[format]
    assert layer.bias is linear.bias
    x = mytorch.randn(3, 64, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    theirs = torch.tensor(x.detach().numpy(), requires_grad=True)
    want = theirs @ torch.tensor(weight.numpy()).T
    if bias:
        want = want + torch.tensor(linear.bias.detach().numpy())
    if activation:
        gelu = torch.nn.GELU(approximate="tanh")
        want = gelu(want) if activation == "gelu_tanh" else torch.relu(want)
    want.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), want.detach().numpy(), 1e-5, 1e-5)
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), 1e-5, 1e-5)
    assert not bias or layer.bias.grad is not None


def test_the_weight_has_no_gradient():
    _, layer = made("q8_0")
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
    with pytest.raises(RuntimeError, match="only floating-point tensors .* got int8"):
        layer.codes.requires_grad_()


@mytorch.no_grad()
@pytest.mark.parametrize("format", FORMATS)
def test_state_is_saved_and_loaded(format, tmp_path):
    _, layer = made(format)
    mytorch.save(layer.state_dict(), tmp_path / "layer.safetensors")
    other = nn.QuantizedLinear(64, 10, format=format)
    assert not other.dequantize().any()
    other.load_state_dict(mytorch.load(tmp_path / "layer.safetensors"))
    x = mytorch.randn(2, 64)
    np.testing.assert_array_equal(other(x), layer(x))
    np.testing.assert_array_equal(copy.deepcopy(layer)(x), layer(x))


@mytorch.no_grad()
@pytest.mark.parametrize("format", FORMATS)
def test_casts_and_moves(format, fake_cuda):
    _, layer = made(format)
    x, before = mytorch.randn(2, 64), layer.dequantize()
    want = layer(x)
    layer.half()
    np.testing.assert_array_equal(layer.dequantize(), before)
    y = layer(x.half())
    assert y.dtype == mytorch.float16
    np.testing.assert_allclose(y.float().numpy(), want.numpy(), 1e-2, 1e-2)
    layer.float().to("cuda")  # its bias has been rounded to half precision
    assert layer.codes.device.type == layer.bias.device.type == "cuda"
    np.testing.assert_allclose(layer(x.to("cuda")).cpu().numpy(), want.numpy(), 1e-3, 1e-3)
    mytorch.quantize(nn.Sequential(nn.Linear(32, 3)).to("cuda"), format)(x[:, :32].to("cuda"))
    table = nn.QuantizedEmbedding.from_embedding(nn.Embedding(6, 32), format)
    on_cpu = table(mytorch.tensor([1, 4])).numpy()
    np.testing.assert_array_equal(table.to("cuda")(mytorch.tensor([1, 4], device="cuda")).cpu(), on_cpu)
    assert nn.QuantizedEmbedding(6, 32, format, device="cuda").scales.device.type == "cuda"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.QuantizedLinear(48, 3), "48 numbers aren't blocks of 32"),
        (lambda: nn.QuantizedLinear(32, 3, format="q5_0"), "q8_0, q4_0, q4_1; got 'q5_0'"),
        (lambda: nn.QuantizedLinear(32, 3, activation="tanh"), "got 'tanh'"),
        (lambda: quantized(np.ones((2, 40), "f"), "q8_0"), r"\(2, 40\) can't be split"),
        (lambda: quantized(np.full((2, 32), np.nan, "f"), "q8_0"), "not finite"),
        (lambda: quantized(np.full((2, 32), 1e9, "f"), "q4_1"), "too large for float16"),
        (lambda: mytorch.quantize(nn.Linear(32, 2)), "from_linear"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_tensors():
    _, layer = made("q4_1")
    x, bias = mytorch.ones(2, 64), layer.bias
    codes, scales, offsets = layer.codes, layer.scales, layer.offsets
    wrong = [
        ((x, codes.to(mytorch.int8), scales, offsets, bias), "expected int8 codes and scales, or uint8"),
        ((x, codes, layer.scales.to(mytorch.int32), offsets, bias), "got uint8, int32, uint16"),
        ((x, codes[:5], scales, offsets, bias), "aren't of one weight"),
        ((x, codes, scales, offsets[:, :1], bias), "aren't of one weight"),
        ((x[:, :32], codes, scales, offsets, bias), r"input \(2, 32\)"),
        ((x, codes, scales, offsets, bias[:3]), r"bias \(3,\)"),
        ((x, codes, scales, offsets, bias.double()), "the bias float64"),
    ]
    for args, message in wrong:
        with pytest.raises(RuntimeError, match=message):
            F.quantized_linear(*args)
    with pytest.raises(NotImplementedError, match="int64"):
        F.quantized_linear(x.long(), codes, scales)


def test_a_model_with_a_tied_head():
    mytorch.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=50, context_length=16, n_layer=2, n_head=2, n_embd=32)).eval()
    idx = mytorch.tensor([[3, 1, 4, 1, 5]])
    with mytorch.no_grad():
        before = model(idx)
    assert mytorch.quantize(model, "q8_0") is model
    table, head = model.transformer.wte, model.lm_head
    assert type(table) is nn.QuantizedEmbedding and table.codes is head.codes and table.scales is head.scales
    assert type(model.transformer.wpe) is nn.Embedding and not head.training
    assert model.transformer.h[0].mlp.c_fc.activation == "gelu"
    assert not [m for m in model.modules() if isinstance(m, nn.Linear)]
    with mytorch.no_grad():
        np.testing.assert_allclose(model(idx).numpy(), before.numpy(), atol=0.02 * float(abs(before).max()))
    tokens = [model.generate(idx, 8, temperature=0, use_cache=cached).numpy() for cached in (True, False)]
    np.testing.assert_array_equal(*tokens)
    model.half()
    assert model(idx).dtype == mytorch.float16


def test_what_stays_is_named():
    lone, shared = nn.Linear(40, 32), nn.Linear(32, 32)
    other = nn.Bilinear(1, 32, 32)
    other.weight = shared.weight
    twice = nn.Linear(64, 40)
    model = nn.Sequential(twice, lone, nn.ModuleDict({"a": shared, "b": other}), twice)
    with pytest.warns(UserWarning, match=r"1 \(32, 40\), 2.a \(32, 32\)$"):
        mytorch.quantize(model, "q4_0")
    assert model[1] is lone and model[2]["a"] is shared
    assert type(model[0]) is nn.QuantizedLinear and model[3] is model[0]


@mytorch.no_grad()
@pytest.mark.parametrize("options", [{}, {"bias": True, "qk_norm": 1e-6}, {"context_dim": 64}])
def test_projections_of_one_input_are_joined(options):
    mytorch.manual_seed(0)
    block = nn.Sequential(nn.GroupedQueryAttention(64, 4, 2, **options), nn.GatedMLP(64, 96)).eval()
    x, context = mytorch.randn(2, 5, 64), mytorch.randn(2, 3, 64)
    parts = copy.deepcopy(block)
    for module in list(parts.modules()):
        for name, child in module._modules.items():
            if type(child) is nn.Linear:
                module._modules[name] = nn.QuantizedLinear.from_linear(child, "q4_1")
    mytorch.quantize(block, "q4_1")
    assert {*block[0]._modules} == {*parts[0]._modules} - {"q_proj", "k_proj", "v_proj"} | {"qkv_proj"}
    assert {*block[1]._modules} == {"gate_up_proj", "down_proj"}
    for args in ((x,), (x, context)):
        np.testing.assert_allclose(block[0](*args).numpy(), parts[0](*args).numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(block[1](x).numpy(), parts[1](x).numpy(), 1e-5, 1e-6)
    names = [name for name, _ in block.named_modules()]
    assert [name for name, _ in mytorch.quantize(block, "q8_0").named_modules()] == names
    np.testing.assert_allclose(block[1](x).numpy(), parts[1](x).numpy(), 1e-5, 1e-6)


def test_projections_that_differ_are_not_joined():
    mytorch.manual_seed(0)
    mlp = nn.GatedMLP(64, 96)
    mlp.gate_proj, mlp.up_proj = (nn.QuantizedLinear(64, 96, False, kind) for kind in ("q8_0", "q4_0"))
    mlp.join_projections()
    assert {*mlp._modules} == {"gate_proj", "up_proj", "down_proj"}
    assert mlp(mytorch.ones(1, 64)).shape == (1, 64)
    attention = mytorch.quantize(nn.GroupedQueryAttention(64, 4, context_dim=32), "q8_0")
    assert {*attention._modules} == {"q_proj", "k_proj", "v_proj", "o_proj"}
