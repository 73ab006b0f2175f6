"""Programs on the stand-in for CuPy, whose kernels Triton's interpreter runs; test_kernels.py runs this."""

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.compiler import capture
from mytorch.nn import functional as F
from mytorch.nn.fused_ops.triton import launch
from mytorch.nn.fused_ops.triton.pointer import Pointer
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


def training(lr=0.01, clip=None, **options):
    """The losses of some steps and what is left after them; with options the step is compiled."""
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).to(DEVICE)
    optimizer = optim.AdamW(model.parameters(), lr=lr() if callable(lr) else lr)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step(x, y):
        optimizer.zero_grad()
        with mytorch.no_grad():
            model[3].bias.mul_(0.9)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = CLIPS[clip](model, optimizer)
        optimizer.step()
        return loss, norm

    function = mytorch.compile(step, fullgraph=True, **options) if options else step
    x, y = mytorch.randn(5, 8, device=DEVICE), mytorch.randint(0, 3, (5,), device=DEVICE)
    found = []
    for k in range(7):
        found += function(x, y)
        if k == 2:
            scheduler.step()
        if k == 3:
            optimizer.load_state_dict(optimizer.state_dict())
        if k == 4:
            state = optimizer.state[model[0].weight]
            state["exp_avg"] = state["exp_avg"] * 3
        if k == 5:
            optimizer.param_groups[0]["weight_decay"] = 20.0
    found += [*model.parameters(), *[mytorch.Tensor(p.grad) for p in model.parameters()]]
    return [z.numpy(force=True) for z in found if z is not None], function


CLIPS = {
    None: lambda *_: None,
    "clip_grad_norm_": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "clip_grad_norm": lambda _, optimizer: optimizer.clip_grad_norm(0.1),
}


def on_gpu():
    return mytorch.tensor(0.01, device=DEVICE)


@pytest.mark.parametrize(
    ("lr", "clip"),
    [(0.01, None), (0.01, "clip_grad_norm"), (on_gpu, "clip_grad_norm"), (on_gpu, "clip_grad_norm_")],
)
def test_a_training_step(lr, clip, kernels):
    """The optimizer is part of the graph if its learning rate is on the GPU."""
    (ours, function), (want, _) = training(lr, clip, mode="reduce-overhead"), training(lr, clip)
    program = function.programs()[0]
    assert {"loop", "_adam"} <= kernels and "@triton.jit" in program.source()
    calls = [k for k, i in enumerate(program.instructions) if i.name in ("host.norm", "host.step")]
    count = len(program.instructions) if lr is on_gpu else calls[0]
    assert mytorch.compiler.explain(function).endswith(f", {count} of them in a CUDA graph")
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


def test_a_graph_counts_the_writes_of_a_step():
    weight = mytorch.ones(2, device=DEVICE, requires_grad=True)
    optimizer = optim.AdamW([weight], lr=on_gpu())

    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    function = mytorch.compile(step, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        y = (weight * weight).sum()
        function(mytorch.ones(2, device=DEVICE))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="a program can't hold the step of an optimizer with hooks"):
        function(mytorch.ones(2, device=DEVICE))
