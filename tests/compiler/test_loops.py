"""Loops, compiled, compute what NumPy does; and what the passes that make them take and leave."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.compiler import Instruction, Program, Value, capture
from mytorch.compiler.codegen.source_files import module_of
from mytorch.compiler.passes import functionalize
from mytorch.compiler.running import execution
from mytorch.nn import functional as F
from tests.compiler.loop_cases import assert_close, cases, every_expression, layer_norm_step

NAMES = ("kinds 0", "kinds 1", "layer norm 0", "cross entropy 0")


@pytest.fixture(scope="module")
def by_name():
    pytest.importorskip("numba")
    return {"every expression 0": every_expression(), **cases(), "long rows": cases(9, 9000)["kinds 1"]}


@pytest.mark.parametrize("name", ["every expression 0", *NAMES, "long rows"])
def test_compiled(by_name, name):
    case = by_name[name]
    assert_close(case.outputs(execution.loaded(case.loop)), case.outputs())


def test_the_cases_have_steps_of_every_kind(by_name):
    steps = {(s.kind, s.name) for name in NAMES for s in by_name[name].loop.steps}
    assert steps >= {("row", "sum"), ("row", "max"), ("row", "min"), ("row", "take"), ("column", "sum")}


def test_where_sources_are_kept(by_name, monkeypatch, tmp_path):
    monkeypatch.setenv("MYTORCH_CACHE", str(tmp_path))
    module_of.cache_clear()
    execution.loaded(by_name["kinds 0"].loop)
    assert {path.name for path in tmp_path.glob("programs/*/*")} >= {"loop.py"}
    module_of.cache_clear()


@pytest.mark.parametrize("index", [100, -101])
def test_an_index_out_of_bounds(by_name, index):
    case = by_name["cross entropy 0"]
    arrays = [np.full_like(a, index) if a.dtype == np.int64 else a for a in case.arrays]
    for function in (execution.loaded(case.loop), None):
        with pytest.raises(IndexError, match="out of bounds"):
            case._replace(arrays=arrays).outputs(function)


def names(function, *tensors):
    with F.use_fused(False):
        return [i.name for i in capture(function, *tensors).optimized().instructions]


x = mytorch.ones(6, 10)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: (x > 0) + (x > 1), 1),  # of bools it is "or"
        (lambda x: (x > 0) == (x > 1), 0),
        (lambda x: (x > 0) * x, 0),
        (lambda x: (x > 0).float() * (x > 1).float(), 0),
        (lambda x: x**3, 0),
        (lambda x: x * np.float64(0.1) > 0, 0),
        (lambda x: x.sum(0) + (x * 2).sum(0), 1),
        (lambda x: F.cross_entropy(x, mytorch.tensor([0, 2, 1, 1, 0, 9]), reduction="sum", auto=True), None),
    ],
)
def test_what_loops_take(function, count):
    """And how many functions are left; all results are as without passes."""
    found = names(function, x)
    if count is not None:
        assert len([name for name in found if name != "loop"]) == count, found
    with F.use_fused(False):
        program = capture(function, x)
        np.testing.assert_allclose(program.optimized()(x).numpy(), function(x).numpy(), 1e-5)


def test_one_step_is_a_loop_where_threads_help():
    """From 2^16 elements; not a sum of gradients, for which `.grad` needs no other array."""
    weight, large = mytorch.nn.Parameter(mytorch.ones(256, 256)), mytorch.ones(256, 256)

    def twice(x):
        weight.grad = None
        ((x @ weight) @ weight).backward(x)

    assert names(mytorch.exp, large) == names(lambda x: x.sum(1), large) == ["loop"]
    assert names(mytorch.exp, large[:255]) == ["exp"]
    found = names(twice, large)
    assert "add" in found and "loop" not in found


@pytest.mark.parametrize(
    ("function", "stored"),  # by loops: the shapes
    [
        (lambda x: (x * 2).square().sum(), [(5, 4)]),
        (lambda x: ((x - 1) ** 2).mean(), [(5, 4)]),
        (lambda x: ((x * 2).square().sum(), x * 2), [(5, 4), (5, 4, 40)]),
        (lambda x: (x * 2).square().sum(0), [(5, 4, 40)]),
        (lambda x: x.sum(), []),  # nothing is computed before
        (lambda x: (x * 2).square()[:, 0].sum(), [(5, 4, 40)]),
        (lambda x: (x[0, 0] * 2).square().sum(), [(40,)]),  # one row
        (lambda x: (x[..., :9] * 2).square().sum(), [(5, 4, 9)]),  # short ones
        (lambda x: (x.double() * 2).square().sum(), []),
    ],
)
def test_a_sum_of_all_elements_is_one_of_sums_of_rows(function, stored):
    x = mytorch.from_numpy(np.random.default_rng(0).standard_normal((5, 4, 40), np.float32))
    program = capture(function, x).optimized()
    ours, want = program(x), function(x)
    for a, b in zip(ours, want, strict=True) if isinstance(want, tuple) else [(ours, want)]:
        np.testing.assert_allclose(a.numpy(), b.numpy(), 2e-6)
    assert [y.shape for i in program.instructions if i.name == "loop" for y in i.outputs] == stored


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.rsqrt() + 1, lambda x: 2 / x.sqrt() + 1, lambda x: x.sqrt().reciprocal() * 2,
        lambda x: x**-0.5 + 1, lambda x: F.hardsigmoid(-x * 5) * 1,
        lambda x: (x.rsqrt() == np.inf).float() * 2,
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_quotients_of_roots_and_small_numbers(function, dtype):
    """LLVM would approximate 1 / sqrt(x) by what is NaN for 0 and infinity."""
    x = mytorch.tensor([0.0, 1.0, 4.0, np.inf, 1e-40, 0.25] * 20, dtype=dtype)
    with F.use_fused(False):
        want, ours = function(x), capture(function, x).optimized()(x)
    np.testing.assert_allclose(ours.numpy(), want.numpy(), 1e-6)


def test_layer_norm_and_its_backward_pass_are_one_loop():
    v = mytorch.ones(10, requires_grad=True)
    found = names(layer_norm_step, x.clone().requires_grad_(), v, v.clone().detach().requires_grad_(), x)
    assert sorted(found) == ["loop", "loop", "reshape", "reshape"]  # that copies two gradients


def test_numbers_of_numpy_may_change_the_dtype():
    """`multiply(float32, float64, out=float32)` isn't `multiply(float32, float64)`, which is float64."""
    v, w = (Value(k, (3,), (4,), np.dtype("float32")) for k in range(2))
    for number, name in ((np.float64(2), "multiply"), (np.float32(2), None), (2.0, None)):
        made = Instruction("add", (v, v), {}, (w,))
        write = Instruction("multiply", (v, number), {"out": (w,)}, (), (w,))
        program = functionalize(Program((v,), {}, {}, [made, write], w))
        assert bool(program.instructions[1].written) == (name is not None)


