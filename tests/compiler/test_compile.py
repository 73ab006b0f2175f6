"""Compiled functions do what the functions do: results, gradients, random numbers, errors and effects."""

import contextlib
import threading
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves
from tests.compiler.test_capture import SHAPES, a_step
from tests.every import every


def test_an_array_is_filled_with_a_tensor():
    function = mytorch.compile(lambda x, y: x.clone().fill_(y) + x, fullgraph=True)
    assert function(mytorch.ones(2), mytorch.tensor(2.0)).tolist() == [3, 3]


def test_numbers_that_are_not_finite():
    """NaN and infinite constants within a loop."""
    x = mytorch.tensor([1.0, np.nan, np.inf, -np.inf])
    for function in (
        lambda x: mytorch.nan_to_num(x * 2, nan=1.0) + 1,
        lambda x: mytorch.where(x * 2 > 1, x, float("nan")) * 2,
        lambda x: mytorch.maximum(x * 2, mytorch.full((4,), -float("inf"))) + 1,
    ):
        compiled = mytorch.compile(function, fullgraph=True)
        assert np.array_equal(compiled(x).numpy(), function(x).numpy(), equal_nan=True)


def test_arguments_that_share_memory():
    function, x = mytorch.compile(lambda x, y: (x.add_(1), y * 2)[1], fullgraph=True), mytorch.ones(4)
    assert function(mytorch.ones(3), mytorch.ones(3)).tolist() == [2, 2, 2]
    assert function(x[:3], x[1:]).tolist() == [4, 4, 2]
    with pytest.raises(ValueError, match="shares memory"):
        mytorch.capture(lambda x, y: x.add_(1) * y, mytorch.ones(3), mytorch.ones(3))(x[:3], x[1:])


def writes_first(x):
    x.add_(1)
    return x if x.sum() > 0 else -x


EAGER = {
    "an element": (lambda x: x * x.sum().item(), "asks for the element of an array of float32"),
    "elements": (lambda x: x * x.tolist()[0], "the elements of an array"),
    "print": (lambda x: print(x) or x, "what is printed"),
    "a mask": (lambda x: x[x > 0], "depends on the data"),
    "after a write": (writes_first, "after it has written in place"),
    "a disabled function": (mytorch.compiler.disable(lambda x: x + 1), "compilation is disabled"),
    "a checkpoint": (
        lambda x: mytorch.utils.checkpoint.checkpoint(lambda x: x * 2, x, preserve_rng_state=False),
        "a checkpoint",
    ),
}


