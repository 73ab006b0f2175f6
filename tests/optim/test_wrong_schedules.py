"""What schedules refuse, and what they warn of."""

import pytest
import torch

from mytorch import optim
from tests.optim.schedules import optimizers, sequence

WRONG = {
    "ConstantLR factor": (ValueError, lambda m, o: m.ConstantLR(o, factor=1.5), "to be between 0 and 1"),
    "LinearLR start": (
        ValueError,
        lambda m, o: m.LinearLR(o, start_factor=0),
        "(?i)starting multiplicative factor",
    ),
    "LinearLR end": (ValueError, lambda m, o: m.LinearLR(o, end_factor=2), "Ending multiplicative factor"),
    "LambdaLR count": (ValueError, lambda m, o: m.LambdaLR(o, [abs]), "Expected 2 lr_lambdas, but got 1"),
    "MultiplicativeLR number": (TypeError, lambda m, o: m.MultiplicativeLR(o, 0.9), "should be a function"),
    "T_0": (ValueError, lambda m, o: m.CosineAnnealingWarmRestarts(o, 0), "positive integer T_0, but got 0"),
    "T_0 float": (ValueError, lambda m, o: m.CosineAnnealingWarmRestarts(o, 1.5), "integer T_0, but got 1.5"),
    "T_mult": (ValueError, lambda m, o: m.CosineAnnealingWarmRestarts(o, 1, 0), "T_mult >= 1, but got 0"),
    "eta_min": (ValueError, lambda m, o: m.CosineAnnealingWarmRestarts(o, 1, 1, "0"), "eta_min, but got 0"),
    "negative epoch": (
        ValueError,
        lambda m, o: m.CosineAnnealingWarmRestarts(o, 3).step(-1),
        "non-negative epoch, but got -1",
    ),
    "CyclicLR mode": (ValueError, lambda m, o: m.CyclicLR(o, 0.1, 1, mode="square"), "mode is invalid"),
    "CyclicLR lists": (
        ValueError,
        lambda m, o: m.CyclicLR(o, [0.1], 1),
        "base_lr must have the same length as optimizer.param_groups. base_lr has 1 values",
    ),
    "OneCycleLR length": (ValueError, lambda m, o: m.OneCycleLR(o, 0.1, epochs=3), "must define either"),
    "OneCycleLR steps": (ValueError, lambda m, o: m.OneCycleLR(o, 0.1, 0), "positive integer total_steps"),
    "OneCycleLR epochs": (
        ValueError,
        lambda m, o: m.OneCycleLR(o, 0.1, epochs=2.5, steps_per_epoch=3),
        "positive integer epochs, but got 2.5",
    ),
    "OneCycleLR pct_start": (ValueError, lambda m, o: m.OneCycleLR(o, 0.1, 9, pct_start=2.0), "but got 2.0"),
    "OneCycleLR strategy": (
        ValueError,
        lambda m, o: m.OneCycleLR(o, 0.1, 9, anneal_strategy="sin"),
        "anneal_strategy must be one of 'cos' or 'linear', instead got sin",
    ),
    "plateau factor": (ValueError, lambda m, o: m.ReduceLROnPlateau(o, factor=1.0), "Factor should be < 1.0"),
    "plateau mode": (ValueError, lambda m, o: m.ReduceLROnPlateau(o, mode="best"), "mode best is unknown"),
    "plateau threshold": (
        ValueError,
        lambda m, o: m.ReduceLROnPlateau(o, threshold_mode="x"),
        "threshold mode x is unknown",
    ),
    "plateau min_lr": (
        ValueError,
        lambda m, o: m.ReduceLROnPlateau(o, min_lr=[1]),
        "2 min_lrs, got 1",
    ),
    "plateau optimizer": (TypeError, lambda m, o: m.ReduceLROnPlateau("adam"), "str is not an Optimizer"),
    "chain of none": (ValueError, lambda m, o: m.ChainedScheduler([]), "at least one scheduler"),
    "chain of other": (TypeError, lambda m, o: m.ChainedScheduler([m.StepLR(o, 1), 3]), "`optimizer`"),
    "chain of plateau": (
        ValueError,
        lambda m, o: m.ChainedScheduler([m.StepLR(o, 1), m.ReduceLROnPlateau(o)]),
        "ReduceLROnPlateau",
    ),
    "sequence of plateau": (
        ValueError,
        lambda m, o: m.SequentialLR(o, [m.ReduceLROnPlateau(o), m.StepLR(o, 1)], [3]),
        "ReduceLROnPlateau",
    ),
    "no optimizer": (TypeError, lambda m, o: m.StepLR("adam", 3), "str is not an Optimizer"),
    "no schedules": (ValueError, lambda m, o: m.SequentialLR(o, [], []), "at least one"),
    "milestones": (ValueError, lambda m, o: sequence(m, o, [3, 4], "StepLR", "LambdaLR"), "(?s)milestone.*2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    error, make, message = WRONG[case]
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        with pytest.raises(error, match=message):
            make(module, optimizer)


def test_wrong_arguments_of_ours():
    m, (optimizer, _), (other, _) = optim.lr_scheduler, optimizers(), optimizers()
    with pytest.raises(ValueError, match="warmup_steps=5 must be in 0 … decay_steps=4"):
        m.WarmupCosineLR(optimizer, 5, 4)
    with pytest.raises(ValueError, match="min_lr must not be negative, got -1"):
        m.WarmupCosineLR(optimizer, 1, 4, min_lr=-1)
    with pytest.raises(ValueError, match=r"scheduler 1 \(StepLR\) has another optimizer"):
        m.SequentialLR(optimizer, [m.StepLR(optimizer, 3), m.StepLR(other, 3)], [4])
    with pytest.raises(NotImplementedError, match="LRScheduler doesn't define get_lr"):
        m.LRScheduler(optimizer)


def test_the_wrong_order_of_steps_warns():
    optimizer, _ = optimizers()
    scheduler = optim.lr_scheduler.StepLR(optimizer, 3)
    with pytest.warns(UserWarning, match="before optimizer.step"):
        scheduler.step()


def test_cycles_need_a_momentum():
    for module, optimizer in zip(
        (optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(kind="Adagrad"), strict=True
    ):
        with pytest.raises(ValueError, match="optimizer must support momentum or beta1"):
            module.OneCycleLR(optimizer, 0.1, 10)
        assert module.OneCycleLR(optimizer, 0.1, 10, cycle_momentum=False).get_last_lr() == pytest.approx(
            [0.004] * 2
        )


def test_asking_for_the_next_rates_warns():
    optimizer, _ = optimizers()
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with pytest.warns(UserWarning, match="get_last_lr"):
        assert scheduler.get_lr() == [0.25, 0.01]
    assert scheduler.get_last_lr() == [0.5, 0.02]
