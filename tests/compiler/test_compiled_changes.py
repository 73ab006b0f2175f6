"""Compiled functions notice what has changed since the capture: Python values, objects, arrays, hooks."""

import collections
import gc
import random
import types
import warnings

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from tests.compiler.test_compiled_steps import training
from tests.every import every


def test_what_makes_it_capture_again():
    scale, x = 2, mytorch.ones(2, 3)

    @mytorch.compile
    def function(x, power=1):
        return x * scale + power

    calls = [
        (lambda: function(x), None),
        (lambda: function(mytorch.ones(4, 3)), "an argument is float32[4, 3], was float32[2, 3]"),
        (lambda: function(x.double()), "an argument is float64[2, 3], was float32[4, 3]"),
        (lambda: function(x, 3), None),
        (lambda: function(x, power=3), "the arguments have another structure"),
        (lambda: function(mytorch.ones(2, 3, requires_grad=True)), None),
        (lambda: function(x.half()), "an argument is float16[2, 3], was float32[2, 3] with requires_grad"),
    ]
    want = [function._function(x), None, None, function._function(x, 3)]
    for k, (call, _) in enumerate(calls):
        found = call()
        assert len(function.history) == k + 1
        if k in (0, 3):
            assert mytorch.equal(found, want[k])
        call()
        assert len(function.history) == k + 1  # the same again
    scale = 5
    assert function(x).tolist() == [[6.0] * 3] * 2
    assert function.history[-1][0] == "a variable of a closure is 5, was 2, and is an input from now on"
    said = mytorch.compiler.explain(function)
    assert every(reason in said for _, reason in calls if reason)
    with mytorch.no_grad(), pytest.warns(UserWarning, match="traced 8 times"):
        function(x)
    assert function.history[-1][0] == "grad mode is False, was True"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(x.int()).shape == (2, 3) and len(function.history) == 9  # eagerly
        assert function(mytorch.ones(7)).shape == (7,) and len(function.history) == 10
    said = mytorch.compiler.explain(function).splitlines()[-1]
    assert said == "   1 call ran eagerly, as it was traced 8 times, which is the limit"
    function.reset()
    function(x)
    assert len(function.history) == 1


def test_what_is_said_of_arguments_that_are_no_tensors():
    function = mytorch.compile(lambda x, by=None: x * 2)
    for by in (None, mytorch.ones(2), 3, nn.ReLU(), nn.ReLU(), nn.functional.relu):
        function(mytorch.ones(2), by)
    assert [reason for reason, _ in function.history[1:]] == [
        "an argument is float32[2], was None",
        "an argument is 3, was float32[2]",
        "an argument is one ReLU, was 3",
        "an argument is another object: one ReLU",
        "an argument is relu, was one ReLU",
    ]


class Settings:
    gain = 1.0

    def __init__(self):
        self.gain, self.layers = 2.0, [nn.Linear(2, 2)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.gain


def test_signs_of_zeros_are_noticed():
    function, x = mytorch.compile(lambda x, a: a / x), mytorch.ones(2)
    for a in (0.0, -0.0, 0.0, 1.0, -0.0, 0.0):
        assert np.array_equal(np.signbit(function(x, a).numpy()), [np.signbit(a)] * 2)


def test_values_behind_objects_are_noticed():
    settings, x = Settings(), mytorch.ones(1, 2)

    def linear():
        layer = nn.Linear(2, 2)
        for p in layer.parameters():
            p.data = (p.data * 64).round() / 64  # sums are exact, in whatever order
        return layer

    settings.layers = [linear()]
    function = mytorch.compile(lambda x: settings(x))
    for change in (
        lambda: None,
        lambda: setattr(settings, "gain", 3.0),
        lambda: settings.layers.append(linear()),
        lambda: setattr(settings.layers[0], "weight", nn.Parameter(mytorch.ones(2, 2))),
        lambda: settings.layers[0].weight.data.zero_(),
        lambda: setattr(settings.layers[0].weight, "data", mytorch.full((2, 2), 3.0).data),
        lambda: settings.layers[0].requires_grad_(False),
    ):
        change()
        assert mytorch.equal(function(x), settings(x))
    assert len(function.history) == 5  # new values of parameters need no other program


SCALE = 2.0


class Net(nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3))
        self.pair, self.table = (mytorch.ones(3), mytorch.ones(3)), {(1, 2): 3.0}

    def helper(self, x):
        return x * SCALE * len(self.table)

    def forward(self, x):
        return self.helper(self.layers(x)) * self.gain + self.pair[0] * self.table[1, 2]


def double(module, inputs, output):
    return output * 2


