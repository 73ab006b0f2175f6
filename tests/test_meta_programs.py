"""Programs on the device "meta" that also use what has data: masks, generators, the state of optimizers."""

import pickle
import tracemalloc
import warnings

import pytest

import mytorch
from mytorch import nn, optim
from tests.each import each
from tests.every import every

MASKS = {
    "one dim": lambda x: x[mytorch.tensor([True, False, True])],
    "all dims": lambda x: x[mytorch.eye(3, 4) > 0],
    "second dim": lambda x: x[:, mytorch.arange(4) > 1],
    "with integers": lambda x: x[mytorch.arange(3) > 0, mytorch.tensor([0, 3], device=x.device)],
    "a list": lambda x: x[[True, False, True]],
    "wrong shape": lambda x: x[mytorch.tensor([True, False])],
    "lengths of indices": lambda x: x[[0, 1], [0, 1, 2]],
}


@each("call", MASKS)
def test_masks_with_data(call):
    """How many elements they choose is known, as in PyTorch."""
    found = []
    for device in ("cpu", "meta"):
        x = mytorch.zeros(3, 4, device=device, requires_grad=True)
        try:
            y = MASKS[call](x)
            y.sum().backward()
            found.append((y.shape, y.stride(), x.grad.shape))
        except IndexError:
            found.append(IndexError)
    assert found[0] == found[1]


def test_writes_at_masks_with_data():
    x = mytorch.zeros(3, 4, device="meta")
    mask = mytorch.eye(3, 4) > 0
    x[mask] = mytorch.ones(3, device="meta")
    with pytest.raises(RuntimeError, match=r"can't write shape \(4,\)"):
        x[mask] = mytorch.ones(4, device="meta")
    assert x._version.count == 1


def test_histc():
    x = mytorch.zeros(1 << 20, 1 << 20, device="meta")
    assert x.histc(5).shape == mytorch.histc(x, 5, 0, 1).shape == (5,)
    with pytest.raises(RuntimeError, match="not finite"):
        mytorch.histc(x, 5, 0, float("inf"))


@pytest.mark.parametrize("offset", [-5, -2, 0, 1, 9])
@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_indices_of_triangles(name, offset):
    indices = getattr(mytorch, name)
    for shape in [(3, 5), (5, 3), (0, 2)]:
        assert indices(*shape, offset, device="meta").shape == indices(*shape, offset).shape
    tracemalloc.start()
    assert indices(10**4, 10**4, device="meta").shape == (2, 10**4 * (10**4 + 1) // 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_a_block_of_a_device_that_does_not_exist():
    with mytorch.device("meta"):
        with pytest.raises(RuntimeError), mytorch.device("cuda:99"):
            pass
        assert mytorch.ones(1).is_meta
    assert mytorch.get_default_device() == "cpu"


def test_generators_of_other_devices():
    generator = mytorch.Generator().manual_seed(0)
    before = generator.get_state()
    with mytorch.device("meta"):
        layer = nn.Linear(2, 3)
        nn.init.normal_(layer.weight, generator=generator)
        assert mytorch.randn(3, generator=generator).is_meta
    assert mytorch.equal(before, generator.get_state())
    with pytest.raises(RuntimeError, match="expected a generator on 'cpu', got one on 'meta'"):
        mytorch.randn(3, generator=mytorch.Generator("meta"))


@pytest.mark.parametrize("kind", [optim.NAdam, optim.ASGD, optim.AdamW])
def test_optimizers_go_on(kind):
    layer = nn.Linear(2, 3, device="meta")
    layer(mytorch.ones(1, 2, device="meta")).sum().backward()
    first, second = kind(layer.parameters()), kind(layer.parameters())
    first.step()
    second.load_state_dict(first.state_dict())
    second.step()
    got, want = second.state[layer.weight], first.state[layer.weight]
    assert {name: x.device for name, x in got.items()} == {name: x.device for name, x in want.items()}
    assert got["step"].item() == 2


def test_pickle():
    model = nn.Sequential(nn.Linear(2, 3, dtype=mytorch.bfloat16), nn.BatchNorm1d(3)).to("meta")
    x = mytorch.empty(4, 5, device="meta").T
    other, y = pickle.loads(pickle.dumps((model, x)))
    assert y.is_meta and y.stride() == x.stride() == (1, 5)
    state, found = model.state_dict(), other.state_dict()
    assert every(found[k].is_meta and found[k].dtype == v.dtype for k, v in state.items())
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in state.items()}
    assert other[0].weight.requires_grad and isinstance(other[0].weight, nn.Parameter)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_functions_run_eagerly(fullgraph):
    function = mytorch.compile(lambda x: (x * 2 + 1).relu().sum(), fullgraph=fullgraph)
    x = mytorch.empty(3, device="meta", requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(x).backward()
    assert x.grad.is_meta and function.programs() == []
    assert function(mytorch.ones(3)).item() == 9 and len(function.programs()) == 1
    assert function(x).shape == ()


MADE = {
    "zeros": lambda x: mytorch.zeros(5, device="meta"),
    "to": lambda x: x.to("meta"),
    "a device": lambda x: mytorch.empty(3, device=mytorch.device("meta")) + 1,
    "a block": lambda x: [x * 2, in_a_block()][1],
}


def in_a_block():
    with mytorch.device("meta"):
        return mytorch.zeros(5).exp()


@each("function", MADE)
def test_compiled_functions_that_make_them(function):
    compiled, x = mytorch.compile(MADE[function]), mytorch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it runs eagerly
        assert compiled(x).is_meta and compiled(x).is_meta


def test_a_compiled_function_on_another_default_device():
    compiled = mytorch.compile(lambda n: mytorch.ones(n).exp())
    assert not compiled(3).is_meta
    with mytorch.device("meta"):
        assert compiled(3).is_meta
    assert not compiled(3).is_meta and len(compiled.programs()) == 1
