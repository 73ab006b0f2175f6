"""Learning rate schedules against PyTorch's, number for number."""

import math

import numpy as np
import pytest
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
    "SequentialLR": lambda m, o: sequence(m, o, [5], "LinearLR", "CosineAnnealingLR"),
    "SequentialLR of three": lambda m, o: sequence(m, o, [4, 20], "ConstantLR", "LambdaLR", "StepLR"),
    "SequentialLR at once": lambda m, o: sequence(m, o, [0], "ConstantLR", "StepLR"),
}


def optimizers(lr=LRS, kind="SGD"):
    ours = [{"params": [mytorch.Tensor([1.0], requires_grad=True)], "lr": x} for x in lr]
    theirs = [{"params": [torch.ones(1, requires_grad=True)], "lr": x} for x in lr]
    return getattr(optim, kind)(ours), getattr(torch.optim, kind)(theirs)


def both(name):
    optimizer, oracle = optimizers()
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


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    (optimizer, ours), (oracle, theirs) = both(name)
    mine, his = record(optimizer, ours), record(oracle, theirs)
    assert len(np.unique(mine)) > 2
    np.testing.assert_allclose(mine, his, rtol=1e-13, atol=1e-17)
    assert ours.last_epoch == theirs.last_epoch == EPOCHS


@pytest.mark.parametrize("pair", [("LinearLR", "StepLR"), ("ConstantLR", "CosineAnnealingLR waves")])
def test_two_schedules_at_once(pair):
    results = []
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        results.append(record(optimizer, *[SCHEDULES[name](module, optimizer) for name in pair]))
    np.testing.assert_allclose(*results, rtol=1e-13)


@pytest.mark.parametrize("name", ["StepLR", "LinearLR down", "CosineAnnealingLR waves", "ConstantLR options"])
def test_a_rate_changed_by_hand_stays_changed(name):
    results = []
    for optimizer, scheduler in both(name):
        record(optimizer, scheduler, epochs=5)
        for group in optimizer.param_groups:
            group["lr"] *= 3
        results.append(record(optimizer, scheduler, epochs=20))
    np.testing.assert_allclose(*results, rtol=1e-13)


@pytest.mark.parametrize("name", [n for n in SCHEDULES if not n.startswith("Sequential")])
def test_jump_to_an_epoch(name):
    (optimizer, ours), (oracle, theirs) = both(name)
    for epoch in (1, 13, 4, 30):
        optimizer.step()
        oracle.step()
        ours.step(epoch)
        with pytest.warns(UserWarning, match="epoch parameter"):
            theirs.step(epoch)
        np.testing.assert_allclose(rates(optimizer), rates(oracle), rtol=1e-13)


@pytest.mark.parametrize("name", SCHEDULES)
def test_resume(name, tmp_path):
    optimizer, _ = optimizers()
    scheduler = SCHEDULES[name](optim.lr_scheduler, optimizer)
    record(optimizer, scheduler, epochs=11)
    mytorch.save({"o": optimizer.state_dict(), "s": scheduler.state_dict()}, tmp_path / "c")
    saved = mytorch.load(tmp_path / "c")
    resumed, _ = optimizers(lr=(9.0, 9.0))
    continued = SCHEDULES[name](optim.lr_scheduler, resumed)
    resumed.load_state_dict(saved["o"])
    continued.load_state_dict(saved["s"])
    np.testing.assert_array_equal(
        record(resumed, continued, epochs=30), record(optimizer, scheduler, epochs=30)
    )


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n != "LambdaLR object"])
def test_a_state_of_pytorch_is_continued(name):
    (optimizer, ours), (oracle, theirs) = both(name)
    record(oracle, theirs, epochs=11)
    ours.load_state_dict(theirs.state_dict())
    for group, group_theirs in zip(optimizer.param_groups, oracle.param_groups, strict=True):
        group["lr"] = group_theirs["lr"]
    np.testing.assert_allclose(
        record(optimizer, ours, epochs=30), record(oracle, theirs, epochs=30), rtol=1e-13, atol=1e-17
    )


def test_a_saved_callable_object_is_restored():
    optimizer, _ = optimizers()
    saved = optim.lr_scheduler.LambdaLR(optimizer, Halving(3)).state_dict()
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, Halving(100))
    scheduler.load_state_dict(saved)
    assert [f.period for f in scheduler.lr_lambdas] == [3, 3]


def test_last_epoch_resumes():
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        with pytest.raises(KeyError, match="'initial_lr' is not specified in param_groups"):
            module.StepLR(optimizer, 3, last_epoch=4)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"] * 10
        scheduler = module.StepLR(optimizer, 3, last_epoch=4)
        assert scheduler.last_epoch == 5 and scheduler.base_lrs == [5.0, 0.2]
        np.testing.assert_allclose(record(optimizer, scheduler, epochs=1)[-1], [0.05, 0.002])


def test_a_rate_that_is_a_tensor_is_changed_in_place():
    lr = mytorch.Tensor(0.5)
    optimizer = optim.SGD([mytorch.Tensor([1.0], requires_grad=True)], lr=lr)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    scheduler.step()
    assert lr.item() == 0.25 and optimizer.param_groups[0]["lr"] is lr and scheduler.get_last_lr() == [0.25]


# The schedule of GPT training


def nanogpt(step, lr, warmup, decay, min_lr):
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step > decay:
        return min_lr
    share = (step - warmup) / (decay - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (lr - min_lr)


@pytest.mark.parametrize(
    ("warmup", "decay", "min_lr"), [(10, 40, 1e-3), (0, 45, 0.0), (1, 2, 1e-2), (20, 200, 1e-4)]
)
def test_warmup_and_cosine(warmup, decay, min_lr):
    optimizer, _ = optimizers()
    seen = record(optimizer, optim.lr_scheduler.WarmupCosineLR(optimizer, warmup, decay, min_lr))
    expected = [[nanogpt(step, lr, warmup, decay, min_lr) for lr in LRS] for step in range(EPOCHS + 1)]
    np.testing.assert_allclose(seen, expected, rtol=1e-13)


def test_warmup_and_cosine_resumes():
    def schedule(optimizer):
        return optim.lr_scheduler.WarmupCosineLR(optimizer, warmup_steps=3, decay_steps=20, min_lr=0.01)

    optimizer, _ = optimizers()
    scheduler = schedule(optimizer)
    whole = record(optimizer, scheduler, epochs=30)
    resumed, _ = optimizers()
    half = schedule(resumed)
    record(resumed, half, epochs=7)
    last = schedule(resumed)
    last.load_state_dict(half.state_dict())
    resumed.param_groups[0]["lr"], resumed.param_groups[1]["lr"] = half.get_last_lr()
    np.testing.assert_array_equal(record(resumed, last, epochs=23), whole[7:])


# Wrong use

WRONG = {
    "ConstantLR factor": (ValueError, lambda m, o: m.ConstantLR(o, factor=1.5), "to be between 0 and 1"),
    "LinearLR start": (
        ValueError,
        lambda m, o: m.LinearLR(o, start_factor=0),
        "(?i)starting multiplicative factor",
    ),
    "LinearLR end": (ValueError, lambda m, o: m.LinearLR(o, end_factor=2), "Ending multiplicative factor"),
    "LambdaLR count": (ValueError, lambda m, o: m.LambdaLR(o, [abs]), "Expected 2 lr_lambdas, but got 1"),
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
