"""A function that changes Python's objects has a graph break at the line that does, in whatever it calls."""

import sys

import pytest

import mytorch
from mytorch import nn, optim
from mytorch.nn import functional as F


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(2, 3), 0

    def forward(self, x):
        y = self.linear(x).tanh()
        self.count()
        return y * 2

    def count(self):
        if self.training:
            self.calls += 1


class Trainer:
    def __init__(self, model, compile):
        mytorch.manual_seed(0)
        self.model, self.compiled = model(), compile(self.train_step)
        self.optimizer, self.count, self.losses = optim.SGD(self.model.parameters(), 0.1), 0, []

    def train_step(self, x, y):
        self.model.train()
        out = self.model(x)
        loss = F.cross_entropy(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.count += 1
        self.losses.append(loss)
        return (out.argmax(1) == y).float().mean()


def results(model, compile):
    mytorch.manual_seed(0)
    trainer = Trainer(model, compile)
    batches = [(mytorch.randn(4, 2), mytorch.randint(0, 3, (4,))) for _ in range(10)]
    accuracies = [trainer.compiled(x, y).item() for x, y in batches]
    losses = [loss.item() for loss in trainer.losses]
    return trainer, [*accuracies, *losses, trainer.count, getattr(trainer.model, "calls", 0)]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_the_line_of_a_method():
    ours, found = results(lambda: nn.Linear(2, 3), mytorch.compile)
    assert found == pytest.approx(results(lambda: nn.Linear(2, 3), lambda f: f)[1], 1e-5)
    start = Trainer.train_step.__code__.co_firstlineno
    explained = mytorch.compiler.explain(ours.compiled)
    change = "a program can't hold what it does to Python's objects: count is 1, was 0"
    assert f"has a graph break at test_watching.py:{start + 7}: {change}" in explained
    assert "halves" not in explained
    assert f"train_step lines {start + 1}-{start + 6}: " in explained  # one program, with its backward pass


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_the_line_in_a_module_that_it_calls():
    ours, found = results(Counting, mytorch.compile)
    assert found == pytest.approx(results(Counting, lambda f: f)[1], 1e-5)
    start = Counting.forward.__code__.co_firstlineno
    explained = mytorch.compiler.explain(ours.compiled)
    place = f"test_watching.py:{start + 2}"
    assert f"Counting\n     1. first call\n        has a graph break at {place}: " in explained
    assert f"forward line {start + 1}: " in explained and f"forward line {start + 3}: " in explained


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_where_a_debugger_looks_at_the_lines():
    seen = []

    def trace(frame, event, arg):
        if frame.f_code is Trainer.train_step.__code__:
            seen.append(event)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ours, found = results(lambda: nn.Linear(2, 3), mytorch.compile)
        assert sys.gettrace() is trace and seen
    finally:
        sys.settrace(before)
    assert found == pytest.approx(results(lambda: nn.Linear(2, 3), lambda f: f)[1], 1e-5)
    assert "is cut in halves" in mytorch.compiler.explain(ours.compiled)
