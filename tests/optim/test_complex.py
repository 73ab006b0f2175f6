"""Complex parameters: an update is that of their real and imaginary parts, as in PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from tests.optim.cases import CASES, STEPS, make, same_parameters, same_state

SHAPES = [(3, 2), (), (70,), (0, 2)]


def both(shapes, rng, **options):
    values = [rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in shapes]
    return [[m.tensor(np.asarray(v), **options) for v in values] for m in (mytorch, torch)]


@pytest.mark.parametrize("case", CASES)
def test_trajectory(case):
    rng = np.random.default_rng(0)
    ours, theirs = both(SHAPES, rng, requires_grad=True)
    for one in (ours, theirs):  # a real parameter in the same group
        m = mytorch if one is ours else torch
        one.append(m.ones(5, dtype=m.float64, requires_grad=True))
    optimizer, oracle = make(case, ours, theirs)
    for _ in range(STEPS):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            g = rng.standard_normal(p.shape) + (1j * rng.standard_normal(p.shape) if i < 4 else 0)
            p.grad, q.grad = mytorch.tensor(np.asarray(g)), torch.tensor(np.asarray(g))
        optimizer.step()
        oracle.step()
    same_parameters(ours, theirs, 1e-12, 1e-12)
    same_state(optimizer, oracle, 1e-12, 1e-12)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search):
    rng = np.random.default_rng(0)
    starts, targets = both([(3, 2), (2,)], rng, requires_grad=True), both([(3, 2), (2,)], rng)
    for m, params, target in zip((mytorch, torch), starts, targets, strict=True):
        optimizer = m.optim.LBFGS(params, lr=0.5, max_iter=5, line_search_fn=search)

        def closure(m=m, params=params, target=target, optimizer=optimizer):
            optimizer.zero_grad()
            loss = sum(((p * p - q).abs() ** 2).sum() for p, q in zip(params, target, strict=True))
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        assert losses[2] < losses[0]
    same_parameters(*starts, 1e-8, 1e-8)


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
def test_clipping(order):
    ours, theirs = both([(3, 2), (4,)], np.random.default_rng(0), requires_grad=True)
    norms = []
    for m, params in ((mytorch, ours), (torch, theirs)):
        params.append(m.ones(2, dtype=m.float64, requires_grad=True))
        sum((p * p).abs().sum() for p in params).backward()
        norms.append(m.nn.utils.clip_grad_norm_(params, 0.5, order))
    assert norms[0].dtype == "float64" and norms[0].item() == pytest.approx(norms[1].item())
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), 1e-12)


def test_the_state_is_saved_and_loaded():
    (p,), (q,) = both([(3,)], np.random.default_rng(0), requires_grad=True)
    optimizer, oracle = make("AdamW GPT", [p], [q])
    for x, o in ((p, optimizer), (q, oracle)):
        (x.abs() ** 2).sum().backward()
        o.step()
    (again,) = [p.detach().clone().requires_grad_()]
    loaded = mytorch.optim.AdamW([again])
    loaded.load_state_dict(optimizer.state_dict())
    (again.abs() ** 2).sum().backward()
    loaded.step()
    q.grad = None
    (q.abs() ** 2).sum().backward()
    oracle.step()
    same_parameters([again], [q], 1e-12, 1e-12)


def test_what_cannot_be():
    p = mytorch.ones(2, 2, dtype="complex64", requires_grad=True)
    with pytest.raises(RuntimeError, match="Muon does not support complex parameters, got .* complex64"):
        mytorch.optim.Muon([p])
    with pytest.raises(RuntimeError, match="computes in float32, and there are complex64"):
        mytorch.optim.AdamW([p], fused=True)
