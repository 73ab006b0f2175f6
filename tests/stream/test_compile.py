"""Compiled functions do what the functions do: results, gradients, updates, random numbers and errors."""

import collections
import contextlib
import copy
import gc
import random
import threading
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn, optim
from mytorch.models import Llama, LlamaConfig
from mytorch.nn import functional as F
from mytorch.stream.programs.nested import leaves
from tests.stream.test_capture import SHAPES, a_step

# Training steps: (model, optimizer) -> a function of a batch.


def training(model, optimizer, before=(), after=(), loss=None):
    """The usual step; `before` and `after` the update, more functions are called."""

    def step(x, y):
        optimizer.zero_grad()
        result = F.cross_entropy(model(x), y) if loss is None else loss(model, x, y)
        result.backward()
        norms = [function() for function in before]
        optimizer.step()
        return (result, *norms, *[function() for function in after])

    return step


def zeroed_at_the_end(model, optimizer):
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def two_micro_batches(model, optimizer):
    def step(x, y):
        model.zero_grad()
        for k in range(2):
            (F.cross_entropy(model(x * (k + 1)), y) / 2).backward()
        optimizer.step()

    return step


def never_zeroed(model, optimizer):
    def step(x, y):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def zeros_in_place(model, optimizer):
    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def by_hand(model, optimizer):
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        grads = mytorch.autograd.grad(loss, list(model.parameters()))
        with mytorch.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p.sub_(0.1 * g)
        return loss

    return step


def by_hand_through_data(model, optimizer):
    def step(x, y):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.zero_()
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.data -= 0.1 * p.grad

    return step


def averaged(model, optimizer):
    averages = [p.detach().clone() for p in model.parameters()]

    def average():
        with mytorch.no_grad():
            for average, p in zip(averages, model.parameters(), strict=True):
                average.mul_(0.9).add_(p.detach(), alpha=0.1)
        return averages[0] * 1

    return training(model, optimizer, after=[average])


def scheduled(model, optimizer):
    return training(model, optimizer, after=[optim.lr_scheduler.CosineAnnealingLR(optimizer, 5).step])


def hooked(model, optimizer):
    model[0].weight.register_hook(lambda g: g * 2)
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    return training(model, optimizer)


def with_autocast(model, optimizer):
    def loss(model, x, y):
        with mytorch.autocast("cpu", dtype=mytorch.bfloat16):
            return F.cross_entropy(model(x), y)

    return training(model, optimizer, loss=loss)


def clipped(clip):
    return lambda model, optimizer: training(model, optimizer, [lambda: clip(model, optimizer)])


STEPS = {
    "usual": training,
    "zeroed at the end": zeroed_at_the_end,
    "two micro-batches": two_micro_batches,
    "never zeroed": never_zeroed,
    "zeros in place": zeros_in_place,
    "by hand": by_hand,
    "by hand through .data": by_hand_through_data,
    "averaged": averaged,
    "scheduled": scheduled,
    "hooked": hooked,
    "autocast": with_autocast,
    "clip_grad_norm_": clipped(lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.1)),
    "clip_grad_value_": clipped(lambda model, _: nn.utils.clip_grad_value_(model.parameters(), 0.01)),
    "clip_grad_norm": clipped(lambda _, optimizer: optimizer.clip_grad_norm(0.1)),
}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.first(x).relu()))


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def frozen():
    model = network()
    model[0].requires_grad_(False)
    return model


def sgd(params):
    return optim.SGD(params, lr=0.1, momentum=0.9)


CASES = {
    **{name: (network, sgd, step) for name, step in STEPS.items()},
    "tied": (Tied, sgd, training),
    "frozen": (frozen, sgd, training),
    **{
        name: (Tied, lambda params, name=name: getattr(optim, name)(params, lr=0.01), training)
        for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Lion", "Rprop")
    },
    "Muon": (Tied, lambda params: optim.Muon([p for p in params if p.ndim == 2], lr=0.01), training),
}


def batch(k):
    rng = np.random.default_rng(k)
    x, y = rng.standard_normal((5, 6), np.float32), rng.integers(0, 3, 5)
    return mytorch.from_numpy(x), mytorch.from_numpy(y)


