"""Programs on a GPU (the strict stand-in for CuPy) compute what the same functions do without them."""

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.stream.programs import capture, load
from mytorch.stream.programs.program import leaves
from tests.on_device import DEVICE, never_waiting
from tests.stream.test_capture import FUNCTIONS, X
from tests.stream.test_compile import CASES, MODULES, batch

pytestmark = pytest.mark.usefixtures("fake_cuda")


def values(results):
    """The elements of tensors, all of which are on the GPU, and other results."""
    found = []
    for x in leaves(results):
        if isinstance(x, mytorch.Tensor):
            assert x.device == DEVICE
            x = x.detach().numpy(force=True).copy()
        found.append(x)
    return found


def same(ours, want):
    assert len(ours) == len(want)
    for a, b in zip(ours, want, strict=True):
        if isinstance(b, np.ndarray):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)
        else:
            assert a == b


def on_gpu(make):
    """What a function makes with new tensors on the GPU, after the same seed."""
    mytorch.manual_seed(0)
    with mytorch.device(DEVICE):
        return make()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "constants"])  # a NumPy array
def test_functions(name):
    found = []
    for way in ("eager", "captured", "optimized"):
        function, x = on_gpu(lambda: (FUNCTIONS[name](), mytorch.randn(*X)))
        with mytorch.device(DEVICE):
            call = function if way == "eager" else capture(function, x)
            call = call.optimized() if way == "optimized" else call
            found.append([y for _ in range(3) for y in values(call(x))] + values([x]))
    same(found[1], found[0])
    same(found[2], found[0])


@pytest.mark.parametrize("name", [name for name in CASES if name != "autocast"])
def test_training_steps(name):
    found = []
    for compiled in (False, True):
        make, optimizer, step = CASES[name]
        model = on_gpu(make)
        function = on_gpu(lambda: step(model, optimizer(model.parameters())))
        function = mytorch.compile(function, fullgraph=True) if compiled else function
        seen = [y for k in range(4) for y in values(function(*[x.to(DEVICE) for x in batch(k)]))]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        left = [*model.parameters(), *model.buffers(), *map(mytorch.Tensor, grads)]
        found.append(seen + values([*left, mytorch.rand(3, device=DEVICE)]))
    same(found[1], found[0])


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    found = []
    for compiled in (False, True):
        model, x = on_gpu(lambda: (make(), mytorch.randn(*shape, requires_grad=True)))
        call = mytorch.compile(model, fullgraph=True) if compiled else model
        for _ in range(2):
            results = list(leaves(call(x)))
            sum((y.tanh() * (k + 1)).sum() for k, y in enumerate(results)).backward()
        found.append(values([*results, *[mytorch.Tensor(p.grad) for p in (x, *model.parameters())]]))
    same(found[1], found[0])
