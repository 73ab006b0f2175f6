"""Updates that have a kernel, and how they are run with it and without."""

import numpy as np
import pytest
import torch

from mytorch import Tensor, optim
from mytorch.nn.fused_ops import registry

NEEDS_KERNELS = pytest.mark.skipif(bool(registry.why_not("cpu")), reason=registry.why_not("cpu"))
SHAPES = [(5, 3), (7,), (), (4, 4), (0, 3), (1, 65), (130, 33)]
ADAM = {"lr": 0.01, "weight_decay": 0.1}
CASES = {
    "Adam": ("Adam", {}),
    "Adam weight decay": ("Adam", {**ADAM, "maximize": True}),
    "Adam options": ("Adam", {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}),
    "Adam decoupled": ("Adam", {**ADAM, "decoupled_weight_decay": True}),
    "Adam amsgrad": ("Adam", {**ADAM, "betas": (0.9, 0.6), "amsgrad": True}),
    "AdamW": ("AdamW", {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "AdamW amsgrad": ("AdamW", {**ADAM, "betas": (0.9, 0.6), "amsgrad": True, "maximize": True}),
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD weight decay": ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "SGD momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "SGD dampening": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    "SGD nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True}),
    "Lion": ("Lion", {"lr": 0.01}),
    "Lion weight decay": ("Lion", {"lr": 0.01, "betas": (0.7, 0.9), "weight_decay": 0.1, "maximize": True}),
}


def parameters(dtype="float32", shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [Tensor(np.asarray(rng.standard_normal(s), dtype), requires_grad=True) for s in shapes]


def make(case, params, library=optim, **more):
    name, options = CASES[case]
    return getattr(library, name)(params, **{**options, **more})


def set_grads(params, seed, skip=(), scale=1.0):
    """The same gradients to tensors of both libraries."""
    rng = np.random.default_rng(seed)
    for i, p in enumerate(params):
        g = np.asarray(rng.standard_normal(tuple(p.shape)) * scale)
        if i in skip:
            p.grad = None
        elif isinstance(p, Tensor):
            p.grad = None
            p.backward(g.astype(p.dtype))
        else:
            p.grad = torch.tensor(g).to(p.dtype)


def values(params, optimizer):
    found = [p.data.numpy().copy() for p in params]
    for p in params:
        found += [optimizer.state[p][name].numpy().copy() for name in sorted(optimizer.state[p])]
    return found


def same(some, others, rtol, atol):
    assert len(some) == len(others)
    for a, b in zip(some, others, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol, atol)


def runs_of(case, dtype="float32", steps=1, **options):
    """Parameters and optimizers, one with the kernel and one without, after equal steps."""
    pairs = []
    for choice in (True, False):
        params = parameters(dtype)
        optimizer = make(case, params, fused=choice, **options)
        for step in range(steps):
            set_grads(params, step, skip=[i for i in range(len(SHAPES)) if (step + i) % 4 == 3])
            optimizer.step()
        pairs.append((params, optimizer))
    return pairs


EVERY_WAY = pytest.mark.parametrize("choice", [True, False], ids=["fused", "not fused"])
