"""Programs run part by part of the batch: the results are the same, and the memory is as predicted."""

import gc
import re
import tracemalloc
from dataclasses import replace
from itertools import product

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn
from mytorch.compiler import capture
from mytorch.compiler.files.checking import Checker
from mytorch.compiler.parts.chunking import run_parts
from mytorch.compiler.parts.crossing import PRICES, STORE
from mytorch.compiler.parts.stage import Builder
from mytorch.compiler.parts.stages import Stages
from mytorch.compiler.running import execution
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves
from tests.compiler.test_capture import FUNCTIONS as CAPTURED
from tests.compiler.test_capture import a_step

X = mytorch.arange(84.0).view(7, 12).sin()
MLP = nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
NORM = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
GPT = GPT2(GPT2Config(vocab_size=12, context_length=12, n_layer=2, n_head=2, n_embd=8, dropout_p=0.0))
TABLE, WIDE = mytorch.randn(5, 4), mytorch.randn(3, 12, 2)


def gradients(loss, model):
    return loss, mytorch.autograd.grad(loss, list(model.parameters()))


def gpt(x):
    idx = (x.abs() * 11).long()
    return gradients(GPT(idx, idx)[1], GPT)


# With the levels of their stages: those of odd numbers are loops over parts.
FUNCTIONS = {
    "elements": (lambda x: (x * 2 + x[:, :1]).tanh(), {1}),
    "rows": (lambda x: F.softmax(x, -1) + x.argmax(1, keepdim=True), {1}),
    "columns": (lambda x: (x.sum(0), x.amax(0), (x > 0.9).any(0), (x > 2).all(), x.amin()), {1, 2}),
    "mean": (lambda x: x - x.mean(0), {1, 2, 3}),
    "totals": (lambda x: F.softmax(x, -1) + x.sum(0), {1, 3}),
    "views": (lambda x: (x.t()[2:5], x.view(7, 3, 4).transpose(1, 2)[..., None, 0], x.reshape(-1) * 2), {1}),
    "dims": (lambda x: x.view(7, 3, 4).permute(2, 0, 1).contiguous().view(4, 21).cumsum(0).sum(0), {1}),
    "products": (lambda x: (x @ x.new_ones(12, 2), x.t() @ x, x.view(7, 2, 6) @ x.view(7, 6, 2)), {1}),
    "wide products": (lambda x: (x.view(7, 1, 1, 12) @ WIDE, (WIDE.mT @ x.t())), {0, 1}),
    "tables": (lambda x: (F.embedding((x.abs() * 4).long(), TABLE), TABLE[(x[:, 0] > 0).long()]), {1}),
    "along": (lambda x: (x.sort(1).values, mytorch.cat([x, x * 2], 1), x.gather(1, x[:, :2].long())), {1, 2}),
    "functions": (lambda x: (x.prod(0), x.flip(1), x.view(7, 3, 4).tril(), x.roll(1, 1), x.tile(1, 2)), {1}),
    "across": (lambda x: (x.cumsum(0) * x, x[1:] - x[:-1], x @ x.t(), x[:, :7] @ x[:, :7]), None),
    "network": (lambda x: MLP(x), {0, 1}),
    "regression": (lambda x: gradients(F.mse_loss(MLP(x), x[:, :3]), MLP), {0, 1, 2}),
    "classes": (lambda x: gradients(F.cross_entropy(MLP(x), (x[:, 0] > 0).long()), MLP), {0, 1, 2, 3, 4}),
    "batch norm": (lambda x: gradients(NORM(x).square().mean(), NORM), None),
    "gpt": (gpt, {0, 1, 2, 3, 4}),
    "written": (lambda x: (x.clone().fill_(2) + x, mytorch.zeros(7, 12).add_(x)[1:]), {0, 1, 2}),
    "partly written": (lambda x: partly_written(x), None),
}


def partly_written(x):
    y = x * 2
    z = y + 1
    y[2:4] = 5
    return y * x, z


def in_parts(program, rows, *args, price=STORE):
    stages = Stages(program, price)
    for stage in stages.all:
        check(Builder(stage, rows).program())
    return run_parts(stages, [x.numpy() for x in args], rows, stages.rows)


def check(program):
    """Raises if an instruction of a part doesn't give what its values say."""
    checker = Checker({})
    for value in (*program.inputs, *program.state, *program.constants):
        checker.define(value)
    for i in program.instructions:
        if not any([x.dtype.kind == "O" for x in (*i.inputs(), *i.outputs)]):
            checker.run(i)
        else:
            [checker.define(y) for y in i.outputs if y.dtype.kind != "O"]


def assert_same(ours, want):
    for a, b in zip(leaves(ours), leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.numpy(), b.numpy(force=True), 2e-5, 2e-6)