CHANGES = {
    "a global of a method": lambda net, patch: patch.setitem(globals(), "SCALE", 5.0),
    "an attribute of its class": lambda net, patch: patch.setattr(Net, "gain", 3.0),
    "a method of its class": lambda net, patch: patch.setattr(Net, "helper", lambda self, x: x),
    "a child": lambda net, patch: net.layers.append(nn.Linear(3, 3)),
    "a hook": lambda net, patch: net.layers.register_forward_hook(double),
    "another hook": lambda net, patch: net.register_forward_hook(double),
    "a tuple of tensors": lambda net, patch: setattr(net, "pair", (mytorch.zeros(3), net.pair[1])),
    "an item": lambda net, patch: net.table.__setitem__((1, 2), 7.0),
    "a new item": lambda net, patch: net.table.__setitem__("b", 7.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_noticed(name, monkeypatch):
    net, x = Net(), mytorch.randn(2, 3)
    net.register_forward_hook(lambda *_: None)
    compiled = mytorch.compile(net, fullgraph=True)
    for _ in range(2):
        assert mytorch.allclose(compiled(x), net(x))
    CHANGES[name](net, monkeypatch)
    assert mytorch.allclose(compiled(x), net(x))
    assert len(compiled.forward.history) == 2


def test_hooks_of_parameters_are_noticed():
    layer, x = nn.Linear(3, 3), mytorch.ones(1, 3)

    @mytorch.compile
    def step(x):
        layer.zero_grad()
        layer(x).sum().backward()

    step(x), step(x)
    layer.weight.register_hook(lambda g: g * 100)
    step(x)
    assert layer.weight.grad.tolist() == [[100.0] * 3] * 3


def test_arrays_that_it_makes_tensors_of():
    array = np.ones(3, np.float32)
    function = mytorch.compile(lambda x: x + mytorch.from_numpy(array), fullgraph=True)
    for value in (2, 3):
        array[...] = value
        gc.collect()
        assert function(mytorch.ones(3)).tolist() == [value + 1] * 3
    assert len(function.history) == 1


# Elements that the function asks for.


def absolute(x):
    if x.sum() > 0:
        return x * 2
    return -x


def test_branches():
    function, x = mytorch.compile(absolute, fullgraph=True), mytorch.tensor([1.0, 2.0])
    for sign in (1, -1, 1, -1, 1):
        assert mytorch.equal(function(x * sign), absolute(x * sign))
    reasons = [reason for reason, _ in function.history]
    assert reasons == ["first call", "an element that it asks for is False, was True"]


def halve(x):
    count = 0
    while x.abs().max() > 1:
        x, count = x / 2, count + 1
    return x, count


def test_loops():
    function = mytorch.compile(halve, fullgraph=True)
    for scale in (1.0, 5.0, 1.0, 9.0, 5.0):
        ours, want = function(mytorch.full((2,), scale)), halve(mytorch.full((2,), scale))
        assert mytorch.equal(ours[0], want[0]) and ours[1] == want[1]
    assert len(function.history) == 3


SEEN = {"a"}


class WithSlots:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


class Counter:
    calls = 0

    def __call__(self, x):
        Counter.calls += 1
        return x * Counter.calls


def doubled(x):
    doubled.calls += 1
    return x * doubled.calls


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_changes_of_other_objects():
    """Sets, deques, slots, attributes of classes and functions, by the caller or the function."""
    slots, queue, counter = WithSlots(2.0), collections.deque([1, 2]), Counter()

    @mytorch.compile
    def reads(x):
        return x * slots.factor + len(queue) + 10 * ("b" in SEEN)

    assert reads(mytorch.ones(1)).item() == 4
    slots.factor = 3.0
    assert reads(mytorch.ones(1)).item() == 5
    queue.append(0)
    assert reads(mytorch.ones(1)).item() == 6
    SEEN.add("b")
    assert reads(mytorch.ones(1)).item() == 16

    @mytorch.compile
    def writes(x):
        slots.factor += 1
        queue.append(0)
        SEEN.add(len(queue))
        return doubled(counter(x)) * slots.factor

    doubled.calls = 0
    found = [writes(mytorch.ones(1)).item() for _ in range(3)]
    assert found == [4, 20, 54]
    assert (slots.factor, len(queue), Counter.calls, doubled.calls) == (6, 6, 3, 3)
    assert {"a", "b", 4, 5, 6} == SEEN


def draws_of_python(x):
    return x * random.random() + random_number() + random.Random.random(OWN)


def draws_of_numpy(x):
    return x * float(np.random.rand()) + float(OWN_OF_NUMPY.random())


def draws_before_a_print(x):
    y = x * random.random()
    print("drawn")
    return y + random.random()


random_number, OWN, OWN_OF_NUMPY = random.random, random.Random(1), np.random.default_rng(1)


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("function", [draws_of_python, draws_of_numpy, draws_before_a_print])
def test_random_numbers_of_python(function):
    results = []
    for call in (function, mytorch.compile(function)):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - the global generator is what is tested
        OWN.seed(1)
        OWN_OF_NUMPY.bit_generator.state = np.random.default_rng(1).bit_generator.state
        results.append([call(mytorch.ones(1)).item() for _ in range(3)] + [random.random()])
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_next_of_an_iterator():
    numbers, weight = iter(range(1, 9)), nn.Parameter(mytorch.ones(1))

    @mytorch.compile
    def outside(x):
        return x * next(numbers)

    assert [outside(mytorch.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    model = nn.Linear(1, 1)
    inside = mytorch.compile(lambda x: x.to(next(model.parameters()).dtype) * weight, fullgraph=True)
    assert inside(mytorch.ones(1)).item() == 1


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_loops_over_an_iterator():
    numbers = iter(range(1, 9))

    @mytorch.compile
    def outside(x):
        for number in numbers:
            return x * number

    assert [outside(mytorch.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    assert next(numbers) == 4 and type(numbers) is type(iter(range(1)))

    @mytorch.compile
    def argument(x, values):
        for value in values:
            return x * value

    assert [argument(mytorch.ones(1), numbers).item() for _ in range(2)] == [5, 6]

    class Trainer:
        def __init__(self):
            self.data = iter([1.0, 2.0, 3.0])

        def step(self, x):
            return x * 2

        def fit(self, x):
            for value in self.data:
                return self.step(x) * value

    trainer = Trainer()
    assert mytorch.compile(trainer.step, fullgraph=True)(mytorch.ones(1)).item() == 2
    assert [mytorch.compile(trainer.fit)(mytorch.ones(1)).item() for _ in range(2)] == [2, 4]


def test_elements_of_numpy_arrays():
    table, x = np.array([1.0, 2.0], "float32"), mytorch.ones(2)
    read = mytorch.compile(lambda x: x * float(table[0]), fullgraph=True)
    copied = mytorch.compile(lambda x: x * mytorch.tensor(table), fullgraph=True)
    shared = mytorch.compile(lambda x: x * mytorch.from_numpy(table), fullgraph=True)
    for _ in range(3):
        np.testing.assert_array_equal(read(x), table[[0, 0]])
        np.testing.assert_array_equal(copied(x), table)
        np.testing.assert_array_equal(shared(x), table)
        table += 1
    assert "the elements of a NumPy array have changed" in mytorch.compiler.explain(read)
    assert [len(f.history) for f in (read, copied, shared)] == [3, 3, 1]  # a program reads shared memory

    both = mytorch.compile(lambda x: x * mytorch.from_numpy(table) + float(table[0]), fullgraph=True)
    held = types.SimpleNamespace(table=table, tables=[table])
    in_two = mytorch.compile(lambda x: x * mytorch.from_numpy(held.table) + held.tables[0][1].item())
    alone = types.SimpleNamespace(table=table)
    named = mytorch.compile(lambda x: x * mytorch.from_numpy(alone.table), fullgraph=True)
    by_name = mytorch.compile(lambda x: x * mytorch.from_numpy(alone.table) + alone.table.max().item())
    for _ in range(3):
        np.testing.assert_array_equal(both(x), table + table[0])
        np.testing.assert_array_equal(by_name(x), table + table[1])
        np.testing.assert_array_equal(in_two(x), table + table[1])
        np.testing.assert_array_equal(named(x), table)
        table += 1
    assert len(named.history) == 1
    table -= 3

    def writes(x):
        table[0] += 1
        return x * float(table[0])

    with pytest.raises(RuntimeError, match="the elements of a NumPy array have changed"):
        mytorch.compile(writes, fullgraph=True)(x)
    assert table.tolist() == [4, 5]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_gradients_of_frozen_parameters():
    results = []
    for make in (mytorch.compile, lambda function: function):
        mytorch.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        step = make(
            training(model, optim.SGD(model.parameters(), 0.1), loss=lambda m, x, y: (m(x) - y).pow(2).mean())
        )
        for is_free in (True, False, False, True):
            model[0].requires_grad_(is_free)
            step(mytorch.ones(3, 2), mytorch.ones(3, 1))
            assert (model[0].weight.grad is not None) == is_free
        results.append([p.detach().numpy() for p in model.parameters()])
    np.testing.assert_allclose(results[0][0], results[1][0], 1e-5)

    @mytorch.compile
    def assigns(x):
        frozen.grad = x * 2
        return x + 1

    frozen = mytorch.ones(2)
    for k in (1.0, 2.0):
        assigns(mytorch.full((2,), k))
        np.testing.assert_array_equal(frozen.grad, [2 * k, 2 * k])


class Options(dict):
    __getattr__ = dict.__getitem__


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_objects_without_other_attributes():
    options = Options(factor=2.0)

    @mytorch.compile
    def function(x):
        options["calls"] = options.get("calls", 0) + 1
        return x * options.factor

    assert [function(mytorch.ones(1)).item() for _ in range(2)] == [2, 2] and options.calls == 2
    options["factor"] = 0.0
    assert str(function(mytorch.ones(1)).item()) == "0.0"
    options["factor"] = -0.0
    assert str(function(mytorch.ones(1)).item()) == "-0.0"
