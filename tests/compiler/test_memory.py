"""The memory of programs: predicted as it is then measured; arrays are freed, and written over, in time."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import capture
from mytorch.compiler.codegen.loop import COLUMN, FULL, ROW, Loop, Step
from mytorch.compiler.memory.live_ranges import last_uses
from mytorch.compiler.memory.plan import planned
from mytorch.compiler.running import execution
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves

X = (200, 300)
W = mytorch.randn(300, 300) / 17
MODEL = nn.Sequential(nn.Linear(300, 400), nn.GELU(), nn.LayerNorm(400), nn.Linear(400, 300))


def deep(x):
    for _ in range(6):
        x = (x @ W).tanh() * 1.5 + x
    return x


def training(x):
    loss = F.cross_entropy(MODEL(x) + x, mytorch.zeros(200, dtype="int64"))
    return loss, mytorch.autograd.grad(loss, list(MODEL.parameters()))


def attention(x):
    heads = x.view(2, 100, 3, 100).transpose(1, 2).requires_grad_()
    y = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return mytorch.autograd.grad(y.square().sum(), heads)


def views(x):
    y = (x + 1).view(-1)[100:]  # keeps all of x + 1
    z = x * 2
    return y.sum() + z.sum() + (z.t() * x.t()).sum()


FUNCTIONS = {f.__name__: f for f in (deep, training, attention, views)}


@pytest.fixture
def idle_loops(monkeypatch):
    """Loops that compute nothing, and no checks, so that what is measured are the arrays."""
    monkeypatch.setenv("MYTORCH_CHECK_PROGRAMS", "0")
    monkeypatch.setattr(execution, "runnable", lambda *args: lambda *arrays: None)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_peak_is_as_predicted(name, optimized, kernels, idle_loops):
    x, run = mytorch.randn(*X), FUNCTIONS[name]
    if kernels:
        program = capture(run, x)
    with F.use_fused(False):
        program = program if kernels else capture(run, x)
        program = program.optimized() if optimized else program
        program(x)
        gc.collect()
        tracemalloc.start()
        try:
            program(x)
            measured = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        needed = 240_000 if kernels and name == "attention" else 0  # within its vjp: dP, or a gradient's copy
        assert program.memory().peak + needed == pytest.approx(measured, 0.1)


def test_the_mask_of_dropout():
    def step(x):
        y = F.dropout(x.requires_grad_(), 0.5)
        return mytorch.autograd.grad(y.sum(), x, retain_graph=True)[0] * y

    held = {(x.maker, x.nbytes) for x in capture(step, mytorch.ones(1000)).memory().held}
    assert {("'dropout'", 4000), ("kernel.vjp", 4000)} <= held


def test_the_table():
    program = capture(lambda x: (x + 1).exp().sum(), mytorch.ones(1000))
    memory = program.memory()
    assert (memory.given, memory.peak, memory.at, memory.instruction.name) == (4000, 8000, 1, "exp")
    assert str(memory) == (
        "given 4.0 kB, peak 8.0 kB more at instruction 1, exp; alive there:\n"
        "     4.0 kB  %1: float32[1000] from add\n"
        "     4.0 kB  %2: float32[1000] from exp"
    )
    nothing = capture(lambda x: x, mytorch.ones(3))
    assert str(nothing.memory()) == "given 12 B, peak 0 B more at nothing; alive there:"
    with F.use_fused(False):
        lines = str(capture(training, mytorch.ones(X)).memory()).splitlines()
    assert len(lines) == 12 and lines[-1].endswith(" others")


def test_names_are_deleted_after_their_last_use():
    program = capture(lambda x: ((x + 1).view(-1)[2:] * 2, x.exp()), mytorch.ones(4))
    deleted = [[str(value) for value in last] for last in last_uses(program, program.instructions)]
    assert deleted == [[], ["%1"], ["%2"], ["%3"], []][: len(deleted)]
    assert program.source().count("del ") == 3
    x = mytorch.ones(4)
    assert [y.tolist() for y in program(x)] == [[4, 4], x.exp().tolist()] and x.tolist() == [1] * 4


STORED = {
    "a product": lambda x: (x @ x).tanh() * 2,
    "the caller's": lambda x: x.tanh() * 2,
    "a loop's": lambda x: ((x.tanh() * 2).cumsum(0) * 2).exp(),
    "returned": lambda x: ((y := x @ x), y.tanh() * 2),
    "returned as a view": lambda x: ((y := x @ x)[0], y.tanh() * 2),
    "read later": lambda x: ((y := x @ x).tanh() * 2) @ y,
    "a copy in the order of a view": lambda x: x.t().cumsum(0).tanh() * 2,
    "a view": lambda x: (x @ x).t().tanh() * 2,
    "a part": lambda x: (x @ x)[:4].tanh() * 2,
    "read as rows, too": lambda x: (y := x @ x).tanh() * 2 + y[0],
    "several passes": lambda x: F.softmax(x @ x, -1),
    "sums of columns": lambda x: ((x @ x).tanh() * 2, (x + 1).exp().sum(0)),
    "another dtype": lambda x: (x @ x - 1) > (x + 1).exp(),
    "a number of NumPy": lambda x: mytorch.where(x.sum() > x[:1, :1].long(), x.sum(), x[:1, :1].long()) * 2,
}


@pytest.mark.parametrize("name", STORED)
def test_what_a_loop_takes_stays_as_it_is(name):
    x, function = mytorch.randn(8, 8), STORED[name]
    with F.use_fused(False):
        program = capture(function, x).optimized()
        before = x.clone()
        for _ in range(2):
            for ours, theirs in zip(leaves(program(x)), leaves(function(x)), strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-5, 1e-6)
        assert x.tolist() == before.tolist()


def loop_of(*steps, outputs=(0,)):
    return Loop((FULL, ROW, COLUMN), tuple(Step(*step) for step in steps), outputs)


@pytest.mark.parametrize(
    ("loop", "want"),
    [
        (loop_of(("exp", ("x0",), FULL)), True),
        (loop_of(("exp", ("x0",), FULL), ("add", ("v0", "x0"), FULL)), True),
        (loop_of(("exp", ("x0",), FULL), ("max", ("x0",), ROW)), False),
        (loop_of(("exp", ("x0",), FULL), ("max", ("v0",), ROW), ("tanh", ("v1",), ROW)), True),
        (loop_of(("exp", ("x0",), FULL), ("sum", ("x0",), COLUMN)), False),
        (loop_of(("exp", ("x0",), FULL), ("sum", ("v0",), COLUMN)), True),
        (loop_of(("exp", ("x0",), FULL), ("take", ("x0", "x1"), ROW)), False),
        (loop_of(("max", ("x2",), ROW), ("subtract", ("x0", "v0"), FULL)), False),
    ],
)
def test_what_is_read_first(loop, want):
    assert loop.is_read_first(0) is want


def test_threads_run_a_program_at_once():
    with F.use_fused(False):
        program = capture(deep, mytorch.ones(X)).optimized()
        inputs = [mytorch.randn(*X) for _ in range(4)]
        want = [program(x).numpy().copy() for x in inputs]
        wrong = []

        def run(k):
            for _ in range(3):
                if not np.array_equal(program(inputs[k]).numpy(), want[k]):
                    wrong.append(k)

        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_gradients_of_a_shared_weight_are_added_where_the_first_one_is():
    """As the engine does it: no array for the second one, and none for the sum."""
    weight = nn.Parameter(mytorch.randn(5000, 64) * 0.1)
    index = mytorch.arange(64)

    def step():
        weight.grad = None
        loss = F.cross_entropy(F.linear(F.embedding(index, weight), weight), index)
        loss.backward()
        return loss

    program = mytorch.capture(step).optimized()
    names = [i.name for i in planned(program)]
    assert names.count("host.add_grad") == names.count("host.set_grad") == 1 and "add" not in names
    for _ in range(2):
        loss, grad = program(), weight.grad.copy()
        assert loss.item() == step().item()
        np.testing.assert_array_equal(grad.numpy(), weight.grad.numpy())


def test_what_is_returned_does_not_lie_in_an_input_that_gets_it():
    def function(x):
        y = (x * 2).tanh()
        x.copy_(y)
        return y

    for returns in (function, lambda x: function(x).view(-1)):
        x = mytorch.ones(4, 5)
        y = capture(returns, x).optimized()(x)
        x.zero_()
        np.testing.assert_allclose(y.numpy(), np.tanh(np.float32(2)), 1e-6)


def test_gradients_become_grad_directly_behind_their_vjp():
    """One at a time is in memory of its own, at the most."""
    model = nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.Linear(128, 128))

    def step(x):
        for parameter in model.parameters():
            parameter.grad = None
        model(x).square().sum().backward()

    instructions = planned(capture(step, mytorch.randn(128, 128)).optimized())
    names = [i.name for i in instructions if i.name in ("kernel.vjp", "host.set_grad")]
    assert names == ["kernel.vjp", "host.set_grad", "host.set_grad"] * 3
    for vjp, *stores in zip(*[iter([i for i in instructions if i.name in names])] * 3, strict=True):
        assert [store.args[1] for store in stores] == [*vjp.outputs[-2:]] and len(vjp.kwargs["lazy"]) == 2
