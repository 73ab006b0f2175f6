"""Backends of `compile`: programs as they were captured, and functions that make something of them."""

import pickle
import warnings

import pytest

import mytorch
from mytorch import nn
from mytorch.nn import functional as F

X, Y = mytorch.randn(8, 12), mytorch.randint(0, 3, (8,))


class Counting:
    """A backend that runs the program, and notes what it was given."""

    def __init__(self):
        self.programs, self.inputs, self.runs = [], [], 0

    def __call__(self, program, inputs):
        self.programs.append(program)
        self.inputs.append(inputs)

        def run(*tensors):
            self.runs += 1
            return program(*tensors)

        return run


def gelu(x):
    return 0.5 * x * (1 + (x * 0.8).tanh())


def networks():
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    return model, mytorch.optim.AdamW(model.parameters(), 0.01)


def whole_step(backend):
    """Backward pass and update in the program."""
    model, optimizer = networks()

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step if backend is False else mytorch.compile(step, backend=backend, fullgraph=True)


def model_alone(backend):
    """The backward pass is a program of its own."""
    model, optimizer = networks()
    compiled = model if backend is False else mytorch.compile(model, backend=backend, fullgraph=True)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("make", [whole_step, model_alone])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", None, Counting(), lambda p, _: p.optimized()])
def test_training(make, fused, backend):
    with F.use_fused(fused):
        ours, want = make(backend), make(False)
        for _ in range(3):
            assert mytorch.allclose(ours(X, Y), want(X, Y), atol=1e-6)


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_programs_run_as_captured(name):
    with F.use_fused(False):
        captured = mytorch.compile(gelu, backend=name)
        assert mytorch.equal(captured(X), gelu(X))
        fused = mytorch.compile(gelu, backend="inductor")
        fused(X)
    names = [[i.name for i in f.programs()[0].instructions] for f in (captured, fused)]
    assert names == [["multiply", "multiply", "tanh", "add", "multiply"], ["loop"]]
    model = mytorch.compile(nn.Sequential(nn.Linear(12, 3), nn.Tanh()), backend=name)
    model(X).sum().backward()
    assert len(model.forward.programs()) == 2
    assert "loop" not in [i.name for p in model.forward.programs() for i in p.instructions]


def test_a_function_gets_each_program_once():
    backend = Counting()
    compiled = mytorch.compile(backend=backend)(gelu)
    for x in (X, X * 2, X[:3], X):
        assert mytorch.equal(compiled(x), gelu(x))
    assert (len(backend.programs), backend.runs) == (2, 4)
    assert [[x.shape for x in inputs] for inputs in backend.inputs] == [[(8, 12)], [(3, 12)]]
    assert mytorch.equal(backend.inputs[0][0], X) and "tanh" in str(backend.programs[0])
    assert not any([i.name == "loop" for p in backend.programs for i in p.instructions])


def test_a_function_gets_the_parts_of_a_split_function():
    seen = []

    def function(x):
        y = x * 2
        seen.append(y.sum().item())
        return y + 1

    backend = Counting()
    compiled = mytorch.compile(function, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert mytorch.equal(compiled(X), X * 2 + 1) and mytorch.equal(compiled(X), X * 2 + 1)
    assert (len(backend.programs), backend.runs) == (2, 4)


def test_it_gets_the_forward_program_and_numbers():
    backend = Counting()
    model = mytorch.compile(nn.Linear(12, 3), backend=backend)
    for _ in range(2):
        model(X).sum().backward()
    (program,) = backend.programs
    assert "backward" not in str(program) and len(model.forward.programs()) == 2 and backend.runs == 2
    scaled = mytorch.compile(lambda x, a: x * a, backend=backend)
    for a in (0.5, 0.25, 0.125):
        assert mytorch.equal(scaled(X, a), X * a)
    assert backend.inputs[-1][1] == 0.25 and len(backend.programs) == 3


def test_it_follows_the_parameters():
    model = nn.Linear(12, 3)
    compiled = mytorch.compile(model, backend=Counting())
    for _ in range(2):
        assert mytorch.allclose(compiled(X), model(X))
        model.weight.data = model.weight.data * 2


def test_copies_have_the_backend():
    copy = pickle.loads(pickle.dumps(mytorch.compile(gelu, backend="eager")))
    copy(X)
    assert len(copy.programs()[0].instructions) == 5


def test_names():
    assert mytorch.compiler.list_backends(None) == ["aot_eager", "eager", "inductor"]
    assert mytorch.compiler.list_backends() == ["inductor"]
    for backend in ("tensorrt", 3):
        with pytest.raises(
            RuntimeError, match=f"Invalid backend: {backend!r}, should be one of aot_eager, eager, "
        ):
            mytorch.compile(gelu, backend=backend)


def fails(program, inputs):
    raise KeyError("tanh")


@pytest.mark.parametrize(
    ("backend", "error", "message"),
    [
        (fails, KeyError, "tanh"),
        (lambda p, _: None, TypeError, "backend <lambda> returned no function, but NoneType"),
        (lambda p, _: lambda x: x, RuntimeError, r"what gelu returns, tuples nested as \(\(%5,\), \(\)\)"),
        (lambda p, _: lambda x: ((1.0,), ()), RuntimeError, "returned float, gelu returns %5: float32"),
        (lambda p, _: lambda x: ((x[:2],), ()), RuntimeError, r"returned float32\[2, 12\] of strides"),
        (lambda p, _: lambda x: ((x.t().contiguous().t(),), ()), RuntimeError, r"of strides \(4, 32\), gelu"),
    ],
)
def test_errors_are_not_hidden(backend, error, message):
    """Nothing runs eagerly instead."""
    compiled = mytorch.compile(gelu, backend=backend)
    for _ in range(2):
        with pytest.raises(error, match=message):
            compiled(X)
