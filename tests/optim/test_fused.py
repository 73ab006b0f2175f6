"""Fused updates against the formulas in NumPy and PyTorch's; gradients that are scaled or clipped."""

import copy
import itertools

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, optim, use_fused
from mytorch.backends import threads
from mytorch.nn.fused_ops import registry
from mytorch.nn.utils import clip_grad_norm_
from mytorch.optim import fused

pytestmark = pytest.mark.skipif(bool(registry.why_not("cpu")), reason=registry.why_not("cpu"))

SHAPES = [(5, 3), (7,), (), (4, 4), (0, 3), (1, 65), (130, 33)]

ADAM = {"lr": 0.01, "weight_decay": 0.1}
CASES = {
    "Adam": ("Adam", {}),
    "Adam weight decay": ("Adam", {**ADAM, "maximize": True}),
    "Adam options": ("Adam", {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}),
    "Adam decoupled": ("Adam", {**ADAM, "decoupled_weight_decay": True}),
    "Adam amsgrad": ("Adam", {**ADAM, "betas": (0.9, 0.6), "amsgrad": True}),
    "AdamW": ("AdamW", {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "AdamW amsgrad": ("AdamW", {**ADAM, "betas": (0.9, 0.6), "amsgrad": True, "maximize": True}),
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD weight decay": ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "SGD momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "SGD dampening": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    "SGD nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True}),
    "Lion": ("Lion", {"lr": 0.01}),
    "Lion weight decay": ("Lion", {"lr": 0.01, "betas": (0.7, 0.9), "weight_decay": 0.1, "maximize": True}),
}


def parameters(dtype="float32", shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [Tensor(np.asarray(rng.standard_normal(s), dtype), requires_grad=True) for s in shapes]


def make(case, params, library=optim, **more):
    name, options = CASES[case]
    return getattr(library, name)(params, **{**options, **more})


def give(params, seed, skip=(), scale=1.0):
    """The same gradients to tensors of both libraries."""
    rng = np.random.default_rng(seed)
    for i, p in enumerate(params):
        g = np.asarray(rng.standard_normal(tuple(p.shape)) * scale)
        if i in skip:
            p.grad = None
        elif isinstance(p, Tensor):
            p.grad = None
            p.backward(g.astype(p.dtype))
        else:
            p.grad = torch.tensor(g).to(p.dtype)


def values(params, optimizer):
    found = [p.data.numpy().copy() for p in params]
    for p in params:
        found += [optimizer.state[p][name].numpy().copy() for name in sorted(optimizer.state[p])]
    return found


def same(some, others, rtol, atol):
    assert len(some) == len(others)
    for a, b in zip(some, others, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol, atol)


def runs_of(case, dtype="float32", steps=1, **options):
    """Parameters and optimizers, one with the kernel and one without, after equal steps."""
    pairs = []
    for choice in (True, False):
        params = parameters(dtype)
        optimizer = make(case, params, fused=choice, **options)
        for step in range(steps):
            give(params, step, skip=[i for i in range(len(SHAPES)) if (step + i) % 4 == 3])
            optimizer.step()
        pairs.append((params, optimizer))
    return pairs


# Values


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_computes_what_numpy_does(case, dtype):
    """Some parameters are without gradient in each step, so they are at different ones."""
    some, others = (values(*pair) for pair in runs_of(case, dtype, steps=9))
    if dtype == "float32":
        same(some, others, 3e-6, 1e-6)
    else:  # the last bit of a half-precision parameter may go either way, and Lion's sign with it
        same(some, others, 2e-3, 2e-3)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("Lion")])
def test_the_kernel_computes_what_pytorch_s_does(case):
    ours, theirs = parameters(), [torch.tensor(p.data.numpy(), requires_grad=True) for p in parameters()]
    optimizer, oracle = make(case, ours, fused=True), make(case, theirs, torch.optim, fused=True)
    for step in range(20):
        for params in (ours, theirs):
            give(params, step)
        optimizer.step()
        oracle.step()
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), 2e-6, 2e-6)
        assert optimizer.state[p].keys() == oracle.state[q].keys()
        for name, value in oracle.state[q].items():
            np.testing.assert_allclose(optimizer.state[p][name].numpy(), value.numpy(), 2e-6, 1e-6)


