"""Sizes of arguments: compiled functions do what the functions do, and few sizes need a trace."""

import math
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn, optim
from mytorch.compiler import explain, mark_dynamic, mark_static
from mytorch.compiler.tracing.expressions import Evaluation, Expression, NotSymbolic
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves

EMBEDDING, LINEAR, NORM = nn.Embedding(7, 8), nn.Linear(8, 5), nn.LayerNorm(8)
CONV, BATCH_NORM, LSTM = nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm1d(8), nn.LSTM(8, 4, batch_first=True)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True)
TABLE = [0.5, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0]


@pytest.fixture(autouse=True, scope="module")
def checks():
    """Loops run in NumPy, to compile nothing; each program that is made without a trace is compared with
    one."""
    with pytest.MonkeyPatch.context() as patch, F.use_fused(False):
        patch.setenv("MYTORCH_CHECK_PROGRAMS", "1")
        yield


def rows(n):
    return (mytorch.from_numpy(np.random.default_rng(n).normal(size=(n, 8)).astype("float32")),)


def columns(n):
    return (rows(n)[0].T.contiguous(),)


def indices(*shape):
    return mytorch.from_numpy(np.random.default_rng(len(shape)).integers(0, 7, shape))


def grid(n):
    return (rows(2 * n)[0].reshape(2, n, 8),)


def branch(x):
    return x * 2 if x.shape[0] > 4 else x + 1


def branch_by_len(x):
    return x * 2 if len(x) > 4 else x + 1


def branch_by_size(x):
    return x * 2 if x.size(0) > 4 else x + 1


def branch_by_numel(x):
    return x * 2 if x.numel() > 32 else x + 1


def branch_by_stride(x):
    return x * 2 if x.T.stride(1) * x.shape[0] > 32 else x + 1


def even(x):
    return x * 2 if x.shape[0] % 2 == 0 else x * 3


def loop(x):
    total = x.sum()
    for i in range(len(x)):
        total = total + x[i].mean()
    return total