@pytest.mark.parametrize(("kernels", "optimized"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_is_computed(name, kernels, optimized):
    function, levels = FUNCTIONS[name]
    with F.use_fused(kernels):
        program = capture(function, X)
    program = program.optimized() if optimized else program
    if levels is not None and not (optimized or (kernels and name != "gpt")):
        assert {stage.number for stage in Stages(program).all} == levels
    with F.use_fused(False):
        want = function(X)
        for rows, price in [(3, STORE), (3, 0)] if name == "gpt" else product((1, 3, 7), PRICES):
            assert_same(in_parts(program, rows, X, price=price), want)


@pytest.mark.parametrize("name", [name for name in CAPTURED if name not in ("constants", "in place", "gpt")])
def test_captured_functions(name):
    mytorch.manual_seed(0)
    function, x = CAPTURED[name](), mytorch.randn(6, 10)
    with F.use_fused(False):
        program = capture(function, x)
        want = program(x)
        if name in ("state", "sgd by hand"):
            program, want = capture(CAPTURED[name](), x), capture(CAPTURED[name](), x)(x)
        assert_same(in_parts(program, 4, x), want)


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    st.lists(st.sampled_from([(4, 4), (4, 1), (4,), (4, 3, 4), (1, 4), (3, 4, 4)]), min_size=1, max_size=2),
    st.lists(st.lists(st.integers(0, 59), min_size=6, max_size=6), min_size=1, max_size=9),
    st.sampled_from(PRICES),
)
def test_random_programs(shapes, decisions, price):
    def function(*given):
        values = [x.clone() for x in given]
        for numbers in decisions:
            rest = iter(numbers)
            try:
                values.append(a_step(lambda options: options[next(rest) % len(options)], values))  # noqa: B023
            except (RuntimeError, IndexError) as error:
                if "meta" in str(error):
                    raise
        return values

    mytorch.manual_seed(1)
    inputs = [mytorch.randn(4, *shapes[0][1:]), *[mytorch.randn(shape) for shape in shapes[1:]]]
    with F.use_fused(False):
        assert_same(in_parts(capture(function, *inputs), 3, *inputs, price=price), function(*inputs))


@pytest.mark.parametrize("price", PRICES)
def test_a_training_step(price):
    """Gradients of parts are added up; clipping, steps and random numbers are those of the whole."""

    def step_of(model):
        optimizer = mytorch.optim.AdamW(model.parameters(), 0.05)
        schedule = mytorch.optim.lr_scheduler.StepLR(optimizer, 2)

        def step(x):
            loss = F.mse_loss(model(x + mytorch.randn(7, 12)), x[:, :3])
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            return loss, norm, (model[0](x) ** 2).sum()  # after the step

        return step

    def model():
        mytorch.manual_seed(0)
        return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3))

    with F.use_fused(False):
        step, program = step_of(model()), capture(step_of(model()), X)
        stages, results = Stages(program, price), []
        for run in (step, lambda x: run_parts(stages, [x.numpy()], 2, 7)):
            mytorch.manual_seed(1)
            results.append([run(X) for _ in range(3)])
        assert_same(*reversed(results))


# Memory.

W = mytorch.randn(50, 50) / 7


def deep(x):
    for _ in range(4):
        x = (x @ W).tanh() * 1.5 + x
    return x.sum(0), x[:, 0]


def across(x):
    y = x @ W
    return ((y.cumsum(0) * x).tanh() @ W).sum(1)


@pytest.fixture
def idle_loops(monkeypatch):
    """Loops that compute nothing, and no checks, so that what is measured are the arrays."""
    monkeypatch.setenv("MYTORCH_CHECK_PROGRAMS", "0")
    monkeypatch.setattr(execution, "runnable", lambda *args: lambda *arrays: None)


def measured(run):
    run()
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("limit", "nbytes"), [("20kB", 20_000), (100_000, 100_000), ("0.3 MB", 300_000)])
def test_the_limit_is_kept(limit, nbytes, idle_loops):
    x = mytorch.randn(1000, 50)
    with F.use_fused(False):
        program = capture(deep, x)
        chunked = program.chunked(limit)
        assert chunked.peak == pytest.approx(measured(lambda: chunked(x)), rel=0.1, abs=8_000)
    assert nbytes / 2 < chunked.peak <= nbytes < program.memory().peak
    assert chunked.rows < 1000 and "parts of" in str(chunked)


def centred(x):
    y = (x @ W).exp()
    return (y * y.mean(0)).sum(1)


