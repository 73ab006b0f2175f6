"""Clipping of gradients and parameters as one vector, against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)
from tests.each import each

rng = np.random.default_rng(0)
SHAPES = [(3, 4), (), (5,), (0, 2), (2, 2, 2)]


def parameters(dtype="float32", scale=1.0):
    """The same parameters with the same gradients in both libraries; the last one has none."""
    grads = [np.asarray(scale * rng.standard_normal(s)).astype(dtype) for s in SHAPES]
    ours = [nn.Parameter(mytorch.zeros(s, dtype=dtype)) for s in [*SHAPES, (3,)]]
    theirs = [torch.nn.Parameter(torch.zeros(s, dtype=getattr(torch, dtype))) for s in [*SHAPES, (3,)]]
    for p, q, g in zip(ours, theirs, grads, strict=False):
        p.grad, q.grad = mytorch.Array(g.copy()), torch.tensor(g)
    return ours, theirs


def same_grads(ours, theirs, rtol=1e-5):
    for p, q in zip(ours, theirs, strict=True):
        if q.grad is None:
            assert p.grad is None
        else:
            assert str(p.grad.dtype) == str(q.grad.dtype).removeprefix("torch.")
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=rtol, atol=1e-6)


@each("norm_type", [2.0, 1, 3.5, 0, -1.0, float("inf"), "inf"])
@each("scale", [1.0, 1e-3, 1e10])
@each("dtype", ["float32", "float64"])
def test_clip_grad_norm(norm_type, scale, dtype):
    ours, theirs = parameters(dtype, scale)
    if norm_type in (float("inf"), "inf", -1.0):  # PyTorch has no largest element of nothing
        del ours[3], theirs[3]
    got = clip_grad_norm_(ours, 0.7, norm_type)
    want = torch.nn.utils.clip_grad_norm_(theirs, 0.7, norm_type)
    assert got.shape == () and got.dtype == dtype
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-5)
    same_grads(ours, theirs)


def test_norm_of_half_precision_is_summed_in_float32():
    ours, _ = parameters("float16", 300.0)
    want = np.sqrt(sum((p.grad.numpy().astype("float64") ** 2).sum() for p in ours if p.grad is not None))
    total = clip_grad_norm_(ours, 1.0)
    assert total.dtype == mytorch.float32
    np.testing.assert_allclose(total.item(), want, rtol=1e-6)
    after = np.sqrt(sum((p.grad.numpy().astype("float64") ** 2).sum() for p in ours if p.grad is not None))
    assert abs(after - 1) < 1e-3 and ours[0].grad.dtype == np.float16


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_not_finite(bad):
    ours, theirs = parameters()
    for p in (ours[0], theirs[0]):
        p.grad[0, 0] = float(bad)
    before = [p.grad.numpy().copy() for p in ours[:-1]]
    with pytest.raises(RuntimeError, match=f"the total norm of order 2.0 is {bad}, so it cannot be clipped"):
        clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
    for p, grad in zip(ours, before, strict=False):
        np.testing.assert_array_equal(p.grad.numpy(), grad)
    assert str(clip_grad_norm_(ours, 1.0).item()) == str(bad)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    same_grads(ours, theirs)


def test_one_tensor_a_generator_and_nothing():
    ours, theirs = parameters()
    assert clip_grad_norm_(ours[0], 0.1).item() == pytest.approx(
        torch.nn.utils.clip_grad_norm_(theirs[0], 0.1).item(), rel=1e-5
    )
    with pytest.warns(UserWarning, match="is an empty generator"):
        clip_grad_norm_((p for p in ()), 0.1)
    clip_grad_norm_((p for p in ours), 0.1)
    torch.nn.utils.clip_grad_norm_((p for p in theirs), 0.1)
    same_grads(ours, theirs)
    assert clip_grad_norm_([], 1.0).item() == 0 and clip_grad_norm_([ours[-1]], 1.0).item() == 0


@pytest.mark.parametrize("times", [1.01, 1.9, 1e6])
def test_small_gradients_are_not_touched(times):
    ours, _ = parameters()
    arrays = [p.grad for p in ours[:-1]]
    before = [a.numpy().copy() for a in arrays]
    clip_grad_norm_(ours, times * get_total_norm(arrays).item())
    for p, array, values in zip(ours, arrays, before, strict=False):
        assert p.grad is array
        np.testing.assert_array_equal(array.numpy(), values)


def test_the_norm_of_many_elements_is_accurate():
    g = rng.uniform(0, 1, 3_000_000).astype("float32")
    want = np.sqrt((g.astype("float64") ** 2).sum())
    assert get_total_norm([mytorch.Tensor(g)]).item() == pytest.approx(want, rel=2e-6)


def test_the_two_halves_of_clipping():
    ours, theirs = parameters()
    total = get_total_norm([p.grad for p in ours[:-1]], 3.0)
    want = torch.nn.utils.get_total_norm([p.grad for p in theirs[:-1]], 3.0)
    np.testing.assert_allclose(total.item(), want.item(), rtol=1e-5)
    clip_grads_with_norm_(ours, 0.3, total)
    torch.nn.utils.clip_grads_with_norm_(theirs, 0.3, want)
    same_grads(ours, theirs)


def test_of_nothing_the_largest_element_is_zero():
    p = nn.Parameter(mytorch.zeros(0, 2))
    p.grad = mytorch.Array(np.zeros((0, 2), "float32"))
    assert clip_grad_norm_([p], 1.0, float("inf")).item() == 0


def test_clip_grad_value():
    ours, theirs = parameters()
    clip_grad_value_(ours, 0.5)
    torch.nn.utils.clip_grad_value_(theirs, 0.5)
    same_grads(ours, theirs, 0)


def test_norms_are_clipped_inside_a_flat_buffer():
    model = nn.Linear(3, 2)
    optimizer = mytorch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        model(mytorch.ones(4, 3)).sum().backward()
        total = clip_grad_norm_(model.parameters(), 1.0)
        assert total.item() == pytest.approx(np.sqrt(6 * 16 + 2 * 16))
        before = model.weight.detach().numpy().copy()
        optimizer.step()
        np.testing.assert_allclose(before - model.weight.detach().numpy(), 4 / total.item(), rtol=1e-4)


def test_parameters_as_one_vector_and_back():
    ours, _ = parameters()
    for i, p in enumerate(ours):
        nn.init.constant_(p, i)
    vector = parameters_to_vector(ours)
    assert vector.shape == (29,) and vector.requires_grad
    vector_to_parameters(vector.detach() * 2, ours)
    assert ours[2].tolist() == [4] * 5 and ours[1].item() == 2
    with pytest.raises(RuntimeError, match=r"expected a vector of 29 elements .* got shape \(3,\)"):
        vector_to_parameters(mytorch.ones(3), ours)
    with pytest.raises(TypeError, match="expected a Tensor, but got list"):
        vector_to_parameters([1.0], ours)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_on_a_gpu(fake_cuda, norm_type, max_norm):
    ours, theirs = parameters()
    del ours[3], theirs[3]
    for p in ours:
        grad = p.grad
        p.grad = None
        nn.parameter.replace_data(p, p.data.to("cuda:1"))
        p.grad = None if grad is None else grad.to("cuda:1")
    total = clip_grad_norm_(ours, max_norm, norm_type)
    want = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    assert str(total.device) == "cuda:1" and total.item() == pytest.approx(want.item(), rel=1e-5)
    for p, q in zip(ours, theirs, strict=True):
        if q.grad is not None:
            np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.numpy(), rtol=1e-5)


# Gradients that lie in an optimizer's flat vectors


def flat_parameters(dtype="float32", count=12):
    """Weights and biases in two groups of an optimizer, some without gradient; long enough for a kernel."""
    random = np.random.default_rng(0)
    shapes = [(70, 90) if i % 2 == 0 else (70,) for i in range(count)]
    ours = [nn.Parameter(mytorch.zeros(s, dtype=dtype)) for s in shapes]
    theirs = [torch.nn.Parameter(torch.zeros(s, dtype=getattr(torch, dtype))) for s in shapes]
    groups = [{"params": [p for p in ours if p.ndim == n]} for n in (2, 1)]
    optimizer = mytorch.optim.SGD(groups, lr=1.0)
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        g = random.standard_normal(q.shape).astype(dtype)
        if i != 5:
            p.backward(g)
            q.grad = torch.tensor(g)
    return ours, theirs, optimizer


@each("fused", [True, False])
@each("norm_type", [2.0, 1, 3.5, 0, -1.0, float("inf"), float("-inf"), "inf"])
@each("dtype", ["float32", "float64", "float16"])
def test_clip_grad_norm_of_flat_gradients(norm_type, dtype, fused):
    ours, theirs, _ = flat_parameters(dtype)
    with mytorch.use_fused(fused):
        got = clip_grad_norm_(ours, 0.7, norm_type)
    reference = [torch.nn.Parameter(q.detach().double()) for q in theirs]
    for q, w in zip(theirs, reference, strict=True):
        w.grad = None if q.grad is None else q.grad.double()
    want = torch.nn.utils.clip_grad_norm_(reference, 0.7, norm_type)
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-6)
    for p, q in zip(ours, reference, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            limit = 1e-3 if dtype == "float16" else 1e-6
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), limit, 1e-7)


def test_flat_gradients_are_read_in_few_passes(monkeypatch):
    from mytorch.nn.utils import clip_grad

    ours, _, _ = flat_parameters()
    sizes, one = [], clip_grad._norm
    monkeypatch.setattr(clip_grad, "_norm", lambda x, p: (sizes.append(x.size), one(x, p))[1])
    clip_grad_norm_(ours, 1.0)
    assert sizes[:-1] == [
        6 * 6304,
        2 * 80,
        3 * 80,
    ]  # the weights; the biases before and after the one without
    del sizes[:]
    clip_grad_norm_(ours[2:6], 1.0)
    assert sizes[:-1] == [2 * 6304, 80]


@pytest.mark.parametrize("bad", ["inf", "nan"])
def test_flat_gradients_that_are_not_finite(bad):
    ours, theirs, _ = flat_parameters()
    for params in (ours, theirs):
        params[0].grad[3, 4] = float(bad)
        params[2].grad[...] = 0
    for params, clip in ((ours, clip_grad_norm_), (theirs, torch.nn.utils.clip_grad_norm_)):
        assert str(clip(params, 1.0).item()) == bad
    for p, q in zip(ours, theirs, strict=True):
        if q.grad is not None:
            np.testing.assert_array_equal(p.grad.numpy(), q.grad.numpy())


def test_a_parameter_that_is_listed_twice_counts_twice():
    ours, theirs, _ = flat_parameters(count=4)
    for params, clip in ((ours, clip_grad_norm_), (theirs, torch.nn.utils.clip_grad_norm_)):
        params.append(params[0])
        params.append(clip(params, 1.0).item())
    assert ours.pop() == pytest.approx(theirs.pop(), rel=1e-6)
    same_grads(ours, theirs)
