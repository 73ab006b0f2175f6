"""Writing in place: values, version counters, and gradients through views and bases, as PyTorch has them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch import Tensor, no_grad
from tests.each import each
from tests.ops.programs import (
    PROGRAMS,
    run_steps,
    steps,
    view_of_a_result_that_lies_transposed,
    views_of_views,
)
from tests.oracle import check, compare_gradients, fails_alike, in_both, same, tensors

rng = np.random.default_rng(0)


def numbers(shape, dtype="float32"):
    return np.asarray(rng.uniform(0.5, 3, shape), dtype)


# The value of an in-place form is that of the op; it is written into the tensor, whatever its layout.

OPS = {
    "add_": lambda x, y: x.add_(y), "sub_": lambda x, y: x.sub_(y), "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y), "pow_": lambda x, y: x.pow_(2),
    "add_ alpha": lambda x, y: x.add_(y, alpha=2),
    "remainder_": lambda x, y: x.remainder_(y), "neg_": lambda x, y: x.neg_(), "exp_": lambda x, y: x.exp_(),
    "log_": lambda x, y: x.log_(), "sqrt_": lambda x, y: x.sqrt_(), "tanh_": lambda x, y: x.tanh_(),
    "sigmoid_": lambda x, y: x.sigmoid_(), "relu_": lambda x, y: x.relu_(),
    "clamp_": lambda x, y: x.clamp_(1, 2),
    "square_": lambda x, y: x.square_(), "abs_": lambda x, y: x.abs_(),
    "reciprocal_": lambda x, y: x.reciprocal_(),
    "floor_": lambda x, y: x.floor_(), "round_": lambda x, y: x.round_(), "fill_": lambda x, y: x.fill_(3),
    "zero_": lambda x, y: x.zero_(), "copy_": lambda x, y: x.copy_(y), "tril_": lambda x, y: x.tril_(),
    "triu_": lambda x, y: x.triu_(1), "masked_fill_": lambda x, y: x.masked_fill_(y > 1, 0),
}
OPERATORS = {
    "+=": lambda x, y: x.__iadd__(y), "-=": lambda x, y: x.__isub__(y), "*=": lambda x, y: x.__imul__(y),
    "/=": lambda x, y: x.__itruediv__(y), "**=": lambda x, y: x.__ipow__(2),
    "//= without history": lambda x, y: x.detach().__ifloordiv__(y), "%=": lambda x, y: x.__imod__(y),
}
WHOLE = {**OPS, **OPERATORS}
PARTS = {
    "all": lambda x: x, "slice": lambda x: x[1:], "row": lambda x: x[0][None], "transposed": lambda x: x.T,
    "every other": lambda x: x[:, ::2], "flat": lambda x: x.view(2, 6),
}


@each("part", PARTS)
@pytest.mark.parametrize("op", WHOLE)
def test_in_place_forms(op, part):
    def call(F, x, y):
        z = x * 1
        v = PARTS[part](z)
        result = WHOLE[op](v, PARTS[part](y))
        assert result is v or "without" in op
        return z, v

    check(*in_both(call), numbers((3, 4)), numbers((3, 4)))


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_rebind_the_same_tensor(op):
    x = Tensor(numbers((3, 4)))
    raw = x.data._array
    same_one = OPERATORS[op](x, 2)
    assert same_one.data._array is raw and x._version.count == 1


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "int32", "uint8"])
@pytest.mark.parametrize("op", ["+=", "*=", "copy_", "fill_", "zero_", "clamp_"])
def test_in_place_keeps_the_dtype(op, dtype):
    def call(F, x):
        return WHOLE[op](x * 1, 2)

    if op == "copy_":

        def call(F, x, y):
            return (x * 1).copy_(y)

        return check(*in_both(call), numbers((3,), dtype), numbers((3,)))
    check(*in_both(call), numbers((3, 4), dtype))


# Programs that mix views and writes.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program, dtype):
    check(*in_both(program), numbers((3, 4), dtype), numbers((4,), dtype))


@pytest.mark.parametrize("program", [
    p for p in PROGRAMS if p not in (views_of_views, view_of_a_result_that_lies_transposed)
], ids=lambda p: p.__name__)
def test_programs_on_transposed_leaves(program):
    check(*in_both(program), np.ascontiguousarray(numbers((3, 4)).T).T, numbers((8,))[::2])


def test_operands_that_overlap_the_target():
    """PyTorch refuses them; here the result is computed before it is written."""

    def program(x, copy):
        y = x * 2
        y.add_(copy(y[0]))
        y[1:].add_(copy(y[:2]))
        return y * y

    check(lambda x: program(x, lambda v: v), lambda x: program(x, lambda v: v.clone()), numbers((3, 4)))


@settings(max_examples=200, deadline=None)
@given(steps(), st.booleans())
def test_any_program(program, transposed):
    x, w = numbers((3, 4), "float64"), numbers((4,), "float64")
    check(*in_both(lambda F, x, w: run_steps(F, x, w, program, transposed)), x, w)


# What backward needs, and what it doesn't.

OVERWRITTEN = {
    "mul": lambda x, y: (y * y.detach(), y), "exp": lambda x, y: (lambda z: (z, z))(y.exp()),
    "mul by a view": lambda x, y: (x * y[:2].detach().sum() * y[1], y), "div": lambda x, y: (x / y, y),
    "matmul": lambda x, y: (x @ y.T, y), "sqrt": lambda x, y: (lambda z: (z, z))(y.sqrt()),
    "other view of the base": lambda x, y: (x[:2] * y[:2], y[2:]),
    "view of what was saved": lambda x, y: (x * y, y[0]),
    "base of what was saved": lambda x, y: (x[:2] * y[1:], y), "pow": lambda x, y: (y**2, y),
    "log": lambda x, y: (y.log(), y), "relu": lambda x, y: (lambda z: (z, z))(y.relu()),
}
NOT_NEEDED = {
    "add": lambda x, y: (x + y, y), "sub": lambda x, y: (x - y, y), "neg": lambda x, y: (-y, y),
    "sum": lambda x, y: (y.sum(0), y), "mean": lambda x, y: (y.mean(), y), "exp": lambda x, y: (y.exp(), y),
    "sqrt": lambda x, y: (y.sqrt(), y), "tanh": lambda x, y: (y.tanh(), y),
    "reshape": lambda x, y: ((y + 0).view(12), y),
    "getitem": lambda x, y: (y[[0, 1, 1]], y), "repeat": lambda x, y: (y.repeat(2, 1), y),
    "mul by a number": lambda x, y: (y * 3, y), "relu": lambda x, y: (y.relu(), y),
    "clone": lambda x, y: (y.clone(), y),
    "mul with the other unchanged": lambda x, y: (y * 2 * x.detach(), y), "flip": lambda x, y: (y.flip(0), y),
    "masked_fill": lambda x, y: (y.masked_fill(x > 1, 0), y),
}


@pytest.mark.parametrize("case", OVERWRITTEN)
def test_backward_notices_overwritten_arrays(case):
    mine, his = tensors([numbers((3, 4)), numbers((3, 4))], grad=True)
    for x, leaf in (mine, his):
        result, target = OVERWRITTEN[case](x, leaf * 1)
        target.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


@pytest.mark.parametrize("case", NOT_NEEDED)
def test_backward_does_not_mind_what_it_does_not_need(case):
    def call(F, x, leaf):
        y = leaf * 1
        result, target = NOT_NEEDED[case](x, y)
        target.add_(1)
        return result

    check(*in_both(call), numbers((3, 4)), numbers((3, 4)))


def test_overwritten_under_no_grad_is_noticed_too():
    x = Tensor(numbers((3, 4)), requires_grad=True)
    y = x * x
    with no_grad():
        x += 1
    with pytest.raises(RuntimeError, match="needs it at version 0, it is at version 1"):
        y.sum().backward()


def test_written_through_a_detached_tensor_is_noticed():
    x = Tensor(numbers((3, 4)), requires_grad=True)
    y = x * x
    x.detach()[0] = 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_operand_overwritten_by_its_own_product():
    def call(F, x):
        y = x.requires_grad_() * 2
        y.mul_(y)
        y.sum().backward()

    fails_alike(*in_both(call), numbers((3,)), match="modified by an inplace")


# Leaves.


def test_an_optimizer_step():
    def step(F, w):
        w.requires_grad_()
        for _ in range(3):
            w.grad = None
            (w * w).sum().backward()
            with F.no_grad():
                w -= 0.1 * w.grad
                w *= 0.9
        assert w.is_leaf and w.requires_grad
        return w.detach()

    check(*in_both(step), numbers((3, 4)), grad=False)


ERRORS = {
    "leaf": (lambda F, x: x.requires_grad_().add_(1), "a leaf tensor that requires grad"),
    "leaf +=": (lambda F, x: x.requires_grad_().__iadd__(1), "a leaf tensor that requires grad"),
    "view of a leaf": (lambda F, x: x.requires_grad_()[0].add_(1),
        "a view of a leaf tensor that requires grad"),
    "item of a leaf": (lambda F, x: x.requires_grad_().__setitem__(0, 1), "leaf tensor that requires grad"),
    "leaf by copy_": (lambda F, x: x.requires_grad_().copy_(x.detach()), "a leaf tensor that requires grad"),
    "view that is a leaf": (lambda F, x: x[0].requires_grad_().mul_(2), "a leaf tensor that requires grad"),
    "expanded": (lambda F, x: x[:1].expand(3, 4).add_(1), r"shape \(3, 4\), strides \(0, 1\).*single memory"),
    "item of an expanded one": (lambda F, x: x[:1].expand(3, 4)[1:].mul_(2), "single memory location"),
    "split": (lambda F, x: (x.requires_grad_() * 2).split(1)[0].add_(1), "several views"),
    "unbind": (lambda F, x: (x.requires_grad_() * 2).unbind()[0].add_(1), "several views"),
    "view of a split part": (lambda F, x: (x.requires_grad_() * 2).chunk(2)[0][0].add_(1), "several views"),
    "row of an iteration": (lambda F, x: next(iter(x.requires_grad_() * 2)).add_(1), "several views"),
    "larger result": (lambda F, x: x[0].add_(x), r"output with shape \[4\] doesn't match .*\[3, 4\]"),
    "float into int": (lambda F, x: x.long().add_(1.5), "float32 can't be cast .* int64"),
    "int into bool": (lambda F, x: (x > 1).add_(1), "int64 can't be cast .* bool"),
    "copy_ with a leading dim": (lambda F, x: x[0].copy_(F.ones(1, 4)), r"\[4\] doesn't match .*\[1, 4\]"),
    "copy_ of another shape": (lambda F, x: x.copy_(F.ones(5)), r"\(5,\) into \(3, 4\)"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, match = ERRORS[case]
    messages = {"several views": "multiple views"}  # PyTorch's words
    with pytest.raises(RuntimeError, match=messages.get(match, ".")):
        call(torch, torch.from_numpy(numbers((3, 4))))
    x = Tensor(numbers((3, 4)))
    before = x.numpy().copy()
    with pytest.raises(RuntimeError, match=match):
        call(mytorch, x)
    np.testing.assert_array_equal(x.detach().numpy(), before)
    assert x._version.count == 0


@pytest.mark.parametrize("call", [lambda x: x.split(1)[0], lambda x: x.unbind()[0], lambda x: next(iter(x))])
def test_several_views_may_be_written_without_autograd(call):
    for x in (Tensor(np.ones((3, 4))), Tensor(np.ones((3, 4)), requires_grad=True)):
        with no_grad():
            call(x).add_(1)
        np.testing.assert_array_equal(x.detach().numpy(), [[2] * 4, [1] * 4, [1] * 4])


def test_several_views_follow_a_write_to_their_base():
    x = Tensor(numbers((2, 3)), requires_grad=True)
    y = x * 1
    a, b = y.split(1)
    y.mul_(3)
    (a * 1 + b * 10).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[3] * 3, [30] * 3])


def test_memory_that_is_read_only():
    a = numbers((3,))
    a.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        Tensor(a).add_(1)


def test_all_views_share_one_version():
    x = Tensor(np.zeros((3, 4)))
    v = x[1:].T
    v += 1
    x[0, 0] = 5
    x.detach().zero_()
    assert x._version.count == v._version.count == 3
    assert (x + 1)._version.count == 0 and x.clone()._version is not x._version


def test_hooks_and_retained_gradients_after_a_write():
    """A hook on the tensor before the write sees the gradient of the old value, as in PyTorch."""

    def call(F, x):
        seen = []
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()))
        y.mul_(3)
        y.retain_grad()
        (y * y).sum().backward()
        return *seen, y.grad

    mine, his = tensors([numbers((3,))], grad=True)
    got, want = call(mytorch, *mine), call(torch, *his)
    for g, w in zip(got, want, strict=True):
        same(g, w)


def test_backward_twice_through_a_write():
    def call(F, x, w):
        y = x * 2
        y[1:].mul_(w)
        return y * 3

    mine, his = tensors([numbers((3, 4)), numbers((4,))], grad=True)
    got, want = call(mytorch, *mine), call(torch, *his)
    for result in (got, want):
        result.sum().backward(retain_graph=True)
    compare_gradients([got], [want], mine, his)
