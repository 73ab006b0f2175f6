"""A gradient that nobody else holds isn't copied; every other one is, whoever holds it."""

import numpy as np
import pytest

import mytorch
from mytorch.core.engine import is_owned
from mytorch.core.op import op

whole = np.ones((2, 3))
KEPT = {
    "an array": lambda: whole,
    "a view": lambda: whole.T,
    "a part of a fresh one": lambda: np.ones((3, 3))[:2],
    "stretched": lambda: np.broadcast_to(np.ones((1, 3)), (2, 3)),
    "a number": lambda: np.float64(1),
    "memory of something else": lambda: np.frombuffer(bytearray(48)).reshape(2, 3),
    "read-only": lambda: np.frombuffer(bytes(48)),
}
FRESH = {
    "an array": lambda: np.ones((2, 3)),
    "a sum": lambda: whole + 1,
    "a view": lambda: np.ones((2, 3)).T,
    "a view of a view": lambda: np.ones((2, 3)).reshape(6)[None],
}


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_what_others_hold(make):
    x = make()
    assert not is_owned(x)


@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_what_nobody_else_holds(make):
    x = make()
    assert is_owned(x)
    other = x
    assert not is_owned(x)
    del other
    assert is_owned(x)
    part = x[0]
    assert not is_owned(part)
    if x.base is not None:  # now two views lead to the memory
        assert not is_owned(x)


def made_by(vjp):
    """The array that the vjp of y = x returns, and the `.grad` that becomes of it."""
    returned = []

    @op
    def same(x):
        def grad(g):
            out = vjp(g)
            returned.append((out.__array_interface__["data"][0], out.copy()))
            return out

        return x.copy(), (grad,)

    x = mytorch.ones(3, 4, requires_grad=True)
    given = mytorch.ones(3, 4) * 2
    same(x).backward(given)
    (place, values) = returned[0]
    np.testing.assert_array_equal(x.grad.numpy(), values)
    return place, x.grad.numpy(), given.numpy()


stored = np.full((3, 4), 5, "float32")


def test_a_fresh_gradient_becomes_grad():
    place, grad, _ = made_by(lambda g: g * 3)
    assert grad.__array_interface__["data"][0] == place


@pytest.mark.parametrize(
    "vjp",
    [
        lambda g: g, lambda g: g[:], lambda g: g.reshape(4, 3).reshape(3, 4), lambda g: stored,
        lambda g: stored[:],
    ],
    ids=["itself", "a view", "reshaped", "kept elsewhere", "a view of what is kept"],
)
def test_any_other_is_copied(vjp):
    _, grad, given = made_by(vjp)
    assert not np.shares_memory(grad, given) and not np.shares_memory(grad, stored)


def test_no_two_gradients_share_memory():
    x, y, z = (mytorch.ones(4, requires_grad=True) for _ in range(3))
    total = x + y
    total.retain_grad()
    given = mytorch.ones(4)
    (total + z).backward(given)
    arrays = [t.grad.numpy() for t in (x, y, z, total)] + [given.numpy()]
    for i, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
    x.grad += 1
    assert [a.tolist() for a in arrays[1:]] == [[1.0] * 4] * 4


def test_what_a_hook_was_given_is_left_alone():
    x, seen = mytorch.ones(4, requires_grad=True), []
    x.register_hook(lambda g: seen.append(g.data))
    (x * 3).sum().backward()
    (x * 3).sum().backward()
    assert [g.tolist() for g in seen] == [[3.0] * 4] * 2 and x.grad.tolist() == [6.0] * 4


@pytest.mark.parametrize("retain_graph", [False, True])
def test_a_second_walk_adds_and_leaves_the_first_as_it_was(retain_graph):
    x = mytorch.ones(4, requires_grad=True)
    y = (x.exp() * 2).sum()
    y.backward(retain_graph=retain_graph)
    first = x.grad.numpy().copy()
    if retain_graph:
        y.backward()
        np.testing.assert_array_equal(x.grad.numpy(), 2 * first)
    kept = x.grad
    x.grad = None
    (x * 5).sum().backward()
    assert kept.tolist() != [5.0] * 4 and x.grad.tolist() == [5.0] * 4


def test_grad_gives_arrays_of_its_own():
    x, given = mytorch.ones(3, requires_grad=True), mytorch.ones(3)
    (g,) = mytorch.autograd.grad(x + 1, [x], given)
    assert not np.shares_memory(g.numpy(), given.numpy())
    (g,) = mytorch.autograd.grad(x, [x], given)
    assert not np.shares_memory(g.numpy(), given.numpy())


@pytest.mark.parametrize("function", [
    lambda w: w.t() * mytorch.ones(3, 2), lambda w: w.permute(1, 0).reshape(6) * 2,
    lambda w: mytorch.ones(4, 3) @ w.t(), lambda w: w.sum(), lambda w: w.flip(0),
])
@pytest.mark.parametrize("compile", [lambda function: function, mytorch.compile])
def test_dims_lie_in_memory_as_those_of_the_tensor(function, compile):
    for w in (mytorch.ones(2, 3), mytorch.ones(3, 2).t()):
        w.requires_grad_()
        compile(function)(w).sum().backward()
        assert w.grad.stride() == w.stride()


@pytest.mark.parametrize("compile", [lambda function: function, mytorch.compile])
def test_dims_of_gradients_of_parameters(compile):
    layer, x = mytorch.nn.Bilinear(3, 4, 2), mytorch.ones(5, 3)
    compile(lambda: layer(x, mytorch.ones(5, 4)).sum().backward())()
    assert layer.weight.grad.view(-1).shape == (24,)