@pytest.mark.parametrize("name", EAGER)
def test_what_runs_eagerly(name):
    function, reason = EAGER[name]
    compiled, x = mytorch.compile(function), mytorch.tensor([1.0, 2.0])
    with pytest.warns(UserWarning, match=f"test_compile.py:[0-9]+: .*{reason}"):  # the line
        assert mytorch.equal(compiled(x.clone()), function(x.clone()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        assert mytorch.equal(compiled(x.clone()), function(x.clone()))
    with pytest.raises(RuntimeError, match=f"fullgraph=True.*test_compile.py:[0-9]+: .*{reason}"):
        mytorch.compile(function, fullgraph=True)(x.clone())
    assert mytorch.equal(x, mytorch.tensor([1.0, 2.0])) and mytorch.ones(1).item() == 1


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(x * 2)
        self.last = x + 1
        return x * 3


def test_what_it_does_to_objects_is_done_in_each_call():
    module, x, total = Counting(), mytorch.ones(2), 0

    def function(x):
        nonlocal total
        total += 1
        return module(x)

    compiled = mytorch.compile(function)
    with pytest.warns(UserWarning, match="a program can't hold what it does to Python's objects: .*"):
        compiled(x)
    compiled(x)
    assert (module.calls, total, len(module.seen)) == (2, 2, 2)
    assert module.seen[0].tolist() == [2, 2] and module.last.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Python's objects"):
        mytorch.compile(module, fullgraph=True)(x)
    assert (module.calls, len(module.seen)) == (2, 2)


def test_an_error_of_the_function_is_the_functions():
    function = mytorch.compile(lambda x: x @ mytorch.ones(3, 3))
    with pytest.raises(RuntimeError, match="matmul") as ours, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(mytorch.ones(2, 2))
    with pytest.raises(RuntimeError) as want:
        function._function(mytorch.ones(2, 2))
    assert str(ours.value) == str(want.value)


def test_a_write_to_an_argument():
    function, x = mytorch.compile(lambda x: x.mul_(2), fullgraph=True), mytorch.ones(2)
    assert function(x) is x and function(x).tolist() == [4, 4]
    w = mytorch.ones(2, requires_grad=True)
    y = (w * x).sum()
    function(x)
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


def test_what_backward_needs_is_watched():
    function = mytorch.compile(lambda x, w: (x * w).tanh(), fullgraph=True)
    x, w = mytorch.ones(2), mytorch.ones(2, requires_grad=True)
    y = function(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified"):
        y.sum().backward()


def test_no_second_derivative():
    x = mytorch.ones(2, requires_grad=True)
    y = mytorch.compile(lambda x: x**3)(x).sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        mytorch.autograd.grad(y, x, create_graph=True)


def test_results_that_need_no_gradient():
    x = mytorch.ones(3, requires_grad=True)
    values, indices, same, nothing = mytorch.compile(lambda x: (*x.max(0), x, None), fullgraph=True)(x)
    assert values.requires_grad and not indices.requires_grad and same is x and nothing is None
    detached = mytorch.compile(lambda x: (x * 2, (x * 3).detach()), fullgraph=True)(x)
    assert [y.requires_grad for y in detached] == [True, False]


def test_a_part_of_a_compiled_function():
    inner = mytorch.compile(lambda x: x * 2)
    outer = mytorch.compile(lambda x: inner(x) + 1, fullgraph=True)
    assert outer(mytorch.ones(2)).tolist() == [3, 3] and inner.history == []


class Model:
    factor = 3.0

    @mytorch.compile
    def scaled(self, x):
        return x * self.factor


def test_a_method():
    first, second, x = Model(), Model(), mytorch.ones(2)
    second.factor = 4.0
    assert (first.scaled(x) + second.scaled(x)).tolist() == [7, 7]


def test_random_numbers():
    def function(x):
        return F.dropout(x + mytorch.randn(4), 0.5) + mytorch.randint(0, 5, (4,)), mytorch.bernoulli(x)

    found = []
    for call in (function, mytorch.compile(function, fullgraph=True)):
        mytorch.manual_seed(3)
        found.append([y.numpy() for _ in range(3) for y in call(mytorch.full((4,), 0.5))])
    np.testing.assert_array_equal(*found)


INDICES = {
    "a row": lambda x, i: x[i], "a sum": lambda x, i: x[i - 1], "a column": lambda x, i: x[1:, i - 1],
    "argmax": lambda x, i: x[x.sum(1).argmax()], "from": lambda x, i: x[i:], "to": lambda x, i: x[:i, 1:i],
    "with an array": lambda x, i: x[i, mytorch.tensor([0, 1])], "a new dim": lambda x, i: x[None, i],
}


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("name", INDICES)
def test_indices_that_are_tensors_of_one_element(name):
    function, compiled = INDICES[name], mytorch.compile(INDICES[name])
    for i in (2, 1, 3, 2):
        grads = []
        for call in (function, compiled):
            x = mytorch.arange(12.0).reshape(4, 3).requires_grad_()
            y = call(x, mytorch.tensor(i))
            (y * y).sum().backward()
            grads += [y.detach().numpy(), x.grad]
        np.testing.assert_array_equal(grads[0], grads[2])
        np.testing.assert_array_equal(grads[1], grads[3])
    with pytest.raises(NotImplementedError, match="an element|a view at an index"):
        mytorch.capture(function, x, mytorch.tensor(1))


def test_an_index_of_one_element_out_of_bounds_and_writes():
    function = mytorch.compile(lambda x, i: x[i])
    assert function(mytorch.ones(4), mytorch.tensor(3)).item() == 1
    with pytest.raises(IndexError, match="index 20 is out of bounds"):
        function(mytorch.ones(4), mytorch.tensor(20))

    @mytorch.compile
    def writes(x, i):
        x[i] = -1.0
        return x

    for i in (2, 0):
        assert writes(mytorch.ones(3), mytorch.tensor(i)).tolist() == [1 - 2 * (k == i) for k in range(3)]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_what_counts_and_clips_what_it_makes():
    x = mytorch.arange(12.0)
    assert mytorch.compile(lambda x: mytorch.histc(x, 4, 0, 12))(x).tolist() == [3, 3, 3, 3]

    def clips(x):
        w = x.detach().clone().requires_grad_()
        (w * 2).sum().backward()
        return nn.utils.clip_grad_norm_([w], 1.0)

    assert mytorch.compile(clips)(mytorch.ones(4)).item() == 4
    with pytest.raises(NotImplementedError, match="can't clip the gradients of tensors that it makes"):
        mytorch.capture(clips, x)
    a, b = mytorch.ones(4, 2), mytorch.ones(4, 1)
    assert mytorch.compile(lambda a, b: mytorch.linalg.lstsq(a, b, driver="gelsd")[1])(a, b).shape == (0,)


DRAWS = {
    "rand": lambda x: mytorch.rand(3), "randn": lambda x: mytorch.randn(3, dtype=mytorch.float64),
    "randint": lambda x: mytorch.randint(0, 9, (5,)), "randperm": lambda x: mytorch.randperm(7),
    "normal": lambda x: mytorch.normal(x, 2.0), "bernoulli": mytorch.bernoulli,
    "rand_like": mytorch.rand_like, "dropout": F.dropout,
    "multinomial": lambda x: mytorch.multinomial(x, 3, replacement=True),
    "without replacement": lambda x: mytorch.multinomial(x, 3),
    "gamma": lambda x: mytorch.distributions.Gamma(x, x).sample(),
    "normal_": lambda x: mytorch.empty(3).normal_(), "uniform_": lambda x: mytorch.empty(3).uniform_(1, 2),
    "exponential_": lambda x: mytorch.empty(3).exponential_(),
    "bernoulli_": lambda x: mytorch.empty(3).bernoulli_(0.3),
    "random_": lambda x: mytorch.empty(3).random_(0, 9),
    "trunc_normal_": lambda x: nn.init.trunc_normal_(mytorch.empty(3, 3)),
    "rrelu": lambda x: F.rrelu(-x, training=True), "gumbel_softmax": F.gumbel_softmax,
    "two": lambda x: (mytorch.randperm(3), mytorch.rand(2)),
}


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("name", DRAWS)
def test_each_random_function_draws_what_it_does_in_eager(name):
    found = []
    for call in (DRAWS[name], mytorch.compile(DRAWS[name])):
        mytorch.manual_seed(3)
        drawn = [[*leaves(call(mytorch.full((4,), 0.5))), mytorch.rand(2)] for _ in range(2)]
        found.append([y for x in leaves(drawn) for y in x.flatten().tolist()])
    np.testing.assert_allclose(*found, 1e-6)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    st.lists(st.sampled_from(SHAPES), min_size=2, max_size=3),
    st.lists(st.lists(st.integers(0, 59), min_size=6, max_size=6), min_size=1, max_size=9),
)
def test_random_programs(shapes, decisions):
    def function(*given):
        values = [x.clone() for x in given]
        for numbers in decisions:
            rest = iter(numbers)
            with contextlib.suppress(RuntimeError, IndexError):  # shapes that can't be broadcast
                values.append(a_step(lambda options: options[next(rest) % len(options)], values))  # noqa: B023
        return values

    def outcome(call):
        mytorch.manual_seed(1)
        inputs, found = [mytorch.randn(shape, requires_grad=True) for shape in shapes], []
        for _ in range(2):
            results = call(*inputs)
            sum((y * y).sum() for y in results).backward()
            found += [y.detach().numpy() for y in results] + [x.grad.numpy().copy() for x in inputs]
        return found

    with F.use_fused(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may run eagerly
        try:
            want = outcome(function)
        except RuntimeError:  # a write to what backward needs
            return
        for ours, theirs in zip(outcome(mytorch.compile(function)), want, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4)


def test_threads():
    function, results = mytorch.compile(lambda x: (x * 2 + 1).sum()), []

    def work():
        results.extend(function(mytorch.ones(k)).item() == 3 * k for k in (1, 2, 3, 1, 2, 3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24 and every(results)


def test_wrong_calls():
    with pytest.raises(TypeError, match="expected a function or a module, got int"):
        mytorch.compile(3)
    with pytest.raises(TypeError, match="expected a compiled function"):
        mytorch.compiler.explain(len)
    kept = []
    mytorch.capture(lambda x: kept.append(x * 2) or x, mytorch.ones(2))
    with pytest.raises(RuntimeError, match="part of a program that was captured"):
        kept[0] + 1


def test_results_that_share_memory():
    @mytorch.compile
    def function(x):
        y = x * 2
        return y[0], y, y.t()

    for written, factors in ((0, [[6, 6], [2, 2]]), (1, [[6, 6], [6, 6]]), (2, [[6, 6], [6, 6]])):
        x = mytorch.ones(2, 2, requires_grad=True)
        results = function(x)
        results[written].mul_(3)
        results[1].sum().backward()
        np.testing.assert_array_equal(x.grad, factors)


def test_history_in_enable_grad_alone():
    weight = mytorch.ones(2, requires_grad=True)

    @mytorch.compile
    def function(x):
        with mytorch.enable_grad():
            return weight * x

    for _ in range(2):
        weight.grad = None
        with mytorch.no_grad():
            y = function(mytorch.full((2,), 3.0))
        y.sum().backward()
        np.testing.assert_array_equal(weight.grad, [3, 3])


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_results_that_get_a_grad():
    @mytorch.compile
    def leaf(x):
        y = x.detach().clone().requires_grad_()
        return y, (y * 2).sum()

    @mytorch.compile
    def retained(x):
        y = x * 2
        y.retain_grad()
        return y, (y * 2).sum()

    @mytorch.compile
    def argument(x):
        x.retain_grad()
        return x, (x * 2).sum()

    for function in (leaf, retained, argument):
        for _ in range(2):
            y, loss = function(mytorch.ones(2, requires_grad=True) * 1)
            loss.backward()
            np.testing.assert_array_equal(y.grad, [2, 2])


def test_devices():
    def function(x):
        shown = x.device, x.data.device, mytorch.get_default_device(), x.is_cpu, x.is_cuda, x.is_meta
        return x + mytorch.ones(2, device=x.device) if x.device.type == "cpu" else x, shown

    x = mytorch.ones(2)
    (y, shown), (want, eager) = mytorch.compile(function, fullgraph=True)(x), function(x)
    assert y.tolist() == want.tolist() == [2, 2]
    assert shown == eager == ("cpu", "cpu", "cpu", True, False, False)


def test_devices_on_a_gpu(fake_cuda):
    def function(x):
        shown = x.device, x.data.device, x.is_cpu, x.data.is_cuda, x.is_meta
        return x + mytorch.ones(2, device=x.device) if x.is_cuda else x, shown

    x = mytorch.ones(2, device="cuda")
    (y, shown), (want, eager) = mytorch.compile(function, fullgraph=True)(x), function(x)
    assert y.tolist() == want.tolist() == [2, 2]
    assert shown == eager == ("cuda:0", "cuda:0", False, True, False)


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_state_that_has_a_history():
    """Its graph is walked once, behind the program: `weight` is in both."""
    weight, kept = mytorch.tensor([1.0, 2.0], requires_grad=True), {}

    @mytorch.compile
    def function(x):
        return (kept["hidden"] * x).sum() + (weight * x).sum()

    @mytorch.compile
    def whole(x):
        function(x).backward()

    for call in (lambda x: function(x).backward(), whole):
        for k in (1.0, 2.0):
            weight.grad = None
            kept["hidden"] = (weight * weight)[:]
            call(mytorch.full((2,), k))
            np.testing.assert_array_equal(weight.grad, [3 * k, 5 * k])


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("name", ["unsqueeze_", "data"])
def test_data_of_arguments(name):
    @mytorch.compile
    def function(x):
        if name == "data":
            x.data = x.data * 3
        else:
            x.unsqueeze_(0)
        return x + 1

    x = mytorch.ones(2)
    y = function(x)
    assert mytorch.equal(y, x + 1) and (x.shape == (1, 2) or x[0].item() == 3)


def test_threads_that_capture_one_module():
    for _ in range(10):
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        compiled, errors = mytorch.compile(model, fullgraph=True), []
        expected = {n: model(mytorch.ones(n, 3)).detach().numpy() for n in (1, 2, 3)}

        def work(k, compiled=compiled, errors=errors, expected=expected):
            try:
                for n in (1, 2, 3) if k % 2 else (3, 2, 1):
                    with mytorch.set_grad_enabled(k % 3 == 0):
                        np.testing.assert_allclose(compiled(mytorch.ones(n, 3)).detach(), expected[n], 1e-5)
            except (RuntimeError, AssertionError) as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
