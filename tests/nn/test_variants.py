"""`auto=` and `fused=` of layers: every layer takes them, and they choose what its forward computes."""

import copy
import functools
import inspect
import pickle
import threading

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.nn import layers
from mytorch.nn.functional.composite import REGISTRY
from mytorch.nn.functional.variant import uses_kernels, variant
from mytorch.nn.fused_ops import registry
from mytorch.nn.fused_ops.registry import why_not
from mytorch.nn.layers.variants import with_variants
from mytorch.optim.update import find_kernel
from tests.each import each
from tests.nn.test_layers import LAYERS, RECURRENT, normal
from tests.oracle import compare_gradients, outputs, same, tensors

needs_kernels = pytest.mark.skipif(bool(why_not("cpu")), reason=why_not("cpu") or "-")
CASES = {  # name: (the layer in library t, inputs)
    **{name: cases[0] for name, cases in LAYERS.items()},
    **{
        name: (
            lambda t, name=name: getattr(t.nn, name)(4, 3, dtype=t.float64),
            [normal(2, 4) if name.endswith("Cell") else normal(3, 2, 4)],
        )
        for name in sorted(RECURRENT)
    },
}


class Choosing:
    """mytorch, whose layers get these arguments, too."""

    def __init__(self, **choice):
        self.nn, self.choice = self, choice

    def __getattr__(self, name):
        found = getattr(nn, name, None) or getattr(mytorch, name)
        return functools.partial(found, **self.choice) if name in layers.__all__ else found


@pytest.fixture
def ran(monkeypatch):
    """The names of the references that ran."""
    names = set()
    for name, function in REGISTRY.items():

        def reference(*args, name=name, before=function.reference):
            names.add(name)
            return before(*args)

        monkeypatch.setattr(function, "reference", reference)
    return names


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_the_default_is_pytorch(name):
    make, inputs = CASES[name]
    inputs = [x.astype("d") if x.dtype.kind == "f" else x for x in inputs]
    theirs = make(torch).double()
    results = []
    for library in (mytorch, Choosing(auto=True), Choosing(fused=False)):
        ours = make(library).double()
        ours.load_state_dict(theirs.state_dict())
        mine, his = tensors(inputs, True)
        expected = outputs(copy.deepcopy(theirs)(*his))  # batch norm counts
        found = outputs(ours(*mine))
        for got, want in zip(found, expected, strict=True):
            same(got, want, 1e-7, 1e-9)
        compare_gradients(found, expected, mine, his, 1e-7, 1e-9)
        results.append(ours)
    assert [(x.auto, x.fused) for x in results] == [(False, None), (True, None), (False, False)]
    assert len(set(map(repr, results))) == 1


FUSED = {
    "Linear", "Embedding", "LayerNorm", "ReLU", "GELU", "Sigmoid", "Tanh", "SiLU", "LeakyReLU", "Softmax",
    "LogSoftmax", "Softmin", "Softmax2d", "Conv1d", "Conv2d", "LinearCrossEntropyLoss", "CrossEntropyLoss",
    "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerDecoder", "Transformer", "LSTM", "LSTMCell",
}
IDLE = {"Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"}


@needs_kernels
@each("name", CASES)
def test_the_kernel_or_an_error(name):
    make, inputs = CASES[name]
    ours, fused = make(mytorch).float(), make(Choosing(fused=True)).float()
    fused.load_state_dict(ours.state_dict())
    inputs = [mytorch.tensor(x.astype("f") if x.dtype.kind == "f" else x) for x in inputs]
    if name in FUSED | IDLE:
        for got, want in zip(outputs(fused(*inputs)), outputs(ours(*inputs)), strict=True):
            np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy())
    else:
        with pytest.raises(RuntimeError, match=rf"^({name}|[a-z0-9_]+\(\)): fused=True, but (it|there is)"):
            fused(*inputs)


def test_a_layer_of_our_own_without_composites_has_no_kernel():
    probabilities = mytorch.tensor([0.2, 0.7])
    with pytest.raises(RuntimeError, match="^BCELoss: fused=True, but it has no fused kernel$"):
        nn.BCELoss(fused=True)(probabilities, probabilities)


def test_the_references_run_also_inside(ran):
    x = mytorch.randn(3, 2, 4)
    layer = nn.TransformerEncoderLayer(4, 2, 6, auto=True)
    layer(x)
    assert {"linear", "layer_norm", "relu", "dropout", "softmax"} <= ran
    ran.clear()
    layer.auto = False
    layer(x)
    assert layer._hooks.around is None and not ran
    layer.norm1.auto = True  # its own choice
    layer(x)
    assert ran == {"layer_norm"}
    ran.clear()
    layer.auto, layer.norm1.auto, layer.linear1.fused = True, False, False  # none, and another one
    layer(x)
    assert "layer_norm" in ran and "linear" in ran
    layer.linear2.fused = layer.self_attn.fused = layer.norm1.fused = layer.norm2.fused = False
    ran.clear()
    layer(x)
    assert ran == {"relu", "dropout"}


def test_what_a_call_says_counts_more(ran):
    x = mytorch.randn(3)
    with F.use_fused(auto=True):
        F.silu(x, fused=False)
        assert not ran
        F.silu(x)
    assert ran == {"silu", "sigmoid"}
    ran.clear()
    with F.use_fused(False):
        F.silu(x, auto=True)
        with F.use_fused(auto=True):
            F.gelu(x)
            with F.use_fused(auto=False):
                F.relu(x)
        F.relu(x)
    assert ran == {"silu", "sigmoid", "gelu"} and F.use_fused.default


@with_variants
class Asking(nn.Module):
    """Runs a composite with a kernel, and notes what holds within."""

    def forward(self, x):
        self.found = [variant(), uses_kernels()]
        return F.relu(x)