@pytest.mark.parametrize("price", [STORE, 0])
@pytest.mark.parametrize("function", [across, centred])
@pytest.mark.parametrize("rows", [100, 1000])
def test_the_peak_of_several_stages(rows, function, price, idle_loops):
    x = np.ones((1000, 50), np.float32)
    with F.use_fused(False):
        stages = Stages(capture(function, x), price)
        assert {stage.number for stage in stages.all} == {1, 2, 3}
        needed = measured(lambda: run_parts(stages, [x], rows, 1000))
    assert stages.peak(rows) == pytest.approx(needed, rel=0.05, abs=4_000)  # Python's own objects


def test_results_within_a_limit():
    x = mytorch.randn(1000, 50)
    with F.use_fused(False):
        program = capture(deep, x)
        for a, b in zip(program.chunked("50kB")(x), program(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-4)


def test_rows_are_equal_bit_for_bit():
    program = capture(lambda x: (F.softmax(x, -1).sort(1).values * x).sum(1), X)
    with F.use_fused(False):
        whole, parts = program.optimized()(X), program.chunked(600)
        assert parts.rows < 7 and mytorch.equal(parts(X), whole)


def test_enough_memory():
    program = capture(deep, mytorch.randn(100, 50))
    chunked = program.chunked("1GB")
    assert chunked.rows == 100 and str(chunked) == str(program.optimized())
    x = mytorch.randn(100, 50)
    with F.use_fused(False):
        assert mytorch.equal(chunked(x)[0], program.optimized()(x)[0])


def test_memory_maps(tmp_path):
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (1000, 50))
    x[...] = np.arange(50) / 50
    chunked = capture(lambda x: (x * 2).exp().sum(0), x).chunked("20kB")
    with F.use_fused(False):
        np.testing.assert_allclose(chunked(x).numpy(), np.exp(x[:1] * 2)[0] * 1000, 1e-4)


def test_a_check_alone():
    """A loop that only compares indices with their bounds gives nothing."""
    index = mytorch.arange(7).flip(0)
    program = capture(lambda x, index: x.index_select(0, index) * 2, X, index)
    assert mytorch.equal(in_parts(program, 3, X, index), X.flip(0) * 2)
    with pytest.raises(IndexError):
        in_parts(program, 3, X, index + 1)


def views_across_parts(x):
    """An array and a view of it, which are made before a loop, and written behind it."""
    total = W[0] * 2
    first, mean = total[:2], x.mean(0)
    first.mul_(mean[:2])
    total.add_(mean)
    return (x * total).tanh()


def test_writes_to_views_across_parts():
    x = mytorch.randn(1000, 50)
    program = capture(views_across_parts, x)
    with F.use_fused(False):
        assert_same(program.chunked("10MB")(x), views_across_parts(x))
    message = r"can't run in parts: one of them takes both %3: float32\[50\], to which the program writes"
    with pytest.raises(ValueError, match=message):
        program.chunked("10kB")


def test_errors():
    x = mytorch.randn(1000, 50)
    program = capture(deep, x)
    with pytest.raises(ValueError, match=r"deep: a row at a time needs \d\.\d kB, the limit is 2kB") as error:
        program.chunked("2kB")
    least = str(error.value).split("needs ")[1].split(",")[0]
    assert program.chunked(f"{float(least[:-3]) + 0.1} kB").rows == 1
    wrong = ["much", "5 PB", "5 apples", "500", "500 mb", "1.2.3MB", "1.5e3MB", "-5MB", "0MB", "", "MB"]
    for memory in (*wrong, 1.5, True, 0, -1, None, b"5MB"):
        message = '"500MB" or "1.5 GiB" (a number and one of B, kB, '
        with pytest.raises(ValueError, match=re.escape(message) + f".*got {re.escape(repr(memory))}"):
            program.chunked(memory)
    for memory in ("2GiB", "2 GB", "3000.5kB", "1TB", 1 << 40):
        assert program.chunked(memory).rows == 1000
    with pytest.raises(ValueError, match="expected %.*float32.*1000, 50.*, got float32.*999, 50"):
        program.chunked("200kB")(x[1:])
    with pytest.raises(ValueError, match=r"of strides \(200, 4\) on cpu.*, got .* of strides \(4, 4000\) on"):
        program.chunked("200kB")(mytorch.randn(50, 1000).t())
    with pytest.raises(NotImplementedError, match="deep is on meta; only the CPU's run in parts"):
        replace(program, device=mytorch.device("meta")).chunked("1GB")
    with pytest.raises(ValueError, match="writes to its inputs"):
        capture(lambda x: x.add_((x @ W).cumsum(0)), x).chunked("1kB")
    w = mytorch.ones(10, 50)
    chunked = capture(lambda x: (w.add_(1), (x * w).exp().sum(0)), x[:10]).chunked("3kB")
    with pytest.raises(ValueError, match="shares memory with another"):
        chunked(w)
