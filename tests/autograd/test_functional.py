"""vjp, jvp, Jacobians and Hessians, of mytorch.autograd.functional and mytorch.func, against PyTorch's."""

import numpy as np
import pytest
import torch

import mytorch
from tests.each import each

X = np.array([0.5, 1.0, 1.5])
W = np.array([[0.3, -0.2, 0.9], [1.1, 0.4, -0.7]])


def one(m):
    return lambda x: x.sin() * x[0].exp()


def several(m):
    return lambda x, w: (w @ x.exp(), (x * x).sum())


def scalar(m):
    return lambda x, w: (w @ x.exp()).prod() + x.sum()


def scalar_of_one(m):
    return lambda x: (x.exp() * x.sin()).sum() * x[0]


def compiled(m):
    return m.compile(scalar_of_one(m), backend="eager")


def independent(m):
    return lambda x: m.ones(2, dtype=m.float64)


def arrays(tree):
    if isinstance(tree, (tuple, list)):
        return [arrays(t) for t in tree]
    if isinstance(tree, dict):
        return {k: arrays(v) for k, v in tree.items()}
    return tree.detach().numpy() if isinstance(tree, (mytorch.Tensor, torch.Tensor)) else tree


def same(got, want):
    got, want = arrays(got), arrays(want)

    def compare(a, b):
        assert type(a) is type(b)
        if isinstance(b, list):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                compare(x, y)
        elif isinstance(b, dict):
            assert list(a) == list(b)
            compare(list(a.values()), list(b.values()))
        else:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
            assert a.shape == b.shape

    compare(got, want)


def run(call):
    """`call(framework, tensor-maker)` in both."""
    got, want = call(mytorch), call(torch)
    same(got, want)
    return got


def t(m, x):
    return m.tensor(np.asarray(x, np.float64))


FUNCTIONAL = {
    "vjp": lambda m: m.autograd.functional.vjp(one(m), t(m, X), t(m, X + 1)),
    "vjp of a scalar": lambda m: m.autograd.functional.vjp(scalar_of_one(m), t(m, X)),
    "vjp, several": lambda m: m.autograd.functional.vjp(
        several(m), (t(m, X), t(m, W)), (t(m, [1.0, 2.0]), t(m, 3.0))
    ),
    "vjp, independent": lambda m: m.autograd.functional.vjp(independent(m), t(m, X), t(m, [1.0, 2.0])),
    "jvp": lambda m: m.autograd.functional.jvp(one(m), t(m, X), t(m, X + 1)),
    "jvp, several": lambda m: m.autograd.functional.jvp(several(m), (t(m, X), t(m, W)), (t(m, X), t(m, W))),
    "jacobian": lambda m: m.autograd.functional.jacobian(one(m), t(m, X)),
    "jacobian, several": lambda m: m.autograd.functional.jacobian(several(m), (t(m, X), t(m, W))),
    "jacobian, independent": lambda m: m.autograd.functional.jacobian(independent(m), t(m, X)),
    "hessian": lambda m: m.autograd.functional.hessian(scalar_of_one(m), t(m, X)),
    "hessian, several": lambda m: m.autograd.functional.hessian(scalar(m), (t(m, X), t(m, W))),
    "vhp": lambda m: m.autograd.functional.vhp(scalar_of_one(m), t(m, X), t(m, X + 1)),
    "hvp, several": lambda m: m.autograd.functional.hvp(scalar(m), (t(m, X), t(m, W)), (t(m, X), t(m, W))),
    "grad": lambda m: m.func.grad(scalar_of_one(m))(t(m, X)),
    "grad of grad": lambda m: m.func.grad(lambda x: m.func.grad(scalar_of_one(m))(x).prod())(t(m, X)),
    "grad, argnums": lambda m: m.func.grad(scalar(m), argnums=(1, 0))(t(m, X), t(m, W)),
    "grad, argnum 1": lambda m: m.func.grad(scalar(m), argnums=1)(t(m, X), t(m, W)),
    "grad, aux": lambda m: m.func.grad(lambda x: (x.prod(), x * 2), has_aux=True)(t(m, X)),
    "grad_and_value": lambda m: m.func.grad_and_value(scalar_of_one(m))(t(m, X)),
    "grad of a dict": lambda m: m.func.grad(lambda p: (p["w"] @ p["x"]).prod())({"x": t(m, X), "w": t(m, W)}),
    "func.vjp": lambda m: (lambda out, pull: (out, pull(t(m, X))))(*m.func.vjp(one(m), t(m, X))),
    "func.vjp, several": lambda m: (lambda out, pull: (out, pull((t(m, [1.0, 2.0]), t(m, 3.0)))))(
        *m.func.vjp(several(m), t(m, X), t(m, W))
    ),
    "func.jvp": lambda m: m.func.jvp(several(m), (t(m, X), t(m, W)), (t(m, X), t(m, W))),
    "jacrev": lambda m: m.func.jacrev(one(m))(t(m, X)),
    "jacrev, argnums": lambda m: m.func.jacrev(several(m), argnums=(0, 1))(t(m, X), t(m, W)),
    "jacfwd": lambda m: m.func.jacfwd(one(m))(t(m, X)),
    "func.hessian": lambda m: m.func.hessian(scalar_of_one(m))(t(m, X)),
    "func.hessian, argnums": lambda m: m.func.hessian(scalar(m), argnums=(0, 1))(t(m, X), t(m, W)),
    "grad of compiled": lambda m: m.func.grad(compiled(m))(t(m, X)),
    "grad around compiled": lambda m: m.func.grad(lambda x: compiled(m)(x * 2) + x.sum())(t(m, X)),
    "jvp of compiled": lambda m: m.func.jvp(compiled(m), (t(m, X),), (t(m, X),)),
    "hessian of compiled": lambda m: m.func.hessian(compiled(m))(t(m, X)),
    "vmap of compiled": lambda m: m.func.vmap(compiled(m))(t(m, W)),
    "vmap of grad of compiled": lambda m: m.func.vmap(m.func.grad(compiled(m)))(t(m, W)),
}


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_as_pytorch(name):
    run(FUNCTIONAL[name])


