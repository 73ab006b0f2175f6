"""The memory of programs: predicted as it is then measured; arrays are freed, and written over, in time."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.stream.programs import capture, execution
from mytorch.stream.programs.loop import COLUMN, FULL, ROW, Loop, Step
from mytorch.stream.programs.memory import last_uses
from mytorch.stream.programs.program import Instruction
from mytorch.stream.programs.reuse import in_place

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
    """Loops that compute nothing, so that what is measured are the arrays."""
    monkeypatch.setattr(execution, "runnable", lambda loop: lambda *args: None)


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
        needed = 240_000 if kernels and name == "attention" else 0  # probabilities, within its vjp
        assert program.memory().peak + needed == pytest.approx(measured, 0.1)


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
    deleted = [[str(value) for value in last] for last in last_uses(program)]
    assert deleted == [[], ["%1"], ["%2"], ["%3"], []][: len(deleted)]
    assert program.source().count("del ") == 3
    x = mytorch.ones(4)
    assert [y.tolist() for y in program(x)] == [[4, 4], x.exp().tolist()] and x.tolist() == [1] * 4


def test_what_is_written_in_place():
    def places(function, *examples):
        program = capture(function, *examples).optimized()
        loops = [i for i in program.instructions if i.name == "loop"]
        return [in_place(program).get(i) for i in loops]

    x = mytorch.ones(8, 8)
    with F.use_fused(False):
        assert places(lambda x: (x @ x).tanh() * 2, x) == [(0,)]
        assert places(lambda x: x.tanh() * 2, x) == [None]  # the caller's
        assert places(lambda x: (x.tanh() * 2, x @ x), x) == [None]
        y = capture(lambda x: (y := x @ x, y.tanh() * 2), x).optimized()
        assert not in_place(y)  # it is returned
        assert places(lambda x: ((x @ x).t().tanh() * 2), x) == [None]  # not in C order
        assert places(lambda x: (x @ x)[:4].tanh() * 2, x) == [None]  # a part
        assert places(lambda x: (y := x @ x).tanh() * 2 + y[0], x) == [None]  # is read as a row, too
        assert places(lambda x: F.softmax(x @ x, -1), x) == [(0,)]
        assert places(lambda x: (x @ x - 1) > (x @ x).exp(), x) == [None]  # bool
    shared = capture(lambda x: F.linear(x, x).tanh() * 2, x).optimized()
    assert any(i.name == "loop" for i in shared.instructions) and not in_place(shared)


def test_what_python_keeps_is_not_written_over():
    with F.use_fused(False):
        program = capture(lambda x: (x @ x).tanh() * 2, mytorch.ones(8, 8)).optimized()
    assert in_place(program)
    product = program.instructions[0].outputs[0]
    program.instructions.insert(1, Instruction("host.keep", (product,), {}, ()))
    assert not in_place(program)


def loop_of(*steps, outputs=(0,)):
    return Loop((FULL, ROW, COLUMN), tuple(Step(*step) for step in steps), outputs)


@pytest.mark.parametrize(
    ("loop", "k", "want"),
    [
        (loop_of(("exp", ("x0",), FULL)), 0, True),
        (loop_of(("exp", ("x0",), FULL), ("add", ("v0", "x1"), FULL)), 0, True),
        (loop_of(("exp", ("x0",), FULL), ("add", ("v0", "x0"), FULL)), 0, False),
        (loop_of(("exp", ("x0",), FULL), ("add", ("v0", "x0"), FULL)), 1, True),
        (loop_of(("exp", ("x0",), FULL), ("max", ("x0",), ROW)), 0, False),
        (loop_of(("max", ("x0",), ROW), ("exp", ("x0",), FULL)), 1, False),  # in the same pass, but after it
        (loop_of(("max", ("x0",), ROW), ("subtract", ("x0", "v0"), FULL)), 1, True),
        (loop_of(("max", ("x1",), ROW), ("add", ("v0", "x2"), FULL), ("exp", ("x0",), FULL)), 1, False),
    ],
)
def test_the_last_read(loop, k, want):
    assert loop.is_read_before(0, k) is want


def test_compiled_loops_in_place(monkeypatch, tmp_path):
    pytest.importorskip("numba")
    monkeypatch.setenv("MYTORCH_CACHE", str(tmp_path))
    execution.loaded.cache_clear()

    def function(x, w):
        return F.softmax(x @ w, -1) * x.sum(1, True).tanh()

    x, w = mytorch.randn(70, 1500), mytorch.randn(1500, 1500) / 40
    program = capture(function, x, w).optimized()
    assert in_place(program) and " = flat(" in program.source()
    np.testing.assert_allclose(program(x, w).numpy(), function(x, w).numpy(), 1e-4, 1e-6)
    execution.loaded.cache_clear()


def test_threads_run_a_program_at_once():
    with F.use_fused(False):
        program = capture(deep, mytorch.ones(X)).optimized()
        assert in_place(program)
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
