"""Functions that can't be captured are split: results, gradients, effects and errors are those of eager."""

import contextlib
import copy
import functools
import importlib.util
import io
import pickle
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn, optim
from mytorch.compiler.compile import OptimizedModule
from mytorch.compiler.compiled import Compiled
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves
from tests.compiler.split_cases import FUNCTIONS, WHOLE
from tests.every import every


def inputs(k):
    rng = np.random.default_rng(k)
    return [mytorch.from_numpy(rng.standard_normal(3).astype(np.float32)).requires_grad_() for _ in range(2)]


def outcome(function, calls=4):
    """Results, gradients, effects and prints of some calls."""
    log, found, printed = [], [], io.StringIO()
    for k in range(calls):
        x, w = inputs(k)
        with contextlib.redirect_stdout(printed):
            result = function(log, x, w)
        results = [*leaves(result)]
        roots = [y for y in results if isinstance(y, mytorch.Tensor) and y.requires_grad]
        if roots:
            sum((y * y).sum() for y in roots).backward()
        found.append(shaped(result))
        needs = [y.requires_grad for y in results if isinstance(y, mytorch.Tensor)]
        grads = [mytorch.zeros(3).data if leaf.grad is None else leaf.grad for leaf in (x, w)]  # if unused
        found += [needs, x.detach().numpy(), *grads]
    return [*found, *log, printed.getvalue()]


def shaped(x):
    """A result with the kinds of its containers."""
    if isinstance(x, (list, tuple)):
        return [type(x), *map(shaped, x)]
    if isinstance(x, dict):
        return [dict, *x, *map(shaped, x.values())]
    return x


def assert_same(ours, want):
    assert type(ours) is type(want)
    if isinstance(want, list):
        assert len(ours) == len(want)
        for pair in zip(ours, want, strict=True):
            assert_same(*pair)
    elif isinstance(want, (mytorch.Tensor, np.ndarray, float)):
        np.testing.assert_allclose(np.asarray(detached(ours)), np.asarray(detached(want)), 1e-5, 1e-6)
    elif hasattr(want, "_array"):
        np.testing.assert_allclose(ours._array, want._array, 1e-5, 1e-6)
    else:
        assert ours == want


def detached(x):
    return x.detach().numpy() if isinstance(x, mytorch.Tensor) else x


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings(), F.use_fused(False):
        warnings.filterwarnings("ignore", "mytorch.compile")
        yield


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_function(function):
    compiled = mytorch.compile(function)
    assert_same(outcome(compiled), outcome(function))
    is_whole = function.__name__ in WHOLE
    said = mytorch.compiler.explain(compiled)
    assert ("runs eagerly for these" if is_whole else "has a graph break at split_cases.py") in said
    assert len(compiled.programs()) > 0 or is_whole
    with pytest.raises(RuntimeError, match=r"fullgraph=True\): split_cases.py:\d+: "):
        outcome(mytorch.compile(function, fullgraph=True))


# Training steps.


def network():
    mytorch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def logged(model, optimizer, log):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        log.append(loss.item())
        optimizer.step()
        return loss

    return step


def split_before_backward(model, optimizer, log):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        log.append(loss.item())
        loss.backward()
        optimizer.step()
        return loss * 2

    return step


