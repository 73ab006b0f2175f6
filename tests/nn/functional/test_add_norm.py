"""Normalization after an addition, and what kernels of normalization could get wrong."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def positive(*shape):
    return np.asarray(rng.uniform(0.1, 1, shape), "float32")


CHOICES = {"reference": {"auto": True}, "manual": {"fused": False}, "fused": {"fused": True}}
EVERY_CHOICE = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def rest():
    return (5,), normal(5), normal(5)


def expected(x, residual, *rest):
    total = x + residual
    return torch.nn.functional.layer_norm(total, *rest), total


@EVERY_CHOICE
def test_only_one_of_the_results_has_a_gradient(choice):
    for i in (0, 1):
        check(
            lambda *a, i=i: F.add_layer_norm(*a, **choice)[i], lambda *a, i=i: expected(*a)[i],
            normal(6, 5), normal(6, 5), *rest(),
        )


@EVERY_CHOICE
def test_gradients_of_both_results_add_up(choice):
    a, b = normal(6, 5), normal(6, 5)

    def ours(*args):
        y, total = F.add_layer_norm(*args, **choice)
        return (y * mytorch.tensor(a) + total * mytorch.tensor(b)).sum()

    def theirs(*args):
        y, total = expected(*args)
        return (y * torch.tensor(a) + total * torch.tensor(b)).sum()

    check(ours, theirs, normal(6, 5), normal(6, 5), *rest(), atol=1e-5)


@EVERY_CHOICE
def test_second_derivatives_after_an_addition(choice):
    """Of both results together; a kernel computes in float32."""
    dtype = "float32" if choice.get("fused") else "float64"
    arrays = [a.astype(dtype) for a in (normal(6, 5), normal(6, 5))]
    others = [a.astype(dtype) if isinstance(a, np.ndarray) else a for a in rest()]
    found = []
    for library, function in ((mytorch, lambda *a: F.add_layer_norm(*a, **choice)), (torch, expected)):
        x, residual = (library.tensor(a, requires_grad=True) for a in arrays)
        y, total = function(
            x, residual, *[library.tensor(a) if isinstance(a, np.ndarray) else a for a in others]
        )
        loss = (y * y * y).sum() + (total * total * y).sum()
        grads = library.autograd.grad(loss, (x, residual), create_graph=True)
        found.append(library.autograd.grad(sum((g * g).sum() for g in grads), (x, residual)))
    tolerance = 1e-3 if dtype == "float32" else 1e-9
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(
            got.numpy(), want.numpy(), rtol=tolerance, atol=tolerance * abs(want).max().item()
        )


@EVERY_CHOICE
def test_summands_of_other_shapes_or_dtypes_raise(choice):
    others = [mytorch.tensor(a) if isinstance(a, np.ndarray) else a for a in rest()]
    x = mytorch.tensor(normal(6, 5))
    for other in (x[:1], x.double()):
        with pytest.raises(RuntimeError, match=r"add_layer_norm\(\): input and residual must be of one"):
            F.add_layer_norm(x, other, *others, **choice)


LARGE = {  # name: (input's shape, other arguments, how many elements share a mean)
    "layer_norm": ((64, 768), ((768,),)),
    "group_norm": ((4, 8, 900), (2,)),
    "batch_norm": ((20, 8, 300), (None, None, None, None, True)),
    "batch_norm of a matrix": ((5000, 70), (None, None, None, None, True)),
}


@pytest.mark.parametrize("case", LARGE)
def test_kernels_take_large_means_as_well_as_pytorch(case):
    name, (shape, rest) = case.split()[0], LARGE[case]
    x, g = 1e4 + normal(*shape), normal(*shape)
    function = getattr(torch.nn.functional, name)

    def theirs(dtype):
        a = torch.tensor(x, dtype=dtype, requires_grad=True)
        y = function(a, *rest)
        y.backward(torch.tensor(g, dtype=dtype))
        return y.detach().numpy(), a.grad.numpy()

    a = mytorch.tensor(x, requires_grad=True)
    y = getattr(F, name)(a, *rest, fused=True)
    y.backward(g)
    ours = y.detach().numpy(), a.grad.numpy()
    for got, want, limit in zip(ours, theirs(torch.float64), theirs(torch.float32), strict=True):
        rounding = np.spacing(np.float32(1e4)) * np.abs(want).max()  # of the mean
        assert np.abs(got - want).mean() <= max(rounding, 1.5 * np.abs(limit - want).mean())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(9, 70), (3, 4, 5)])
@EVERY_CHOICE
def test_gradients_of_batch_norm_s_parameters(training, shape, choice):
    running = [normal(shape[1]), positive(shape[1])]

    def function(library):
        statistics = [library.tensor(a) for a in running]
        where, more = (F, choice) if library is mytorch else (torch.nn.functional, {})
        return lambda x, *parameters: where.batch_norm(x, *statistics, *parameters, training, **more)

    check(function(mytorch), function(torch), normal(*shape), normal(shape[1]), normal(shape[1]))


@pytest.mark.parametrize("shape", [(9, 70), (3, 4, 5)])
@EVERY_CHOICE
def test_in_evaluation_a_bad_gradient_stays_where_it_is(shape, choice):
    x, g = normal(*shape), normal(*shape)
    g.reshape(-1)[0] = np.nan
    running = [mytorch.tensor(a) for a in (normal(shape[1]), positive(shape[1]))]
    x = mytorch.tensor(x, requires_grad=True)
    F.batch_norm(x, *running, **choice).backward(g)
    np.testing.assert_array_equal(np.isnan(x.grad.numpy()), np.isnan(g))


@EVERY_CHOICE
@pytest.mark.parametrize("changed", ["weight", "sum", "bias"])
def test_backward_notices_what_was_changed(changed, choice):
    """If it needs it: for the sum only a kernel does, the others keep what they have made of it."""
    x, residual = (mytorch.tensor(normal(3, 5), requires_grad=True) for _ in range(2))
    weight, bias = (mytorch.tensor(normal(5), requires_grad=True) for _ in range(2))
    y, total = F.add_layer_norm(x, residual, (5,), weight, bias, **choice)
    with mytorch.no_grad():
        {"weight": weight, "sum": total, "bias": bias}[changed].add_(1)
    if changed == "weight" or (changed == "sum" and choice.get("fused")):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    else:
        y.sum().backward()


KERNELS = {
    "layer_norm": (normal(300, 33), ((33,), normal(33), normal(33))),
    "group_norm": (normal(5, 12, 7, 3), (4, normal(12), normal(12))),
    "batch_norm": (normal(5, 12, 7, 3), (None, None, normal(12), normal(12), True)),
    "batch_norm rows": (normal(50, 200), (None, None, normal(200), normal(200), True)),
}


@pytest.mark.parametrize("case", KERNELS)
def test_results_do_not_depend_on_the_number_of_threads(case):
    name, (x, rest) = case.split()[0], KERNELS[case]

    def results():
        xs = [mytorch.tensor(a, requires_grad=True) if isinstance(a, np.ndarray) else a for a in (x, *rest)]
        y = getattr(F, name)(*xs, fused=True)
        y.backward(np.cos(np.arange(x.size, dtype="f")).reshape(x.shape))
        return [y.detach().numpy(), *(a.grad.numpy() for a in xs if isinstance(a, mytorch.Tensor))]

    want, before = results(), mytorch.get_num_threads()
    try:
        mytorch.set_num_threads(1)
        one = results()
    finally:
        mytorch.set_num_threads(before)
    for got, w in zip(one, want, strict=True):
        np.testing.assert_array_equal(got, w)
