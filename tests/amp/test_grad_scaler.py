"""GradScaler step for step against PyTorch's."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, optim
from mytorch import distributed as dist
from mytorch.accelerate import MixedPrecisionOptimizer
from mytorch.amp import GradScaler
from tests.each import each

INF, NAN = float("inf"), float("nan")
OPTIONS = {"init_scale": 2.0**10, "growth_interval": 3}
RUNS = {  # what the gradient is multiplied by in each step
    "good steps grow": ([1] * 8, OPTIONS),
    "inf backs off": ([1, INF, 1, 1, 1, NAN, INF, 1, 1, 1, 1, 1, 1, 1], OPTIONS),
    "other factors": (
        [1, 1, INF, 1, 1], {"growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 2}),
    "interval of one": ([1, NAN, 1, 1], {**OPTIONS, "growth_interval": 1}),
    "-inf": ([1, -INF, 1], OPTIONS),
    "disabled": ([1, 1, 1], {"enabled": False}),
}


def steps_of(library, scaler, make, factors, unscale=False):
    """(scale, value of the parameter) after each step of a scripted run."""
    p = library.tensor([1.0, -2.0, 3.0], requires_grad=True)
    optimizer, seen = make([p]), []
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale((p * library.tensor([0.5, factor, 1.0])).sum()).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), p.tolist()))
    return seen, scaler.state_dict()


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_follows_pytorch_step_for_step(name, unscale):
    factors, options = RUNS[name]
    ours = steps_of(mytorch, GradScaler(**options), lambda p: optim.AdamW(p, lr=0.1), factors, unscale)
    theirs = steps_of(
        torch,
        torch.amp.GradScaler("cpu", **options),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        factors,
        unscale,
    )
    assert [scale for scale, _ in ours[0]] == [scale for scale, _ in theirs[0]]
    np.testing.assert_allclose([x for _, x in ours[0]], [x for _, x in theirs[0]], rtol=1e-6, atol=1e-6)
    assert ours[1] == theirs[1]


def test_state_goes_on_and_loads_pytorchs():
    factors, options = RUNS["inf backs off"]
    whole, _ = steps_of(mytorch, GradScaler(**options), lambda p: optim.SGD(p, lr=0.1), factors)
    theirs = torch.amp.GradScaler("cpu", **options)
    steps_of(torch, theirs, lambda p: torch.optim.SGD(p, lr=0.1), factors[:4])
    resumed = GradScaler()
    resumed.load_state_dict(theirs.state_dict())
    rest, _ = steps_of(mytorch, resumed, lambda p: optim.SGD(p, lr=0.1), factors[4:])
    assert [scale for scale, _ in rest] == [scale for scale, _ in whole[4:]]


def test_scale_stays_between_floor_and_cap():
    scaler = GradScaler(init_scale=4, growth_interval=1, min_scale=2, max_scale=16)
    seen, _ = steps_of(mytorch, scaler, lambda p: optim.SGD(p, lr=0.1), [1, 1, 1])
    assert [scale for scale, _ in seen] == [8, 16, 16]
    with pytest.warns(UserWarning, match="smallest, 2"):
        seen, _ = steps_of(mytorch, scaler, lambda p: optim.SGD(p, lr=0.1), [INF] * 5)
    assert [scale for scale, _ in seen] == [8, 4, 2, 2, 2]


def test_by_default_the_scale_grows_to_2_to_the_24th():
    scaler = GradScaler(init_scale=2.0**24, growth_interval=1)
    seen, _ = steps_of(mytorch, scaler, lambda p: optim.SGD(p, lr=0.1), [1, INF, 1, 1])
    assert [scale for scale, _ in seen] == [2.0**24, 2.0**23, 2.0**24, 2.0**24]


def test_gradients_are_unscaled_for_who_looks():
    p = mytorch.tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = optim.SGD([p], lr=1), GradScaler(init_scale=8)
    scaler.scale((p * 3).sum()).backward()
    assert p.grad.tolist() == [24, 24]
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [3, 3]
    scaler.step(optimizer)
    assert p.tolist() == [-2, -1]


def test_gradients_elsewhere_and_of_other_kinds():
    """Not in the flat vector, float64, not contiguous."""
    p = mytorch.tensor(np.ones((3, 2)), requires_grad=True)
    q = mytorch.ones(2, 3, requires_grad=True)
    optimizer, scaler = optim.SGD([p, q], lr=1), GradScaler(init_scale=4)
    scaler.scale(p.sum())
    p.grad, q.grad = np.full((3, 2), 4.0), mytorch.full((3, 2), 8.0).data.T
    scaler.unscale_(optimizer)
    assert (p.grad.numpy() == 1).all() and (q.grad.numpy() == 2).all()
    assert not scaler.found_inf(optimizer)
    scaler.step(optimizer)
    scaler.update()
    q.grad = mytorch.full((3, 2), INF).data.T
    scaler.unscale_(optimizer)
    assert scaler.found_inf(optimizer)


class Own(optim.Optimizer):
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.data = p.data - p.grad


def test_an_optimizer_with_a_step_of_its_own_skips():
    p = mytorch.tensor([1.0], requires_grad=True)
    optimizer, scaler = Own([p], {}), GradScaler(init_scale=2)
    for factor, expected in ((3.0, -2.0), (INF, -2.0)):
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert p.item() == expected


@each("bad", range(3))
def test_one_device_with_an_inf_skips_the_step_of_all(fake_cuda, bad):
    """And halves the scale, whether one optimizer has them or each its own."""
    places = "cuda:0", "cuda:1", "cpu"
    for several in (False, True):
        params = [mytorch.ones(2, device=place, requires_grad=True) for place in places]
        parts = [[p] for p in params] if several else [params]
        optimizers, scaler = [Own(part, {}) for part in parts], GradScaler(init_scale=4)
        for i, p in enumerate(params):
            scaler.scale((p * (INF if i == bad else 1.0)).sum()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        found = [scaler.found_inf(optimizer) for optimizer in optimizers]
        assert found == ([i == bad for i in range(3)] if several else [True])
        scaler.update()
        assert scaler.get_scale() == 2
        expected = [1.0 if not several or i == bad else 0.0 for i in range(3)]
        assert [p.tolist() for p in params] == [[x, x] for x in expected]


def test_a_rank_with_an_inf_skips_the_step_of_all_in_its_group():
    """Other ranks step; a group of one rank has nothing to share."""

    def ranks():
        dist.init_process_group()
        rank, groups = dist.get_rank(), [dist.new_group([0, 1]), dist.new_group([2])]
        found = []
        for group in (None, groups[rank // 2]):
            p = mytorch.tensor([1.0], requires_grad=True)
            optimizer, scaler = optim.SGD([p], lr=1.0), GradScaler(init_scale=4, group=group)
            scaler.scale((p * (INF if rank == 1 else 3.0)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append((p.item(), scaler.get_scale()))
        return found

    skipped, stepped = (1.0, 2.0), (-2.0, 4.0)
    assert dist.worlds.run(3, ranks) == [[skipped, skipped]] * 2 + [[skipped, stepped]]


def half(values):
    return Tensor(np.asarray(values, np.float16), requires_grad=True)


def wrong_order(call):
    p = mytorch.tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([p], lr=1), GradScaler()
    scaler.scale(p.sum()).backward()
    call(scaler, optimizer)


WRONG = {
    "growth": (lambda: GradScaler(growth_factor=1), ValueError, "growth_factor must be above 1, got 1"),
    "backoff": (lambda: GradScaler(backoff_factor=1.5), ValueError, "got 1.5"),
    "interval": (lambda: GradScaler(growth_interval=0), ValueError, "at least 1, got 0"),
    "floor": (lambda: GradScaler(init_scale=2, min_scale=4), ValueError, "min_scale <= init_scale"),
    "no tensor": (lambda: GradScaler().scale(3.0), TypeError, "got float"),
    "update": (lambda: GradScaler().update(), RuntimeError, "no inf checks"),
    "empty state": (lambda: GradScaler().load_state_dict({}), RuntimeError, "empty"),
    "unscale twice": (
        lambda: wrong_order(lambda s, o: (s.unscale_(o), s.unscale_(o))), RuntimeError, "already been"),
    "unscale late": (
        lambda: wrong_order(lambda s, o: (s.step(o), s.unscale_(o))), RuntimeError, "after step"),
    "step twice": (lambda: wrong_order(lambda s, o: (s.step(o), s.step(o))), RuntimeError, "already"),
    "closure": (lambda: wrong_order(lambda s, o: s.step(o, closure=1)), RuntimeError, "closure"),
    "no gradient": (
        lambda: GradScaler().step(optim.SGD([half([1]).float().detach().requires_grad_()])),
        RuntimeError, "no parameter"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_so(name):
    call, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        call()


def test_float16_gradients_of_a_plain_optimizer_are_refused():
    p = half([1, 2])
    optimizer, scaler = optim.SGD([p], lr=1), GradScaler()
    p.grad = np.ones(2, np.float16)
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.unscale_(optimizer)
    MixedPrecisionOptimizer(optimizer)
