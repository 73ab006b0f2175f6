"""Attributes of objects on which a compiled function depends: those that it, or what it calls, gets at."""

import copy
import dataclasses
import enum
import functools
import operator
import types
import weakref
from typing import NamedTuple

import pytest

import mytorch
from mytorch import nn, optim
from mytorch.nn import functional as F

X = mytorch.ones(2)


class Base:
    shared = 2

    def scale(self):
        return self.k


class Settings(Base):
    def __init__(self, **values):
        self.k = self.unused = self._hidden = 2
        self.__private = 2
        self.__dict__.update(values)

    def private(self):
        return self.__private

    @property
    def twice(self):
        return self.k * 2

    @functools.cached_property
    def cached(self):
        return self.k * 2

    def times(self, by):
        return self.k * by

    thrice = functools.partialmethod(times, 3)

    @functools.singledispatchmethod
    def dispatched(self, x):
        return self.k


class Implicit(Settings):
    def __call__(self):
        return self.k

    def __getitem__(self, index):
        return self.k

    def __getattr__(self, name):
        if name == "other":
            return self.k
        raise AttributeError(name)


@dataclasses.dataclass(eq=False, repr=False)
class Point:
    k: int = 2
    inner: object = None


@dataclasses.dataclass
class Compared:
    k: int = 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.unused = 2, 0

    def forward(self, x):
        return x * self.scale()

    def scale(self):
        return self.k

    def report(self):
        return self.unused


class WithDropout(nn.Dropout):
    def forward(self, x):
        return super().forward(x) if self.p < 1 else x * 0


def matched(x):
    match x:
        case Point(k):
            return k


READERS = {
    Settings: {
        "an attribute": lambda x: x.k, "a method": lambda x: x.scale(), "a property": lambda x: x.twice,
        "a cached one": lambda x: x.cached, "partialmethod": lambda x: x.thrice(),
        "singledispatchmethod": lambda x: x.dispatched(1), "getattr": lambda x: getattr(x, "".join("k")),
        "vars": lambda x: vars(x)["".join("k")], "__dict__": lambda x: [*x.__dict__.values()][0],
        "attrgetter": lambda x: operator.attrgetter("k")(x), "a copy": lambda x: copy.copy(x).twice,
        "methodcaller": lambda x: operator.methodcaller("scale")(x), "type": lambda x: type(x)(k=x.k).k,
        "another": lambda x: x.__class__.scale(x), "map": lambda x: [*map(Base.scale, [x])][0],
    },
    Implicit: {
        "a call": lambda x: x(), "an index": lambda x: x[0], "__getattr__": lambda x: x.other,
    },
    Point: {
        "astuple": lambda x: dataclasses.astuple(x)[0], "match": matched,
        "replace": lambda x: dataclasses.astuple(dataclasses.replace(x, inner=1))[0],
    },
    Compared: {
        "equal": lambda x: 2 if x == Compared() else 3, "repr": lambda x: len(repr(x)),
        "f-string": lambda x: len(f"{x}"),
    },
}
CASES = [pytest.param(kind, read, id=name) for kind in READERS for name, read in READERS[kind].items()]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("is_argument", [False, True])
@pytest.mark.parametrize("kind, read", CASES)
def test_what_is_read_is_noticed(kind, read, is_argument):
    x = kind()
    function = (lambda y, x: y * read(x)) if is_argument else (lambda y, _: y * read(x))
    compiled = mytorch.compile(function)
    for k in (2, 333, 2, -4):
        x.k = k
        assert mytorch.equal(compiled(X, x), function(X, x))


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("name", ["shared", "_Settings__private", "_hidden"])
def test_attributes_of_classes_and_private_ones(name, monkeypatch):
    x = Settings()
    functions = {"shared": lambda y: y * x.shared, "_hidden": lambda y: y * x._hidden}
    function = functions.get(name, lambda y: y * x.private())
    compiled = mytorch.compile(function)
    assert compiled(X).tolist() == [2, 2]
    monkeypatch.setattr(Base if name == "shared" else x, name, 3)
    assert compiled(X).tolist() == [3, 3]