def test_triton_source():
    program = capture(lambda x: F.softmax(x * 2, -1), x).optimized()
    assert program.source("cuda") == (
        "@triton.jit\n"
        "def loop0(x0_ptr, y5_ptr, rows, n, BLOCK: tl.constexpr):\n"
        "    j = tl.arange(0, BLOCK)\n"
        "    inside = j < n\n"
        "    i = tl.program_id(0)\n"
        "    at = tl.cast(i, tl.int64) * n + j\n"
        "    x0 = tl.load(x0_ptr + at, mask=inside)\n"
        "    v0 = x0 * 2.0\n"
        '    v1 = tl.reduce(tl.where(inside, v0, -float("inf")), 0, larger)\n'
        "    v2 = v0 - v1\n"
        "    v3 = tl.exp(v2)\n"
        "    v4 = tl.sum(tl.where(inside, v3, 0.0), axis=0)\n"
        "    v5 = v3 / v4\n"
        "    tl.store(y5_ptr + at, v5, mask=inside)"
    )
    with pytest.raises(ValueError, match="got 'metal'"):
        program.source("metal")


def test_a_number_is_reduced_as_a_whole_row():
    """Gradients of sums are a number that stands for all elements."""

    def centred(x):
        x = x.requires_grad_()
        loss = (x - x.mean(1, True)).sum() * x.detach().sum()  # no constant, whose gradient would be folded
        return mytorch.autograd.grad(loss, [x])[0]

    x = mytorch.randn(6, 8)
    with F.use_fused(False):
        program = capture(centred, x).optimized()
        assert program(x).tolist() == [[0.0] * 8] * 6
    assert "range(min(4096, n - start))" in program.source()


@pytest.mark.parametrize("name", ["silu", "sigmoid"])
def test_small_results_of_the_sigmoid_keep_their_digits(name):
    def with_gradient(x):
        y = getattr(F, name)(x)
        return y.detach(), mytorch.autograd.grad(y.sum(), [x])[0]

    x = np.linspace(-80, 0, 20_001, dtype=np.float32)
    exact = torch.tensor(x.astype(np.float64), requires_grad=True)
    y = getattr(torch.nn.functional, name)(exact)
    y.sum().backward()
    ours = mytorch.compile(with_gradient, fullgraph=True)(mytorch.tensor(x, requires_grad=True))
    np.testing.assert_allclose(ours[0].numpy(), y.detach().numpy(), rtol=5e-7)
    np.testing.assert_allclose(ours[1].numpy(), exact.grad.numpy(), rtol=2e-6, atol=1e-7 * (name == "silu"))