def test_jacobian_is_jacrev():
    assert mytorch.func.jacobian is mytorch.func.jacrev


def test_create_graph():
    def call(m):
        x = t(m, X).requires_grad_()
        j = m.autograd.functional.jacobian(one(m), x, create_graph=True)
        return m.autograd.grad((j * j).sum(), x)

    run(call)


THIRD = {
    "sin": lambda m, x: x.sin(), "exp": lambda m, x: (x * x).exp(),
    "product": lambda m, x: x * x * (x + 1) * x,
    "softmax": lambda m, x: m.nn.functional.softmax(m.stack([x, x * x]), 0)[0],
    "gelu": lambda m, x: m.nn.functional.gelu(x) * x,
}


@each("name", THIRD)
def test_gradients_within_gradients(name):
    """What the inner functions were called with is gone when the outer ones need it."""

    def third(m):
        f = lambda x: THIRD[name](m, x)  # noqa: E731
        return m.func.grad(m.func.grad(m.func.grad(f)))(m.tensor(0.3, dtype=m.float64)).item()

    assert third(mytorch) == pytest.approx(third(torch), rel=1e-9)


def test_results_have_no_history_unless_something_outside_wants_it():
    x, w = t(mytorch, X), t(mytorch, W).requires_grad_()
    f = scalar(mytorch)
    assert not mytorch.func.grad(f)(x, w.detach()).requires_grad
    g = mytorch.func.grad(f)(x, w)  # w is outside: PyTorch differentiates through func.grad, too
    (through,) = mytorch.autograd.grad((g * g).sum(), w)
    w_ = t(torch, W).requires_grad_()
    g_ = torch.func.grad(scalar(torch))(t(torch, X), w_)
    np.testing.assert_allclose(through.numpy(), torch.autograd.grad((g_ * g_).sum(), w_)[0].numpy())


def test_functional_call_uses_other_parameters():
    model = mytorch.nn.Sequential(mytorch.nn.Linear(3, 2), mytorch.nn.BatchNorm1d(2))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weight = np.float32(W)
    given = {"0.weight": mytorch.tensor(weight, requires_grad=True), "0.bias": mytorch.ones(2)}
    given_ = {"0.weight": torch.tensor(weight, requires_grad=True), "0.bias": torch.ones(2)}
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    before = model[0].weight
    out = mytorch.func.functional_call(model, given, (mytorch.tensor(x),))
    want = torch.func.functional_call(theirs, given_, (torch.tensor(x),))
    np.testing.assert_allclose(out.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert model[0].weight is before
    (out**3).sum().backward()
    (want**3).sum().backward()
    np.testing.assert_allclose(given["0.weight"].grad.numpy(), given_["0.weight"].grad.numpy(), 1e-3, 1e-4)
    with pytest.raises(KeyError, match="7.weight"):
        mytorch.func.functional_call(model, {"7.weight": before}, mytorch.tensor(x))


ERRORS = {
    "not a scalar": lambda: mytorch.func.grad(one(mytorch))(t(mytorch, X)),
    "argnums": lambda: mytorch.func.grad(one(mytorch), argnums=3)(t(mytorch, X)),
    "cotangent": lambda: mytorch.func.vjp(one(mytorch), t(mytorch, X))[1](t(mytorch, W)),
    "tangent": lambda: mytorch.func.jvp(one(mytorch), (t(mytorch, X),), (t(mytorch, W),)),
    "no vector": lambda: mytorch.autograd.functional.vjp(one(mytorch), t(mytorch, X)),
    "vector's shape": lambda: mytorch.autograd.functional.jvp(one(mytorch), t(mytorch, X), t(mytorch, W)),
    "strict": lambda: mytorch.autograd.functional.jacobian(independent(mytorch), t(mytorch, X), strict=True),
    "hessian of a vector": lambda: mytorch.autograd.functional.hessian(one(mytorch), t(mytorch, X)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_calls(name):
    with pytest.raises(RuntimeError):
        ERRORS[name]()


def test_wrong_types():
    with pytest.raises(TypeError, match="inputs"):
        mytorch.autograd.functional.vjp(one(mytorch), [1.0])
    with pytest.raises(TypeError, match="tuples"):
        mytorch.func.jvp(one(mytorch), t(mytorch, X), t(mytorch, X))
    with pytest.raises(ValueError, match="strategy"):
        mytorch.autograd.functional.jacobian(one(mytorch), t(mytorch, X), strategy="sideways")
