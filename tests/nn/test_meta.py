"""Every composite and every layer of our own on meta tensors, beside the same on the CPU without kernels."""

import copy

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from tests.database.meta import as_meta, facts_of, outcome
from tests.nn.functional.cases import CASES
from tests.nn.functional.test_parity import KINDS, arguments
from tests.nn.test_layers import LAYERS, OURS, RECURRENT, normal

CHOICES = {"manual": {"fused": False}, "reference": {"auto": True}}


def tensors(x, memo=None):
    """Arrays as tensors; those of floats require gradients."""
    if isinstance(x, np.ndarray):
        return mytorch.tensor(x).requires_grad_(x.dtype.kind == "f")
    return type(x)(map(tensors, x)) if type(x) in (tuple, list) else x


@pytest.fixture(autouse=True)
def without_kernels():
    with F.use_fused(False):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", CASES)
def test_composites(name, choice):
    for number, i in enumerate(KINDS[name]):
        for dtype in ("float32", "bfloat16" if number == 0 else "float64")[: 1 + (number < 2)]:
            args, kwargs = arguments(name, i, mytorch.dtypes.as_dtype(dtype))
            mine = tensors(args), {key: mytorch.tensor(a) if isinstance(a, np.ndarray) else a
                                   for key, a in kwargs.items()}

            def call(*args, **kwargs):
                return getattr(F, name)(*args, **kwargs, **CHOICES[choice])

            want = outcome(call, mine, True)
            got = outcome(call, as_meta(mine, {}), True)
            assert got == want or (name, got) == ("ctc_loss", NotImplementedError), f"case {i}: {dtype}"


MINE = {
    "GeGLU": lambda: (nn.GeGLU(), (2, 6)),
    "SwiGLU": lambda: (nn.SwiGLU(), (2, 6)),
    "SquaredReLU": lambda: (nn.SquaredReLU(), (2, 6)),
    "LinearActivation": lambda: (nn.LinearActivation(6, 3, "gelu"), (2, 6)),
    "AddLayerNorm": lambda: (nn.AddLayerNorm(6), (2, 6), (2, 6)),
    "InstanceNorm": lambda: (nn.InstanceNorm(6), (2, 6, 3, 4)),
    "LoRALinear": lambda: (nn.LoRALinear(nn.Linear(6, 3), 2), (2, 6)),
    "ScaledDotProduct": lambda: (nn.ScaledDotProduct(), (2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)),
    "GatedMLP": lambda: (nn.GatedMLP(6, 8), (2, 6)),
    "GroupedQueryAttention": lambda: (nn.GroupedQueryAttention(8, 4, 2), (2, 5, 8)),
    "MixtureOfExperts": lambda: (nn.MixtureOfExperts(6, 8, 4, 2), (2, 5, 6)),
    "RNN": lambda: (nn.RNN(4, 6, 2, bidirectional=True), (5, 2, 4)),
    "LSTM": lambda: (nn.LSTM(4, 6, proj_size=3), (5, 2, 4)),
    "GRU": lambda: (nn.GRU(4, 6, batch_first=True), (5, 2, 4)),
    "RNNCell": lambda: (nn.RNNCell(4, 6), (2, 4)),
    "LSTMCell": lambda: (nn.LSTMCell(4, 6), (2, 4)),
    "GRUCell": lambda: (nn.GRUCell(4, 6), (2, 4)),
    "LazyLinear": lambda: (nn.LazyLinear(3), (2, 4)),
    "LazyConv2d": lambda: (nn.LazyConv2d(3, 2), (2, 4, 5, 5)),
    "LazyBatchNorm1d": lambda: (nn.LazyBatchNorm1d(), (2, 4)),
}
# Lengths that are tensors; the number of batches, for the mean over all of them (momentum=None).
VALUES = {"CTCLoss": NotImplementedError, "BatchNorm1d": RuntimeError}
# Their parts are in others of the list, or they have bytes for weights.
ELSEWHERE = {"SlidingWindowAttention", "RotaryEmbedding", "QuantizedEmbedding", "QuantizedLinear"}


def step(module, inputs):
    """The facts of a forward and backward pass in training mode."""

    def call(parameters, *args):
        return module(*args)

    found = outcome(call, (([*module.parameters()], *inputs), {}), True)
    return [found, *map(facts_of, module.buffers())]


@pytest.mark.parametrize("name", MINE)
def test_own_layers(name):
    layer, *shapes = MINE[name]()
    inputs = [mytorch.tensor(normal(*s), requires_grad=True) for s in shapes]
    layer(*inputs)  # a lazy one gets its parameters
    mine, meta = copy.deepcopy(layer), copy.deepcopy(layer).to("meta")
    got = step(meta, as_meta(inputs, {}))
    want = step(mine, inputs)
    if name == "MixtureOfExperts":
        assert got[0] is NotImplementedError  # which tokens an expert gets
        return
    assert got == want and not isinstance(want[0], type)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    for make, inputs in LAYERS[name]:
        mine = copy.deepcopy(make(mytorch))
        meta = copy.deepcopy(mine).to("meta")
        given = tensors(inputs)
        want, got = step(mine, given), step(meta, as_meta(given, {}))
        assert got == want or got[0] is VALUES.get(name)


def test_every_layer_is_here():
    assert MINE.keys() | ELSEWHERE >= OURS | RECURRENT
