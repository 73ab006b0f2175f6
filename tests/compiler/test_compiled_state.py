"""Compiled functions use objects of Python as they are in each call: options of optimizers, views, hooks,
caches, modules, classes, long containers."""

import collections
import enum
import functools
import sys
import types

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.optim import lr_scheduler

pytestmark = pytest.mark.filterwarnings("ignore:mytorch.compile")
X = mytorch.ones(4, 2)


def numbers(x):
    """Tensors as numbers, also in tuples and lists."""
    if isinstance(x, (tuple, list)):
        return [numbers(item) for item in x]
    return numbers(x.tolist()) if isinstance(x, (mytorch.Tensor, mytorch.Array)) else x


def model_and_optimizer(**options):
    mytorch.manual_seed(0)
    model = nn.Linear(2, 1)
    return model, optim.SGD(model.parameters(), 0.1, **options)


def update(model, optimizer, x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def options_that_it_sets(compile):
    model, optimizer = model_and_optimizer(momentum=0.9)

    @compile
    def step(x, lr):
        for group in optimizer.param_groups:
            group["lr"], group["momentum"] = lr, momentum
        return update(model, optimizer, x)

    for lr, momentum in ((0.1, 0.5), (0.05, 0.5), (0.1, 0.1), (0.02, 0.5), (0.1, 0.5)):  # noqa: B007
        yield step(X, lr), optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]


def rates_that_it_reads(compile):
    model, optimizer = model_and_optimizer()

    @compile
    def step(x):
        loss = update(model, optimizer, x)
        with mytorch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.mul_(1 - group["lr"] * 0.5)
        return loss

    for lr in (0.1, 0.05, 0.02, 0.3, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        yield step(X), model.weight.detach()


def a_schedule_that_it_reads(compile):
    model, optimizer = model_and_optimizer()
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)

    @compile
    def step(x):
        loss = update(model, optimizer, x)
        schedule.step()
        return loss, schedule.get_last_lr()[0], optimizer.param_groups[0]["lr"], schedule.last_epoch

    for _ in range(4):
        yield step(X)


def views_of_what_was_written(compile):
    triple = compile(lambda x: x * 3)
    for _ in range(2):
        w = mytorch.ones(3).requires_grad_()
        base = w * 1
        view = base[:]
        base.mul_(2)
        triple(view).sum().backward()
        yield w.grad


def views_in_parts(compile):
    @compile
    def function(a, b):
        view = a.t()
        view[1:3] *= 2
        return b + view

    for _ in range(2):
        w = mytorch.arange(16.0).reshape(4, 4).requires_grad_()
        function(w * 1, mytorch.ones(4, 4)).sum().backward()
        yield w.grad


def the_same_argument_twice(compile):
    @compile
    def attention(q, k):
        return q * 3 if q is k else q * k

    a, b = mytorch.tensor([1.0, 2.0], requires_grad=True), mytorch.tensor([1.0, 2.0])
    for args in ((a, a), (a, b), (b, b), (a, a)):
        yield attention(*args)
    attention(a, a).sum().backward()
    yield a.grad


def hooks_of_parameters(compile):
    p, values = nn.Parameter(mytorch.ones(2)), {"factor": 2.0}
    p.register_hook(lambda g: g * values["factor"])

    @compile
    def step(x):
        p.grad = None
        (p * x).sum().backward()

    for factor in (2.0, 5.0, 5.0):
        values["factor"] = factor
        step(mytorch.ones(2))
        yield p.grad


def modes_that_it_sets(compile):
    model, calls = nn.Sequential(nn.Linear(2, 1), nn.Dropout()), []

    @compile
    @mytorch.no_grad()
    def evaluate(x):
        model.eval()
        return model(x)

    @compile
    @mytorch.autocast("cpu", dtype=mytorch.bfloat16)
    @mytorch.inference_mode()
    def counts(x):
        calls.append(1)
        return (model[0](x) * 0 + len(calls)).float()

    for _ in range(3):
        model.train()
        yield evaluate(X).requires_grad, model.training, model[1].training, counts(X)