@pytest.mark.parametrize("case", ["Adam", "Adam amsgrad", "SGD momentum", "SGD nesterov", "Lion"])
def test_nan_and_inf_come_out_as_from_numpy(case):
    special = np.array([np.nan, np.inf, -np.inf, 0, 1e38, 1e-40, 1], np.float32)
    results = []
    for choice in (True, False):
        p = Tensor(np.array([1, np.inf, 2, np.nan, 3, 0, -0.0], np.float32), requires_grad=True)
        optimizer = make(case, [p], fused=choice)
        for g in (special, special[::-1].copy(), np.zeros(7, np.float32)):
            p.grad = mytorch.Array(g)
            optimizer.step()
        results.append(values([p], optimizer))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)])


@pytest.mark.parametrize("case", ["AdamW", "Adam amsgrad", "SGD nesterov", "Lion"])
def test_the_number_of_threads_changes_nothing(case):
    results, before = [], threads.get_num_threads()
    try:
        for count in {1, before}:
            mytorch.set_num_threads(count)
            params = parameters(shapes=[(1000, 37), (11,)])
            optimizer = make(case, params, fused=True)
            for step in range(3):
                give(params, step)
                optimizer.step()
            results.append(values(params, optimizer))
    finally:
        mytorch.set_num_threads(before)
    for a, b in itertools.pairwise(results):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_gaps_stay_zero():
    for case in CASES:
        params = parameters()
        optimizer = make(case, params, fused=True)
        for step in range(2):
            give(params, step)
            optimizer.step()
        ((_, flat),) = optimizer._lay_out()
        for vector in (flat.data, flat.grad, *flat.state.values()):
            for p, (start, stop) in zip(flat.params, flat.spans, strict=True):
                assert not vector[start + p.data.size : stop].any()


def test_groups_have_options_of_their_own():
    results = []
    for choice in (True, False):
        a, b = parameters(shapes=[(9, 9), (33,)])
        groups = [{"params": [a], "weight_decay": 0.5}, {"params": [b], "lr": 0.5, "amsgrad": True}]
        optimizer = optim.AdamW(groups, fused=choice)
        for step in range(3):
            give([a, b], step)
            optimizer.step()
        results.append(values([a, b], optimizer))
    same(*results, 3e-6, 1e-7)


# Which of the two it is


def calls(monkeypatch, optimizer):
    """What the optimizer's formula in NumPy is called with."""
    seen, update = [], optimizer.update
    monkeypatch.setattr(optimizer, "update", lambda x, *rest: (seen.append(x), update(x, *rest)))
    return seen


@pytest.mark.parametrize("case", ["AdamW", "SGD", "Lion"])
def test_fused_chooses(monkeypatch, case):
    params = parameters()
    optimizer = make(case, params)
    seen = calls(monkeypatch, optimizer)
    give(params, 0)
    optimizer.step()
    assert not seen  # the kernel is the default
    with use_fused(False):
        optimizer.step()
    assert len(seen) == 1
    optimizer.param_groups[0]["fused"] = True
    with use_fused(False):
        optimizer.step()
    assert len(seen) == 1
    optimizer.param_groups[0]["fused"] = False
    optimizer.step()
    assert len(seen) == 2


def test_float64_is_left_to_numpy_unless_the_kernel_is_demanded():
    params = parameters("float64")
    optimizer = optim.AdamW(params)
    give(params, 0)
    optimizer.step()
    with pytest.raises(RuntimeError, match="AdamW: fused=True, but its kernel computes in float32.*float64"):
        optim.AdamW(params, fused=True)
    with pytest.raises(RuntimeError, match="SGD: fused=True, but its kernel"):
        optim.SGD([{"params": parameters()}, {"params": params}], fused=True)
    optimizer.param_groups[0]["fused"] = True
    with pytest.raises(RuntimeError, match="float64"):
        optimizer.step()


def test_what_has_no_kernel_says_so():
    with pytest.raises(RuntimeError, match="Adagrad: fused=True, but it has no kernel"):
        optim.Adagrad(parameters(), fused=True)
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        optim.SGD(parameters(), fused=True, foreach=True)


def test_without_numba(monkeypatch):
    monkeypatch.setattr(registry, "why_not", lambda kind: "Numba is not installed: pip install it")
    params = parameters()
    optimizer = optim.SGD(params, lr=1.0)
    seen = calls(monkeypatch, optimizer)
    give(params, 0)
    optimizer.step()
    assert seen
    with pytest.raises(RuntimeError, match="SGD: fused=True, but Numba is not installed"):
        optim.SGD(params, fused=True)


