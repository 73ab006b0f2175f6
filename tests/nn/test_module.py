"""Module: attributes, the tree, modes, copies, printing; PyTorch's modules are the oracle."""

import copy
import pickle

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from tests.every import every
from tests.nn.nets import net


@pytest.fixture
def both():
    return net(mytorch), net(torch)


@pytest.fixture
def model():
    return net(mytorch)


# The tree.

LISTINGS = {
    "parameters": lambda m: [n for n, _ in m.named_parameters()],
    "parameters, tied ones twice": lambda m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
    "parameters with a prefix": lambda m: [n for n, _ in m.named_parameters(prefix="net")],
    "parameters of its own": lambda m: [n for n, _ in m.named_parameters(recurse=False)],
    "buffers": lambda m: [n for n, _ in m.named_buffers()],
    "children": lambda m: [n for n, _ in m.named_children()],
    "modules": lambda m: [(n, type(x).__name__) for n, x in m.named_modules()],
    "modules with a prefix": lambda m: [n for n, _ in m.named_modules(prefix="net")],
    "counts": lambda m: [len(list(x)) for x in (m.parameters(), m.buffers(), m.children(), m.modules())],
    "state": lambda m: list(m.state_dict()),
    "state with a prefix": lambda m: list(m.state_dict(prefix="net.")),
    "dir": lambda m: sorted({"embed", "scale", "seen", "shift"} & set(dir(m))),
}


@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_listings_are_pytorch_s(both, listing):
    ours, theirs = map(listing, both)
    assert ours == theirs


def test_a_module_that_is_there_twice_counts_once():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, layer)
    assert len(list(model.modules())) == 2 and len(list(model.children())) == 1
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_get_by_dotted_name(model):
    assert model.get_submodule("body.0") is model.body[0] and model.get_submodule("") is model
    assert model.get_parameter("body.0.weight") is model.body[0].weight
    assert model.get_buffer("seen") is model.seen
    for get, name, message in (
        (model.get_submodule, "body.7", "no submodule 'body.7': '7' is not a Module"),
        (model.get_submodule, "scale", "'scale' is not a Module"),
        (model.get_parameter, "body.0.bass", "no parameter 'body.0.bass'"),
        (model.get_buffer, "scale", "no buffer 'scale'"),
    ):
        with pytest.raises(AttributeError, match=message):
            get(name)


# Attributes.


def test_assigning_registers_and_replaces():
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(mytorch.ones(2))
    assert "x" not in vars(m) and list(m._parameters) == ["x"]
    m.x = None
    assert m.x is None and list(m.parameters()) == []
    m.x = nn.Linear(1, 1)
    assert list(m._modules) == ["x"] and not m._parameters
    del m.x
    m.x = nn.Buffer(mytorch.ones(2), persistent=False)
    assert list(m._buffers) == ["x"] and not m._modules and not m.state_dict()
    m.x = mytorch.zeros(3)  # a plain tensor takes the place of a buffer
    assert list(m._buffers) == ["x"]
    m.x = nn.Buffer(mytorch.ones(2))
    assert list(m.state_dict()) == ["x"]
    del m.x
    assert not hasattr(m, "x") and not m.state_dict()
    m.x = mytorch.ones(2)  # a tensor that is neither parameter nor buffer is an ordinary attribute
    assert "x" in vars(m) and not list(m.buffers())


class NoInit(nn.Module):
    def __init__(self, value):
        self.value = value


def linear():
    return nn.Linear(2, 2)


def buffered():
    m = nn.Module()
    m.register_buffer("b", mytorch.ones(1))
    return m


