"""Compiled training steps and modules do what they do eagerly: losses, gradients, updates."""

import copy

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.models import Llama, LlamaConfig
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves

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
    )
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


def test_a_step_may_set_the_mode_of_a_model():
    def step(model, optimizer, x):
        model.train()
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def evaluate(model, x):
        model[0].was_training = model[2].training
        model.eval()
        return model(x).sum()

    def results(compile):
        mytorch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)), mytorch.randn(5, 2)
        optimizer, model[0].was_training = optim.SGD(model.parameters(), 0.1), False
        train, test = compile(step), compile(evaluate)
        for calls in (train, test, train, test, test, train, train):
            args = (model, x) if calls is test else (model, optimizer, x)
            yield calls(*args).item(), model.training, model[2].training, model[0].was_training

    ours, want = results(lambda f: mytorch.compile(f, fullgraph=True)), results(lambda f: f)
    np.testing.assert_allclose([*ours], [*want], 1e-5)


def test_a_module_is_compiled_in_place():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    plain, x = copy.deepcopy(model), mytorch.ones(1, 2)
    model.compile(fullgraph=True)
    model.compile(fullgraph=True)
    model.register_forward_hook(lambda module, inputs, output: output * 2)
    for _ in range(2):
        assert mytorch.allclose(model(x), plain(x) * 2)
    copied = copy.deepcopy(model)
    with mytorch.no_grad():
        copied[0].weight.mul_(3), plain[0].weight.mul_(3)
    assert mytorch.allclose(copied(x), plain(x) * 2)
    assert mytorch.allclose(mytorch.compile(lambda: model.forward(x), fullgraph=True)() * 2, model(x))
    reasons = mytorch.compiler.explain(model)
    assert reasons.startswith("1. first call\n   forward: ") and "2." not in reasons
    with pytest.raises(TypeError, match="expected a compiled function"):
        mytorch.compiler.explain(plain)


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


class SharpnessAware(optim.Optimizer):
    """Takes the gradient where the loss is highest nearby; its two steps keep the parameters in `state`."""

    def __init__(self, params):
        super().__init__(params, {})
        self.inner = sgd(self.param_groups)

    @mytorch.no_grad()
    def climb(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["old"] = p.detach().clone()
            p.add_(p.grad, alpha=0.05)
        self.zero_grad()

    @mytorch.no_grad()
    def descend(self):
        for p in self.param_groups[0]["params"]:
            p.data = self.state[p]["old"]
        self.inner.step()
        self.zero_grad()


def test_an_optimizer_with_two_steps():
    found = []
    for compile in (lambda function: function, mytorch.compile):
        mytorch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = SharpnessAware(model.parameters())

        @compile
        def step(x, y, model=model, optimizer=optimizer):
            F.cross_entropy(model(x), y).backward()
            optimizer.climb()
            F.cross_entropy(model(x), y).backward()
            optimizer.descend()

        for k in range(3):
            step(*batch(k))
        found.append(model.weight.detach().numpy())
    np.testing.assert_allclose(*found, 1e-5, 1e-6)