def generators_that_it_seeds(compile):
    kept = mytorch.Generator()

    @compile
    def draws(x):
        own = mytorch.Generator()
        own.manual_seed(3)
        kept.manual_seed(4)
        return x + mytorch.rand(3, generator=own) + mytorch.rand(3, generator=kept)

    for _ in range(3):
        yield draws(mytorch.zeros(3))


def caches(compile):
    @functools.cache
    def table(n):
        return mytorch.arange(n).float()

    class Net(nn.Module):
        @functools.lru_cache  # noqa: B019 - as it is used
        def table(self, n):
            return mytorch.arange(n).float()

        def forward(self, x):
            return x + self.table(len(x))

    net = Net()
    for function in (lambda x: x + table(len(x)), net):
        compiled = compile(function)
        yield compiled(mytorch.ones(3)), function(mytorch.ones(3)), compiled(mytorch.ones(3))
    yield table(3) + mytorch.ones(3)


def modules_within_modules(compile):
    outer, inner = types.ModuleType("the_outer"), types.ModuleType("the_outer.inner")
    outer.inner, inner.scale, inner.count, inner.options = inner, 2.0, 0, types.SimpleNamespace(k=1.0)
    sys.modules |= {"the_outer": outer, "the_outer.inner": inner}

    def imports(x):
        from the_outer import inner as found

        return x * 2 if found.scale == 2 else x * 3

    def counts(x):
        outer.inner.count += 1
        return x * outer.inner.count * outer.inner.options.k

    imported, scaled, counted = compile(imports), compile(lambda x: x * outer.inner.scale), compile(counts)
    try:
        for inner.scale in (2.0, 5.0, 3.0, 2.0):
            inner.options.k = inner.scale
            yield imported(X), scaled(X), counted(X)
    finally:
        del sys.modules["the_outer"], sys.modules["the_outer.inner"]


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def attributes_of_classes(compile):
    class Settings:
        def __init__(self):
            self.mode, self.count = "a", 0

    class Net(nn.Module):
        settings, colour, table, known = Settings(), Colour.RED, np.array([1.0, 2.0]), {1}
        queue, dtype, function = collections.deque([1.0]), mytorch.float32, staticmethod(mytorch.relu)

        class Inner:
            mode = "a"

        def forward(self, x):
            self.settings.count += 1
            y = x * 2 if self.settings.mode == "a" else x * 3
            y = y + 1 if self.Inner.mode == "a" else y
            y = y * 5 if self.colour is Colour.RED else y
            y = y + float(self.table[0]) + len(self.known) + self.queue[0]
            return self.function(y.to(self.dtype)), self.settings.count, str(y.to(self.dtype).dtype)

    compiled, x = compile(Net()), -mytorch.ones(2)
    yield compiled(x)
    for change in (
        lambda: setattr(Net.settings, "mode", "b"), lambda: setattr(Net.Inner, "mode", "b"),
        lambda: setattr(Net, "colour", Colour.BLUE), lambda: Net.table.fill(9), lambda: Net.known.add(3),
        lambda: Net.queue.appendleft(4.0), lambda: setattr(Net, "dtype", mytorch.float64),
        lambda: setattr(Net, "function", staticmethod(mytorch.abs)),
    ):
        change()
        yield compiled(x)


def long_containers(compile):
    items, queue = [0.0] * 20_000, collections.deque([0.0] * 20_000, maxlen=20_000)
    entries = dict.fromkeys(range(20_000), 0.0)

    @compile
    def appends(x):
        y = x * 2
        items.append(y.sum())
        return y

    @compile
    def rotates(x):
        queue.append(1.0)
        entries[5] += 1
        return x * 2

    for k in range(3):
        yield appends(X * k), len(items), items[-1], rotates(X), sum(queue), entries[5]


def classes_of_containers(compile):
    class Items(list):
        pass

    items = Items([1.0])
    items.mode = "a"
    by_mode = compile(lambda x: x * 2 if items.mode == "a" else x * 3)
    for items.mode in ("a", "b"):
        yield by_mode(X)
    by_class = compile(lambda entries, x: x * 2 if type(entries) is dict else x * 3)
    yield by_class({"a": 1}, X), by_class(collections.OrderedDict(a=1), X)
    by_key = compile(lambda entries, x: x * 2 if next(iter(entries)) is True else x * 3)
    yield by_key({True: 1}, X), by_key({1: 1}, X)
    kept = compile(lambda x: collections.OrderedDict(a=x * 2))(X)
    yield type(kept) is collections.OrderedDict, kept["a"]