def scaled(model, optimizer, log):
    scaler = mytorch.amp.GradScaler("cpu")

    def step(x, y):
        optimizer.zero_grad()
        with mytorch.autocast("cpu", dtype=mytorch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        log.append(norm.item())
        return loss

    return step


def checkpointed(model, optimizer, log):
    def step(x, y):
        optimizer.zero_grad()
        x = x * 2
        hidden = mytorch.utils.checkpoint.checkpoint(model[:2], x, use_reentrant=False)
        loss = F.cross_entropy(model[2](hidden), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def by_hand(model, optimizer, log):
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with mytorch.no_grad():
            for p in model.parameters():
                log.append(p.grad.abs().sum().item())
                if p.grad is not None:
                    p.sub_(p.grad * 0.1)
        return loss.detach()

    return step


def clipped_by_value(model, optimizer, log):
    def step(x, y):
        for k in range(2):
            part = F.cross_entropy(model(x * (k + 1)), y) / 2
            part.backward()
            log.append(part.item())
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
        print("updated")

    return step


STEPS = [logged, split_before_backward, scaled, checkpointed, by_hand, clipped_by_value]


@pytest.mark.parametrize("make", STEPS, ids=lambda f: f.__name__)
def test_a_training_step(make):
    found = []
    for is_compiled in (True, False):
        model, log = network(), []
        step = make(model, optim.AdamW(model.parameters(), lr=0.01), log)
        call = mytorch.compile(step) if is_compiled else step
        for k in range(5):
            x = mytorch.from_numpy(np.random.default_rng(k).standard_normal((3, 4), np.float32))
            result = call(x, mytorch.arange(3) % 2)
            log.append(None if result is None else result.item())
        weights = [*model.parameters()]
        found.append([*log, *[p.detach().numpy() for p in weights], *[p.grad for p in weights]])
        if is_compiled:
            assert "has a graph break at test_splitting.py" in mytorch.compiler.explain(call)
            assert call.programs()
    assert_same(*found)


def test_an_epoch():
    """A loop over a DataLoader is split, and each batch is read once."""
    found = []
    for is_compiled in (True, False):
        model, log = network(), []
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        xs, ys = mytorch.randn(12, 4, generator=mytorch.Generator().manual_seed(1)), mytorch.arange(12) % 2
        loader = mytorch.utils.data.DataLoader(mytorch.utils.data.TensorDataset(xs, ys), batch_size=4)

        def epoch(model=model, optimizer=optimizer, loader=loader, log=log):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
                log.append(total)
            return total / len(loader)

        call = mytorch.compile(epoch) if is_compiled else epoch
        found.append([call(), call(), *log])
    assert len(found[0]) == 8
    assert_same(*found)


# Other callables.


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        mytorch.manual_seed(1)
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.seen, self.calls = [], 0

    def forward(self, x, scale=2.0):
        h = self.first(x).tanh() * scale
        self.seen.append(h.sum().item())
        h = self.last(h).relu()
        self.calls += 1
        return h * 2

    def method(self, x):
        h = self.first(x)
        print("method")
        return h * self.calls


def of_module(net):
    return net


def of_method(net):
    return net.method


def of_closure(net):
    count = 3

    def function(x):
        y = net.first(x) * count
        print(count)
        y = y * 2
        return net.last(y)

    return function


def of_partial(net):
    return functools.partial(in_partial, net, power=2)


def in_partial(net, x, *, power=3, scale=2.0):
    y = net.first(x) ** power
    print(power)
    y = y * scale
    return net.last(y)


def of_decorated(net):
    @mytorch.no_grad()
    def function(x):
        y = net.first(x)
        net.seen.append(y.sum().item())
        return y * 2

    return function


@pytest.mark.parametrize("make", [of_module, of_method, of_closure, of_partial, of_decorated])
def test_a_callable(make):
    found = []
    for is_compiled in (True, False):
        net = Net()
        function = make(net)
        call = mytorch.compile(function) if is_compiled else function
        record, printed = [], io.StringIO()
        for k in range(3):
            x = inputs(k)[0]
            with contextlib.redirect_stdout(printed):
                y = call(x)
            if y.requires_grad:
                (y * y).sum().backward()
            record += [y, x.grad]
        if is_compiled and make is not of_decorated:
            assert "has a graph break at test_splitting.py" in mytorch.compiler.explain(call)
        found.append([*record, *[p.grad for p in net.parameters()], net.seen, net.calls, printed.getvalue()])
    assert_same(*found)


def test_hooks_of_a_split_module():
    net, x = Net(), inputs(0)[0]
    compiled = mytorch.compile(net)
    want = compiled(x)
    assert compiled.forward.parts()
    net.register_forward_hook(lambda module, args, output: output * 10)
    assert mytorch.allclose(compiled(x), want * 10)


class Outer(nn.Module):
    def __init__(self, is_compiled):
        super().__init__()
        self.blocks = nn.ModuleList([Net(), Net()])
        if is_compiled:
            self.blocks = nn.ModuleList(map(mytorch.compile, self.blocks))
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        x = self.last(x).relu()
        for block in self.blocks:
            x = block(x) + x
        return self.last(x)


def test_compiled_modules_within_a_compiled_one():
    found = []
    for is_compiled in (True, False):
        mytorch.manual_seed(2)
        outer = Outer(is_compiled)
        call, results = mytorch.compile(outer) if is_compiled else outer, []
        for k in range(3):
            y = call(inputs(k)[0])
            y.sum().backward()
            results.append(y)
        inner = [getattr(block, "_orig_mod", block) for block in outer.blocks]
        seen = [number for net in inner for number in net.seen]
        found.append([*results, *[p.grad for p in outer.parameters()], *seen])
        if is_compiled:
            assert call.forward.parts() and every([block.forward.parts() for block in outer.blocks])
    assert_same(*found)


# What is said, and kept.


def with_lines(x):
    y = x * 2
    total = y.sum().item()
    y = y * 3
    return y, total


def test_what_is_said():
    first = with_lines.__code__.co_firstlineno
    compiled = mytorch.compile(with_lines)
    with pytest.warns(UserWarning) as caught:
        compiled(mytorch.ones(2))
    (warning,) = caught
    place = f"test_splitting.py:{first + 2}"
    said = f"mytorch.compile: with_lines has a graph break at {place}: it asks for the element"
    assert str(warning.message).startswith(said) and warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(mytorch.ones(2)), compiled(mytorch.ones(3))
    lines = mytorch.compiler.explain(compiled).split("\n")
    assert lines[:2] == ["1. first call", "   " + str(warning.message).partition("with_lines ")[2]]
    assert lines[2:5] == [
        f"   with_lines line {first + 1}", "     1. first call",
        f"        with_lines line {first + 1}: 1 instructions",
    ]
    assert [part.__name__ for part in compiled.parts()] == [
        f"with_lines line {first + 1}", f"with_lines lines {first + 3}-{first + 4}"
    ]
    assert len(compiled.programs()) == 4  # two parts, two shapes
    compiled.reset()
    assert compiled.history == compiled.parts() == compiled.programs() == []
    compiled(mytorch.ones(2))
    assert compiled.parts()


def test_copies_capture_for_themselves():
    compiled = mytorch.compile(with_lines)
    compiled(mytorch.ones(2))
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(copied, Compiled) and not copied.parts()
        assert copied(mytorch.ones(2))[1] == 4.0 and copied.parts()
    net = mytorch.compile(Net())
    net(mytorch.ones(3))
    assert isinstance(copy.deepcopy(net), OptimizedModule)


def wrong(x, w):
    y = x * 2
    y = y @ w
    y = y + 1
    return y


def wrong_later(x, w):
    y = x * 2
    print("first")
    y = y @ w
    return y + 1


@pytest.mark.parametrize("function", [wrong, wrong_later])
def test_an_error_of_the_function(function):
    line = function.__code__.co_firstlineno + (3 if function is wrong_later else 2)
    compiled = mytorch.compile(function)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*what is printed")
            with pytest.raises(RuntimeError, match="matmul") as ours:
                compiled(mytorch.ones(2, 2), mytorch.ones(3, 3))
        with pytest.raises(RuntimeError) as want:
            function(mytorch.ones(2, 2), mytorch.ones(3, 3))
        assert str(ours.value) == str(want.value)
        assert (__file__, line) in [(str(entry.path), entry.lineno + 1) for entry in ours.traceback]
    assert function is wrong_later or not compiled.history
    x = mytorch.ones(2, 2)
    assert mytorch.equal(compiled(x, x), function(x, x))
    assert function is wrong_later or (not compiled.parts() and len(compiled.programs()) == 1)


# Random functions.

EXPRESSIONS = ["a * b", "a + c", "(b * 2).tanh()", "c.tanh() - a", "a.clone()", "b / 2 + 1", "a @ b * c", "a"]
SIMPLE = ["print(len(log))", "log.append(1)", "n = n + 1", "a.add_(1)"]


@st.composite
def blocks(draw, depth=2):
    """Lines of a block, without indentation at its head."""
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 9))
        name = draw(st.sampled_from("abcd"))
        if kind < 4 or not depth and kind > 6:
            lines.append(f"{name} = {draw(st.sampled_from(EXPRESSIONS))}")
        elif kind == 4:
            lines.append(f"log.append({draw(st.sampled_from('abc'))}.sum().item())")
        elif kind == 5:
            lines.append(draw(st.sampled_from(SIMPLE)))
        elif kind == 6:
            condition = draw(st.sampled_from(["n > 2", "a.sum() > 0", "a.sum().item() > 0.0"]))
            then = draw(st.sampled_from(["return a, n", "b = b * 2", "n = n + 2"]))
            lines.append(f"if {condition}: {then}")
        else:
            head = [
                "for k in range(2):", "if n % 2:", "if b.sum() > 0:", "with mytorch.no_grad():", "try:",
                "while n < 3:",
            ][draw(st.integers(0, 5))]
            inner = draw(blocks(depth - 1))
            if head.startswith("while"):
                inner = ["n = n + 1", *inner]
            elif head.startswith("for") and draw(st.booleans()):
                inner = [*inner, draw(st.sampled_from(["if n > 3: break", "if k: continue"])), "n = n + 1"]
            lines += [head, *["    " + line for line in inner]]
            if head == "try:":
                lines += ["    raise ValueError(n)"] * draw(st.booleans())
                lines += ["except ValueError:", "    c = c + 1"]
            elif head.startswith("if") and draw(st.booleans()):
                lines += ["else:", *["    " + line for line in draw(blocks(depth - 1))]]
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("functions")


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(blocks())
def test_random_functions(folder, lines):
    path = folder / f"module_{abs(hash(tuple(lines)))}.py"
    text = ["import mytorch", "def function(log, a, b):", "    a, n = a * 1, len(log)", "    c = d = a * b"]
    path.write_text("\n".join([*text, *["    " + line for line in lines], "    return a, b, c, d, n", ""]))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    results = []
    for call in (mytorch.compile(module.function), module.function):
        try:
            results.append(outcome(call, 3))
        except RuntimeError as error:  # what a part saves is needed for all of its results
            assert "modified by an inplace operation" in str(error)
            return
    assert_same(*results)
