"""The checking mode of programs: what is made is as declared; layouts where that wasn't so."""

from dataclasses import replace

import numpy as np
import pytest

import mytorch
from mytorch import capture
from mytorch.compiler.running.arrays import arranged, writeable
from mytorch.nn import functional as F


def broken(program, k, **changes):
    """The program with another output of instruction k."""
    i = program.instructions[k]
    program.instructions[k] = replace(i, outputs=(replace(i.outputs[0], **changes),))
    later = program.instructions[k].outputs[0]
    program.outputs = later if program.outputs is i.outputs[0] else program.outputs
    return program


WRONG = {
    "strides": (lambda x: x.t().sin(), -1, {"strides": (12, 4)}, r"sin\(.*\(4, 16\).*not .*\(12, 4\)"),
    "shape": (lambda x: x.sum(0), -1, {"shape": (3,)}, r"sum\(.*made float32\[4\]"),
    "dtype": (lambda x: x > 1, -1, {"dtype": np.dtype("float32")}, r"greater\(.*made bool\[3, 4\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_as_declared(name):
    function, k, changes, text = WRONG[name]
    program = broken(capture(function, mytorch.ones(3, 4)), k, **changes)
    with pytest.raises(RuntimeError, match=text):
        program(mytorch.ones(3, 4))


def test_a_copy_in_place_of_a_view():
    program = capture(lambda x: x.t().reshape(-1) * 2, mytorch.ones(3, 4))
    program = broken(program, 1, of=program.inputs[0])
    with pytest.raises(RuntimeError, match=r"reshape\(.*isn't a view of %0, but a copy"):
        program(mytorch.ones(3, 4))


def test_without_the_variable_nothing_is_checked(monkeypatch):
    monkeypatch.setenv("MYTORCH_CHECK_PROGRAMS", "0")
    program = broken(capture(lambda x: x.t().sin(), mytorch.ones(3, 4)), -1, strides=(12, 4))
    assert program(mytorch.ones(3, 4)).shape == (4, 3)
    assert "checks" not in program.source()


def test_a_loop_never_writes_to_a_copy():
    for x in (np.ones((3, 4)).T, np.broadcast_to(np.ones(3), (2, 3))):
        with pytest.raises(ValueError, match="a loop can't write to an array that is read-only"):
            writeable(x)


def test_an_array_in_another_order_is_copied():
    x = np.arange(6.0).reshape(2, 3)
    assert arranged(x, (24, 8)) is x
    y = arranged(x, (8, 16))
    assert y.strides == (8, 16) and y.tolist() == x.tolist()
    assert arranged(np.ones((1, 3)), (99, 8)).strides == (24, 8)  # a dim of size 1


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "a step": lambda x: x[:, ::2],
    "reversed": lambda x: x.flip(0).t(),
    "expanded": lambda x: x[:1].expand(3, 4).t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp", "sqrt", "floor"])
def test_chains_behind_functions_of_numpy(name, dtype, layout):
    x = LAYOUTS[layout](mytorch.arange(12.0).reshape(3, 4).to(dtype))
    c = mytorch.arange(1.0, x.numel() + 1).reshape(x.shape)
    if name == "floor" and dtype == "bool":
        return

    def function(x, c):
        return getattr(x, name)() * c + 1

    np.testing.assert_allclose(mytorch.compile(function)(x, c).numpy(), function(x, c).numpy(), 1e-6)


GRADIENTS = {
    "expanded": lambda y: y.sum(),
    "transposed": lambda y: (y.t() * mytorch.arange(6.0).reshape(2, 3)).sum(),
    "a part": lambda y: y[1:].sum() * 2,
}


@pytest.mark.parametrize("loss", GRADIENTS)
def test_gradients_that_lie_in_another_order(loss):
    found = []
    for function in (lambda x: x.cos(), mytorch.compile(lambda x: x.cos())):
        x = mytorch.arange(6.0).reshape(2, 3).t().requires_grad_()
        x = x.detach().requires_grad_()
        GRADIENTS[loss](function(x)).backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], 1e-6)


def written_through_a_diagonal(x):
    v = x * 2
    v.diagonal().mul_(3)
    return v


def written_through_what_is_expanded(x):
    v = x[0] * 2
    v.expand(2, 4).narrow(0, 0, 1).add_(1)
    return v


def a_sum_is_a_loop_s_output(x):
    v, k = x.sum(), (x * 2)[0, :1].long()
    return mytorch.where(v > k, v, k) * 2


def gradients_of_attention(x):
    heads = x.reshape(1, 2, 1, 6).transpose(1, 2).requires_grad_()
    y = F.scaled_dot_product_attention(heads, heads, heads)
    return mytorch.autograd.grad((y * 2).tanh().sum(), heads)[0] + 1


EAGERS = (
    written_through_a_diagonal, written_through_what_is_expanded, a_sum_is_a_loop_s_output,
    gradients_of_attention,
)


@pytest.mark.parametrize("function", EAGERS)
def test_as_in_eager(function):
    x = mytorch.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(mytorch.compile(function)(x).numpy(), function(x).numpy(), 1e-5, 1e-6)


def test_a_kernel_takes_arrays_without_dims():
    def function(x):
        y = F.gelu(x * 1)
        return y * (y > 0)

    found = []
    for call in (function, mytorch.compile(function)):
        x = mytorch.tensor(0.5, dtype=mytorch.float16, requires_grad=True)
        call(x).backward()
        found.append(x.grad.item())
    assert found[0] == pytest.approx(found[1], 1e-2)
