"""Lazy modules: without a shape until the first call, and then the layer that PyTorch makes of them."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn, optim
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


CASES = {
    "LazyLinear": [(lambda t: t.nn.LazyLinear(3), (2, 4)), (lambda t: t.nn.LazyLinear(3, bias=False), (4,))],
}
for d in (1, 2, 3):
    size = (4, 5, 6)[:d]
    CASES |= {
        f"LazyConv{d}d": [
            (lambda t, d=d: getattr(t.nn, f"LazyConv{d}d")(4, 2, padding=1), (2, 3, *size)),
            (lambda t, d=d: getattr(t.nn, f"LazyConv{d}d")(4, 2, groups=2, bias=False), (2, *size)),
        ],
        f"LazyConvTranspose{d}d": [
            (lambda t, d=d: getattr(t.nn, f"LazyConvTranspose{d}d")(4, 2, 2), (2, 3, *size)),
            (lambda t, d=d: getattr(t.nn, f"LazyConvTranspose{d}d")(4, 2, groups=2), (2, *size)),
        ],
        f"LazyBatchNorm{d}d": [
            (lambda t, d=d: getattr(t.nn, f"LazyBatchNorm{d}d")(0.1), (2, 3, *size)),
            (lambda t, d=d: getattr(t.nn, f"LazyBatchNorm{d}d")(affine=False), (2, 3, *size)),
            (lambda t, d=d: getattr(t.nn, f"LazyBatchNorm{d}d")(track_running_stats=False), (2, 3, *size)),
        ],
        f"LazyInstanceNorm{d}d": [
            (lambda t, d=d: getattr(t.nn, f"LazyInstanceNorm{d}d")(), (2, 3, *size)),
            (lambda t, d=d: getattr(t.nn, f"LazyInstanceNorm{d}d")(affine=False), (2, 3, *size)),
        ],
    }
EVERY = [
    pytest.param(*case, id=f"{name}-{i}") for name, cases in CASES.items() for i, case in enumerate(cases)
]


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch):
    """Saves compiling them."""
    monkeypatch.setattr(nn.functional.use_fused, "default", False)


def test_every_lazy_layer_has_a_case():
    assert set(CASES) == {name for name in nn.layers.__all__ if name.startswith("Lazy")}


@pytest.mark.parametrize(("make", "shape"), EVERY)
def test_as_pytorch(make, shape):
    ours, theirs, x = make(mytorch), make(torch), normal(*shape)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.has_uninitialized_params() == theirs.has_uninitialized_params()
    before = list(ours.parameters())
    ours(mytorch.tensor(x)), theirs(torch.tensor(x))
    assert type(ours).__name__ == type(theirs).__name__ and repr(ours) == repr(theirs)
    assert list(map(id, before)) == list(map(id, ours.parameters()))
    assert {type(p) for p in before} <= {nn.Parameter}
    for (name, mine), his in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert tuple(mine.shape) == tuple(his.shape), name
    ours.load_state_dict(theirs.state_dict())
    check(ours, theirs, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("make", "shape"), EVERY)
def test_constructors_take_pytorch_s_arguments(make, shape):
    mine, his = (list(inspect.signature(type(make(t)).__init__).parameters) for t in (mytorch, torch))
    assert [name for name in mine if name not in ("auto", "fused")] == his


def test_it_starts_with_the_layer_s_distribution():
    layer = nn.LazyLinear(200)
    layer(mytorch.ones(1, 300))
    bound = 300**-0.5
    assert 0.95 * bound < np.abs(layer.weight.detach().numpy()).max() <= bound
    norm = nn.LazyBatchNorm1d()
    norm.eval()(mytorch.ones(2, 3))
    assert norm.running_var.tolist() == [1, 1, 1] and norm.weight.tolist() == [1, 1, 1]


def test_before_the_first_call():
    layer = nn.LazyLinear(3)
    for weight in (layer.weight, nn.LazyBatchNorm1d().running_mean):
        assert repr(weight) == f"<{type(weight).__name__}>"
        with pytest.raises(RuntimeError, match="can't access the shape of an uninitialized"):
            weight.shape  # noqa: B018
        for use in (lambda w=weight: w + 1, lambda w=weight: w.sum(), lambda w=weight: w * 2):
            with pytest.raises(ValueError, match="attempted to use an uninitialized parameter"):
                use()
    with pytest.raises(ValueError, match="uninitialized"):
        optim.Adam(layer.parameters()).step()


def test_dtype_copies_and_pickles():
    layer = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d()).double()
    for made in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        y = made(mytorch.ones(2, 4, 5, 5, dtype="float64"))
        assert y.shape == (2, 3, 4, 4) and y.dtype == "float64"
        assert made[1].running_mean.dtype == "float64" and made[0].weight.requires_grad


def test_states():
    full, lazy = nn.Linear(4, 3), nn.LazyLinear(3)
    assert lazy.load_state_dict(nn.LazyLinear(3).state_dict()) == ([], [])
    with pytest.raises(RuntimeError, match="weight: it is uninitialized in the checkpoint"):
        full.load_state_dict(lazy.state_dict())
    lazy.load_state_dict(full.state_dict())
    assert not lazy.has_uninitialized_params()
    weight = nn.LazyLinear(3, device="meta").weight
    assert (weight.is_meta, weight.is_cpu, weight.is_cuda) == (True, False, False)
    x = mytorch.ones(2, 4)
    np.testing.assert_array_equal(lazy(x).detach().numpy(), full(x).detach().numpy())
    assert repr(lazy) == repr(full)


def test_training():
    model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(1))
    x = mytorch.tensor(normal(8, 3))
    model(x)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((model(x) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]


def test_wrong_inputs():
    with pytest.raises(RuntimeError, match=r"expected 3D .* or 4D \(batched\) input to LazyConv2d"):
        nn.LazyConv2d(3, 2)(mytorch.ones(2, 2))
    with pytest.raises(ValueError, match="groups must be a positive number"):
        nn.LazyConv1d(4, 2, groups=2)(mytorch.ones(2, 3, 5))

    class Nothing(nn.layers.lazy.LazyModuleMixin, nn.Linear):
        cls_to_become = nn.Linear

    with pytest.raises(NotImplementedError, match="not implemented for Nothing"):
        Nothing(2, 2)(mytorch.ones(2))


def test_data_parallel_runs_the_module():
    layer = nn.Linear(3, 2)
    for made in (nn.DataParallel(layer), nn.DataParallel(layer, ["cpu"])):
        assert made.module is layer and list(made.state_dict()) == ["module.weight", "module.bias"]
        x = mytorch.tensor(normal(4, 3))
        np.testing.assert_array_equal(made(x).detach().numpy(), layer(x).detach().numpy())
    with pytest.raises(NotImplementedError, match=r"has one device, got device_ids=\[0, 1\]"):
        nn.DataParallel(layer, [0, 1])


@pytest.mark.parametrize("training", [True, False])
def test_sync_batch_norm_of_one_process_is_batch_norm(training):
    ours, theirs = nn.SyncBatchNorm(3), torch.nn.BatchNorm1d(3)
    check(ours.train(training), theirs.train(training), normal(5, 3, 2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-6)
    assert repr(ours) == repr(torch.nn.SyncBatchNorm(3))
    with pytest.raises(ValueError, match="at least 2D"):
        ours(mytorch.ones(3))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        nn.Nothing  # noqa: B018


def test_convert_sync_batchnorm():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3, affine=False)))
    state = model.state_dict()
    weight, model = model[1].weight, nn.SyncBatchNorm.convert_sync_batchnorm(model.eval())
    assert isinstance(model[1], nn.SyncBatchNorm) and isinstance(model[2][0], nn.SyncBatchNorm)
    assert model[1].weight is weight and not model[1].training and list(model.state_dict()) == list(state)
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(2)), nn.SyncBatchNorm)
