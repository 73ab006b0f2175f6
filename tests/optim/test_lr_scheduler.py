"""Learning rate schedules against PyTorch's, number for number."""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from tests.optim.schedules import EPOCHS, LRS, SCHEDULES, Halving, both, optimizers, rates, record

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
], ids=str)
def test_plateau(options):
    rng = np.random.default_rng(0)
    metrics = 1 / np.sqrt(np.arange(1, 101)) + rng.uniform(0, 0.3, 100)
    results = []
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        scheduler = module.ReduceLROnPlateau(optimizer, **options)
        seen = []
        for i, metric in enumerate(metrics):
            if i == 50:  # a fresh one continues
                state = scheduler.state_dict()
                scheduler = module.ReduceLROnPlateau(optimizer)
                scheduler.load_state_dict(state)
            scheduler.step(np.float32(metric) if i % 2 else metric)
            assert scheduler.get_last_lr() == rates(optimizer)
            seen.append((*rates(optimizer), scheduler.best, scheduler.num_bad_epochs, scheduler.in_cooldown))
        results.append(seen)
    np.testing.assert_allclose(*results, rtol=1e-13)
    assert len({row[0] for row in results[0]}) > 1 and scheduler.last_epoch == 100


def test_a_plateau_counts_from_0():
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        scheduler = module.ReduceLROnPlateau(optimizer)
        assert scheduler.last_epoch == 0
        scheduler.step(1.0)
        assert scheduler.last_epoch == 1


def test_a_cycle_that_goes_on_begins_at_its_own_base():
    """Not at the rate that the optimizer had in the beginning."""
    for module, optimizer in zip((optim.lr_scheduler, torch.optim.lr_scheduler), optimizers(), strict=True):
        for group in optimizer.param_groups:
            group["initial_lr"] = 0.3
        options = {"step_size_up": 4, "cycle_momentum": False, "last_epoch": 4}
        scheduler = module.CyclicLR(optimizer, 0.2, 1.0, **options)
        assert scheduler.base_lrs == [0.2, 0.2]
        optimizer.step()
        scheduler.step()
        np.testing.assert_allclose(rates(optimizer), [0.6, 0.6])


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
)
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
)
def test_a_rate_set_by_the_user_stays(name):
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
