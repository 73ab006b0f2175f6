"""What a compiled function calls is split where its graph breaks, and prints are repeated at any depth."""

import builtins
import contextlib
import io
import threading
import warnings

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, is_loud=True):
        super().__init__()
        self.a, self.b, self.is_loud = nn.Linear(8, 16), nn.Linear(16, 8), is_loud

    def forward(self, x):
        h = self.a(x).tanh()
        if self.is_loud:
            print("mean", round(float(h.mean()), 3))
        h = h * 2 + 1
        return x + self.b(h)


class Net(nn.Module):
    def __init__(self, container=nn.Sequential):
        super().__init__()
        blocks = Block(), Block(False), Block()
        self.blocks = container(*blocks) if container is nn.Sequential else container(blocks)
        self.stem, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.stem(x).relu()
        if isinstance(self.blocks, nn.ModuleList):
            for block in self.blocks:
                x = block(x)
        else:
            x = self.blocks(x)
        return self.head(x).sigmoid()


def outcome(net, x, calls=3):
    """Results, gradients and what is printed of some calls."""
    found, printed = [], io.StringIO()
    for _ in range(calls):
        x = x.detach().requires_grad_()
        with contextlib.redirect_stdout(printed):
            y = net(x)
        y.square().sum().backward()
        found += [y.detach().numpy(), x.grad.numpy()]
    return found, printed.getvalue()


def programs_in(compiled):
    lines = mytorch.compiler.explain(compiled).splitlines()
    return sum(["instructions" in line for line in lines])


@pytest.mark.parametrize("container", [nn.Sequential, nn.ModuleList])
def test_modules_in_modules(container):
    mytorch.manual_seed(0)
    mytorch.compiler.reset()
    net, x = Net(container), mytorch.randn(6, 8)
    expected = outcome(net, x)
    gradients = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    compiled = mytorch.compile(net)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = outcome(compiled, x)
    assert found[1] == expected[1] and found[1].count("mean") == 6
    for ours, want in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-6)
    for p, want in zip(net.parameters(), gradients, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), want, rtol=1e-4, atol=1e-5)
    texts = [str(w.message) for w in said if "mytorch.compile" in str(w.message)]
    assert len(texts) == 1 and "Block has a graph break at test_callees.py" in texts[0]
    explained = mytorch.compiler.explain(compiled)
    assert "Block: 6 instructions" in explained  # the quiet one, as a whole
    assert explained.count("has a graph break at") == (5 if container is nn.Sequential else 4) - 1
    assert programs_in(compiled) == 2 + 2 * 2 + 1  # stem and head, two parts of two blocks, and the quiet one


def test_fullgraph_names_the_line_inside():
    with pytest.raises(RuntimeError, match=r"test_callees.py:25: a program can't hold what is printed"):
        mytorch.compile(Net(), fullgraph=True)(mytorch.randn(6, 8))


def log(values, x):
    y = x * 3
    values.append(float(y.sum()))
    return y + 1


def times_two(x):
    print("twice")
    return x * 2


class Scale:
    def __init__(self):
        self.last = 0.0

    def apply(self, x):
        self.last = float(x.max())
        return x * 2 - 1


def test_functions_and_methods_of_users():
    values, scale, x = [], Scale(), mytorch.randn(5)

    def step(x):
        x = x + 1
        x = log(values, x)
        x = x * x
        x = scale.apply(x)
        return x - times_two(x)

    compiled, printed = mytorch.compile(step), io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            given = x + k
            found, first, last = compiled(given), values.pop(), scale.last
            np.testing.assert_allclose(found.numpy(), step(given).numpy(), rtol=1e-5, atol=1e-6)
            assert (first, last) == pytest.approx((values.pop(), scale.last), rel=1e-5)
    assert printed.getvalue() == "twice\n" * 6
    assert programs_in(compiled) >= 5


def power(x, n):
    if n == 0:
        print("end")
        return x
    return power(x * 1.5, n - 1)


def test_a_function_that_calls_itself():
    compiled, printed = mytorch.compile(power), io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            assert compiled(mytorch.ones(2), 3).tolist() == [1.5**3] * 2
    assert printed.getvalue() == "end\n" * 2


def test_hooks_of_a_module_that_is_split():
    net, calls, x = Net(), [], mytorch.randn(6, 8)
    net.blocks[0].register_forward_hook(lambda module, args, y: calls.append(1))
    compiled = mytorch.compile(net)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            found = compiled(x)
            assert len(calls) == 2 * k + 1
            np.testing.assert_allclose(found.detach().numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_functions_of_the_package_stay_as_they_are():
    block, x = Block(), mytorch.randn(6, 8, requires_grad=True)

    def step(x):
        y = x * 2
        y = checkpoint(block, y, use_reentrant=False)
        return y + 1

    compiled = mytorch.compile(step)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            np.testing.assert_allclose(
                compiled(x).detach().numpy(), step(x).detach().numpy(), rtol=1e-5, atol=1e-6
            )
    assert "checkpoint" not in [line.strip() for line in mytorch.compiler.explain(compiled).splitlines()]


def test_print_is_the_users_again_and_that_of_other_threads():
    before, inside, done = builtins.print, threading.Event(), threading.Event()

    def other():
        inside.wait(10)
        print("from another thread")
        done.set()

    def step(x):
        inside.set()
        assert done.wait(10)
        return x * 2

    worker, printed = threading.Thread(target=other), io.StringIO()
    with contextlib.redirect_stdout(printed):
        worker.start()
        assert mytorch.compile(step)(mytorch.ones(2)).tolist() == [2, 2]
        worker.join()
    assert printed.getvalue() == "from another thread\n"
    assert builtins.print is before
    with contextlib.redirect_stdout(io.StringIO()), pytest.warns(UserWarning, match="what is printed"):
        mytorch.compile(times_two)(mytorch.ones(2))
    assert builtins.print is before
