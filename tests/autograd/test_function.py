"""Custom functions, gradcheck and grad, against PyTorch's."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import Function, backward, grad, gradcheck


def leaf(*values):
    return Tensor(np.array(values, "float64"), requires_grad=True)


def both(program, *values):
    """Run a program of (library, Function class, leaf) in both libraries; compare result and gradient."""
    ours = leaf(*values)
    theirs = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    got, want = program(mytorch, Function, ours), program(torch, torch.autograd.Function, theirs)
    assert got == want
    assert ours.grad.tolist() == theirs.grad.tolist()


def test_save_for_backward_and_attributes():
    def program(lib, base, x):
        class Scale(base):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.factor = factor
                ctx.save_for_backward(x)
                return x * x * factor

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                assert ctx.needs_input_grad == (True, False)
                return 2 * x * g * ctx.factor, None

        y = Scale.apply(x, 3.0)
        y.backward(lib.ones_like(y))
        return y.tolist()

    both(program, 1.0, 2.0)


def test_several_outputs_and_missing_gradients():
    def program(lib, base, x):
        class Both(base):
            @staticmethod
            def forward(ctx, x):
                return x * 2, x * 3, x > 1

            @staticmethod
            def backward(ctx, a, b, _):
                return 2 * a + 3 * b

        a, b, big = Both.apply(x)
        b.backward(lib.ones_like(b))
        return a.tolist(), big.tolist(), big.requires_grad

    both(program, 1.0, 2.0)


def test_setup_context_and_unmaterialized_gradients():
    def program(lib, base, x):
        class Pair(base):
            @staticmethod
            def forward(x):
                return x * 1, x * 10

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.set_materialize_grads(False)

            @staticmethod
            def backward(ctx, a, b):
                assert a is None
                return b * 10

        _, b = Pair.apply(x)
        b.backward(lib.ones_like(b))
        return b.tolist()

    both(program, 1.0, 2.0)


def test_an_input_that_is_returned_becomes_a_new_tensor():
    def program(lib, base, x):
        class Same(base):
            @staticmethod
            def forward(ctx, x):
                return x

            @staticmethod
            def backward(ctx, g):
                return g * 5

        y = Same.apply(x)
        y.backward(lib.ones_like(y))
        return y.is_leaf, x.is_leaf

    both(program, 1.0)


def test_mark_non_differentiable():
    def program(lib, base, x):
        class Split(base):
            @staticmethod
            def forward(ctx, x):
                rounded = x * 0 + 4
                ctx.mark_non_differentiable(rounded)
                return x * 2, rounded

            @staticmethod
            def backward(ctx, g, _):
                return g * 2

        y, rounded = Split.apply(x)
        y.backward(lib.ones_like(y))
        return rounded.requires_grad

    both(program, 1.0)


def test_saved_tensors_that_were_overwritten_are_noticed():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = leaf(2.0)
    h = x * 1.0
    y = Square.apply(h)
    h.add_(1.0)
    with pytest.raises(RuntimeError, match="Square"):
        y.backward()


def test_wrong_functions_say_what_is_wrong():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="returned 1 gradients for the 2 inputs"):
        Bad.apply(leaf(1.0), leaf(2.0)).backward()
    with pytest.raises(NotImplementedError, match="forward"):
        Function.apply(leaf(1.0))

    class Saves(Bad):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="int"):
        Saves.apply(leaf(1.0))


# grad and backward of several tensors.


def test_grad_returns_and_leaves_grad_alone():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * y
    gx, gh = grad(h * h, [x, h], Tensor(np.ones(2)))
    assert isinstance(gx, Tensor) and gx.tolist() == [18, 64] and gh.tolist() == [6, 16]
    assert x.grad is None and y.grad is None


def test_grad_of_unused_inputs():
    x, y = leaf(1.0), leaf(2.0)
    with pytest.raises(RuntimeError, match="input 1 of shape.*allow_unused"):
        grad(x * 2.0, [x, y])
    assert grad(x * 2.0, [x, y], allow_unused=True)[1] is None
    assert grad(x * 2.0, [x, y], materialize_grads=True)[1].tolist() == [0]
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(x * 2.0, Tensor([1.0]))


def test_backward_of_several_tensors_in_one_walk():
    x = leaf(1.0, 2.0)
    h = x * 2.0
    backward([h * h, h], [np.ones(2), np.ones(2)])
    assert x.grad.tolist() == [10, 18]
    with pytest.raises(RuntimeError, match="2 tensors and 1 gradients"):
        backward([h, h], [np.ones(2)])


def test_one_root_may_lie_below_another():
    x = leaf(3.0)
    h = x * 2.0
    y = h * h
    backward([y, h])
    assert x.grad.item() == 2 * 2 * 6 + 2


# gradcheck.


def test_gradcheck_accepts_what_is_right():
    assert gradcheck(lambda a, b: a * b + a.exp(), (leaf(1.0, -2.0), leaf(0.5, 3.0)))


def test_gradcheck_refuses_what_is_wrong():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 3.0

    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="Jacobian mismatch.*2.*by differences, 3 by backward"):
        gradcheck(Wrong.apply, x)
    assert gradcheck(Wrong.apply, x, raise_exception=False) is False


def test_gradcheck_checks_its_arguments():
    with pytest.raises(ValueError, match="requires grad"):
        gradcheck(lambda a: a, Tensor([1.0]))
    with pytest.raises(ValueError, match="float32"):
        gradcheck(lambda a: a, Tensor([1.0], requires_grad=True))
