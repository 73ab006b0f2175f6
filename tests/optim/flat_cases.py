"""Parameters in one vector, trained beside PyTorch's."""

import numpy as np
import torch

import mytorch

SHAPES = [(5, 3), (7,), (), (4, 4), (0, 3), (1, 65)]


def parameters(seed=0, dtype="float32", shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [mytorch.Tensor(np.asarray(rng.standard_normal(s), dtype), requires_grad=True) for s in shapes]


def twins(params):
    return [torch.tensor(p.data.numpy().copy(), requires_grad=True) for p in params]


def train(optimizer, oracle, ours, theirs, steps=3, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        oracle.zero_grad()
        for p, q in zip(ours, theirs, strict=True):
            g = np.asarray(rng.standard_normal(p.shape), p.dtype)
            p.backward(g)
            q.backward(torch.tensor(g))
        optimizer.step()
        oracle.step()


def same(ours, theirs):
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), rtol=1e-6, atol=1e-6)


def offset(array, vector):
    return (array.numpy().ctypes.data - vector.ctypes.data) // vector.itemsize