def trained(case, compiled, steps=4):
    """All that is left of some steps, and what was said of the captures."""
    mytorch.manual_seed(0)
    make, optimizer, step = case
    model = make()
    function = step(model, optimizer(model.parameters()))
    if compiled:
        function = mytorch.compile(function, fullgraph=True)
    found = []
    for k in range(steps):
        results = leaves(function(*batch(k)))
        found += [x.detach().numpy().copy() for x in results if isinstance(x, mytorch.Tensor)]
    found += [x.detach().numpy() for x in (*model.parameters(), *model.buffers())]
    found += [p.grad.numpy() for p in model.parameters() if p.grad is not None]
    return [*found, mytorch.rand(3).numpy()], len(function.history) if compiled else 0


@pytest.mark.parametrize("name", CASES)
def test_a_training_step(name):
    with F.use_fused(False):
        (ours, captures), (want, _) = trained(CASES[name], True), trained(CASES[name], False)
    assert captures == (1 if name in ("zeroed at the end", "by hand") else 2)  # without gradients, and with
    for a, b in zip(ours, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def test_a_training_step_with_kernels():
    pytest.importorskip("numba")
    (ours, _), (want, _) = trained(CASES["AdamW"], True), trained(CASES["AdamW"], False)
    for a, b in zip(ours, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


# Modules, whose backward pass runs outside.

MODULES = {
    "network": (network, (5, 6)),
    "tied": (Tied, (5, 6)),
    "lstm": (lambda: nn.LSTM(6, 4, 2), (3, 2, 6)),
    "attention": (lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), (2, 3, 6)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.GELU(), nn.MaxPool2d(2)), (1, 2, 7, 7)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module(name):
    make, shape = MODULES[name]
    found = []
    for compiled in (False, True):
        mytorch.manual_seed(0)
        model = make()
        call = mytorch.compile(model, fullgraph=True) if compiled else model
        x = mytorch.randn(*shape, requires_grad=True)
        for _ in range(2):
            results = list(leaves(call(x)))
            sum((y.tanh() * (k + 1)).sum() for k, y in enumerate(results)).backward()
        grads = [x.grad, *[p.grad for p in model.parameters()]]
        found.append([y.detach().numpy() for y in results] + [g.numpy() for g in grads])
    for ours, want in zip(*found, strict=True):
        np.testing.assert_allclose(ours, want, 1e-4, 1e-5)


def test_a_language_model():
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model, idx = Llama(config), mytorch.randint(0, 50, (2, 7))
    found = []
    for call in (mytorch.compile(model, fullgraph=True), model):
        model.zero_grad()
        _, loss = call(idx, idx)
        loss.backward()
        found.append([loss.item(), *[p.grad.numpy().copy() for p in model.parameters()]])
    for ours, want in zip(*found, strict=True):
        np.testing.assert_allclose(ours, want, 1e-4, 1e-6)


def test_a_compiled_module_is_a_module():
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    compiled = mytorch.compile(model)
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert compiled._orig_mod is model and compiled.append.__self__ is model
    assert not compiled.eval().training and not model[1].training
    assert mytorch.compile(compiled) is compiled
    x = mytorch.ones(1, 2)
    assert mytorch.equal(compiled(x), model(x))
    copied = copy.deepcopy(compiled)
    with mytorch.no_grad():
        copied._orig_mod[0].bias.add_(1)
    assert mytorch.allclose(copied(x), model(x) + 1)
    model.train()
    compiled(x)
    assert "training is True, was False" in mytorch.compiler.explain(compiled)


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
    assert all(reason in said for _, reason in calls if reason)
    with mytorch.no_grad(), pytest.warns(UserWarning, match="captured 8 times"):
        function(x)
    assert function.history[-1][0] == "grad mode is False, was True"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(mytorch.ones(7)).shape == (7,) and len(function.history) == 8  # eagerly
    function.reset()
    function(x)
    assert len(function.history) == 1


class Settings:
    gain = 1.0

    def __init__(self):
        self.gain, self.layers = 2.0, [nn.Linear(2, 2)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.gain


def test_an_array_is_filled_with_a_tensor():
    function = mytorch.compile(lambda x, y: x.clone().fill_(y) + x, fullgraph=True)
    assert function(mytorch.ones(2), mytorch.tensor(2.0)).tolist() == [3, 3]


def test_signs_of_zeros_are_noticed():
    function, x = mytorch.compile(lambda x, a: a / x), mytorch.ones(2)
    for a in (0.0, -0.0, 0.0, 1.0, -0.0, 0.0):
        assert np.array_equal(np.signbit(function(x, a).numpy()), [np.signbit(a)] * 2)


def test_numbers_that_are_not_finite():
    """NaN and infinite constants within a loop."""
    x = mytorch.tensor([1.0, np.nan, np.inf, -np.inf])
    for function in (
        lambda x: mytorch.nan_to_num(x * 2, nan=1.0) + 1,
        lambda x: mytorch.where(x * 2 > 1, x, float("nan")) * 2,
        lambda x: mytorch.maximum(x * 2, mytorch.full((4,), -float("inf"))) + 1,
    ):
        compiled = mytorch.compile(function, fullgraph=True)
        assert np.array_equal(compiled(x).numpy(), function(x).numpy(), equal_nan=True)


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


def test_arguments_that_share_memory():
    function, x = mytorch.compile(lambda x, y: (x.add_(1), y * 2)[1], fullgraph=True), mytorch.ones(4)
    assert function(mytorch.ones(3), mytorch.ones(3)).tolist() == [2, 2, 2]
    assert function(x[:3], x[1:]).tolist() == [4, 4, 2]
    with pytest.raises(ValueError, match="shares memory"):
        mytorch.capture(lambda x, y: x.add_(1) * y, mytorch.ones(3), mytorch.ones(3))(x[:3], x[1:])


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


def writes_first(x):
    x.add_(1)
    return x if x.sum() > 0 else -x


EAGER = {
    "an element": (lambda x: x * x.sum().item(), "asks for the element of an array of float32"),
    "elements": (lambda x: x * x.tolist()[0], "the elements of an array"),
    "print": (lambda x: print(x) or x, "what is printed"),
    "a mask": (lambda x: x[x > 0], "depends on the data"),
    "after a write": (writes_first, "after it has written in place"),
    "a disabled function": (mytorch.compiler.disable(lambda x: x + 1), "compilation is disabled"),
    "a checkpoint": (
        lambda x: mytorch.utils.checkpoint.checkpoint(lambda x: x * 2, x, use_reentrant=False), "a generator",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EAGER)
def test_what_runs_eagerly(name):
    function, reason = EAGER[name]
    compiled, x = mytorch.compile(function), mytorch.tensor([1.0, 2.0])
    with pytest.warns(UserWarning, match=f"test_compile.py:[0-9]+: .*{reason}"):  # the line
        assert mytorch.equal(compiled(x.clone()), function(x.clone()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        assert mytorch.equal(compiled(x.clone()), function(x.clone()))
    with pytest.raises(RuntimeError, match=f"fullgraph=True.*test_compile.py:[0-9]+: .*{reason}"):
        mytorch.compile(function, fullgraph=True)(x.clone())
    assert mytorch.equal(x, mytorch.tensor([1.0, 2.0])) and mytorch.ones(1).item() == 1


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(x * 2)
        self.last = x + 1
        return x * 3


def test_what_it_does_to_objects_is_done_in_each_call():
    module, x, total = Counting(), mytorch.ones(2), 0

    def function(x):
        nonlocal total
        total += 1
        return module(x)

    compiled = mytorch.compile(function)
    with pytest.warns(UserWarning, match="a program can't hold what it does to Python's objects: .*"):
        compiled(x)
    compiled(x)
    assert (module.calls, total, len(module.seen)) == (2, 2, 2)
    assert module.seen[0].tolist() == [2, 2] and module.last.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Python's objects"):
        mytorch.compile(module, fullgraph=True)(x)
    assert (module.calls, len(module.seen)) == (2, 2)


def step_of(optimizer, **hooks):
    model = nn.Linear(6, 3)
    optimizer = optimizer(model.parameters())
    for name, hook in hooks.items():
        getattr(optimizer, name)(hook)
    return training(model, optimizer)


def test_steps_that_run_eagerly():
    x, y = batch(0)
    model = nn.Linear(6, 3)
    optimizer, scaler = sgd(model.parameters()), mytorch.amp.GradScaler("cpu")

    def scaled(x, y):
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()

    accumulated = nn.Linear(6, 3)
    accumulated.weight.register_post_accumulate_grad_hook(lambda p: None)
    for step, reason in (
        (step_of(sgd, register_step_post_hook=lambda *_: None), "hooks"),
        (training(accumulated, sgd(accumulated.parameters())), "DDP"),
        (scaled, "GradScaler"),
    ):
        with pytest.warns(UserWarning, match=reason):
            mytorch.compile(step)(x, y)


def test_an_error_of_the_function_is_the_functions():
    function = mytorch.compile(lambda x: x @ mytorch.ones(3, 3))
    with pytest.raises(RuntimeError, match="matmul") as ours, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(mytorch.ones(2, 2))
    with pytest.raises(RuntimeError) as want:
        function._function(mytorch.ones(2, 2))
    assert str(ours.value) == str(want.value)


def test_a_write_to_an_argument():
    function, x = mytorch.compile(lambda x: x.mul_(2), fullgraph=True), mytorch.ones(2)
    assert function(x) is x and function(x).tolist() == [4, 4]
    w = mytorch.ones(2, requires_grad=True)
    y = (w * x).sum()
    function(x)
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


def test_what_backward_needs_is_watched():
    function = mytorch.compile(lambda x, w: (x * w).tanh(), fullgraph=True)
    x, w = mytorch.ones(2), mytorch.ones(2, requires_grad=True)
    y = function(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified"):
        y.sum().backward()


def test_no_second_derivative():
    x = mytorch.ones(2, requires_grad=True)
    y = mytorch.compile(lambda x: x**3)(x).sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        mytorch.autograd.grad(y, x, create_graph=True)


def test_results_that_need_no_gradient():
    x = mytorch.ones(3, requires_grad=True)
    values, indices, same, nothing = mytorch.compile(lambda x: (*x.max(0), x, None), fullgraph=True)(x)
    assert values.requires_grad and not indices.requires_grad and same is x and nothing is None
    detached = mytorch.compile(lambda x: (x * 2, (x * 3).detach()), fullgraph=True)(x)
    assert [y.requires_grad for y in detached] == [True, False]


def test_a_part_of_a_compiled_function():
    inner = mytorch.compile(lambda x: x * 2)
    outer = mytorch.compile(lambda x: inner(x) + 1, fullgraph=True)
    assert outer(mytorch.ones(2)).tolist() == [3, 3] and inner.history == []


class Model:
    factor = 3.0

    @mytorch.compile
    def scaled(self, x):
        return x * self.factor


def test_a_method():
    first, second, x = Model(), Model(), mytorch.ones(2)
    second.factor = 4.0
    assert (first.scaled(x) + second.scaled(x)).tolist() == [7, 7]


def test_random_numbers():
    def function(x):
        return F.dropout(x + mytorch.randn(4), 0.5) + mytorch.randint(0, 5, (4,)), mytorch.bernoulli(x)

    found = []
    for call in (function, mytorch.compile(function, fullgraph=True)):
        mytorch.manual_seed(3)
        found.append([y.numpy() for _ in range(3) for y in call(mytorch.full((4,), 0.5))])
    np.testing.assert_array_equal(*found)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    st.lists(st.sampled_from(SHAPES), min_size=2, max_size=3),
    st.lists(st.lists(st.integers(0, 59), min_size=6, max_size=6), min_size=1, max_size=9),
)
def test_random_programs(shapes, decisions):
    def function(*given):
        values = [x.clone() for x in given]
        for numbers in decisions:
            rest = iter(numbers)
            with contextlib.suppress(RuntimeError, IndexError):  # shapes that can't be broadcast
                values.append(a_step(lambda options: options[next(rest) % len(options)], values))  # noqa: B023
        return values

    def outcome(call):
        mytorch.manual_seed(1)
        inputs, found = [mytorch.randn(shape, requires_grad=True) for shape in shapes], []
        for _ in range(2):
            results = call(*inputs)
            sum((y * y).sum() for y in results).backward()
            found += [y.detach().numpy() for y in results] + [x.grad.numpy().copy() for x in inputs]
        return found

    with F.use_fused(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may run eagerly
        try:
            want = outcome(function)
        except RuntimeError:  # a write to what backward needs
            return
        for ours, theirs in zip(outcome(mytorch.compile(function)), want, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4)


def test_threads():
    function, results = mytorch.compile(lambda x: (x * 2 + 1).sum()), []

    def work():
        results.extend(function(mytorch.ones(k)).item() == 3 * k for k in (1, 2, 3, 1, 2, 3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24 and all(results)


def test_wrong_calls():
    with pytest.raises(TypeError, match="expected a function or a module, got int"):
        mytorch.compile(3)
    with pytest.raises(TypeError, match="expected a compiled function"):
        mytorch.compiler.explain(len)
    kept = []
    mytorch.capture(lambda x: kept.append(x * 2) or x, mytorch.ones(2))
    with pytest.raises(RuntimeError, match="part of a program that was captured"):
        kept[0] + 1


def test_results_that_share_memory():
    @mytorch.compile
    def function(x):
        y = x * 2
        return y[0], y, y.t()

    for written, factors in ((0, [[6, 6], [2, 2]]), (1, [[6, 6], [6, 6]]), (2, [[6, 6], [6, 6]])):
        x = mytorch.ones(2, 2, requires_grad=True)
        results = function(x)
        results[written].mul_(3)
        results[1].sum().backward()
        np.testing.assert_array_equal(x.grad, factors)


def test_history_in_enable_grad_alone():
    weight = mytorch.ones(2, requires_grad=True)

    @mytorch.compile
    def function(x):
        with mytorch.enable_grad():
            return weight * x

    for _ in range(2):
        weight.grad = None
        with mytorch.no_grad():
            y = function(mytorch.full((2,), 3.0))
        y.sum().backward()
        np.testing.assert_array_equal(weight.grad, [3, 3])


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_results_that_get_a_grad():
    @mytorch.compile
    def leaf(x):
        y = x.detach().clone().requires_grad_()
        return y, (y * 2).sum()

    @mytorch.compile
    def retained(x):
        y = x * 2
        y.retain_grad()
        return y, (y * 2).sum()

    @mytorch.compile
    def argument(x):
        x.retain_grad()
        return x, (x * 2).sum()

    for function in (leaf, retained, argument):
        for _ in range(2):
            y, loss = function(mytorch.ones(2, requires_grad=True) * 1)
            loss.backward()
            np.testing.assert_array_equal(y.grad, [2, 2])


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

    def writes(x):
        table[0] += 1
        return x * float(table[0])

    with pytest.raises(RuntimeError, match="the elements of a NumPy array have changed"):
        mytorch.compile(writes, fullgraph=True)(x)
    assert table.tolist() == [4, 5]


def test_devices():
    def function(x):
        shown = x.device, x.data.device, mytorch.get_default_device(), x.is_cpu, x.is_cuda, x.is_meta
        return x + mytorch.ones(2, device=x.device) if x.device.type == "cpu" else x, shown

    x = mytorch.ones(2)
    (y, shown), (want, eager) = mytorch.compile(function, fullgraph=True)(x), function(x)
    assert y.tolist() == want.tolist() == [2, 2]
    assert shown == eager == ("cpu", "cpu", "cpu", True, False, False)


def test_devices_on_a_gpu(fake_cuda):
    def function(x):
        shown = x.device, x.data.device, x.is_cpu, x.data.is_cuda, x.is_meta
        return x + mytorch.ones(2, device=x.device) if x.is_cuda else x, shown

    x = mytorch.ones(2, device="cuda")
    (y, shown), (want, eager) = mytorch.compile(function, fullgraph=True)(x), function(x)
    assert y.tolist() == want.tolist() == [2, 2]
    assert shown == eager == ("cuda:0", "cuda:0", False, True, False)


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


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_state_that_has_a_history():
    """Its graph is walked once, behind the program: `weight` is in both."""
    weight, kept = mytorch.tensor([1.0, 2.0], requires_grad=True), {}

    @mytorch.compile
    def function(x):
        return (kept["hidden"] * x).sum() + (weight * x).sum()

    @mytorch.compile
    def whole(x):
        function(x).backward()

    for call in (lambda x: function(x).backward(), whole):
        for k in (1.0, 2.0):
            weight.grad = None
            kept["hidden"] = (weight * weight)[:]
            call(mytorch.full((2,), k))
            np.testing.assert_array_equal(weight.grad, [3 * k, 5 * k])


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


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("name", ["unsqueeze_", "data"])
def test_data_of_arguments(name):
    @mytorch.compile
    def function(x):
        if name == "data":
            x.data = x.data * 3
        else:
            x.unsqueeze_(0)
        return x + 1

    x = mytorch.ones(2)
    y = function(x)
    assert mytorch.equal(y, x + 1) and (x.shape == (1, 2) or x[0].item() == 3)


def test_threads_that_capture_one_module():
    for _ in range(10):
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        compiled, errors = mytorch.compile(model, fullgraph=True), []
        expected = {n: model(mytorch.ones(n, 3)).detach().numpy() for n in (1, 2, 3)}

        def work(k, compiled=compiled, errors=errors, expected=expected):
            try:
                for n in (1, 2, 3) if k % 2 else (3, 2, 1):
                    with mytorch.set_grad_enabled(k % 3 == 0):
                        np.testing.assert_allclose(compiled(mytorch.ones(n, 3)).detach(), expected[n], 1e-5)
            except (RuntimeError, AssertionError) as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
