"""cdist against PyTorch: norms, batches, gradients where points coincide, second gradients."""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import grad, gradgradcheck
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
ORDERS = [0, 0.5, 1, 1.5, 2, 3, math.inf]
SHAPES = [
    ((3, 4), (5, 4)), ((1, 1), (1, 1)), ((2, 3, 4), (2, 5, 4)), ((2, 1, 3, 4), (6, 5, 4)),
    ((3, 4), (2, 5, 4)), ((0, 4), (5, 4)), ((3, 4), (0, 4)), ((3, 0), (5, 0)), ((30, 4), (2, 4)),
    ((2, 3, 2), (2, 40, 2)),
]


def normal(*shape, dtype="float64"):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_and_gradients(shapes, p):
    check(mytorch.cdist, torch.cdist, *(normal(*s) for s in shapes), p=p, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "mode", ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]
)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_ways_to_compute(shapes, mode):
    arrays = [normal(*s) for s in shapes]
    check(mytorch.cdist, torch.cdist, *arrays, p=2.0, compute_mode=mode, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("count", [3, 30])
def test_where_points_coincide_the_gradient_is_0(count, p):
    x = np.round(3 * normal(count, 2))
    y = np.concatenate([x[:1], x[:1] + [[1.0, 0]], x[:1] + [[3.0, -2]]])
    check(mytorch.cdist, torch.cdist, x[:1].repeat(count, 0), y, p=p, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("count", [3, 30])
def test_there_infinite_gradients_become_0(count, p):
    x = np.ones((count, 2))
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    for F, t in ((mytorch, ours), (torch, theirs)):
        (1 / F.cdist(t, t[:1], p=p)).sum().backward()
    np.testing.assert_array_equal(ours.grad.numpy(), 0)
    if p not in (1, np.inf):  # NaN in PyTorch
        np.testing.assert_array_equal(theirs.grad.numpy(), 0)


@pytest.mark.parametrize("count", [3, 30])
def test_second_gradients(count):
    """PyTorch has none."""
    x, y = Tensor(normal(count, 2), requires_grad=True), Tensor(normal(2, 2), requires_grad=True)
    assert gradgradcheck(mytorch.cdist, [x, y])


def test_second_gradients_of_coinciding_points_are_numbers():
    x = Tensor(np.zeros((30, 2)), requires_grad=True)
    (slope,) = grad(mytorch.cdist(x, Tensor(np.zeros((1, 2)))).sum(), x, create_graph=True)
    (second,) = grad(slope.sum(), x)
    np.testing.assert_array_equal(second.numpy(), 0)


def test_single_precision_and_nan():
    x = normal(30, 3, dtype="float32")
    check(mytorch.cdist, torch.cdist, x, x[:4] + 1, rtol=1e-4, atol=1e-4)
    x[0, 0] = np.nan
    check(mytorch.cdist, torch.cdist, x, x[1:4] + 1, rtol=1e-4, atol=1e-4, grad=False)


FAILS = {
    "p": ([(2, 3), (2, 3)], {"p": -1.0}, "must not be negative, got -1"),
    "p is NaN": ([(2, 3), (2, 3)], {"p": math.nan}, "must not be negative, got nan"),
    "a vector": ([(3,), (2, 3)], {}, r"at least 2 dims, got shape \(3,\)"),
    "columns": ([(2, 3), (2, 4)], {}, r"as many columns, got shapes \(2, 3\) and \(2, 4\)"),
    "batches": ([(2, 3, 3), (3, 3, 3)], {}, "2.*3"),
    "mode": ([(2, 3), (2, 3)], {"compute_mode": "mm"}, "compute_mode .* got 'mm'"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    shapes, kwargs, match = FAILS[what]
    fails_alike(mytorch.cdist, torch.cdist, *(normal(*s) for s in shapes), match=match, **kwargs)


@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("float32", "float64"), ("float16", "float16")])
def test_refuses_dtypes(dtypes):
    fails_alike(mytorch.cdist, torch.cdist, *(np.ones((2, 2), d) for d in dtypes), match="dtype|float16")
