"""Fused updates against the formulas in NumPy and PyTorch's."""

import copy
import itertools

import numpy as np
import pytest

import mytorch
from mytorch import Tensor, optim, use_fused
from mytorch.backends import threads
from mytorch.nn.fused_ops import registry
from mytorch.optim.update import Clip, Scaling
from tests.optim.fused_cases import CASES, NEEDS_KERNELS, make, parameters, runs_of, same, set_grads, values

pytestmark = NEEDS_KERNELS


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_computes_what_numpy_does(case, dtype):
    """Some parameters are without gradient in each step, so they are at different ones."""
    some, others = (values(*pair) for pair in runs_of(case, dtype, steps=9))
    if dtype == "float32":
        same(some, others, 3e-6, 1e-6)
    else:  # the last bit of a half-precision parameter may go either way, and Lion's sign with it
        same(some, others, 2e-3, 2e-3)


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
                set_grads(params, step)
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
            set_grads(params, step)
            optimizer.step()
        (flat,) = optimizer.flat_buffers()
        for vector in (flat.data, flat.grad, *flat.moments.values()):
            for p, (start, stop) in zip(flat.params, flat.spans, strict=True):
                assert not vector[start + p.data.size : stop].any()


def test_groups_have_options_of_their_own():
    results = []
    for choice in (True, False):
        a, b = parameters(shapes=[(9, 9), (33,)])
        groups = [{"params": [a], "weight_decay": 0.5}, {"params": [b], "lr": 0.5, "amsgrad": True}]
        optimizer = optim.AdamW(groups, fused=choice)
        for step in range(3):
            set_grads([a, b], step)
            optimizer.step()
        results.append(values([a, b], optimizer))
    same(*results, 3e-6, 1e-7)


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
    set_grads(params, 0)
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
    set_grads(params, 0)
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
    set_grads(params, 0)
    optimizer.step()
    assert seen
    with pytest.raises(RuntimeError, match="SGD: fused=True, but Numba is not installed"):
        optim.SGD(params, fused=True)


def test_another_formula_isn_t_taken_for_the_kernel_s():
    class Backwards(optim.SGD):
        def update(self, x, step, group):
            x.data += group["lr"] * x.grad

    class Cautious(optim.Adam):
        def prepare(self, scalars, step, group):
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


def test_a_copy_of_an_optimizer_works():
    params = parameters()
    optimizer = make("AdamW", params, fused=True)
    set_grads(params, 0)
    optimizer.clip_grad_norm(1.0)
    twin = copy.deepcopy(optimizer)
    twin.step()
    assert twin.clip_grad_norm(1.0).item() > 0


def test_factors():
    clip = Clip(2.0, Tensor(8.0))
    assert Scaling().factors() == (1.0, 1.0)
    assert Scaling(4.0).factors() == (0.25, 1.0)
    assert Scaling(4.0, 0.0, clip).factors() == (0.25, pytest.approx(1.0, abs=1e-6))
    assert Scaling(None, None, clip).factors() == (1.0, pytest.approx(0.25))
    nan = Scaling(None, None, Clip(1.0, Tensor(float("nan")))).factors()
    assert nan[0] == 1 and np.isnan(nan[1])
    with pytest.raises(ValueError, match="grad_scale is 0"):
        Scaling(Tensor(0.0)).factors()
