"""A small model, its data and its training, the same on all ranks and without any; and errors as results."""

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim

BATCH, STEPS = 12, 25


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def world():
    return dist.get_world_size() if dist.is_initialized() else 1


def network(seed=0, width=19):
    mytorch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width, bias=False), nn.GELU(), nn.Linear(width, 3)
    )


def adamw(params):
    return optim.AdamW(params, lr=0.01)


def whole_batch(step):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((BATCH, 5)).astype(np.float32)
    return x, np.stack([x[:, 0] * x[:, 1], x.sum(1), np.sin(x[:, 2])], 1)


def share(step):
    """This rank's part of a batch: all have as many samples, so the mean of means is the mean."""
    return [mytorch.tensor(part[rank() :: world()].copy()) for part in whole_batch(step)]


def loss_of(model, step):
    x, y = share(step)
    return ((model(x) - y) ** 2).mean()


def grads_of(model):
    return {
        name.removeprefix("module."): p.grad.numpy().copy()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def weights_of(model):
    return {name.removeprefix("module."): p.detach().numpy().copy() for name, p in model.named_parameters()}


def mean_over_ranks(value):
    total = np.array([value], np.float64)
    if world() > 1:
        dist.all_reduce(total)
    return total[0] / world()


def train(model, optimizer, steps=STEPS):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(mean_over_ranks(loss.item()))
    return losses


def error_of(call):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return {"error": str(error)}
    return {"error": ""}


def same(found, expected, rtol=1e-5, atol=1e-6):
    """Every rank has these arrays."""
    for rank in found:
        for name, value in expected.items():
            np.testing.assert_allclose(rank[name], value, rtol=rtol, atol=atol, err_msg=name)
