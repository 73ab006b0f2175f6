"""mytorch.summary: shapes, parameters, FLOP and bytes of layers."""

import collections
import gc

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.backends.meta.storage import memory
from mytorch.models import GPT2, Bert, BertConfig, GPT2Config, Llama, LlamaConfig


def test_a_small_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
    model[0].bias.requires_grad = False
    gc.collect()  # what other tests have left
    weight, before = model[0].weight.data._array, memory.allocated
    found = mytorch.summary(model, (16, 4))
    assert model[0].weight.data._array is weight and model[0]._hooks is None and memory.allocated == before
    rows = {layer.path: layer for layer in found.layers}
    assert list(rows) == ["", "0", "1", "2"] and [layer.depth for layer in found.layers] == [0, 1, 1, 1]
    assert [layer.output for layer in found.layers] == [(16, 2), (16, 8), (16, 8), (16, 2)]
    assert [layer.parameters for layer in found.layers] == [56, 40, 0, 16]
    assert [layer.forward_flops for layer in found.layers] == [2 * 16 * 48, 2 * 16 * 32, 0, 2 * 16 * 16]
    assert [layer.backward_flops for layer in found.layers] == [2 * 16 * 64, 2 * 16 * 32, 0, 4 * 16 * 16]
    assert [layer.saved_bytes for layer in found.layers] == [4 * 16 * 8, 0, 4 * 16 * 8, 0]  # relu's result
    assert (found.trainable, found.parameter_bytes, found.buffer_bytes) == (48, 4 * 56, 0)


