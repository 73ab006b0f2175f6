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


ADDED = {  # name: (input's shape, other arguments)
    "layer_norm": ((6, 5), ((5,), normal(5), normal(5))),
    "rms_norm": ((6, 5), ((5,), normal(5))),
    "group_norm": ((3, 4, 5), (2, normal(4), normal(4))),
    "batch_norm": ((3, 4, 5), (None, None, normal(4), normal(4), True)),
    "instance_norm": ((3, 4, 5), (None, None, normal(4), normal(4))),
}
CHOICES = {"reference": {"auto": True}, "manual": {"fused": False}, "fused": {"fused": True}}
EVERY_CHOICE = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


@EVERY_CHOICE
@pytest.mark.parametrize("use_input_stats", [True, False])
def test_add_instance_norm(use_input_stats, choice):
    """Values, gradients and running statistics."""
    x, residual, weight, bias, mean, var = (
        normal(3, 4, 5, 2), normal(3, 4, 5, 2), normal(4), normal(4), normal(4), positive(4),
    )  # fmt: skip
    ours, theirs = [mytorch.tensor(a) for a in (mean, var)], [torch.tensor(a) for a in (mean, var)]

    def expected(x, residual, *parameters):
        total = x + residual
        y = torch.nn.functional.instance_norm(total, *theirs, *parameters, use_input_stats, 0.3)
        return y, total

    check(
        lambda x, residual, *parameters: F.add_instance_norm(
            x, residual, *ours, *parameters, use_input_stats, 0.3, **choice
        ),
        expected, x, residual, weight, bias,
    )  # fmt: skip
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)


@EVERY_CHOICE
def test_the_running_statistics_follow_a_sum(choice):
    x, residual, mean, var = normal(3, 4, 5), normal(3, 4, 5), normal(4), positive(4)
    ours = [mytorch.tensor(a) for a in (mean, var)]
    theirs = [torch.tensor(a) for a in (mean, var)]
    F.add_batch_norm(mytorch.tensor(x), mytorch.tensor(residual), *ours, training=True, **choice)
    torch.nn.functional.batch_norm(torch.tensor(x) + torch.tensor(residual), *theirs, training=True)
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)


@EVERY_CHOICE
@pytest.mark.parametrize("name", [n for n in ADDED if n != "instance_norm"])
def test_only_one_of_the_results_has_a_gradient(name, choice):
    shape, rest = ADDED[name]
    x, residual = normal(*shape), normal(*shape)
    for i in (0, 1):
        check(
            lambda *a, i=i: getattr(F, f"add_{name}")(*a, **choice)[i],
            lambda a, b, *r, i=i: (getattr(torch.nn.functional, name)(a + b, *r), a + b)[i],
            x, residual, *rest,
        )  # fmt: skip


@EVERY_CHOICE
@pytest.mark.parametrize("name", [*ADDED, "batch_norm of a matrix"])
def test_gradients_of_both_results_add_up(name, choice):
    shape, rest = ADDED[name.split()[0]]
    shape, name = (9, 4) if name.endswith("matrix") else shape, name.split()[0]
    a, b = normal(*shape), normal(*shape)

    def ours(x, residual, *rest):
        y, total = getattr(F, f"add_{name}")(x, residual, *rest, **choice)
        return (y * mytorch.tensor(a) + total * mytorch.tensor(b)).sum()

    def theirs(x, residual, *rest):
        total = x + residual
        return (
            getattr(torch.nn.functional, name)(total, *rest) * torch.tensor(a) + total * torch.tensor(b)
        ).sum()

    check(ours, theirs, normal(*shape), normal(*shape), *rest, atol=1e-5)


@EVERY_CHOICE
@pytest.mark.parametrize("name", ADDED)
def test_second_derivatives_after_an_addition(name, choice):
    """Of both results together; a kernel computes in float32."""
    shape, rest = ADDED[name]
    dtype = "float32" if choice.get("fused") else "float64"
    arrays = [a.astype(dtype) for a in (normal(*shape), normal(*shape))]
    rest = [a.astype(dtype) if isinstance(a, np.ndarray) else a for a in rest]
    found = []
    for library in (mytorch, torch):
        x, residual = (library.tensor(a, requires_grad=True) for a in arrays)
        others = [library.tensor(a) if isinstance(a, np.ndarray) else a for a in rest]
        if library is mytorch:
            y, total = getattr(F, f"add_{name}")(x, residual, *others, **choice)
        else:
            total = x + residual
            y = getattr(torch.nn.functional, name)(total, *others)
        loss = (y * y * y).sum() + (total * total * y).sum()
        grads = library.autograd.grad(loss, (x, residual), create_graph=True)
        found.append(library.autograd.grad(sum((g * g).sum() for g in grads), (x, residual)))
    tolerance = 1e-3 if dtype == "float32" else 1e-9
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(
            got.numpy(), want.numpy(), rtol=tolerance, atol=tolerance * abs(want).max().item()
        )


@EVERY_CHOICE
@pytest.mark.parametrize("name", [n for n in ADDED if n != "instance_norm"])
def test_summands_fit(name, choice):
    shape, rest = ADDED[name]
    rest = [mytorch.tensor(a) if isinstance(a, np.ndarray) else a for a in rest]
    x = mytorch.tensor(normal(*shape))
    for other in (x[:1], x.double()):
        with pytest.raises(RuntimeError, match=rf"add_{name}\(\): input and residual must be of one shape"):
            getattr(F, f"add_{name}")(x, other, *rest, **choice)


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
