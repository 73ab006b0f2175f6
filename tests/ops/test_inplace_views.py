"""Writing through views, and in-place forms that make a tensor a view: memory, versions, gradients."""

import numpy as np
import pytest
import torch

import mytorch
from tests.each import each
from tests.oracle import check, fails_alike, in_both

rng = np.random.default_rng(0)
X = np.asarray(rng.uniform(0.5, 3, (3, 4)), "float32")


CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, -1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(),
    "squeeze_ dim": lambda x: x.unsqueeze_(-1).unsqueeze_(0).squeeze_((0, -1)),
    "twice": lambda x: x.t_().unsqueeze_(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_the_same_tensor_with_the_same_memory(change):
    x = mytorch.Tensor(X.copy())
    y = x[1]
    assert CHANGES[change](x) is x
    x.mul_(2)
    np.testing.assert_array_equal(y.numpy(), X[1] * 2)
    assert x.shape == CHANGES[change](torch.from_numpy(X)).shape


# What is done with a tensor before and after its shape has changed.
PROGRAMS = {
    "write": lambda x, change: (change(x).mul_(3), x),
    "write to a view made before": lambda x, change: (x[1:].mul_(1), change(x), x * x),
    "write to an older view": lambda x, change: (
        lambda v: (change(x), v.mul_(x.sum().detach()), x * v.sum())
    )(x[1:]),
    "write to a newer view": lambda x, change: (change(x), x[..., 1:].mul_(3), x * x),
    "write between": lambda x, change: (lambda v: (v.mul_(2), change(x), v.add_(1), x.mul_(3), v * 2))(
        x.T[1]
    ),
    "of a view": lambda x, change: (lambda v: (change(v), v.mul_(3), x * x, v * v))(x[:2]),
    "of a view, then its base": lambda x, change: (lambda v: (change(v), x.mul_(3), v * v))(x[:2]),
    "back again": lambda x, change: (change(x), x.mul_(2), x.T.mul_(3), x * 1),
    "used before": lambda x, change: (x + 1, change(x), x * x),
}


@each("program", PROGRAMS)
@each("change", CHANGES)
def test_as_pytorch(change, program):
    check(*in_both(lambda F, x: PROGRAMS[program](x * 1, CHANGES[change])), X)


def test_versions_are_counted():
    """What backward needs in its old shape counts as overwritten, as in PyTorch."""

    def call(F, x):
        y = x.requires_grad_() * 1
        z = y * y
        y.t_()
        z.sum().backward()

    fails_alike(*in_both(call), X, match="modified by an inplace operation")


REFUSED = {
    "a leaf": lambda x: x,
    "a view of a leaf": lambda x: x[0],
    "one of several": lambda x: (x * 1).unbind()[0],
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    fails_alike(*in_both(lambda F, x: REFUSED[what](x.requires_grad_()).unsqueeze_(0)), X, match=what)


def test_a_leaf_without_recording():
    x = mytorch.Tensor(X, requires_grad=True)
    with mytorch.no_grad():
        x.t_()
    assert x.shape == (4, 3) and x.requires_grad and x.is_leaf
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * X.T)


# Views of (3, 4), written in place.
WRITTEN = {
    "diagonal": lambda F, x: x.diagonal().fill_(0),
    "unfold": lambda F, x: x.unfold(1, 2, 2).add_(1),
    "unfold of a view": lambda F, x: x.T.unfold(0, 2, 2).mul_(3),
    "narrow": lambda F, x: x.narrow(0, 1, 2).mul_(3),
    "select": lambda F, x: x.select(1, 0).mul_(x.select(1, 1).clone()),
    "tensor_split": lambda F, x: x.tensor_split(2)[0].add_(1),
    "hsplit": lambda F, x: x.hsplit([1])[1].mul_(2),
    "expand": lambda F, x: x.expand(-1, -1).mul_(2),
    "meshgrid of one": lambda F, x: F.meshgrid(x[0], indexing="ij")[0].mul_(2),
    "broadcast_tensors": lambda F, x: F.broadcast_tensors(x)[0].mul_(2),
    "atleast_3d": lambda F, x: F.atleast_3d(x).mul_(2),
    "unflatten": lambda F, x: x.unflatten(1, (2, 2)).mul_(2),
    "movedim": lambda F, x: x.movedim(0, 1).mul_(2),
    "index_put_": lambda F, x: x[1:].index_put_((F.tensor([0, 0]),), x[0] * 2, accumulate=True),
    "masked_scatter_": lambda F, x: x.T.masked_scatter_(x.T > 1, x.detach().exp()),
    "scatter_reduce_": lambda F, x: x[0].scatter_reduce_(0, F.tensor([0, 0]), x[1, :2] * 2, "prod"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_writing_through_a_view(case):
    def call(F, x):
        y = x * 1
        WRITTEN[case](F, y)
        return y * y

    check(*in_both(call), X)


@pytest.mark.parametrize("case", WRITTEN)
def test_what_was_needed_before_the_write_is_noticed(case):
    def call(F, x):
        y = x.requires_grad_() * 1
        z = y * y
        with F.no_grad():
            WRITTEN[case](F, y)
        z.sum().backward()

    fails_alike(*in_both(call), X, match="modified by an inplace operation")


@pytest.mark.parametrize("name", ["unbind", "split", "chunk"])
def test_several_views_of_one_op_are_refused(name):
    def call(F, x):
        args = () if name == "unbind" else (2,)
        getattr(x.requires_grad_() * 1, name)(*args)[0].add_(1)

    fails_alike(*in_both(call), X, match="Output 0|one of several|modified")