def test_attributes_of_modules():
    layer, dropout = Layer(), WithDropout(0.0)
    compiled = mytorch.compile(lambda x: dropout(layer(x)), fullgraph=True)
    assert compiled(X).tolist() == [2, 2]
    layer.unused = "another"
    assert compiled(X).tolist() == [2, 2] and len(compiled.history) == 1
    layer.k = 3
    assert compiled(X).tolist() == [3, 3]
    dropout.p = 1.0
    assert compiled(X).tolist() == [0, 0]
    layer.forward = lambda x: x + 1
    dropout.p = 0.0
    assert compiled(X).tolist() == [2, 2]


class Inner:
    def __init__(self, settings=None):
        self.step, self.held = 2, settings

    @property
    def settings(self):
        return self.held


class Pair(NamedTuple):
    settings: object
    other: object = None


class Kind(enum.Enum):
    ONE = Inner()


HOLDERS = {
    "an entry": (lambda x: types.SimpleNamespace(settings=x), lambda h: h.settings.step),
    "a property": (Inner, lambda h: h.settings.step), "a named tuple": (Pair, lambda h: h.settings.step),
    "a partial": (lambda x: functools.partial(x), lambda h: h.func.step),
    "a list": (lambda x: [x], lambda h: h[0].step), "a call": (lambda x: lambda: x, lambda h: h().step),
    "a method": (lambda x: types.MethodType(scale_of, x), lambda h: h.__self__.step),
    "a weak reference": (weakref.ref, lambda h: h().step),
    "an enum": (lambda x: x, lambda h: Kind.ONE.value.step),
}


def scale_of(x):
    return x.step


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("name", HOLDERS)
def test_attributes_of_attributes(name):
    """Also beside other objects that are found by the same names."""
    hold, read = HOLDERS[name]
    x = Kind.ONE.value if name == "an enum" else Callable()
    holder = hold(x)
    others = types.SimpleNamespace(settings=Base(), value=Base(), func=Base(), __self__=Base(), held=Base())

    def function(y):
        names = (others.settings, others.value, others.func, others.__self__, others.held)
        return y * read(holder) * (None not in names)

    compiled = mytorch.compile(function)
    for step in (2, 3):
        x.step = step
        assert compiled(X).tolist() == [step, step]


class Callable(Inner):
    def __call__(self):
        return 0


class Stepping:
    def __init__(self, compile):
        mytorch.manual_seed(0)
        self.model, self.count = nn.Linear(2, 3), 0
        self.optimizer = optim.SGD(self.model.parameters(), 0.1)
        self.compiled = compile(self.update)

    def update(self, x):
        self.model.train()
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self, x):
        self.count += 1
        return self.compiled(x)

    def train(self):
        self.count += 1


def test_methods_with_the_names_of_those_that_it_calls():
    losses, histories, x = [], [], mytorch.ones(4, 2)
    for compile in (mytorch.compile, lambda function: function):
        trainer = Stepping(compile)
        for _ in range(4):
            trainer.train()
            losses.append(trainer.step(x).item())
        histories.append(getattr(trainer.compiled, "history", None))
    assert len(histories[0]) == 2
    assert losses[:4] == pytest.approx(losses[4:], 1e-5)


class Trainer:
    def __init__(self, compile):
        mytorch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
        self.optimizer, self.steps, self.losses = optim.AdamW(self.model.parameters()), 0, []
        self.train_step = compile(self.train_step)

    def train_step(self, x, y):
        self.model.train()
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, batches):
        for x, y in batches:
            self.losses.append(self.train_step(x, y).item())
            self.steps += 1
        self.model.eval()


def test_other_attributes_of_the_object_of_a_method_may_change():
    batches = [(mytorch.randn(4, 2), mytorch.randint(0, 3, (4,))) for _ in range(12)]
    compiled, eager = Trainer(mytorch.compile), Trainer(lambda function: function)
    for trainer in (compiled, eager):
        mytorch.manual_seed(1)
        trainer.fit(batches[:6]), trainer.fit(batches[6:])
    assert compiled.losses == pytest.approx(eager.losses, 1e-5) and compiled.steps == 12
    reasons = [reason for reason, _ in compiled.train_step.history]
    assert len(reasons) == 3 and reasons[1].startswith("parameters have a .grad")
    assert reasons[2] == "training is False, was True"
