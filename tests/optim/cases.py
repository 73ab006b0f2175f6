"""Optimizers and their options, and how ours are run beside PyTorch's."""

import numpy as np
import torch

import mytorch
from mytorch import optim

SHAPES = [(5, 3), (7,), (), (4, 4), (0, 3), (1, 65)]
STEPS = 25


# name: (class, options): combinations that PyTorch's database (tests/database/test_optimizers.py) lacks
CASES = {
    "SGD nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    "SGD maximize": (
        "SGD", {"lr": 0.05, "momentum": 0.5, "dampening": 0.3, "maximize": True, "weight_decay": 0.1},
    ),
    "Adam options": ("Adam", {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3, "maximize": True}),
    "Adam amsgrad": ("Adam", {"lr": 0.01, "betas": (0.9, 0.6), "amsgrad": True}),
    "Adam decoupled": ("Adam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "Adam no memory": ("Adam", {"lr": 0.01, "betas": (0.0, 0.0)}),
    "AdamW GPT": ("AdamW", {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "RMSprop options": ("RMSprop", {"lr": 1e-3, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1}),
    "RMSprop all": ("RMSprop", {"centered": True, "momentum": 0.5, "alpha": 0.8, "eps": 0.1}),
    "Adagrad options": ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "eps": 1e-4}),
    "Adagrad start": ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
    "Adadelta options": ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1}),
    "Adadelta maximize": ("Adadelta", {"rho": 1.0, "maximize": True, "weight_decay": 0.1}),
    "NAdam options": ("NAdam", {"lr": 0.05, "betas": (0.5, 0.8), "eps": 1e-3, "momentum_decay": 0.1}),
    "NAdam decoupled": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    "RAdam options": ("RAdam", {"lr": 0.01, "betas": (0.5, 0.9), "weight_decay": 0.1, "eps": 1e-3}),
    "RAdam decoupled": ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    "Adamax options": ("Adamax", {"lr": 0.05, "betas": (0.5, 0.8), "eps": 0.1, "weight_decay": 0.1}),
    "Rprop options": ("Rprop", {"lr": 0.3, "etas": (0.3, 1.5), "step_sizes": (0.1, 0.6), "maximize": True}),
    "ASGD options": ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.1}),
    "ASGD maximize": ("ASGD", {"lr": 0.1, "t0": 0, "maximize": True}),
}


def parameters(seed=0, dtype="float32", shapes=SHAPES):
    """The same random parameters for both."""
    rng = np.random.default_rng(seed)
    values = [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]
    ours = [mytorch.Tensor(v.copy(), requires_grad=True) for v in values]
    return ours, [torch.tensor(v, requires_grad=True) for v in values]


def give_grads(ours, theirs, rng, skip=()):
    """The same random gradients to both, by way of backward; none to the parameters in `skip`."""
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        if i not in skip:
            g = np.asarray(rng.standard_normal(p.shape), p.dtype)
            p.backward(g)
            q.backward(torch.tensor(g))


def run(optimizer, oracle, ours, theirs, steps=STEPS, seed=1, skip=lambda step: ()):
    rng = np.random.default_rng(seed)
    for step in range(steps):
        optimizer.zero_grad()
        oracle.zero_grad()
        give_grads(ours, theirs, rng, skip(step))
        optimizer.step()
        oracle.step()


def same_parameters(ours, theirs, rtol=1e-6, atol=1e-6):
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(
            p.data.numpy(), q.detach().numpy(), rtol, atol, err_msg=f"parameter {i} of shape {q.shape}"
        )


def same_state(optimizer, oracle, rtol=2e-6, atol=1e-6):
    ours, theirs = optimizer.state_dict(), oracle.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for i, entry in theirs["state"].items():
        assert ours["state"][i].keys() == entry.keys(), f"state of parameter {i}"
        for name, value in entry.items():
            mine = ours["state"][i][name]
            assert isinstance(mine, mytorch.Tensor)
            assert mine.shape == tuple(value.shape) and str(mine.dtype) == str(value.dtype).removeprefix(
                "torch."
            )
            np.testing.assert_allclose(
                mine.numpy(), value.numpy(), rtol, atol, err_msg=f"{name} of parameter {i}"
            )


def make(case, ours, theirs, **more):
    name, options = CASES[case]
    options = {**options, **more}
    return getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
