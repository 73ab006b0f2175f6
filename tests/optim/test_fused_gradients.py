"""Gradients that a fused update unscales and clips by itself."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, optim
from mytorch.nn.utils import clip_grad_norm_
from tests.every import every
from tests.optim.fused_cases import EVERY_WAY, NEEDS_KERNELS, make, parameters, same, set_grads, values

pytestmark = NEEDS_KERNELS


@EVERY_WAY
@pytest.mark.parametrize("case", ["AdamW", "Adam amsgrad", "SGD nesterov"])
def test_gradients_are_unscaled_as_in_pytorch(case, choice):
    ours, theirs = parameters(), [torch.tensor(p.data.numpy(), requires_grad=True) for p in parameters()]
    optimizer, oracle = make(case, ours, fused=choice), make(case, theirs, torch.optim, fused=True)
    assert optimizer._step_supports_amp_scaling
    for step in range(4):
        for params, scaled, number in ((ours, optimizer, Tensor), (theirs, oracle, torch.tensor)):
            set_grads(params, step, scale=3000.0)
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
    set_grads(params, 0)
    optimizer.step()
    before, versions = values(params, optimizer), [p._version.count for p in params]
    set_grads(params, 1)
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
def test_a_gradient_in_memory_of_the_user_is_unscaled_in_place(choice):
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


@pytest.mark.parametrize(
    ("choice", "dtype"),
    [(True, "float32"), (True, "float16"), (False, "float32"), (False, "float16"), (False, "float64")],
)
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("case", ["AdamW", "SGD nesterov", "Lion"])
def test_clipping_by_the_step_is_clipping_before_it(case, choice, dtype, norm_type):
    pairs = []
    for by_step in (True, False):
        params = parameters(dtype)
        optimizer = make(case, params, fused=choice)
        for step, max_norm in enumerate((0.5, 1e9, 2.0)):
            set_grads(params, step)
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
            set_grads(params, step, scale=scale)
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
    set_grads(params, seed)
    return np.sqrt(sum(np.sum(p.grad.numpy() ** 2.0) for p in params))


def test_clipping_is_for_one_step():
    def step(clip, between=lambda optimizer: None):
        params = parameters()
        optimizer = optim.SGD(params, lr=1.0)
        set_grads(params, 0)
        if clip:
            optimizer.clip_grad_norm(1e-3)
        between(optimizer)
        set_grads(params, 0)
        optimizer.step()
        return values(params, optimizer)

    same(step(True, lambda optimizer: optimizer.zero_grad()), step(False), 0, 0)
    same(step(True, lambda optimizer: optimizer.step()), step(False), 0, 2e-3)  # only the first one is
    assert np.abs(step(True)[0] - step(False)[0]).max() > 0.1


def test_an_infinite_norm():
    p, q = parameters(shapes=[(3,), (4,)])
    optimizer = optim.SGD([p, q], lr=1.0)
    set_grads([p, q], 0)
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
    set_grads(params, 0)
    params[0].grad[0, 0] = np.nan
    assert np.isnan(clip_grad_norm_(params, 1.0).item())
    assert every(np.isnan(p.grad.numpy()).all() for p in params)
    optimizer.zero_grad()
    set_grads(params, 1)
    assert clip_grad_norm_(params, 1.0).item() == pytest.approx(norm_of(1), rel=1e-6)