WRONG_ATTRIBUTES = {  # name: (call, error, message)
    "parameter before __init__": (
        lambda: NoInit(nn.Parameter(mytorch.ones(1))), AttributeError,
        r"cannot assign parameters before Module.__init__\(\)",
    ),
    "module before __init__": (lambda: NoInit(linear()), AttributeError, "cannot assign modules before"),
    "buffer before __init__": (
        lambda: NoInit(nn.Buffer(mytorch.ones(1))), AttributeError, "cannot assign buffers before",
    ),
    "tensor to a parameter": (
        lambda: setattr(linear(), "weight", mytorch.ones(2, 2)), TypeError,
        "cannot assign 'Tensor' as parameter 'weight' .Parameter or None expected",
    ),
    "number to a module": (
        lambda: setattr(nn.Sequential(linear()), "0", 3), TypeError,
        "cannot assign 'int' as child module '0'",
    ),
    "number to a buffer": (
        lambda: setattr(buffered(), "b", 3), TypeError, "cannot assign 'int' as buffer 'b'",
    ),
    "unknown attribute": (lambda: linear().wait, AttributeError, "'Linear' object has no attribute 'wait'"),
    "unknown attribute to delete": (lambda: delattr(linear(), "wait"), AttributeError, "wait"),
    "dot in a name": (lambda: linear().register_parameter("a.b", None), KeyError, "name can.*t contain"),
    "empty name": (lambda: linear().register_buffer("", None), KeyError, "name can.*t be empty"),
    "name of a wrong type": (
        lambda: linear().register_buffer(3, None), TypeError, "should be a string, got int",
    ),
    "taken name": (
        lambda: linear().register_buffer("weight", None), KeyError, "attribute 'weight' already exists",
    ),
    "name of a method": (lambda: linear().add_module("forward", None), KeyError, "'forward' already exists"),
    "no parameter": (
        lambda: linear().register_parameter("a", mytorch.ones(1)), TypeError, "'Tensor' as parameter 'a'",
    ),
    "no buffer": (lambda: linear().register_buffer("a", 3), TypeError, "'int' as buffer 'a'"),
    "no module": (lambda: linear().add_module("a", 3), TypeError, "int is not a Module subclass"),
    "no forward": (
        lambda: nn.Module()(1), NotImplementedError, r'\[Module\] is missing the required "forward"',
    ),
    "integer parameter": (
        lambda: nn.Parameter(mytorch.tensor([1, 2])), RuntimeError,
        "floating-point tensors can require gradients",
    ),
    "training mode": (lambda: linear().train("yes"), ValueError, "boolean, got 'yes'"),
    "integer dtype": (
        lambda: linear().to("int64"), TypeError, "only accepts floating-point dtypes, got int64",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), WRONG_ATTRIBUTES.values(), ids=WRONG_ATTRIBUTES)
