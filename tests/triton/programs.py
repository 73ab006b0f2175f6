"""Programs on the stand-in for CuPy, whose kernels Triton's interpreter runs; test_kernels.py runs this."""

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.nn import functional as F
from mytorch.nn.fused_ops.triton import launch
from mytorch.nn.fused_ops.triton.pointer import Pointer
from mytorch.stream.programs import capture
from tests.strict_cupy import graph
from tests.triton import interpreter

DEVICE = "cuda:1"


class OnStandIn(interpreter.Interpret):
    """The interpreter on the memory of the stand-in's arrays; graphs capture launches, too.

    Attributes:
        names: of the kernels that were launched.
    """

    def __init__(self):
        self.names = set()

    def launch(self, kernel, grid, pointers, meta):
        self.names.add(kernel.fn.__name__)
        arrays = [p.array if isinstance(p, Pointer) else p for p in pointers]
        graph.taped(self.interpret)(kernel, grid, arrays, meta)

    def interpret(self, kernel, grid, arrays, meta):
        given = [Pointer(x._numpy) if hasattr(x, "_numpy") else x for x in arrays]
        super().launch(kernel, grid, given, meta)


@pytest.fixture(autouse=True)
def kernels(fake_cuda):
    with launch.in_mode(OnStandIn()):
        yield launch.mode().names


def training(mode=None):
    """The losses of some steps and the parameters at their end: eager, captured, and with CUDA graphs."""
    mytorch.manual_seed(0)
    layers = nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    function = step if mode == "eager" else mytorch.compile(step, fullgraph=True, mode=mode)
    x, y = mytorch.randn(5, 8, device=DEVICE), mytorch.randint(0, 3, (5,), device=DEVICE)
    losses = [function(x, y).item() for _ in range(4)]
    return [*losses, *[p.numpy(force=True) for p in model.parameters()]], function


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_training_step(mode, kernels):
    (ours, function), (want, _) = training(mode), training("eager")
    assert {"loop", "_adam"} <= kernels and "@triton.jit" in function.programs()[0].source()
    if mode:
        assert "in a CUDA graph" in mytorch.compiler.explain(function)
    for a, b in zip(ours, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


def block(x, weight):
    """Attention, norms, an activation, dropout by seed, writes in place, and gradients of all of it."""
    y = x.clone()
    y[:, 1:] *= 2
    y = y + F.scaled_dot_product_attention(F.layer_norm(y, (8,), weight), y, y, is_causal=True)
    y = F.dropout(F.gelu(F.rms_norm(y, (8,)) @ weight.outer(weight)), 0.4)
    loss = F.softmax(y, -1).square().sum() + y.amax(1).sum()
    return y, loss, mytorch.autograd.grad(loss, [x, weight])


def test_a_block(kernels):
    mytorch.manual_seed(0)
    x = mytorch.randn(2, 6, 8, device=DEVICE, requires_grad=True)
    weight = mytorch.randn(8, device=DEVICE, requires_grad=True)
    program, found = capture(block, x, weight).optimized(), []
    for function in (program, block):
        mytorch.manual_seed(1)
        y, loss, (dx, dweight) = function(x, weight)
        found.append([z.numpy(force=True) for z in (y, loss, dx, dweight)])
    assert (found[1][0] == 0).any() and {"loop", "_dropout"} <= kernels
    for ours, want in zip(*found, strict=True):
        np.testing.assert_allclose(ours, want, 1e-4, 1e-5)


def test_without_kernels():
    x = mytorch.randn(3, 4, device=DEVICE)
    program = capture(lambda x: F.softmax(x, -1), x).optimized()
    with F.use_fused(False):
        y = program.optimized()(x)
    np.testing.assert_allclose(y.numpy(force=True), program(x).numpy(force=True), 1e-5)
