"""ParameterList and ParameterDict do what PyTorch's do."""

import pytest
import torch

import mytorch


def some(t, n=3):
    return [t.nn.Parameter(t.ones(i + 1, 2)) for i in range(n)]


def keyed(t):
    return {"a": t.nn.Parameter(t.zeros(2)), "b": t.ones(3), "c": 7}


def changed(container, change):
    change(container)
    return container


def put(key, value):
    return lambda container: container.__setitem__(key, value)


STEPS = {
    "list": lambda t: t.nn.ParameterList(some(t)),
    "empty list": lambda t: t.nn.ParameterList(),
    "list of tensors and others": lambda t: t.nn.ParameterList([t.ones(2), "text", 3]),
    "list slice": lambda t: t.nn.ParameterList(some(t))[1:],
    "list append": lambda t: t.nn.ParameterList(some(t)).append(t.zeros(4)),
    "list extend": lambda t: t.nn.ParameterList(some(t)).extend(some(t, 2)),
    "list plus": lambda t: t.nn.ParameterList(some(t)).__iadd__(some(t, 1)),
    "list set": lambda t: changed(t.nn.ParameterList(some(t)), put(-1, t.nn.Parameter(t.zeros(5)))),
    "dict": lambda t: t.nn.ParameterDict(keyed(t)),
    "empty dict": lambda t: t.nn.ParameterDict(),
    "dict of pairs": lambda t: t.nn.ParameterDict(list(keyed(t).items())),
    "dict set": lambda t: changed(t.nn.ParameterDict(keyed(t)), put("b", t.nn.Parameter(t.zeros(5)))),
    "dict delete": lambda t: changed(t.nn.ParameterDict(keyed(t)), lambda d: d.__delitem__("a")),
    "dict pop": lambda t: changed(t.nn.ParameterDict(keyed(t)), lambda d: d.pop("b")),
    "dict popitem": lambda t: changed(t.nn.ParameterDict(keyed(t)), lambda d: d.popitem()),
    "dict setdefault": lambda t: changed(
        t.nn.ParameterDict(keyed(t)), lambda d: d.setdefault("d", t.ones(1))
    ),
    "dict clear": lambda t: changed(t.nn.ParameterDict(keyed(t)), lambda d: d.clear()),
    "dict copy": lambda t: t.nn.ParameterDict(keyed(t)).copy(),
    "dict fromkeys": lambda t: t.nn.ParameterDict().fromkeys(["x", "y"], t.ones(2)),
    "dict or": lambda t: t.nn.ParameterDict(keyed(t)) | t.nn.ParameterDict({"a": t.ones(1), "z": t.ones(2)}),
    "dict update": lambda t: changed(t.nn.ParameterDict(keyed(t)), lambda d: d.update({"q": t.ones(1)})),
}


def plain(value):
    return tuple(value.shape) if hasattr(value, "shape") else value


@pytest.mark.parametrize("name", STEPS)
def test_as_pytorch(name):
    mine, theirs = STEPS[name](mytorch), STEPS[name](torch)
    assert {k: tuple(v.shape) for k, v in mine.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    assert len(mine) == len(theirs)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    if isinstance(theirs, torch.nn.ParameterDict):
        assert [(k, plain(v)) for k, v in mine.items()] == [(k, plain(v)) for k, v in theirs.items()]
        assert list(mine) == list(theirs) and list(reversed(mine)) == list(reversed(theirs))
        assert list(mine.keys()) == list(theirs.keys()) and "a" not in mine or "a" in theirs
    else:
        assert [plain(v) for v in mine] == [plain(v) for v in theirs]


def test_repr_names_what_is_inside():
    text = repr(mytorch.nn.ParameterList([mytorch.ones(2, 3), 5]))
    assert "(0): Parameter containing: [float32 of size 2x3]" in text and "(1): Object of type: int" in text


def test_values_are_parameters_of_the_module():
    class Net(mytorch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = mytorch.nn.ParameterList([mytorch.ones(2), mytorch.ones(2)])
            self.named = mytorch.nn.ParameterDict({"scale": mytorch.ones(1)})

        def forward(self, x):
            return (x * self.weights[0] + self.weights[1]) * self.named["scale"]

    net = Net()
    assert list(net.state_dict()) == ["weights.0", "weights.1", "named.scale"]
    net(mytorch.tensor([2.0, 3.0])).sum().backward()
    assert net.weights[0].grad.tolist() == [2, 3] and net.named["scale"].grad.tolist() == [7]


ERRORS = {
    "index": (IndexError, lambda t: t.nn.ParameterList(some(t))[3]),
    "negative index": (IndexError, lambda t: t.nn.ParameterList(some(t))[-4]),
    "not iterable": (TypeError, lambda t: t.nn.ParameterList().extend(3)),
    "key": (AttributeError, lambda t: t.nn.ParameterDict(keyed(t))["nope"]),
    "number as a key": (TypeError, lambda t: t.nn.ParameterDict({1: t.ones(1)})),
    "not a mapping": (TypeError, lambda t: t.nn.ParameterDict().update(3)),
    "no pair": (ValueError, lambda t: t.nn.ParameterDict([("a", 1, 2)])),
    "empty popitem": (KeyError, lambda t: t.nn.ParameterDict().popitem()),
    "called": (RuntimeError, lambda t: t.nn.ParameterList()(1)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    kind, call = ERRORS[name]
    for framework in (torch, mytorch):
        with pytest.raises(kind):
            call(framework)
