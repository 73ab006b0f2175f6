"""Sequential, ModuleList and ModuleDict do what PyTorch's do."""

import re
from collections import OrderedDict

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from tests.each import each


def layers(library, n=4):
    return [library.nn.Linear(i + 1, i + 2) for i in range(n)]


def named(library):
    return OrderedDict(a=library.nn.Linear(1, 2), act=library.nn.ReLU(), b=library.nn.Linear(2, 1))


def run(library, steps):
    """Apply the steps to a container and list what is in it."""
    container = steps(library)
    return repr(container), list(container.state_dict()), len(container)


STEPS = {
    "sequential": lambda t: t.nn.Sequential(*layers(t)),
    "sequential of names": lambda t: t.nn.Sequential(named(t)),
    "empty sequential": lambda t: t.nn.Sequential(),
    "sequential slice": lambda t: t.nn.Sequential(*layers(t))[1:3],
    "sequential of names slice": lambda t: t.nn.Sequential(named(t))[-2:],
    "sequential append": lambda t: t.nn.Sequential(*layers(t, 2)).append(t.nn.ReLU()),
    "sequential extend": lambda t: t.nn.Sequential(*layers(t, 2)).extend(layers(t, 2)),
    "sequential insert": lambda t: t.nn.Sequential(*layers(t, 2)).insert(1, t.nn.ReLU()),
    "sequential plus": lambda t: t.nn.Sequential(*layers(t, 2)) + t.nn.Sequential(*layers(t, 3)),
    "list": lambda t: t.nn.ModuleList(layers(t)),
    "list of alikes": lambda t: t.nn.ModuleList(
        [*[t.nn.Linear(2, 2) for _ in range(3)], t.nn.ReLU(), t.nn.ReLU()]
    ),
    "list of nested alikes": lambda t: t.nn.ModuleList(
        [t.nn.Sequential(t.nn.Linear(2, 2), t.nn.ReLU()) for _ in range(2)]
    ),
    "empty list": lambda t: t.nn.ModuleList(),
    "list slice": lambda t: t.nn.ModuleList(layers(t))[::-1],
    "list append": lambda t: t.nn.ModuleList(layers(t)).append(t.nn.ReLU()),
    "list extend": lambda t: t.nn.ModuleList(layers(t)).extend(layers(t)),
    "list plus": lambda t: t.nn.ModuleList(layers(t)) + t.nn.ModuleList(layers(t)),
    "dict": lambda t: t.nn.ModuleDict({"x": t.nn.ReLU(), "y": t.nn.Linear(2, 2)}),
    "dict of pairs": lambda t: t.nn.ModuleDict([("x", t.nn.ReLU()), ("y", t.nn.Linear(2, 2))]),
    "empty dict": lambda t: t.nn.ModuleDict(),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_built_as_pytorch_s(steps):
    assert run(mytorch, steps) == run(torch, steps)


def changed(library, kind):
    """A container after changes in place."""
    c = kind(library)
    c[1] = library.nn.Linear(7, 7)
    c[-1] = library.nn.ReLU()
    del c[0]
    popped = c.pop(0)
    c.insert(1, library.nn.Tanh())
    c += library.nn.Sequential(*layers(library, 2))
    del c[1:3]
    return repr(c), list(c.state_dict()), repr(popped), [repr(m) for m in c], c[0] in c


@pytest.mark.parametrize("kind", [STEPS["sequential"], STEPS["list"]], ids=["sequential", "list"])
def test_changed_in_place(kind):
    assert changed(mytorch, kind) == changed(torch, kind)


def test_dict_methods():
    results = []
    for t in (mytorch, torch):
        d = t.nn.ModuleDict({"x": t.nn.ReLU()})
        d["y"] = t.nn.Tanh()
        d.update({"z": t.nn.Linear(1, 1), "x": t.nn.Sigmoid()})
        d.update(t.nn.ModuleDict({"w": t.nn.ReLU()}))
        listing = [list(d), list(d.keys()), [repr(m) for m in d.values()], [k for k, _ in d.items()]]
        popped = d.pop("x")
        del d["y"]
        results.append([*listing, repr(popped), "x" in d, "z" in d, repr(d), len(d)])
        d.clear()
        assert len(d) == 0
    assert results[0] == results[1]


def test_sequential_calls_in_turn():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x = mytorch.randn(4, 2)
    want = model[2](model[1](model[0](x)))
    np.testing.assert_array_equal(model(x).detach().numpy(), want.detach().numpy())
    assert len(list(model.parameters())) == 4


WRONG = {
    "index": (lambda: nn.ModuleList(layers(mytorch))[4], IndexError, "index 4 is out of range for 4 modules"),
    "negative index": (lambda: nn.Sequential()[-1], IndexError, "index -1 is out of range for 0 modules"),
    "insert": (lambda: nn.ModuleList().insert(3, nn.ReLU()), IndexError, "index 3 is out of range"),
    "no module": (lambda: nn.Sequential(3), TypeError, "int is not a Module subclass"),
    "insert no module": (lambda: nn.ModuleList().insert(0, 3), TypeError, "int is not a Module subclass"),
    "no iterable": (
        lambda: nn.ModuleList().extend(3), TypeError, "extend should be called with an iterable, got 3",
    ),
    "plus": (lambda: nn.Sequential() + 3, ValueError, "only objects of Sequential class, got int"),
    "key": (lambda: nn.ModuleDict()["x"], KeyError, "x"),
    "dict of numbers": (lambda: nn.ModuleDict(3), TypeError, "mapping or pairs, got 3"),
    "dict of no pairs": (
        lambda: nn.ModuleDict([3]), ValueError, "element 0 must be a .key, module. pair, got 3",
    ),
    "dict key with a dot": (lambda: nn.ModuleDict({"a.b": nn.ReLU()}), KeyError, "name can.*t contain"),
    "list has no forward": (lambda: nn.ModuleList()(1), NotImplementedError, "ModuleList"),
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)


INSTEAD = {  # what is no module, and what the error says
    nn.ReLU: "ReLU is a class, not a module; the parentheses are missing: nn.ReLU()",
    nn.Linear: "Linear is a class, not a module; the parentheses are missing: nn.Linear(…)",
    nn.Sequential: "Sequential is a class, not a module; the parentheses are missing: nn.Sequential()",
    Block: "Block is a class, not a module; the parentheses are missing: Block(…)",
    F.relu: "relu is a function, not a module; write nn.ReLU()",
    F.relu_: "relu_ is a function, not a module; write nn.ReLU()",
    mytorch.tanh: "tanh is a function, not a module; write nn.Tanh()",
    F.max_pool2d: "max_pool2d is a function, not a module; write nn.MaxPool2d(…)",
    F.cross_entropy: "cross_entropy is a function, not a module; write nn.CrossEntropyLoss()",
    F.pad: "pad is a function, not a module; call it in a module's forward()",
    len: "len is a function, not a module; call it in a module's forward()",
}
PLACES = {
    "Sequential": lambda x: nn.Sequential(nn.Linear(2, 2), x),
    "Sequential dict": lambda x: nn.Sequential({"a": x}),
    "append": lambda x: nn.Sequential().append(x),
    "extend": lambda x: nn.Sequential().extend([x]),
    "insert": lambda x: nn.Sequential().insert(0, x),
    "set": lambda x: nn.Sequential(nn.ReLU()).__setitem__(0, x),
    "ModuleList": lambda x: nn.ModuleList([x]),
    "ModuleList plus": lambda x: nn.ModuleList() + [x],
    "ModuleDict": lambda x: nn.ModuleDict({"a": x}),
    "ModuleDict set": lambda x: nn.ModuleDict().__setitem__("a", x),
    "add_module": lambda x: nn.ReLU().add_module("a", x),
    "register_module": lambda x: nn.ReLU().register_module("a", x),
    "attribute": lambda x: setattr(Block(2), "linear", x),
}


@each("place", PLACES)
def test_what_to_write_instead_of_no_module(place):
    for wrong, said in INSTEAD.items():
        with pytest.raises(TypeError, match=f"{re.escape(said)}$"):
            PLACES[place](wrong)


@pytest.mark.parametrize(("call", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_use(call, error, message):
    with pytest.raises(error, match=message):
        call()
