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


NOT_IN_STATE = {"_scale_fn_ref", "optimizer"}  # PyTorch's bound method


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    (optimizer, ours), (oracle, theirs) = both(name)
    mine, his = record(optimizer, ours), record(oracle, theirs)
    assert len(np.unique(mine)) > 2
    np.testing.assert_allclose(mine, his, rtol=1e-13, atol=1e-17)
    if not name.startswith("Chained"):
        assert ours.last_epoch == theirs.last_epoch == EPOCHS
    assert set(ours.state_dict()) == set(theirs.state_dict()) - NOT_IN_STATE
    for group, want in zip(optimizer.param_groups, oracle.param_groups, strict=True):
        assert set(group) == set(want)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", [n for n in SCHEDULES if "Cycl" in n])
def test_momentum(name, kind):
    results = []
    for optimizer, scheduler in both(name, kind):
        seen = []
        for _ in range(EPOCHS):
            optimizer.step()
            scheduler.step()
            seen.append([g["betas"][0] if kind == "AdamW" else g["momentum"] for g in optimizer.param_groups])
        results.append(seen)
    np.testing.assert_allclose(*results, rtol=1e-13)
    assert (len(np.unique(results[0])) > 2) == ("no momentum" not in name and "triangular2" not in name)


@pytest.mark.parametrize("options", [
    {}, {"patience": 2, "factor": 0.5}, {"mode": "max", "patience": 1, "threshold": 0.1},
    {"threshold_mode": "abs", "threshold": 0.05, "patience": 3, "cooldown": 2},
    {"mode": "max", "threshold_mode": "abs", "patience": 0, "min_lr": [0.1, 0.001]},
    {"patience": 1, "min_lr": 0.015, "eps": 1e-3, "cooldown": 1},
], ids=str)  # fmt: skip
def test_plateau(options):
    rng = np.random.default_rng(0)
    metrics = 1 / np.sqrt(np.arange(1, 101)) + rng.uniform(0, 0.3, 100)
    results = []
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        scheduler = module.ReduceLROnPlateau(optimizer, **options)
        seen = []
        for i, metric in enumerate(metrics):
            if i == 50:  # a fresh one goes on
                state = scheduler.state_dict()
                scheduler = module.ReduceLROnPlateau(optimizer)
                scheduler.load_state_dict(state)
            scheduler.step(np.float32(metric) if i % 2 else metric)
            assert scheduler.get_last_lr() == rates(optimizer)
            seen.append((*rates(optimizer), scheduler.best, scheduler.num_bad_epochs, scheduler.in_cooldown))
        results.append(seen)
    np.testing.assert_allclose(*results, rtol=1e-13)
    assert len({row[0] for row in results[0]}) > 1 and scheduler.last_epoch == 100


def test_plateau_with_a_group_that_came_later():
    optimizer, _ = optimizers()
    one = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=0.1)
    each = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.1, 0.2])
    optimizer.add_param_group({"params": [mytorch.Tensor([1.0], requires_grad=True)], "lr": 1.0})
    for _ in range(2):
        one.step(mytorch.Tensor(1.0))
    assert rates(optimizer) == [0.1, 0.02, 0.1]
    each.step(1.0)
    with pytest.raises(RuntimeError, match="has 3 param groups, but there are 2 min_lrs"):
        each.step(1.0)


def test_restarts_at_fractions_of_epochs():
    results = []
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        seen = []
        for mult in (1, 2, 3):
            scheduler = module.CosineAnnealingWarmRestarts(optimizer, 3, mult)
            for epoch in (*np.arange(0, 30, 0.7).tolist(), 4, 0.5):
                scheduler.step(epoch)
                seen.append((*rates(optimizer), scheduler.last_epoch, scheduler.T_i, scheduler.T_cur))
            scheduler.step()
            seen.append((*rates(optimizer), scheduler.last_epoch, scheduler.T_i, scheduler.T_cur))
        results.append(seen)
    np.testing.assert_allclose(*results, rtol=1e-13)


def test_one_cycle_ends():
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        scheduler = module.OneCycleLR(optimizer, 0.1, 3)
        for _ in range(3):
            optimizer.step()
            scheduler.step()
        with pytest.raises(ValueError, match="Tried to step 4 times"):
            scheduler.step()


@pytest.mark.parametrize(
    "pair",
    [
        ("LinearLR", "StepLR"), ("ConstantLR", "CosineAnnealingLR waves"), ("ExponentialLR", "MultiStepLR"),
        ("PolynomialLR options", "LinearLR"), ("MultiplicativeLR", "CosineAnnealingLR"),
    ],
)  # fmt: skip
def test_two_schedules_at_once(pair):
    results = []
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        results.append(record(optimizer, *[SCHEDULES[name](module, optimizer) for name in pair]))
    np.testing.assert_allclose(*results, rtol=1e-13)


@pytest.mark.parametrize(
    "name",
    [
        "StepLR", "LinearLR down", "CosineAnnealingLR waves", "ConstantLR options", "MultiplicativeLR",
        "MultiStepLR", "ExponentialLR", "PolynomialLR options",
    ],
)  # fmt: skip
def test_a_rate_changed_by_hand_stays_changed(name):
    results = []
    for optimizer, scheduler in both(name):
        record(optimizer, scheduler, epochs=5)
        for group in optimizer.param_groups:
            group["lr"] *= 3
        results.append(record(optimizer, scheduler, epochs=20))
    np.testing.assert_allclose(*results, rtol=1e-13)


@pytest.mark.parametrize("name", [n for n in SCHEDULES if not n.startswith(("Sequential", "Chained"))])
def test_jump_to_an_epoch(name):
    (optimizer, ours), (oracle, theirs) = both(name)
    for epoch in (1, 13, 4, 30):
        optimizer.step()
        oracle.step()
        for scheduler in (ours, theirs):
            if "Restarts" in name:  # for it an epoch is no relic
                scheduler.step(epoch)
                continue
            with pytest.warns(UserWarning, match="epoch parameter"):
                scheduler.step(epoch)
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


@pytest.mark.parametrize("name", [n for n in SCHEDULES if "object" not in n])
def test_a_state_of_pytorch_is_continued(name):
    (optimizer, ours), (oracle, theirs) = both(name)
    record(oracle, theirs, epochs=11)
    ours.load_state_dict(theirs.state_dict())
    for group, group_theirs in zip(optimizer.param_groups, oracle.param_groups, strict=True):
        group["lr"] = group_theirs["lr"]
    optimizer.step()
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
