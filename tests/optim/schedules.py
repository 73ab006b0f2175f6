"""Schedules of learning rates, and how ours and PyTorch's are recorded."""

import numpy as np
import torch

import mytorch
from mytorch import optim

EPOCHS = 50
LRS = (0.5, 0.02)  # of two groups


class Halving:
    """A callable object with state, which LambdaLR saves."""

    def __init__(self, period):
        self.period = period

    def __call__(self, epoch):
        return 0.5 ** (epoch // self.period)


def sequence(lr_scheduler, optimizer, milestones, *names):
    return lr_scheduler.SequentialLR(
        optimizer, [SCHEDULES[n](lr_scheduler, optimizer) for n in names], milestones
    )


# name: a function of (the module lr_scheduler, an optimizer)
SCHEDULES = {
    "LambdaLR": lambda m, o: m.LambdaLR(o, lambda epoch: 0.95**epoch),
    "LambdaLR a group": lambda m, o: m.LambdaLR(o, [lambda e: 1 / (e + 1), lambda e: e // 10]),
    "LambdaLR object": lambda m, o: m.LambdaLR(o, Halving(7)),
    "StepLR": lambda m, o: m.StepLR(o, 7, 0.5),
    "StepLR default": lambda m, o: m.StepLR(o, step_size=20),
    "ConstantLR": lambda m, o: m.ConstantLR(o),
    "ConstantLR options": lambda m, o: m.ConstantLR(o, factor=0.5, total_iters=12),
    "LinearLR": lambda m, o: m.LinearLR(o),
    "LinearLR down": lambda m, o: m.LinearLR(o, 1.0, 0.1, total_iters=30),
    "LinearLR to zero": lambda m, o: m.LinearLR(o, start_factor=0.7, end_factor=0.0, total_iters=9),
    "CosineAnnealingLR": lambda m, o: m.CosineAnnealingLR(o, T_max=50),
    "CosineAnnealingLR waves": lambda m, o: m.CosineAnnealingLR(o, T_max=8, eta_min=0.01),
    "MultiplicativeLR": lambda m, o: m.MultiplicativeLR(o, lambda epoch: 0.9 if epoch % 3 else 1.1),
    "MultiplicativeLR a group": lambda m, o: m.MultiplicativeLR(o, [lambda e: 0.9, lambda e: 1 / (e + 1)]),
    "MultiplicativeLR object": lambda m, o: m.MultiplicativeLR(o, Halving(7)),
    "MultiStepLR": lambda m, o: m.MultiStepLR(o, [3, 17, 40]),
    "MultiStepLR twice": lambda m, o: m.MultiStepLR(o, (30, 5, 5, 30, 30), gamma=0.7),
    "ExponentialLR": lambda m, o: m.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda m, o: m.PolynomialLR(o),
    "PolynomialLR options": lambda m, o: m.PolynomialLR(o, total_iters=37, power=2.5),
    "PolynomialLR root": lambda m, o: m.PolynomialLR(o, total_iters=60, power=0.5),
    "CosineAnnealingWarmRestarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 7),
    "CosineAnnealingWarmRestarts longer": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.001),
    "CyclicLR": lambda m, o: m.CyclicLR(o, 0.01, 0.1, step_size_up=5),
    "CyclicLR a group": lambda m, o: m.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], 4, 7, base_momentum=[0.5, 0.6], max_momentum=[0.8, 0.95]
    ),
    "CyclicLR triangular2": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 3, 8, "triangular2", cycle_momentum=False),
    "CyclicLR exp_range": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 6, mode="exp_range", gamma=0.97),
    "CyclicLR function": lambda m, o: m.CyclicLR(
        o, 0.01, 0.1, 6, scale_fn=lambda x: 1 / x, mode="triangular"
    ),
    "CyclicLR object": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 6, scale_fn=Halving(9), scale_mode="iterations"),
    "OneCycleLR": lambda m, o: m.OneCycleLR(o, 0.5, total_steps=51),
    "OneCycleLR linear": lambda m, o: m.OneCycleLR(
        o,
        [0.5, 0.1],
        epochs=10,
        steps_per_epoch=6,
        anneal_strategy="linear",
        pct_start=0.2,
        base_momentum=[0.5, 0.6],
        max_momentum=0.99,
    ),
    "OneCycleLR three phases": lambda m, o: m.OneCycleLR(
        o, 0.5, 55, three_phase=True, div_factor=5, final_div_factor=100, pct_start=0.4
    ),
    "OneCycleLR no momentum": lambda m, o: m.OneCycleLR(o, 0.5, 50, cycle_momentum=False, pct_start=0.0),
    "ChainedScheduler": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 4), m.ExponentialLR(o, 0.9)]),
    "ChainedScheduler optimizer": lambda m, o: m.ChainedScheduler(
        [m.LinearLR(o, 0.5, total_iters=9), m.StepLR(o, 5, 0.8), m.CosineAnnealingLR(o, 30)], optimizer=o
    ),
    "SequentialLR of chained": lambda m, o: m.SequentialLR(
        o, [m.ChainedScheduler([m.ConstantLR(o, 0.1, 4), m.ExponentialLR(o, 0.9)]), m.StepLR(o, 4)], [11]
    ),
    "SequentialLR restarts": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=5), m.CosineAnnealingWarmRestarts(o, 7)], [5]
    ),
    "SequentialLR": lambda m, o: sequence(m, o, [5], "LinearLR", "CosineAnnealingLR"),
    "SequentialLR of three": lambda m, o: sequence(m, o, [4, 20], "ConstantLR", "LambdaLR", "StepLR"),
    "SequentialLR at once": lambda m, o: sequence(m, o, [0], "ConstantLR", "StepLR"),
}


def optimizers(lr=LRS, kind="SGD"):
    ours = [{"params": [mytorch.Tensor([1.0], requires_grad=True)], "lr": x} for x in lr]
    theirs = [{"params": [torch.ones(1, requires_grad=True)], "lr": x} for x in lr]
    return getattr(optim, kind)(ours), getattr(torch.optim, kind)(theirs)


def both(name, kind="SGD"):
    optimizer, oracle = optimizers(kind=kind)
    return (
        (optimizer, SCHEDULES[name](optim.lr_scheduler, optimizer)),
        (oracle, SCHEDULES[name](torch.optim.lr_scheduler, oracle)),
    )


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def record(optimizer, *schedulers, epochs=EPOCHS):
    """The rates of each epoch, which `get_last_lr` must say, too."""
    seen = [rates(optimizer)]
    for _ in range(epochs):
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        assert schedulers[-1].get_last_lr() == rates(optimizer)
        seen.append(rates(optimizer))
    return np.array(seen)