def test_another_formula_isn_t_taken_for_the_kernel_s():
    class Backwards(optim.SGD):
        def update(self, x, step, group):
            x.data += group["lr"] * x.grad

    class Cautious(optim.Adam):
        def prepare(self, numbers, step, group):
            return {**group, "lr": 0}

    class Renamed(optim.SGD):
        pass

    (p,) = parameters(shapes=[(3,)])
    before = p.data.numpy().copy()
    for kind in (Backwards, Cautious):
        p.grad = mytorch.Array(np.ones(3, np.float32))
        kind([p], lr=1.0).step()
        with pytest.raises(RuntimeError, match=f"{kind.__name__}: fused=True, but it has no kernel"):
            kind([p], fused=True)
    np.testing.assert_allclose(p.data.numpy(), before + 1, rtol=1e-6)
    assert Renamed.kernel == "sgd"
    Renamed([p], lr=1.0, fused=True).step()
    np.testing.assert_allclose(p.data.numpy(), before, atol=1e-6)


# Scaled gradients

EVERY_WAY = pytest.mark.parametrize("choice", [True, False], ids=["fused", "not fused"])


@EVERY_WAY
@pytest.mark.parametrize("case", ["AdamW", "Adam amsgrad", "SGD nesterov"])
def test_gradients_are_unscaled_as_in_pytorch(case, choice):
    ours, theirs = parameters(), [torch.tensor(p.data.numpy(), requires_grad=True) for p in parameters()]
    optimizer, oracle = make(case, ours, fused=choice), make(case, theirs, torch.optim, fused=True)
    assert optimizer._step_supports_amp_scaling
    for step in range(4):
        for params, scaled, number in ((ours, optimizer, Tensor), (theirs, oracle, torch.tensor)):
            give(params, step, scale=3000.0)
            scaled.grad_scale, scaled.found_inf = number(3000.0), number(1.0 if step == 2 else 0.0)
            scaled.step()
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), 1e-6)
            np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), 2e-6, 2e-6)
            for name, value in oracle.state[q].items():
                np.testing.assert_allclose(optimizer.state[p][name].numpy(), value.numpy(), 2e-6, 1e-6)


@EVERY_WAY
@pytest.mark.parametrize("number", [Tensor, float])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_skipped_step_leaves_everything_as_it_is(choice, number, dtype):
    params = parameters(dtype)
    optimizer = make("AdamW", params, fused=choice)
    give(params, 0)
    optimizer.step()
    before, versions = values(params, optimizer), [p._version.count for p in params]
    give(params, 1)
    grads = [p.grad.numpy().copy() for p in params]
    optimizer.grad_scale, optimizer.found_inf = number(2.0), number(1.0)
    optimizer.step()
    same(values(params, optimizer), before, 0, 0)
    same([p.grad.numpy() for p in params], grads, 0, 0)
    assert [p._version.count for p in params] == versions
    del optimizer.found_inf
    optimizer.step()
    assert optimizer.state[params[0]]["step"].item() == 2
    same([p.grad.numpy() for p in params], [g / 2 for g in grads], 1e-6, 0)


@EVERY_WAY
def test_a_gradient_of_somebody_else_is_unscaled_where_it_is(choice):
    (p,) = parameters(shapes=[(3,)])
    optimizer = optim.SGD([p], lr=1.0, fused=choice)
    p.grad = mine = mytorch.Array(np.array([2.0, 4.0, 8.0], np.float32))
    optimizer.grad_scale = 2.0
    optimizer.step()
    np.testing.assert_array_equal(mine.numpy(), [1, 2, 4])


def test_an_optimizer_with_its_own_step_supports_no_scaling():
    class Own(optim.Optimizer):
        def step(self, closure=None):
            pass

    optimizer = Own(parameters(), {})
    assert not optimizer._step_supports_amp_scaling
    with pytest.raises(NotImplementedError, match="Own defines step"):
        optimizer.clip_grad_norm(1.0)


# Clipping


@EVERY_WAY
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("case", ["AdamW", "SGD nesterov", "Lion"])
def test_clipping_by_the_step_is_clipping_before_it(case, choice, dtype, norm_type):
    if dtype == "float64" and choice:
        pytest.skip("the kernels are for float32")
    pairs = []
    for by_step in (True, False):
        params = parameters(dtype)
        optimizer = make(case, params, fused=choice)
        for step, max_norm in enumerate((0.5, 1e9, 2.0)):
            give(params, step)
            before = [p.grad.numpy().copy() for p in params]
            if by_step:
                norm = optimizer.clip_grad_norm(max_norm, norm_type)
                optimizer.step()
                same([p.grad.numpy() for p in params], before, 0, 0)
            else:
                total = clip_grad_norm_(params, max_norm, norm_type)
                optimizer.step()
        pairs.append(values(params, optimizer))
    assert norm.item() == pytest.approx(total.item(), rel=1e-6) and norm.dtype == total.dtype
    limits = {"float32": (3e-6, 1e-6), "float16": (1e-2, 3e-3), "float64": (1e-12, 1e-12)}[dtype]
    same(*pairs, *limits)


