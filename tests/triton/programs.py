"""Programs on the stand-in for CuPy whose loops and kernels Triton's interpreter runs; test_kernels.py runs it
in a process of its own."""

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
    """The interpreter on the memory of the stand-in's arrays; graphs capture launches, too."""

    def launch(self, kernel, grid, pointers, meta):
        arrays = [p.array if isinstance(p, Pointer) else p for p in pointers]
        graph.taped(self.interpret)(kernel, grid, arrays, meta)

    def interpret(self, kernel, grid, arrays, meta):
        given = [Pointer(x._numpy) if hasattr(x, "_numpy") else x for x in arrays]
        super().launch(kernel, grid, given, meta)


@pytest.fixture(autouse=True)
def kernels(fake_cuda):
    with launch.in_mode(OnStandIn()):
        yield


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
def test_a_training_step(mode):
    (ours, function), (want, _) = training(mode), training("eager")
    assert "@triton.jit" in function.programs()[0].source()
    if mode:
        assert "in a CUDA graph" in mytorch.compiler.explain(function)
    for a, b in zip(ours, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