def tensors_that_come_to_share_memory(compile):
    a, b, c = mytorch.ones(2), mytorch.ones(2), mytorch.ones(2)

    @compile
    def write(x):
        with mytorch.no_grad():
            for y in (a, b, c):
                y.fill_(1.0)
            a.add_(x)
            return b * 1, c * 1

    own, whole = b.data, mytorch.arange(6.0)
    ones = mytorch.ones(2)
    for data in (own, a.data, a.data, own, own, whole.data[2:4], whole.data[3:5], a.data):
        b.data, c.data = data, whole.data[4:6]
        yield write(ones), a, b, c
        yield write(b), a, b  # an argument shares memory, too


def order_of_entries(compile):
    functions = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Sigmoid()})

    @compile
    def chain(x):
        for function in functions.values():
            x = function(x)
        return x

    yield chain(-X)
    functions["a"] = functions.pop("a")
    yield chain(-X)


def its_own_attributes(compile):
    def count(x):
        count.calls = getattr(count, "calls", 0) + 1
        return x * count.calls

    compiled = compile(count)
    for _ in range(3):
        yield compiled(X)


def arrays_of_objects(compile):
    words, objects = np.array(["a", "b"]), np.array([{"k": 1}, None], dtype=object)
    by_word = compile(lambda x: x * 2 if words[0] == "a" else x * 3)
    by_object = compile(lambda x: x * 2 if objects[1] is None else x * 3)
    yield by_word(X), by_object(X)
    words[0], objects[1] = "z", 5
    yield by_word(X), by_object(X)


CASES = [
    options_that_it_sets, rates_that_it_reads, a_schedule_that_it_reads, views_of_what_was_written,
    views_in_parts, the_same_argument_twice, hooks_of_parameters, modes_that_it_sets,
    generators_that_it_seeds, caches,
    modules_within_modules, attributes_of_classes, long_containers, classes_of_containers, order_of_entries,
    its_own_attributes, arrays_of_objects, tensors_that_come_to_share_memory,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_is_as_in_eager(case):
    want = [numbers(result) for result in case(lambda function: function)]
    ours = [numbers(result) for result in case(mytorch.compile)]
    assert str(ours) == str(want)


def test_a_rate_that_only_the_optimizer_reads_is_no_reason_to_capture_again():
    model, optimizer = model_and_optimizer()
    schedule = lr_scheduler.StepLR(optimizer, 2, 0.5)

    @mytorch.compile(fullgraph=True)
    def step(x):
        loss = update(model, optimizer, x)
        schedule.step()
        return loss

    for _ in range(6):
        step(X)
    assert optimizer.param_groups[0]["lr"] == 0.1 / 8
    assert len(step.history) == 2  # without and with a .grad before


def test_training_of_a_compiled_module_is_the_modules():
    model = nn.Sequential(nn.Dropout())
    compiled = mytorch.compile(model)
    model.eval()
    assert compiled.training is False
    compiled.train()
    assert model.training is model[0].training is compiled.training is True


def test_windows_can_be_written_to():
    x = mytorch.zeros(3)
    mytorch.compile(lambda x: x.unfold(0, 2, 1))(x).add_(1)
    want = mytorch.zeros(3)
    want.unfold(0, 2, 1).add_(1)
    assert x.tolist() == want.tolist()


def test_with_fullgraph_shared_memory_is_an_error_in_each_call():
    a, b = mytorch.ones(2), mytorch.ones(2)

    @mytorch.compile(fullgraph=True)
    def write(x):
        a.add_(x)
        return b * 1

    own = b.data
    assert write(mytorch.ones(2)).tolist() == [1, 1]
    for _ in range(2):
        b.data = a.data
        with pytest.raises(RuntimeError, match="same memory"):
            write(mytorch.ones(2))
    b.data = own
    assert write(mytorch.ones(2)).tolist() == [1, 1] and a.tolist() == [3, 3]
    assert len(write.history) == 1
