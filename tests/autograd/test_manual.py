"""Operations written as in the original: a backward function that adds to its inputs' `.grad`."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import grad
from mytorch.utils.checkpoint import checkpoint


def sigmoid(x):
    """The original's example, word for word."""
    x_cp = x.data
    out_data = 1 / (1 + np.exp(-x_cp))

    def _sigmoid_backward(grad_output):
        grad_input = grad_output * out.data * (1 - out.data)
        if x.grad is None:
            x.grad = grad_input
        else:
            x.grad += grad_input

    requires_grad = x.requires_grad and Tensor.build_graph_enabled()
    out = Tensor(
        out_data,
        requires_grad=requires_grad,
        grad_fn=_sigmoid_backward if requires_grad else None,
        grad_fn_name="<SigmoidBackward>" if requires_grad else None,
    )
    if requires_grad:
        out._add_parents(x)
    return out


def mul(x, y):
    def backward(g):
        x.grad = g * y.data if x.grad is None else x.grad + g * y.data
        if y.requires_grad:
            y.grad = g * x.data if y.grad is None else y.grad + g * x.data

    out = Tensor(x.data * y.data, requires_grad=True, grad_fn=backward, grad_fn_name="<MulBackward>")
    out._add_parents(x, y)
    return out


X = np.array([-1.0, 0.5, 2.0])
PROGRAMS = {  # name: (of a tensor x, with the functions sigmoid and mul)
    "of a leaf": lambda x, sigmoid, mul: sigmoid(x),
    "of a result, which others use": lambda x, sigmoid, mul: (lambda y: sigmoid(y) + y * y)(x * 3),
    "twice": lambda x, sigmoid, mul: sigmoid(sigmoid(x) * x),
    "of one tensor twice": lambda x, sigmoid, mul: mul(x, x) + mul(x, sigmoid(x)),
    "of a view": lambda x, sigmoid, mul: sigmoid(x[1:].reshape(2, 1)),
    "of another tensor without gradient": lambda x, sigmoid, mul: mul(x, x.detach()),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_pytorch_s(program):
    x, z = mytorch.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    for times in (1, 2):  # .grad accumulates
        program(x, sigmoid, mul).sum().backward()
        program(z, torch.sigmoid, torch.mul).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-12, err_msg=str(times))


def test_it_is_in_the_graph():
    x = mytorch.tensor(X, requires_grad=True)
    y = sigmoid(x * 1)
    assert y.grad_fn.name == "SigmoidBackward" and not y.is_leaf
    y.retain_grad()
    y.sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), np.ones(3))
    with pytest.raises(RuntimeError, match="SigmoidBackward: trying to go backward .* a second time"):
        y.sum().backward()
    with mytorch.no_grad():
        assert not Tensor.build_graph_enabled() and not sigmoid(x).requires_grad


def test_in_a_checkpoint():
    x = mytorch.tensor(X, requires_grad=True)
    (g,) = grad(sigmoid(x * x).sum(), x)
    checkpoint(lambda x: sigmoid(x * x), x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), g.numpy())


def test_what_it_can_not():
    x = mytorch.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError, match="^SigmoidBackward: a grad_fn has no second derivative"):
        grad(sigmoid(x).sum(), x, create_graph=True)
    for tensor in (Tensor(X), x, x * 2, sigmoid(x)):
        with pytest.raises(RuntimeError, match=r"^_add_parents\(\): for a tensor made with"):
            tensor._add_parents(x)
    y = Tensor(X, requires_grad=True, grad_fn=lambda g: setattr(x, "grad", g[:2]), grad_fn_name="<Cut>")
    y._add_parents(x)
    with pytest.raises(RuntimeError, match="a gradient has its tensor's shape"):
        y.sum().backward()
    assert x.grad is None