def loop_by_tens(x):
    for _ in range(x.shape[0] // 10):
        x = x * 2
    return x


def looked_up(x):
    return x * TABLE[min(x.shape[0], 7)]


def printed(x):
    return x * len(f"{x.shape[0]}")


def logarithm(x):
    return x * int(math.log2(x.shape[0]))


def positions(x):
    return x + mytorch.arange(len(x)).unsqueeze(1), EMBEDDING(mytorch.arange(len(x)) % 7)


def masked(x):
    t = x.shape[1]
    scores = x @ x.transpose(1, 2) / math.sqrt(x.shape[-1])
    mask = mytorch.tril(mytorch.ones(t, t))
    return scores.masked_fill(mask == 0, -1e9).softmax(-1) @ x


def flattened(x):
    b, t, c = x.shape
    return x.view(b * t, -1).sum(1).view(b, t), x.reshape(-1, c)[: b * t // 2]


def outer(x):
    y = x[:, 0]
    return mytorch.outer(y, y).reshape(len(y) * len(y)).mean()


def in_place(x):
    y = x.clone()
    y[1:] += 2
    y[0].zero_()
    y[:, ::2].mul_(3)
    x.mul_(2)
    return y


def views(x):
    return x[: len(x) // 2] * 1.5, x[len(x) // 2 :], x[::2] + 1, x.T * 2, x.flip(0)


def losses(x):
    target = mytorch.arange(len(x)) % 5
    divergence = F.kl_div(x, x.softmax(1), reduction="batchmean")
    some = F.cross_entropy(x, target, ignore_index=3)
    return F.cross_entropy(x, target), some, divergence, F.mse_loss(x, x * 2), F.l1_loss(x, x + 1)


def statistics(x):
    return x.mean(), x.mean(0), x.var(0), x.var(0, correction=0), x.std(), x.norm(), x.max(0)[0], x.cumsum(0)


def far_from_biased(x):
    return x.var(0, correction=5)


def scaled(x):
    return x * x.shape[-1] ** -0.5, x * (x.numel() // 3)


def sizes_of_new(x):
    return x.new_zeros(x.shape[0] + 1, 3), mytorch.full((len(x),), 2.0), mytorch.cat([x, mytorch.ones(2, 8)])


def parts(x):
    return x.split(4), x.chunk(3), mytorch.tensor_split(x, 3)


def taken(x):
    k = max(len(x) // 2, 1)
    return x.topk(k, 0)[0], x.sort(0)[0], x[mytorch.arange(len(x) - 1, -1, -1)]


def searched(x):
    return mytorch.searchsorted(x[:, 0].sort()[0].contiguous(), x[:, 1].contiguous())


def returned(x):
    return x * 2, x.shape[0], x.shape


def padded(x):
    return F.pad(x, (1, 2)), F.pad(x, (1, 1), mode="reflect"), F.interpolate(x[None], scale_factor=1.5)


def images(x):
    x = CONV(x.reshape(-1, 2, 2, 2))
    return F.avg_pool2d(x.relu(), 2), F.max_pool2d(x, 2)


def layers(x):
    return F.gelu(LINEAR(NORM(x))), BATCH_NORM(x)


def sequences(x):
    causal = F.scaled_dot_product_attention(x, x, x, is_causal=True)
    return ATTENTION(x, x, x)[0], causal, LSTM(x.transpose(0, 1))[0]


ROWS = [
    branch, branch_by_len, branch_by_size, branch_by_numel, branch_by_stride, even, loop, loop_by_tens,
    looked_up, printed, logarithm, positions, outer, in_place, views, losses, statistics, far_from_biased,
    scaled, sizes_of_new, parts, taken, searched, returned, images, layers,
]
MAKERS = {**dict.fromkeys(ROWS, rows), **dict.fromkeys((masked, flattened, sequences), grid), padded: columns}


def equal(ours, want):
    assert len(ours) == len(want)
    for x, y in zip(ours, want, strict=True):
        assert type(x) is type(y)
        if not isinstance(x, mytorch.Tensor):
            assert x == y
            continue
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-5, atol=1e-6)


def compare(function, compiled, make, n):
    """Compares what a compiled function does for a size with what the function does."""
    given = make(n), make(n)
    equal([*leaves(compiled(*given[0]))], [*leaves(function(*given[1]))])
    equal(given[0], given[1])


@pytest.mark.parametrize("function", MAKERS, ids=lambda f: f.__name__)
@hypothesis.given(st.lists(st.integers(2, 34), min_size=3, max_size=5))
@hypothesis.settings(max_examples=3, deadline=None, derandomize=True)
def test_values_are_those_of_eager_for_any_sizes(function, sizes):
    compiled = mytorch.compile(function)
    for n in sizes:
        compare(function, compiled, MAKERS[function], n)


FEW = [positions, masked, flattened, outer, losses, statistics, scaled, sizes_of_new, layers]


@pytest.mark.parametrize("function", FEW, ids=lambda f: f.__name__)
def test_the_third_size_needs_no_trace(function):
    compiled = mytorch.compile(function)
    for n in (32, 12, 7, 64, 5, 9, 3, 11, 13, 17, 19, 32):
        compare(function, compiled, MAKERS[function], n)
    assert len(compiled.history) == 2
    assert explain(compiled).splitlines()[-1] == "   for 9 other sizes without a trace"


INTERVALS = [branch, branch_by_len, branch_by_size, branch_by_numel, branch_by_stride]


@pytest.mark.parametrize("function", INTERVALS, ids=lambda f: f.__name__)
def test_a_comparison_is_a_guard_of_an_interval(function):
    compiled = mytorch.compile(function)
    for n in (6, 9, 7, 12, 5, 100):
        compare(function, compiled, rows, n)
    assert len(compiled.history) == 2
    for n in (4, 3, 2, 5, 4):
        compare(function, compiled, rows, n)
    assert len(compiled.history) == 4


def test_sizes_0_and_1_have_traces_of_their_own():
    compiled = mytorch.compile(lambda x: x * 2 + x.sum(0))
    for n in (5, 7, 9, 1, 0, 6, 1, 0):
        compare(compiled._function, compiled, rows, n)
    assert len(compiled.history) == 4


def test_two_sizes_that_are_equal_at_first():
    def function(x, y):
        return x @ y.T, x.mean() * y.sum(0)

    def make(n):
        return *rows(n // 100), *rows(n % 100)

    compiled = mytorch.compile(function)
    for n in (404, 505, 607, 706, 808, 902, 312):
        compare(function, compiled, make, n)
    assert len(compiled.history) == 2


def test_gradients():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    compiled = mytorch.compile(model)
    for n in (32, 12, 7, 64, 5, 9):
        found = []
        for f in (compiled, model):
            (x,) = rows(n)
            model.zero_grad()
            f(x.requires_grad_()).square().mean().backward()
            found.append([x.grad, *[p.grad for p in model.parameters()]])
        for ours, want in zip(*found, strict=True):
            np.testing.assert_allclose(ours.numpy(), want.numpy(), rtol=1e-5, atol=1e-7)
    assert len(compiled.forward.history) == 2


def training(compiles):
    mytorch.manual_seed(3)
    config = {"vocab_size": 11, "context_length": 40, "n_layer": 2, "n_head": 2, "n_embd": 16}
    model = GPT2(GPT2Config(**config))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).view(-1, 11), y.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    return mytorch.compile(step, fullgraph=True) if compiles else step


BATCHES = [(n, 9) for n in (12, 12, 5, 7, 3, 2, 11, 4, 6, 8, 10, 9)]
LENGTHS = [(4, t) for t in (16, 16, 24, 7, 9, 40, 2, 12, 5, 6, 11)]


@pytest.mark.parametrize("shapes", [BATCHES, LENGTHS], ids=["batches", "lengths"])
def test_a_training_step_of_gpt_in_three_traces(shapes):
    compiled, eager = training(True), training(False)
    for k, shape in enumerate(shapes):
        tokens = np.random.default_rng(k).integers(0, 11, (2, *shape))
        ours, want = [step(*map(mytorch.from_numpy, tokens)).item() for step in (compiled, eager)]
        assert ours == pytest.approx(want, rel=1e-6)
    assert len(compiled.history) == 3


def test_generation_with_a_growing_context():
    model = GPT2(GPT2Config(vocab_size=11, context_length=40, n_layer=2, n_head=2, n_embd=16)).eval()
    compiled, tokens = mytorch.compile(model), mytorch.zeros((1, 2), dtype=int)
    with mytorch.no_grad():
        for _ in range(30):
            logits = compiled(tokens)
            np.testing.assert_allclose(logits.numpy(), model(tokens).numpy(), rtol=1e-4, atol=1e-5)
            tokens = mytorch.cat([tokens, logits[:, -1:].argmax(-1)], 1)
    assert len(compiled.forward.history) <= 3
    with pytest.raises(ValueError, match="41 tokens exceed the context length"):
        compiled(mytorch.zeros((1, 41), dtype=int))


def test_an_epoch_and_an_evaluation():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    compiled = mytorch.compile(model)
    for n in (32, 32, 32, 7):
        compiled(*rows(n)).sum().backward()
    with mytorch.no_grad():
        for n in (64, 64, 5):
            compiled(*rows(n))
    assert len(compiled.forward.history) <= 4  # two of them without gradients


def test_marks():
    compiled = mytorch.compile(lambda x: x * 2)
    for n in (3, 4, 5, 6):
        (x,) = rows(n)
        mark_static(x, 0)
        compiled(x)
    assert len(compiled.history) == 4
    with pytest.raises(IndexError, match=r"there is no dim 2 of a tensor of shape \[6, 8\]"):
        mark_static(x, 2)
    compiled = mytorch.compile(loop)
    with pytest.raises(RuntimeError, match=r"mark_dynamic\(\): sizes are constants: loop has \d+ instr"):
        for n in (3, 4, 5, 6):
            (x,) = rows(n)
            mark_dynamic(x, 0)
            compiled(x)


def test_dynamic_false_traces_each_size():
    compiled = mytorch.compile(lambda x: x * 2, dynamic=False)
    for n in range(2, 12):
        compare(compiled._function, compiled, rows, n)
    assert len(compiled.history) == 10


def test_the_least_recently_used_entries_go():
    compiled = mytorch.compile(loop)
    for n in (*range(2, 36), 3, 35, 34):
        compare(loop, compiled, rows, n)
    assert len(compiled.history) == 35 and len(compiled.programs()) == 32


def test_what_is_said_of_sizes_that_are_constants():
    compiled = mytorch.compile(looked_up)
    for n in (2, 3):
        compiled(*rows(n))
    assert "sizes are constants: 2 == 3 is False, was True when it was traced" in explain(compiled)


def test_a_size_that_is_kept_is_an_integer():
    kept = []

    class Keeper:
        def __init__(self):
            self.sizes = [0]

        def __call__(self, x):
            self.sizes[0] = x.shape[0]
            return x * 2

    keeper = Keeper()
    compiled = mytorch.compile(keeper)
    with pytest.warns(UserWarning):
        for n in (3, 4, 5):
            compiled(*rows(n))
            kept.append(keeper.sizes[0])
    assert kept == [3, 4, 5] and {*map(type, kept)} == {int}


def test_a_size_whose_type_is_asked_is_a_constant():
    compiled = mytorch.compile(lambda x: x * (2 if type(x.shape[0]) is int else 3))
    for n in (3, 4, 5):
        compare(compiled._function, compiled, rows, n)
    assert len(compiled.history) == 3


def test_a_size_beside_a_number_that_changes():
    compiled = mytorch.compile(lambda x, k: x * (k * x.shape[0]))
    for n, k in ((3, 0.5), (4, 0.25), (5, 0.75), (6, 1.5)):
        (x,) = rows(n)
        equal([compiled(x, k)], [compiled._function(x, k)])


def tables(n):
    return (rows(n)[0].T.reshape(1, 8, n),)


def batches(n):
    return (rows(4 * n)[0].reshape(n, 4, 8),)


# Tables of indices that two sizes have in common, and a third one hasn't.
TABLES = [
    lambda x: F.interpolate(x, size=2),
    lambda x: F.avg_pool1d(x, 5, 5, 2, count_include_pad=False),
    lambda x: F.pad(x, (1, 0), mode="replicate"),
    lambda x: F.adaptive_max_pool1d(x, 2),
    lambda x: x * mytorch.tril_indices(2, x.shape[2]).sum(),
]


@pytest.mark.parametrize("function", TABLES)
def test_tables_that_are_computed_of_sizes(function):
    compiled = mytorch.compile(function)
    for n in (8, 9, 20, 3, 4, 7, 12):
        compare(function, compiled, tables, n)


def test_other_dims_than_those_of_a_table_are_symbolic():
    compiled = mytorch.compile(lambda x: F.interpolate(x, size=9) + F.pad(x, (2, -1), mode="reflect"))
    for n in (3, 5, 7, 4):
        compare(compiled._function, compiled, batches, n)
    assert len(compiled.history) == 2


def middle(x):
    y = x * 1
    y[x.shape[0] // 3, 2:4] = 5
    return y[-1] + y[x.shape[0] // 2] + y[x.shape[0] // 2, [0]]


def test_a_size_as_an_index():
    compiled = mytorch.compile(middle, fullgraph=True)
    for n in (8, 11, 20, 6):
        compare(middle, compiled, rows, n)
    assert len(compiled.history) == 2


# What stands for a size can't do; and texts.
PLAIN = [
    lambda x: x[: x.shape[0] & ~1] * (x.shape[0] >> 1),
    lambda x: x * pow(x.shape[0], 2, 7) + int.bit_length(x.shape[0]),
    lambda x: x * mytorch.tensor(np.arange(8) * (x.shape[0] // 4)),
    lambda x: x * len(str(x.shape)) + len(f"{x.shape}"),
]


@pytest.mark.parametrize("function", PLAIN)
def test_what_needs_an_int_has_a_trace_without_symbolic_sizes(function):
    compiled = mytorch.compile(function, fullgraph=True)
    for n in (8, 9, 20, 5, 100):
        compare(function, compiled, rows, n)


def test_gradients_that_are_clipped():
    model = nn.Linear(8, 3)

    def step(x):
        model.zero_grad()
        model(x).square().sum().backward()
        return nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    compiled = mytorch.compile(step)
    for n in (3, 4, 7, 5):
        compare(step, compiled, rows, n)
    assert len(compiled.history) <= 3


def test_traces_of_ever_other_sizes_have_an_end(monkeypatch):
    for module in ("compiled", "compile"):
        monkeypatch.setattr(sys.modules[f"mytorch.compiler.{module}"], "MOST_TRACES", 6)
    monkeypatch.setattr(sys.modules["mytorch.compiler.compiled"], "MOST_ENTRIES", 3)
    double = mytorch.compile(lambda x: x * 2, dynamic=False)
    for n in range(1, 7):
        assert double(mytorch.ones(n)).shape == (n,)
    assert [type(outcome) is str for _, outcome in double.history] == [True] * 3 + [False] * 3
    with pytest.warns(UserWarning, match="traced 6 times in all"):
        assert double(mytorch.ones(9)).shape == (9,)
    assert double(mytorch.ones(10)).shape == (10,) and len(double.history) == 6 and double.eager_calls == 2
    assert "2 calls ran eagerly, as it was traced 6 times, which is the limit" in explain(double)


def caught(x):
    try:
        return x[10] * 1
    except IndexError:
        return x.sum(0)


def steps(x):
    return mytorch.arange(0, x.shape[0], 2) * 3


@pytest.mark.parametrize("function", [caught, steps])
def test_two_sizes_with_one_answer_and_a_third_with_another(function):
    compiled = mytorch.compile(function)
    for n in (7, 8, 12, 20, 6, 15):
        compare(function, compiled, rows, n)


def test_an_array_that_a_function_makes_a_tensor_of_has_no_gradient():
    table = np.arange(8, dtype="float32")
    compiled = mytorch.compile(lambda x: x * mytorch.from_numpy(table))
    for n in (3, 4, 5):
        x = rows(n)[0].requires_grad_()
        compiled(x).sum().backward()
        assert x.grad.tolist() == [[*range(8)]] * n


def test_an_expression_without_a_value_is_not_symbolic():
    with pytest.raises(NotSymbolic, match="ZeroDivisionError"):
        Evaluation({})(Expression("truediv", (1, 0)))


@pytest.mark.parametrize("is_right", [True, False])
def test_the_first_program_without_a_trace_is_compared_with_one(monkeypatch, is_right):
    compared, module = [], sys.modules["mytorch.compiler.compiled"]

    def check(*arguments):
        compared.append(arguments)
        if not is_right:
            raise RuntimeError("it isn't what a trace gives")

    monkeypatch.delenv("MYTORCH_CHECK_PROGRAMS")
    monkeypatch.setattr(module, "check_resized", check)
    double = mytorch.compile(lambda x: x * 2)
    for n in (8, 9, 20, 21, 30, 8):
        assert double(mytorch.ones(n)).tolist() == [2.0] * n
    assert len(compared) == 1 and len(double.history) == (2 if is_right else 5)
    assert ("sizes are constants: it isn't what a trace gives" in explain(double)) is not is_right