class Scaled(nn.Module):
    """exp keeps its result, * its factors, which are an input and a parameter, + nothing."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(mytorch.ones(3, 4))

    def forward(self, x, y):
        return {"sum": ((x * self.scale).exp() + (y - 1), x)}


def test_saved_bytes_of_operations():
    model = Scaled()
    found = mytorch.summary(model, mytorch.ones(5, 3, 4), np.ones((3, 4), np.float32))
    assert found.layers[0].saved_bytes == 5 * 3 * 4 * 4
    assert found.layers[0].output == [(5, 3, 4), (5, 3, 4)]
    model.scale.requires_grad_(False)
    assert mytorch.summary(model, (3, 4), (3, 4)).layers[0].saved_bytes == 0


MODELS = {
    "gpt2": (lambda: GPT2(GPT2Config(65, 32, 2, 2, 8)), "transformer.h.1.mlp.c_fc", (2, 16, 32)),
    "llama": (lambda: Llama(LlamaConfig.of_size("15m")), "lm_head", (2, 16, 32000)),
    "bert": (lambda: Bert(BertConfig.of_size("mini-lm")), "bert.embeddings", (2, 16, 384)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    make, path, shape = MODELS[name]
    with mytorch.device("meta"):
        model = make()
    found = mytorch.summary(model, (2, 16), dtype=mytorch.int64)
    (layer,) = [layer for layer in found.layers if layer.path == path]
    assert layer.output == shape
    assert found.layers[0].parameters == sum(p.numel() for p in model.parameters())
    if name != "bert":
        total = found.layers[0].forward_flops + found.layers[0].backward_flops
        assert total == 2 * 16 * model.flops_per_token(16)
    kept = 2 * found.parameter_bytes + found.buffer_bytes
    assert kept < found.peak_bytes


def test_layers_that_are_not_called_and_lazy_ones():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(5))
    model[0].spare = nn.Linear(2, 2)
    found = mytorch.summary(model, (2, 3, 6, 6))
    assert [layer.parameters for layer in found.layers] == [118 + 325, 118, 6, 0, 325]
    assert found.layers[2].output is None
    with pytest.raises(TypeError, match="an input is a shape, a Tensor or an array, got str"):
        mytorch.summary(model, "x")


def test_the_table_to_a_depth():
    with mytorch.device("meta"):
        model = GPT2(GPT2Config(n_layer=96, n_head=96, n_embd=12288, context_length=2048))
    lines = str(mytorch.summary(model, (1, 2048), dtype="int64", depth=1)).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["GPT2", "transformer", "lm_head"]
    assert lines[2].split()[4:] == ["174,604,259,328", "734.804T", "1.470P", "144.2", "GiB"]
    assert lines[-2].startswith("174,604,259,328 parameters, 174,604,259,328 of them trained: 650.5 GiB")


def test_inputs_in_a_dict_or_tuple():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, batch, mask=None):
            x, (y, _) = batch["x"], batch["more"]
            return {"sum": self.layer(x) + self.layer(y)}

    found = mytorch.summary(Net(), {"x": (3, 4), "more": [mytorch.ones(3, 4), (5,)]}, None)
    assert found.layers[0].output == (3, 2) and found.layers[1].forward_flops == 2 * 2 * 3 * 4 * 2
    state = (1, 3, 6), (1, 3, 6)  # an LSTM's
    alone, given = (mytorch.summary(nn.LSTM(4, 6), (5, 3, 4), *more) for more in ((), (state,)))
    assert (given.layers[0].output, given.layers[0].forward_flops) == ([(5, 3, 6), *state], 7200)
    zeros = 2 * 3 * 6 * 4  # that the layer makes itself, and keeps
    assert alone.layers[0].saved_bytes == given.layers[0].saved_bytes + zeros


def test_models_that_make_tensors_and_keep_them_in_lists():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.scales = nn.Embedding(10, 4), [mytorch.ones(4), {"last": mytorch.ones(4)}]

        def forward(self, pair, factor):
            positions = self.embedding(mytorch.arange(pair.a.shape[1]))
            return (pair.a + pair.b + positions) * self.scales[0] * self.scales[1]["last"] * factor

    pair = collections.namedtuple("Pair", "a b")((2, 5, 4), mytorch.ones(5, 4))
    found = mytorch.summary(Net(), pair, 3)
    assert found.layers[0].output == (2, 5, 4) and found.layers[1].output == (5, 4)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, scale, *, mask=None, how="mul"):
        x = self.layer(self.layer(x)) * scale
        return x if mask is None else getattr(x, how)(mask)


def test_inputs_by_keyword():
    alone, shape, tensor = (
        mytorch.summary(Masked(), (2, 4), **more)
        for more in ({"scale": 2}, {"scale": 2, "mask": (3, 2, 4)},
                     {"scale": 2, "mask": mytorch.ones(5, 2, 4), "how": "add"})
    )
    assert [found.layers[0].output for found in (alone, shape, tensor)] == [(2, 4), (3, 2, 4), (5, 2, 4)]
    twice = alone.layers[1]  # a module that is called twice; the first time no input needs a gradient
    assert (twice.forward_flops, twice.backward_flops, twice.parameters) == (2 * 64, 3 * 64, 20)
    with pytest.raises(TypeError, match="unexpected keyword argument 'input_size'"):
        mytorch.summary(Masked(), input_size=(2, 4))


def test_shapes_have_the_dtype_of_the_parameters():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    single = mytorch.summary(model, (16, 4))
    for dtype in (mytorch.float16, mytorch.bfloat16, mytorch.float64):
        found = mytorch.summary(model.to(dtype), (16, 4))
        assert found.parameter_bytes == model[0].weight.element_size() * 58
        assert found.layers[0].forward_flops == single.layers[0].forward_flops
    assert mytorch.summary(nn.ReLU(), (3,)).layers[0].output == (3,)


def test_parameters_of_several_modules_count_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.append(model[0])
    found = mytorch.summary(model, (2, 4))
    assert [layer.path for layer in found.layers] == ["", "0", "1"]
    assert [layer.parameters for layer in found.layers] == [24, 20, 20]
    assert (found.trainable, found.parameter_bytes, found.layers[0].forward_flops) == (24, 96, 3 * 64)


def test_the_peak_holds_a_gradient_once():
    """As on the CPU, where a product is computed into `.grad`."""
    with mytorch.device("meta"):
        model = nn.Linear(1024, 1024, bias=False)
    size = 4 * 1024**2
    assert 2 * size <= mytorch.summary(model, (1, 1024)).peak_bytes < 2.1 * size


def test_wrong_calls_are_explained():
    with pytest.raises(ValueError, match="depth is at least 0, got -1"):
        mytorch.summary(nn.ReLU(), (4, 5), depth=-1)
    with pytest.raises(TypeError, match="the model is a Module, got int"):
        mytorch.summary(3, (4, 5))
    with pytest.raises(TypeError, match="a shape, a Tensor or an array, got str"):
        mytorch.summary(nn.Linear(4, 2), {"x": "text"})
