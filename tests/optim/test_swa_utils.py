"""Averages of weights, and what belongs to them, against PyTorch's."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn, optim
from mytorch.optim import swa_utils
from mytorch.optim.swa_utils import SWALR, AveragedModel, update_bn

# name: arguments of AveragedModel, from the module swa_utils
AVERAGES = {
    "default": lambda m: {},
    "swa": lambda m: {"avg_fn": m.get_swa_avg_fn()},
    "swa of all": lambda m: {"multi_avg_fn": m.get_swa_multi_avg_fn()},
    "ema": lambda m: {"avg_fn": m.get_ema_avg_fn(0.7)},
    "ema of all": lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.7), "use_buffers": True},
    "own": lambda m: {"avg_fn": lambda mean, now, n: 0.5 * mean + 0.1 * now * (n + 1)},
    "buffers": lambda m: {"use_buffers": True},
}


def models():
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    theirs.double()
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    ours.load_state_dict({k: mytorch.Tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def batches(count=4):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((6, 3)) for _ in range(count)]
    return [mytorch.from_numpy(a) for a in arrays], [torch.from_numpy(a) for a in arrays]


def same(ours, theirs):
    mine, his = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(his)
    for name, value in his.items():
        assert str(mine[name].dtype) == str(value.dtype).removeprefix("torch.")
        np.testing.assert_allclose(mine[name].numpy(), value.numpy(), 1e-7, 1e-8, err_msg=name)


@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name):
    results = []
    for module, library, model, data in zip(
        (swa_utils, torch.optim.swa_utils), (optim, torch.optim), models(), batches(), strict=True
    ):
        optimizer = library.SGD(model.parameters(), lr=0.1)
        averaged = module.AveragedModel(model, **AVERAGES[name](module))
        for x in data:
            optimizer.zero_grad()
            (model(x) ** 2).sum().backward()
            optimizer.step()
            averaged.update_parameters(model)
        module.update_bn([(x, None) for x in data[:3]], averaged)
        results.append((averaged, averaged.train(False)(data[0])))
    (ours, y), (theirs, z) = results
    same(ours, theirs)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), 1e-7, 1e-8)
    assert ours.n_averaged.item() == 4


def test_the_average_is_on_its_own():
    model, _ = models()
    averaged = AveragedModel(model)
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    before = averaged.module[0].weight.numpy(force=True).copy()
    for p in model.parameters():
        p.grad = mytorch.Array(np.ones(p.shape))
    optimizer.step()
    np.testing.assert_array_equal(averaged.module[0].weight.numpy(force=True), before)
    averaged.update_parameters(model)  # the first is copied
    np.testing.assert_allclose(averaged.module[0].weight.numpy(force=True), before - 1, rtol=1e-5)
    resumed = AveragedModel(models()[0])
    resumed.load_state_dict(averaged.state_dict())
    assert resumed.n_averaged.item() == 1


def test_update_bn_leaves_the_rest_as_it_is():
    model, _ = models()
    model[1].momentum = 0.3
    model.eval()
    update_bn(batches()[0], model)
    assert model[1].momentum == 0.3 and not model.training
    update_bn(None, nn.Linear(2, 2))  # no batch norm: not even a look at the data


def test_wrong_averages():
    model, _ = models()
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        AveragedModel(model, avg_fn=swa_utils.get_swa_avg_fn(), multi_avg_fn=swa_utils.get_swa_multi_avg_fn())
    for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="Invalid decay value 1.5"):
            make(1.5)


def optimizers():
    ours = [{"params": [mytorch.Tensor([1.0], requires_grad=True)], "lr": lr} for lr in (0.5, 0.02)]
    theirs = [{"params": [torch.ones(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.02)]
    return optim.SGD(ours), torch.optim.SGD(theirs)


@pytest.mark.parametrize("options", [
    {"swa_lr": 0.05}, {"swa_lr": [0.1, 0.2], "anneal_epochs": 5, "anneal_strategy": "linear"},
    {"swa_lr": 0.05, "anneal_epochs": 0}, {"swa_lr": 0.0, "anneal_epochs": 3},
], ids=str)
def test_swalr(options):
    results = []
    for module, optimizer in zip((swa_utils, torch.optim.swa_utils), optimizers(), strict=True):
        scheduler = module.SWALR(optimizer, **options)
        seen = [scheduler.get_last_lr()]
        for i in range(15):
            optimizer.step()
            if i == 7:
                state = scheduler.state_dict()
                scheduler = module.SWALR(optimizer, **options)
                scheduler.load_state_dict(state)
            scheduler.step()
            seen.append(scheduler.get_last_lr())
        results.append((seen, set(scheduler.state_dict())))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12, atol=1e-17)
    assert results[0][1] == results[1][1]


def test_wrong_swalr():
    (optimizer, _) = optimizers()
    with pytest.raises(ValueError, match="instead got sin"):
        SWALR(optimizer, 0.1, anneal_strategy="sin")
    with pytest.raises(ValueError, match="anneal_epochs must be equal or greater than 0, got -1"):
        SWALR(optimizer, 0.1, anneal_epochs=-1)
    with pytest.raises(ValueError, match="swa_lr has 1 values, param_groups has 2"):
        SWALR(optimizer, [0.1])
