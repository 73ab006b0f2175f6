"""Results have eager's values and strides, in whatever order their operands lie in memory."""

from dataclasses import replace

import numpy as np
import pytest

import mytorch
from mytorch import capture
from mytorch.compiler.passes.views import fold_views
from mytorch.compiler.program.instruction import Instruction, Value
from mytorch.compiler.program.program import Program
from mytorch.core.tensor import raw_of
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves


def halves_of_a_transpose(x, y):
    z = (x.t() * 2).tanh()
    return z[:2], z.t()[1:].exp()


def written_afterwards(x, y):
    z = (x.t() * 2).tanh()
    z[0] += 1
    return z, (z * 3).exp()


def added_in_place(x, y):
    z = x.t() * 2
    first = z[0]
    np.add(raw_of(z), raw_of(x.t() * 3), out=raw_of(z))
    return first + 1, z.exp()


def of_a_copy_written_before(x, y):
    z = (x.t() * 2).contiguous()
    z.add_(y.sum())
    return (z.t() * 2).tanh()


CASES = {
    "a transpose": lambda x, y: (x.t() * 2).tanh(),
    "two": lambda x, y: (x.t() * y.t() + 1).exp(),
    "rows are broadcast": lambda x, y: (x.t() * 2 + y[:, 0]).tanh(),
    "columns are broadcast": lambda x, y: (x.t() * 2 + y[0, :, None]).tanh(),
    "comparisons": lambda x, y: mytorch.where(x.t() > y.t(), x.t() * 2, y.t() - 1),
    "another dtype": lambda x, y: (x.t() > 0) & (y.t() < 0),
    "halves": halves_of_a_transpose,
    "written afterwards": written_afterwards,
    "added in place": added_in_place,
    "a copy, written before": of_a_copy_written_before,
    "both orders": lambda x, y: (x.t() * 2 + y.reshape(5, 4)).tanh(),
    "into a product": lambda x, y: (x.t() * 2).tanh() @ y,
    "sums of rows": lambda x, y: (x.t() * 2).tanh().sum(1),
    "sums of columns": lambda x, y: (x.t() * 2).tanh().sum(0),
    "another order of dims": lambda x, y: ((x[None] * y[:, None]).permute(2, 0, 1) * 2).tanh(),
    "an order within": lambda x, y: ((x[None] * y[:, None]).transpose(0, 1) * 2).tanh() + 1,
    "a dim of one": lambda x, y: (x[None].permute(2, 1, 0) * 2).tanh(),
    "a step": lambda x, y: (x.t()[::2] * 2).tanh(),
    "a number, reversed": lambda x, y: x[0, 0].flip(0) * 2,
    "a diagonal": lambda x, y: (x * 2).diagonal(1),
    "an expanded row": lambda x, y: (x[0] * 2).expand(3, -1),
    "one matrix of a stack": lambda x, y: mytorch.stack([x.t()])[0],
    "a smallest element": lambda x, y: x.t().scatter_reduce(0, mytorch.zeros(1, 4).long(), y[:1, :4], "amin"),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_strides_are_eagers(name):
    mytorch.manual_seed(0)
    x, y = mytorch.randn(4, 5), mytorch.randn(4, 5)
    program = capture(CASES[name], x, y).optimized()
    for got, want in zip(leaves(program(x, y)), leaves(CASES[name](x, y)), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-6, 1e-6)
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        assert raw_of(got).flags.writeable == raw_of(want).flags.writeable


@pytest.mark.parametrize("name", ["reshape", "squeeze", "swapaxes", "moveaxis", ".real", "broadcast_to"])
def test_views_of_the_same_layout_are_left_out(name):
    x, y, z = (Value(k, (2, 3), (12, 4), np.dtype(np.float32)) for k in range(3))
    y = replace(y, of=x)
    steps = [Instruction(name, (x,), {}, (y,)), Instruction("exp", (y,), {}, (z,))]
    left = fold_views(Program((x,), {}, {}, steps, (z,)))
    assert [(i.name, i.args) for i in left.instructions] == [("exp", (x,))]


def test_gradients_of_slices_of_a_transposed_leaf():
    def loss(y):
        return ((y * 2 - (y[0] + y[-1])) ** 2).sum()

    grads = []
    for function in (loss, mytorch.compile(loss)):
        y = mytorch.arange(8.0).reshape(2, 2, 2).transpose(1, 2).requires_grad_()
        function(y).backward()
        grads.append(y.grad.tolist())
    assert grads[0] == grads[1] == [[[-16, -16], [-16, -16]], [[16, 16], [16, 16]]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_kernel_of_each_element_keeps_the_order_of_its_input(dtype):
    x = mytorch.randn(16, 64, 32).to(dtype).permute(0, 2, 1)
    for function in (F.gelu, lambda x: F.gelu(x, "tanh"), lambda x: F.softmax(x, -1)):
        want = function(x)
        assert mytorch.compile(function)(x).stride() == want.stride()
