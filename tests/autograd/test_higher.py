"""Gradients of gradients, against PyTorch; each operator's own are in tests/database."""

import gc
import weakref

import numpy as np
import pytest
import torch

import mytorch
from mytorch.autograd import grad, gradgradcheck

RNG = np.random.default_rng(0)


def both(*shapes):
    arrays = [RNG.uniform(0.5, 1.5, shape) for shape in shapes]
    return (
        [mytorch.tensor(a, requires_grad=True) for a in arrays],
        [torch.tensor(a, requires_grad=True) for a in arrays],
    )


def penalty(m, xs):
    """A function of (framework, inputs): the gradient penalty of a small network."""
    x, w, v = xs
    y = m.nn.functional.gelu(x @ w) @ v
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    return ((g.norm(2, 1) - 1) ** 2).mean()


def in_place(m, xs):
    x, w, v = xs
    h = (x @ w) * 2
    h[:, 1:3] = x[:, :2] * h[:, :2].clone()
    h[0].mul_(2)
    (g,) = m.autograd.grad((h * h @ v).sum(), w, create_graph=True)
    return (g * g).sum()


def views(m, xs):
    x, w, v = xs
    h = (x @ w).T.reshape(-1)[::2].unsqueeze(0)
    (g,) = m.autograd.grad((h**3).sum(), x, create_graph=True)
    return (g * x).sum()


def several_outputs(m, xs):
    x, w, v = xs
    a, b = (x @ w).split(2, 1)
    (g,) = m.autograd.grad((a.exp() * b).sum(), x, create_graph=True)
    return (g**2).sum()


def softmax_and_cross_entropy(m, xs):
    x, w, v = xs
    loss = m.nn.functional.cross_entropy(x @ w, m.tensor([1, 0, 3]))
    gs = m.autograd.grad(loss, [x, w], create_graph=True)
    return sum((g.softmax(0) * g).sum() for g in gs)


def third_order(m, xs):
    x, w, v = xs
    y = (x.exp() * x.sin()).sum() + (x @ w).prod()
    for _ in range(2):
        (g,) = m.autograd.grad(y, x, create_graph=True)
        y = (g * g).sum()
    return y


FUNCTIONS = [penalty, in_place, views, several_outputs, softmax_and_cross_entropy, third_order]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_of_gradients_are_pytorchs(function):
    mine, theirs = both((3, 4), (4, 4), (4, 2))
    got, want = function(mytorch, mine), function(torch, theirs)
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-9)
    for g, w in zip(
        grad(got, mine, allow_unused=True), torch.autograd.grad(want, theirs, allow_unused=True), strict=True
    ):
        assert (g is None) == (w is None)
        if w is not None:
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-8, atol=1e-9)


def test_gradient_of_grad_outputs():
    (x,), (x_,) = both((3,))
    (v,), (v_,) = both((3,))
    (g,) = grad(x.exp(), x, v, create_graph=True)
    (g_,) = torch.autograd.grad(x_.exp(), x_, v_, create_graph=True)
    np.testing.assert_allclose(grad(g.sum(), v)[0].numpy(), torch.autograd.grad(g_.sum(), v_)[0].numpy())


def test_custom_functions_have_second_derivatives():
    class Cube(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * 3 * y / x

    x = mytorch.tensor([1.0, 2.0], dtype=mytorch.float64, requires_grad=True)
    (g,) = grad(Cube.apply(x * 2).sum(), x, create_graph=True)
    (h,) = grad(g.sum(), x)
    np.testing.assert_allclose(g.tolist(), [24, 96])
    np.testing.assert_allclose(h.tolist(), [48, 96])


def test_activations_are_not_kept_for_it():
    """The input of tanh isn't needed for its gradient: it may go, and is made again when it is."""
    x = mytorch.tensor([0.5, 1.0], dtype=mytorch.float64, requires_grad=True)
    middle = x * 3
    gone = weakref.ref(middle.data)
    y = middle.tanh().sum()
    del middle
    gc.collect()
    assert gone() is None
    (g,) = grad(y, x, create_graph=True)
    (h,) = grad(g.sum(), x)
    t = np.tanh([1.5, 3.0])
    np.testing.assert_allclose(h.numpy(), 9 * -2 * t * (1 - t * t))


def test_a_deep_chain_is_made_again_without_recursion():
    x = mytorch.tensor(0.5, dtype=mytorch.float64, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y.sin()
    (g,) = grad(y, x, create_graph=True)
    assert g.requires_grad
    (h,) = grad(g, x)
    assert np.isfinite(h.item())


def test_an_overwritten_leaf_is_noticed():
    w = mytorch.tensor([2.0], requires_grad=True)
    y = (w.exp() * w).sum()
    with mytorch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(y, w, create_graph=True)


def test_the_graph_stays_for_another_walk():
    x = mytorch.tensor([2.0], requires_grad=True)
    y = (x**3).sum()
    first = grad(y, x, create_graph=True)[0]
    again = grad(y, x)[0]
    assert first.item() == again.item() == 12
    with pytest.raises(RuntimeError, match="second time"):
        grad(y, x)


def test_only_the_paths_to_the_inputs_are_walked():
    x, w = (mytorch.ones(2, requires_grad=True) for _ in range(2))
    calls = []
    side = w * 2
    side.register_hook(lambda g: calls.append("side"))
    y = (x * 3 + side).sum()
    assert grad(y, x)[0].tolist() == [3, 3]
    assert calls == []


def test_gradgradcheck():
    x = mytorch.tensor(RNG.uniform(0.5, 1, (2, 3)), requires_grad=True)
    assert gradgradcheck(lambda x: x.exp() * x.sum(0), x)
    assert gradgradcheck(lambda x: x * 3, x)  # the gradient is constant

    class Wrong(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * (x * x).detach()  # right, but a dead end

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradgradcheck(Wrong.apply, x)
    assert not gradgradcheck(Wrong.apply, x, raise_exception=False)


def test_a_grad_has_no_graph():
    x = mytorch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="autograd.grad"):
        x.exp().sum().backward(create_graph=True)
    with pytest.raises(RuntimeError, match="autograd.grad"):
        mytorch.autograd.backward(x.exp().sum(), create_graph=True)


def test_backward_of_several_tensors_for_some_inputs():
    x, w = (mytorch.ones(2, requires_grad=True) for _ in range(2))
    mytorch.autograd.backward([(x * 2).sum(), (x * w).sum()], inputs=[x])
    assert x.grad.tolist() == [3, 3] and w.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        x.sum().backward(inputs=[])
    with pytest.raises(ValueError, match="materialize_grads"):
        grad(x.sum(), x, allow_unused=False, materialize_grads=True)