def test_wrong_use(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Modes, dtypes, devices.


def test_train_and_eval(model):
    assert model.training and model.eval() is model
    assert not any(m.training for m in model.modules())
    model.body.train()
    assert model.body[0].training and not model.training


@pytest.mark.parametrize("cast", ["half", "float", "double"])
def test_casts_keep_the_parameters_and_their_ties(model, cast):
    parameters, dtype = list(model.parameters()), getattr(mytorch.ones(1), cast)().dtype
    model(mytorch.tensor([1])).sum().backward()
    model.seen = mytorch.tensor([1, 2])
    assert getattr(model, cast)() is model
    assert every(p is q and p.dtype == dtype for p, q in zip(model.parameters(), parameters, strict=True))
    assert every(p.grad.dtype == dtype for p in parameters)
    assert model.head.weight is model.embed.weight and model.cache.dtype == dtype
    assert model.seen.dtype == mytorch.int64
    model.zero_grad()
    model(mytorch.tensor([1])).sum().backward()
    assert every(p.grad.dtype == dtype for p in parameters)


def test_to_a_device_and_back(model, fake_cuda):
    want = model(mytorch.tensor([1, 2])).detach().numpy()
    model.to("cuda:1")
    assert {str(t.device) for t in (*model.parameters(), *model.buffers())} == {"cuda:1"}
    y = model(mytorch.tensor([1, 2], device="cuda:1"))
    y.sum().backward()
    assert str(model.scale.grad.device) == "cuda:1"
    np.testing.assert_allclose(y.detach().cpu().numpy(), want, rtol=1e-5, atol=1e-6)
    model.to(mytorch.zeros(1, dtype=mytorch.float64))
    assert str(model.scale.device) == str(model.scale.grad.device) == "cpu"
    assert model.scale.dtype == mytorch.float64
    assert str(model.cuda(0).scale.device) == "cuda:0" and str(model.cpu().scale.device) == "cpu"


def test_a_cast_keeps_hooks_and_frozen_parameters():
    seen = []
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    layer.weight.register_hook(seen.append)
    layer.double()
    layer(mytorch.ones(1, 2, dtype="float64")).sum().backward()
    assert len(seen) == 1 and not layer.bias.requires_grad and layer.bias.grad is None


def test_freezing_and_zeroing(model):
    model(mytorch.tensor([1])).sum().backward()
    model.zero_grad(set_to_none=False)
    assert every(not p.grad.any() for p in model.parameters())
    model.zero_grad()
    assert every(p.grad is None for p in model.parameters())
    assert model.requires_grad_(False) is model and not any(p.requires_grad for p in model.parameters())
    assert not model(mytorch.tensor([1])).requires_grad


def test_apply_visits_children_first(model):
    names = []
    assert model.apply(lambda m: names.append(type(m).__name__)) is model
    assert names == ["Embedding", "Linear", "GELU", "LayerNorm", "Sequential", "Linear", "Net"]


# Copies.


def through_pickle(m):
    return pickle.loads(pickle.dumps(m))


@pytest.mark.parametrize("copier", [copy.deepcopy, through_pickle])
def test_copies_are_whole_and_apart(copier):
    model = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3, bias=False), nn.Dropout(0.1))
    model[2].weight = model[0].weight
    model.register_buffer("seen", mytorch.ones(2), persistent=False)
    model.eval()
    model[0].bias.requires_grad_(False)
    other = copier(model)
    assert repr(other) == repr(model) and not other.training and not other[0].bias.requires_grad
    assert other[2].weight is other[0].weight and isinstance(other[0].weight, nn.Parameter)
    assert "seen" not in other.state_dict() and other.seen.tolist() == [1, 1]
    x = mytorch.ones(2, 3)
    np.testing.assert_array_equal(other(x).detach().numpy(), model(x).detach().numpy())
    with mytorch.no_grad():
        other[0].weight += 1
    assert not np.array_equal(other[0].weight.detach().numpy(), model[0].weight.detach().numpy())


@pytest.mark.parametrize(
    "copier", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))], ids=["deepcopy", "pickle"]
)
def test_copies_of_a_buffer(copier):
    other = copier(nn.Buffer(mytorch.ones(2), persistent=False))
    assert type(other) is nn.Buffer and not other.persistent and other.tolist() == [1, 1]


# Printing.


def test_repr_is_pytorch_s(both):
    ours, theirs = map(repr, both)
    assert ours == theirs


def test_repr_with_several_lines_of_its_own():
    reprs = []
    for library in (mytorch, torch):

        class Wordy(library.nn.Module):
            def __init__(self, *children):
                super().__init__()
                for i, child in enumerate(children):
                    setattr(self, f"c{i}", child)
                self.none = None

            def extra_repr(self):
                return "first\nsecond"

        reprs.append(repr(Wordy(Wordy(), library.nn.Linear(2, 3))))
    assert reprs[0] == reprs[1]


def test_parameters_print():
    want = "Parameter containing:\ntensor([1.00000 1.00000], requires_grad=True)"
    assert repr(nn.Parameter(mytorch.ones(2))) == want


def test_a_parameter_shares_memory():
    t = mytorch.ones(2)
    p = nn.Parameter(t)
    t += 1
    assert p.tolist() == [2, 2] and not nn.Parameter(t, requires_grad=False).requires_grad
