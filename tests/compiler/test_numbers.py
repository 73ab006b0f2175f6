"""Numbers that change from call to call: compiled functions do what the functions do, in two captures."""

import copy
import math
import operator
import queue
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn, optim
from mytorch.compiler import load
from mytorch.nn import functional as F
from mytorch.stream import record
from mytorch.utils.nested import leaves

X = mytorch.tensor([[-3.0, -0.5, 0.0], [0.25, 1.0, 7.5]])
FLOATS, INTS = (0.3, 0.37, 0.43, 1.5, 0.1), (2, 3, 5, 7, 4)


@pytest.fixture(autouse=True, scope="module")
def in_numpy():
    """Loops run in NumPy, to compare exactly and compile nothing."""
    with F.use_fused(False):
        yield


def outcome(function, *args):
    """What a call returns, or its error, and the number of its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            return function(*args), len(found)
        except Exception as error:
            return (type(error), str(error)), len(found)


def same(ours, want):
    assert len(ours) == len(want)
    for x, y in zip(ours, want, strict=True):
        assert type(x) is type(y)
        if isinstance(x, mytorch.Tensor):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            np.testing.assert_array_equal(x.detach().double().numpy(), y.detach().double().numpy())
        else:
            assert x == y


def compared(function, calls, **options):
    """The compiled function, after calls that give what the function gives."""
    compiled = mytorch.compile(function, **options)
    for args in calls:
        ours, want = outcome(compiled, *copy.deepcopy(args)), outcome(function, *copy.deepcopy(args))
        same([*leaves(ours)], [*leaves(want)])
    return compiled


def reasons(compiled):
    return [reason for reason, _ in compiled.history]


def is_followed(function, x, numbers):
    compiled = compared(function, [(x, number) for number in numbers])
    assert len(compiled.history) == 2, reasons(compiled)
    assert reasons(compiled)[1].endswith(f"is {numbers[1]}, was {numbers[0]}, and is an input from now on")


def written(x, a):
    x = x.clone()
    x[0] = a
    x[1].mul_(a).sub_(x[0], alpha=a)
    return x.addcmul_(x, x, value=a).fill_(a) + x


def branching(x, a):
    return max(a, 9) * x if isinstance(a, (float, int)) and a < 8 else x


ANY = {
    "arithmetic": lambda x, a: (a * x + 1) / (2 - a) - -a * abs(a) * +a,
    "operators": lambda x, a: (x - a, a - x, x / (1 + a), a / (x * x + 1)),
    "powers of it": lambda x, a: x * a**2 * 2**a,
    "quotients": lambda x, a: x * (a // 0.2) * (a % 0.7) * divmod(a, 3)[1],
    "a bias correction": lambda x, a: x / (1 - 0.9**a),
    "two uses": lambda x, a: (x * a).sum() * a,
    "where": lambda x, a: mytorch.where(x > 0, x, a),
    "comparing": lambda x, a: (x > a, x <= a, x == a),
    "branching": branching,
    "rounding": lambda x, a: x * round(a) + math.floor(a) - math.ceil(a),
    "NumPy": lambda x, a: x * (np.float32(2) * a) + float(2) * a,
    "functions of NumPy": lambda x, a: x.double() * np.cos(np.sqrt(a)),
    "results": lambda x, a: (x * a, a, {"twice": [a * 2, "text"]}),
    "a tensor of it": lambda x, a: mytorch.tensor(a) * x + mytorch.as_tensor(a),
    "full": lambda x, a: (mytorch.full((2,), a), x.new_full((2,), a + 1)),
    "sums": lambda x, a: x * sum([a, a]),
}
OF_FLOATS = ANY | {
    "alpha": lambda x, a: x.add(x, alpha=a).sub(x, alpha=a * 2),
    "clamp": lambda x, a: (x.clamp(-a, a), x.clamp_min(a), F.hardtanh(x, -a, a)),
    "full_like": lambda x, a: mytorch.full_like(x, a),
    "masked_fill": lambda x, a: x.masked_fill(x > 0, a),
    "in place": written,
    "addcdiv": lambda x, a: x.addcdiv(x, x * x + 1, value=a),
    "activations": lambda x, a: (F.leaky_relu(x, a), F.elu(x, a)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name, dtype):
    if (name, dtype) == ("in place", "bfloat16"):  # NumPy has no dtype for it and a float
        assert len(compared(written, [(X.to(mytorch.bfloat16), a) for a in FLOATS]).history) == 5
    else:
        is_followed(OF_FLOATS[name], X.to(getattr(mytorch, dtype)), FLOATS)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("name", ANY)
def test_ints(name, dtype):
    is_followed(ANY[name], X.abs().to(getattr(mytorch, dtype)), INTS)


OF_INTS = {
    "a power": lambda x, n: x**n,
    "alpha": lambda x, n: x.add(x, alpha=n),
    "floors": lambda x, n: (x // n, x % n),
    "clamp": lambda x, n: x.clamp(max=n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "steps": lambda x, n: x * (n + 1) + n % 2,
}


@pytest.mark.parametrize("name", OF_INTS)
def test_ints_with_ints(name):
    for dtype in (mytorch.int64, mytorch.int32):
        is_followed(OF_INTS[name], X.abs().to(dtype), INTS)


def test_a_lerp_has_two_formulas():
    compiled = compared(lambda x, a: x.lerp(x * 2, a), [(X, a) for a in (0.1, 0.2, 0.7, 0.8, 0.3)])
    assert reasons(compiled)[2:] == ["0.7 < 0.5 is False, was True"]


def test_a_number_that_stays_is_a_constant():
    compiled = compared(lambda x, a: x * a, [(X, 3.0), (X, 3.0)])
    assert "multiply(%0, 3.0)" in str(compiled.programs()[0]) and len(compiled.history) == 1


def test_each_outcome_of_a_comparison_is_a_program():
    def warm_up(x, step):
        return x * (step / 3) if step < 3 else x / step

    compiled = compared(warm_up, [(X, step) for step in (0, 1, 2, 3, 4, 5, 1, 9)])
    assert reasons(compiled)[2:] == ["3 < 3 is False, was True"]


EXACT = {
    "math": lambda x, a: x * math.sqrt(a),
    "float": lambda x, a: x * float(a * 2),
    "text": lambda x, a: x * float(f"{a:.1f}"),
    "int": lambda x, a: x * int(a * 10),
    "a key": lambda x, a: x * {a: 2.0}[a],
    "an array": lambda x, a: x * np.array([a, 1, 2], np.float32)[0],
    "a type": lambda x, a: x * 2 if type(a) is float else x,
    "no number of C": lambda x, a: x * operator.length_hint([], int(a)) + math.fsum([a]),
}


@pytest.mark.parametrize("name", EXACT)
def test_where_its_exact_value_is_asked_for_a_number_is_a_constant(name):
    compiled = compared(EXACT[name], [(X, a) for a in (0.5, 0.25, 1.5)])
    assert reasons(compiled) == ["first call", "an argument is 0.25, was 0.5", "an argument is 1.5, was 0.25"]


def test_others_stay_inputs():
    compiled = compared(lambda x, a, n: x.reshape(n, -1) * a, [(X, k / 3, 1 + k % 2) for k in range(1, 8)])
    assert len(compiled.history) < 6 and "float)" in str(compiled.programs()[0])


def test_indices_and_shapes():
    for function in (lambda x, n: x[n] * n, lambda x, n: mytorch.zeros(n), lambda x, n: x * len(range(n))):
        assert len(compared(function, [(X, n) for n in (0, 1, 0, 1)]).history) == 2


def test_what_outlives_the_capture_is_noticed():
    kept = queue.SimpleQueue()  # what is in it can't be seen

    def keep(x, a):
        kept.put(a * 2)
        return x * a

    compiled = mytorch.compile(keep)
    for a in (0.1, 0.2, 0.3):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*kept, which is a SimpleQueue of _queue")
            same([compiled(X, a)], [X * a])
    assert [type(kept.get()) for _ in range(kept.qsize())][-1] is float


def test_errors_are_the_functions():
    def function(x, a):
        if a > 2:
            raise ValueError("too large")
        return x * (1 / a)

    compiled = mytorch.compile(function)
    for a in (0.5, 1.0, 0.0, 1.5, 0.0, 2.0):
        same([*leaves(outcome(compiled, X, a))], [*leaves(outcome(function, X, a))])
    assert len(compiled.history) == 2
    with pytest.raises(ValueError, match="too large"):
        compiled(X, 3.0)
    assert mytorch.equal(compiled(X, 0.7), function(X, 0.7)) and len(compiled.history) == 2
    is_followed(lambda x, a: mytorch.tensor([1, 2], dtype=mytorch.int8) * a, X, (2, 3, 500, -700, 2))


def test_kinds_of_numbers_that_depend_on_their_values():
    powers = compared(lambda x, n: x * 2**n, [(X, n) for n in (1, 2, -1, 3, -2)])
    assert reasons(powers)[2:] == ["a number is of type float, was of type int"]
    compared(lambda x, a: x * abs((a - 1.5) ** 0.5), [(X, a) for a in (2.0, 3.0, 1.0, 4.0, 0.5)])
    numbers = (1, 2, 0.5, 0.7, 3, True, False, 2**62, np.float64(0.1), math.inf, math.nan, math.nan, -0.0)
    assert len(compared(lambda x, a: x * a, [(X, a) for a in numbers]).history) < 8


def test_nested_and_named_arguments():
    def function(x, *, options, pair=(1, 2), part=slice(0, 2)):
        return x[part] * options["rate"] + pair[0] * options["more"][1]

    compiled = mytorch.compile(function)
    for k in range(6):
        options = {"rate": k / 7, "more": [0, k]}
        assert mytorch.equal(compiled(X, options=options), function(X, options=options))
    assert len(compiled.history) == 2
    assert mytorch.equal(compiled(X, options=options, part=slice(1, 2)), function(X[1:], options=options))
    assert len(compiled.history) == 3


def test_dynamic():
    shapes = [(X[:, :n], a) for n in (1, 2, 3) for a in (0.1, 0.2)]
    assert len(compared(lambda x, a: x * a, shapes, dynamic=True).history) == 3
    assert len(compared(lambda x, a: x * a, [(X, a) for a in FLOATS], dynamic=False).history) == 5
    of_shapes = compared(lambda x, a: x * a, [(mytorch.ones(n), 0.5) for n in range(1, 12)], dynamic=True)
    assert len(of_shapes.history) == 3  # 1, 2, and 3
    with pytest.warns(UserWarning, match="traced 8 times"):
        compiled = mytorch.compile(lambda x, a: x * math.sqrt(a), dynamic=True)
        for k in range(10):
            compiled(X, k)
    assert len(compiled.history) == 8
    compiled.reset()
    assert not compiled.history and len(copy.deepcopy(compiled).history) == 0


SIGNED = {
    "copysign": lambda x, a: x * math.copysign(1.0, a), "atan2": lambda x, a: x * math.atan2(a, -1.0),
    "str": lambda x, a: x * len(str(a)), "a quotient": lambda x, a: 1 / (x * a),
    "a branch": lambda x, a: x * a if a == 0 else x - a,
}


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", SIGNED)
def test_the_sign_of_zero(name, dynamic):
    with np.errstate(all="ignore"):
        ours = mytorch.compile(SIGNED[name], dynamic=dynamic)
        for a in (1.0, 2.0, 0.0, -0.0, 0.0, 0, False):
            assert str(ours(X, a).tolist()) == str(SIGNED[name](X, a).tolist())


# Numbers that are no arguments.


class Faded(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.calls = 2.0, 0

    def forward(self, x):
        return x * self.scale + self.calls


def test_attributes():
    model, compiled = Faded(), mytorch.compile(Faded())
    for k in range(6):
        assert mytorch.equal(compiled(X), model(X))
        for module in (model, compiled):
            module.scale *= 0.9
            module.calls += k % 2
    changes = ("scale is 1.8, was 2.0", "calls is 1, was 0")
    assert reasons(compiled.forward)[1:] == [f"{change}, and is an input from now on" for change in changes]
    assert (compiled.scale, type(compiled.calls)) == (model.scale, int)
    for other in ("text", 3.5, 4.5, 2):
        model.calls = compiled.calls = other
        same([*leaves(outcome(compiled, X)[0])], [*leaves(outcome(model, X)[0])])


RATE = 0.1


def test_globals_and_closures(monkeypatch):
    step, limit = 1, 3

    def function(x):
        return x * (RATE if step < limit else math.sqrt(limit)) / (1 - 0.9**step)

    compiled = mytorch.compile(function)
    for step in range(1, 8):
        monkeypatch.setitem(globals(), "RATE", 0.1 / step)
        assert mytorch.equal(compiled(X), function(X))
    assert len(compiled.history) == 3 and reasons(compiled)[2] == "3 < 3 is False, was True"
    assert type(RATE) is float and type(step) is int
    for limit in (2, 3, 4, 9, 2):  # noqa: B007  # its exact value is asked for
        assert mytorch.equal(compiled(X), function(X))
    assert len(compiled.history) <= 8


def test_what_the_function_writes_itself_is_no_input():
    class Counter:
        calls, step = 0, 1

    counter = Counter()
    counter.calls = counter.step = 1

    def count(x):
        if counter.step > 1:
            counter.calls += counter.step
        return x * counter.calls

    compiled = mytorch.compile(count)
    assert mytorch.equal(compiled(X), X)
    counter.calls = 2
    assert mytorch.equal(compiled(X), X * 2) and len(compiled.history) == 2
    counter.step = 2
    with pytest.warns(UserWarning, match="a program can't hold what it does to Python's objects: calls is 4"):
        assert mytorch.equal(compiled(X), X * 4)
    assert (counter.calls, type(counter.calls)) == (4, int)


# Gradients and training steps.


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, scale, power=2):
        return (self.linear(x * scale) ** power) * scale


def test_gradients_of_a_module():
    model, found = Scaled(), []
    for call in (model, mytorch.compile(model)):
        for scale, power in zip(FLOATS, INTS, strict=True):
            x = X.clone().requires_grad_()
            model.zero_grad()
            call(x, scale, power=power).sum().backward()
            found += [x.grad.numpy(), model.linear.weight.grad.numpy().copy()]
    for x, y in zip(found[:10], found[10:], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
    assert len(call.forward.history) == 2


def by_hand(model, optimizer):
    moments = [(mytorch.zeros_like(p), mytorch.zeros_like(p)) for p in model.parameters()]

    def step(x, y, lr, t):
        grads = mytorch.autograd.grad(F.cross_entropy(model(x), y), [*model.parameters()])
        with mytorch.no_grad():
            for p, g, (m, v) in zip(model.parameters(), grads, moments, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.99).addcmul_(g, g, value=0.01)
                p.addcdiv_(m / (1 - 0.9**t), (v / (1 - 0.99**t)).sqrt() + 1e-8, value=-lr)

    return step


def with_a_loss_scale(model, optimizer):
    def step(x, y, lr, t):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (loss * 2.0**t).backward()
        for p in model.parameters():
            p.grad.mul_(2.0**-t)
        norm = nn.utils.clip_grad_norm_(model.parameters(), lr * 5)
        optimizer.step()
        return loss, norm, lr * t

    return step


@pytest.mark.parametrize("make", [by_hand, with_a_loss_scale])
def test_training_steps(make):
    found = []
    for compiled in (False, True):
        mytorch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        step = make(model, optim.Adam(model.parameters()))
        step = mytorch.compile(step, fullgraph=True) if compiled else step
        for t in range(1, 6):
            found += [*leaves(step(mytorch.randn(5, 6), mytorch.randint(0, 3, (5,)), 0.1 / t, t))]
        found += [*model.parameters()]
    half = len(found) // 2
    for x, y in zip(found[:half], found[half:], strict=True):
        assert (x is y) or np.allclose(*[v.detach() if hasattr(v, "detach") else v for v in (x, y)], 1e-4)
    assert len(step.history) == 2


# Programs.


def test_the_program(tmp_path):
    compiled = compared(lambda x, a: (x * (a * 2)).exp() + a, [(X, a) for a in FLOATS])
    program = compiled.programs()[0]
    assert "host.number('mul', %1, 2)" in str(program) and "%1: float)" in str(program)
    assert "np.asarray(" in program.source() and "@triton.jit" in program.source("cuda")
    assert program.memory().peak > 0 and program.optimized()(X, 0.5)[0][0].shape == X.shape
    with pytest.raises(ValueError, match=r"expected %0: float32\[2, 3\] of .*, %1: float on cpu.*, int"):
        program(X, 1)
    for name in ("program.svg", "program.html"):
        program.draw(tmp_path / name)
    with pytest.raises(NotImplementedError, match="%1 is a number of Python"):
        program.save(tmp_path / "program.safetensors")
    with record() as instructions:
        compiled(X, 0.9)
    assert "asarray" in [i.name for i in instructions]
    plain = tmp_path / "plain.safetensors"
    mytorch.capture(lambda x: mytorch.rand(2) * x[0, :2], X).save(plain)
    plain.write_bytes(plain.read_bytes().replace(b"host.random", b"host.number"))
    with pytest.raises(ValueError, match=r"host\.number"):
        load(plain)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_on_a_gpu(mode, fake_cuda):
    def function(x, a):
        return x * (a * 2) + mytorch.full((3,), a, device="cuda"), x.clone().mul_(a)

    compiled = mytorch.compile(function, fullgraph=True, mode=mode)
    for a in FLOATS:
        ours, want = compiled(X.to("cuda"), a), function(X.to("cuda"), a)
        same([x.cpu() for x in ours], [x.cpu() for x in want])
    assert len(compiled.history) == 2
    assert ("no CUDA graph: a number that changes" in mytorch.compiler.explain(compiled)) is bool(mode)


# Random expressions of tensors and numbers.

_BINARY = [operator.add, operator.sub, operator.mul, lambda x, y: mytorch.where(X > 0, x, y)]
_OF_NUMBERS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod, max]


@st.composite
def expressions(draw, depth=3):
    """Functions (x, a, n) -> a tensor."""
    if not depth:
        return lambda x, a, n: x
    inner, number = draw(expressions(depth - 1)), draw(of_numbers(2))
    function, is_reflected = draw(st.sampled_from(_BINARY)), draw(st.booleans())
    if is_reflected:
        return lambda x, a, n: function(number(a, n), inner(x, a, n))
    return lambda x, a, n: function(inner(x, a, n), number(a, n))


@st.composite
def of_numbers(draw, depth):
    """Functions (a, n) -> a number."""
    if not depth:
        constant = draw(st.sampled_from([1, 2, 0.5]))
        return draw(st.sampled_from([lambda a, n: a, lambda a, n: n, lambda a, n: constant]))
    x, y = draw(of_numbers(depth - 1)), draw(of_numbers(depth - 1))
    function = draw(st.sampled_from(_OF_NUMBERS))
    return lambda a, n: function(x(a, n), y(a, n))


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    expressions(), st.lists(st.tuples(st.floats(-4, 4), st.integers(-3, 3)), min_size=3, max_size=6),
    st.sampled_from(["float32", "float64", "float16", "int64"]),
)
def test_random_expressions(function, numbers, dtype):
    x = X.to(getattr(mytorch, dtype))
    compiled = mytorch.compile(function)
    for a, n in numbers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same([*leaves(outcome(compiled, x, a, n)[0])], [*leaves(outcome(function, x, a, n)[0])])