ANSWERS = {  # name: (arguments of use_fused, the layer's choice, `variant()`, `uses_kernels()`)
    "kernels": ((True, {}), {}, (False, None), True),
    "no kernels": ((False, {}), {}, (False, False), False),
    "references": ((True, {"auto": True}), {}, (True, None), False),
    "references no more": ((True, {"auto": False}), {}, (False, None), True),
    "a layer's references": ((True, {}), {"auto": True}, (True, None), False),
    "a layer without kernels": ((True, {}), {"fused": False}, (False, False), False),
    "a layer that demands one": ((False, {}), {"fused": True}, (False, True), True),
}


@needs_kernels
@pytest.mark.parametrize(("mode", "choice", "holds", "kernels"), ANSWERS.values(), ids=ANSWERS)
def test_one_function_says_what_runs(mode, choice, holds, kernels):
    before = F.use_fused.default
    with F.use_fused(mode[0], **mode[1]):
        layer = Asking(**choice)
        layer(mytorch.ones(2))
    assert layer.found == [holds, kernels]
    assert F.use_fused.default is before and variant() == (False, None if before else False)


def test_optimizers_and_kernels_outside_of_composites_follow_it(monkeypatch):
    monkeypatch.setattr(registry, "load", lambda *args: pytest.fail("a kernel"))
    raw = np.zeros(4, "float32")
    for options in ({"mode": False}, {"auto": True}):
        with F.use_fused(**options):
            assert registry.find("norm", raw) is None
            assert find_kernel("adamw", raw.dtype, mytorch.device("cpu"), None) is None


def test_use_fused_outside_of_a_block():
    F.use_fused(auto=True)
    assert variant() == (True, None) and F.use_fused.default
    F.use_fused(auto=False)
    assert variant() == (False, None)
    with pytest.raises(TypeError, match="auto must be True or False, got 1"):
        F.use_fused(auto=1)
    with pytest.raises(ValueError, match="auto= leaves the mode as it is"):
        F.use_fused(False, auto=True)


PROGRAMS = {  # the choice: whether attention stays one instruction
    "kernels": ({}, {}, True), "no kernels": ({"mode": False}, {}, False),
    "references": ({"auto": True}, {}, False), "a call without": ({}, {"fused": False}, False),
    "a call's reference": ({}, {"auto": True}, False),
}


@pytest.mark.parametrize(("mode", "choice", "is_kept"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_are_of_the_variants_that_are_chosen(mode, choice, is_kept):
    q = mytorch.randn(1, 2, 8, 4)
    with F.use_fused(**mode):
        program = mytorch.capture(lambda q: F.scaled_dot_product_attention(q, q, q, **choice), q)
    assert ("kernel" in {i.name for i in program.instructions}) is is_kept


def test_an_error_ends_the_choice(ran):
    layer = nn.Linear(3, 2, auto=True)
    with pytest.raises(RuntimeError):
        layer(mytorch.ones(4))
    ran.clear()
    F.relu(mytorch.ones(2))
    assert not ran


def test_a_choice_is_that_of_a_thread(ran):
    def other():
        F.relu(mytorch.ones(2))
        seen.append(set(ran))

    seen = []
    with F.use_fused(auto=True):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        F.gelu(mytorch.ones(2))
    assert seen == [set()] and ran == {"gelu"}


def test_hooks_of_a_layer_with_a_choice(ran):
    layer, order = nn.ReLU(auto=True), []
    layer.register_forward_pre_hook(lambda module, args: order.append(F.gelu(args[0])))
    layer.register_forward_hook(lambda module, args, result: result + 1)
    assert layer(mytorch.ones(1)).item() == 2
    assert len(order) == 1 and ran == {"relu"}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_choose_the_same(copied, ran):
    layer = copied(nn.Linear(3, 2, auto=True))
    assert (layer.auto, layer.fused) == (True, None)
    layer(mytorch.ones(3))
    assert ran == {"linear"}
    assert layer.state_dict().keys() == {"weight", "bias"}
    default = copied(nn.Linear(3, 2))
    assert default._hooks is None and not {"auto", "fused"} & vars(default).keys()


def test_subclasses(ran):
    class Own(nn.Linear):
        def __init__(self, width, auto):
            super().__init__(width, width, False, auto=auto)

    Own(3, False)(mytorch.ones(3))
    assert not ran
    Own(3, True)(mytorch.ones(3))
    assert ran == {"linear"}
    assert repr(Own(3, True)) == "Own(in_features=3, out_features=3, bias=False)"


@each("name", layers.__all__)
def test_signatures(name):
    parameters = inspect.signature(getattr(nn, name)).parameters
    for option, default in (("auto", False), ("fused", None)):
        assert parameters[option].default is default
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
    assert list(parameters)[-1] in ("fused", "kwargs", "unknown")


def test_wrong_choices():
    with pytest.raises(ValueError, match="^Linear: auto=True runs the reference, fused=True"):
        nn.Linear(2, 2, auto=True, fused=True)
    layer = nn.GELU(fused=True)
    with pytest.raises(ValueError, match="^GELU: auto=True"):
        layer.auto = True
    assert (layer.auto, layer.fused) == (False, True)
    with pytest.raises(TypeError, match=r"^GELU: fused must be a bool \| None, got 'cpu'"):
        nn.GELU(fused="cpu")
    with pytest.raises(TypeError, match="^GELU: auto must be a bool, got None"):
        nn.GELU(auto=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fuse'"):
        nn.GELU(fuse=True)
    with pytest.warns(FutureWarning) as seen:
        nn.Hardtanh(min_value=0.0)
    assert seen[0].filename == __file__