@EVERY_WAY
def test_clipping_of_scaled_gradients(choice):
    """The norm that counts is that of the gradients without the scale, which is set before or after."""
    results = []
    for scale, early in ((1.0, True), (512.0, True), (512.0, False)):
        params = parameters()
        optimizer = make("SGD momentum", params, fused=choice)
        for step in range(2):
            give(params, step, scale=scale)
            if early:
                optimizer.grad_scale = Tensor(scale)
            norm = optimizer.clip_grad_norm(0.5).item()
            assert norm == pytest.approx(norm_of(step) * (1 if early else scale), rel=1e-5)
            optimizer.grad_scale = Tensor(scale)
            optimizer.step()
            del optimizer.grad_scale
        results.append(values(params, optimizer))
    same(results[0], results[1], 3e-6, 1e-6)
    same(results[0], results[2], 3e-6, 1e-6)


def norm_of(seed):
    params = parameters()
    give(params, seed)
    return np.sqrt(sum(np.sum(p.grad.numpy() ** 2.0) for p in params))


def test_clipping_is_for_one_step():
    def step(clip, between=lambda optimizer: None):
        params = parameters()
        optimizer = optim.SGD(params, lr=1.0)
        give(params, 0)
        if clip:
            optimizer.clip_grad_norm(1e-3)
        between(optimizer)
        give(params, 0)
        optimizer.step()
        return values(params, optimizer)

    same(step(True, lambda optimizer: optimizer.zero_grad()), step(False), 0, 0)
    same(step(True, lambda optimizer: optimizer.step()), step(False), 0, 2e-3)  # only the first one is
    assert np.abs(step(True)[0] - step(False)[0]).max() > 0.1


def test_an_infinite_norm():
    p, q = parameters(shapes=[(3,), (4,)])
    optimizer = optim.SGD([p, q], lr=1.0)
    give([p, q], 0)
    p.grad[0] = np.inf
    with pytest.raises(RuntimeError, match="total norm of order 2.0 is inf"):
        optimizer.clip_grad_norm(1.0, error_if_nonfinite=True)
    before = q.data.numpy().copy()
    assert optimizer.clip_grad_norm(1.0).item() == np.inf
    optimizer.step()
    np.testing.assert_array_equal(q.data.numpy(), before)  # times 0
    assert np.isnan(p.data.numpy()[0])


def test_a_norm_that_is_nan_leaves_the_gaps_alone():
    """They are part of every later norm."""
    params = parameters()
    optimizer = optim.SGD(params, lr=0.0)
    give(params, 0)
    params[0].grad[0, 0] = np.nan
    assert np.isnan(clip_grad_norm_(params, 1.0).item())
    assert all(np.isnan(p.grad.numpy()).all() for p in params)
    optimizer.zero_grad()
    give(params, 1)
    assert clip_grad_norm_(params, 1.0).item() == pytest.approx(norm_of(1), rel=1e-6)


# Copies


def test_a_copy_of_an_optimizer_works():
    params = parameters()
    optimizer = make("AdamW", params, fused=True)
    give(params, 0)
    optimizer.clip_grad_norm(1.0)
    twin = copy.deepcopy(optimizer)
    twin.step()
    assert twin.clip_grad_norm(1.0).item() > 0


def test_factors():
    clip = fused.Clip(2.0, Tensor(8.0))
    assert fused.Scaling().factors() == (1.0, 1.0) and not fused.Scaling().skips()
    assert fused.Scaling(4.0).factors() == (0.25, 1.0)
    assert fused.Scaling(4.0, 0.0, clip).factors() == (0.25, pytest.approx(1.0, abs=1e-6))
    assert fused.Scaling(None, None, clip).factors() == (1.0, pytest.approx(0.25))
    nan = fused.Scaling(None, None, fused.Clip(1.0, Tensor(float("nan")))).factors()
    assert nan[0] == 1 and np.isnan(nan[1])
    assert fused.Scaling(found_inf=Tensor(3.0)).skips()
    with pytest.raises(ValueError, match="grad_scale is 0"):
        fused.Scaling(Tensor(0.0)).factors()
