"""Gradients that are computed where they belong: in the parameter's place of the flat vector."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.core.grad_accumulator import LazyGrad
from mytorch.core.op import op
from mytorch.nn import functional as F

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


@op
def twice(x, seen):
    """2 x, whose gradient says how it was computed: (was there a place already?, beta)."""

    def grad(g):
        def compute(out, beta):
            seen.append((id(out), beta))
            out[...] = 2 * g + beta * out

        return LazyGrad(g.shape, g, compute)

    return 2 * x, (grad,)


@pytest.fixture
def parameter():
    return nn.Parameter(normal(3, 4))


def place_of(p):
    return id(p.grad_slot.raw)


def test_the_first_gradient_is_written_and_later_ones_are_added_in_place(parameter):
    mytorch.optim.SGD([parameter], lr=0.1)
    seen = []
    (twice(parameter, seen) + twice(parameter, seen)).sum().backward()
    assert seen == [(place_of(parameter), 0), (place_of(parameter), 1)]
    np.testing.assert_array_equal(parameter.grad.numpy(), 4)
    seen.clear()
    twice(parameter, seen).sum().backward()  # accumulation over two backward calls
    assert seen == [(place_of(parameter), 1)]
    np.testing.assert_array_equal(parameter.grad.numpy(), 6)


def test_mixed_with_a_gradient_that_is_there_already(parameter):
    mytorch.optim.SGD([parameter], lr=0.1)
    for order in (lambda a, b: a + b, lambda a, b: b + a):
        seen = []
        order(twice(parameter, seen), 3 * parameter).sum().backward()
        np.testing.assert_array_equal(parameter.grad.numpy(), 5)
        parameter.grad = None


def test_without_an_optimizer_it_has_memory_of_its_own(parameter):
    seen = []
    twice(parameter, seen).sum().backward()
    np.testing.assert_array_equal(parameter.grad.numpy(), 2)
    twice(parameter, seen).sum().backward()
    np.testing.assert_array_equal(parameter.grad.numpy(), 4)


def test_who_kept_an_earlier_gradient_keeps_its_values(parameter):
    mytorch.optim.SGD([parameter], lr=0.1)
    twice(parameter, []).sum().backward()
    kept, parameter.grad = parameter.grad, None
    (3 * twice(parameter, [])).sum().backward()
    np.testing.assert_array_equal(kept.numpy(), 2)
    np.testing.assert_array_equal(parameter.grad.numpy(), 6)


def test_autograd_grad_leaves_the_place_alone(parameter):
    mytorch.optim.SGD([parameter], lr=0.1)
    twice(parameter, []).sum().backward()
    (given,) = mytorch.autograd.grad((5 * twice(parameter, [])).sum(), parameter)
    np.testing.assert_array_equal(given.numpy(), 10)
    np.testing.assert_array_equal(parameter.grad.numpy(), 2)


def test_hooks_see_the_gradient_of_this_backward_alone(parameter):
    mytorch.optim.SGD([parameter], lr=0.1)
    twice(parameter, []).sum().backward()
    seen = []
    handle = parameter.register_hook(lambda g: seen.append(g.numpy().copy()) or g * 10)
    twice(parameter, []).sum().backward()
    handle.remove()
    np.testing.assert_array_equal(seen[0], 2)
    np.testing.assert_array_equal(parameter.grad.numpy(), 22)


def test_hooks_after_accumulation_run_once(parameter):
    mytorch.optim.SGD([parameter], lr=0.1)
    seen = []
    parameter.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.numpy().copy()))
    for total in (2, 4):
        twice(parameter, []).sum().backward()
        np.testing.assert_array_equal(seen.pop(), total)
        assert not seen


def test_a_parameter_that_is_computed_gets_an_array():
    base = nn.Parameter(normal(3, 4))
    twice(base * 3, []).sum().backward()
    np.testing.assert_array_equal(base.grad.numpy(), 6)


def test_another_dtype_or_shape_is_fitted():
    x = mytorch.tensor(normal(4), requires_grad=True)
    y = mytorch.Tensor(normal(3, 4).astype(np.float64))

    @op(promote="common")
    def plus(x, y):
        def grad(g):
            return LazyGrad(g.shape, g, lambda out, beta: np.add(g, beta * out, out=out))

        return x + y, (grad, None)

    plus(x, y).sum().backward()
    assert x.grad.dtype == np.float32
    np.testing.assert_array_equal(x.grad.numpy(), 3)


def test_anomalies_are_found(parameter):
    @op
    def bad(x):
        return x * 1, (lambda g: LazyGrad(g.shape, g, lambda out, beta: out.fill(np.nan)),)

    with pytest.raises(RuntimeError, match="bad.*nan"), mytorch.autograd.detect_anomaly():
        bad(parameter).sum().backward()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("steps", [1, 3])
def test_tied_weights_as_in_a_language_model(fused, steps):
    """The embedding's rows and the head's product meet in one gradient, over several backward calls."""
    weight, x = normal(11, 6), normal(6, 6)
    tokens = rng.integers(0, 11, (steps, 2, 5))
    mine, his = nn.Parameter(weight.copy()), torch.nn.Parameter(torch.tensor(weight))
    inner, inner_his = nn.Parameter(x.copy()), torch.nn.Parameter(torch.tensor(x))
    mytorch.optim.SGD([mine, inner], lr=0.1)
    with mytorch.use_fused(fused):
        for t in tokens:
            h = F.embedding(mytorch.from_numpy(t), mine)
            F.linear(F.linear(h, inner), mine).square().sum().backward()
            h = torch.nn.functional.embedding(torch.from_numpy(t), his)
            h = torch.nn.functional.linear(h, inner_his)
            torch.nn.functional.linear(h, his).square().sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), his.grad.numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(inner.grad.numpy(), inner_his.grad.numpy(), rtol=1e-4, atol=1e-3)
    assert mine.grad._array is mine.grad_slot.raw and inner.grad._array is inner.grad_slot.raw
