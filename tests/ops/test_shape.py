"""Shape ops against PyTorch: values, gradients, dtypes, which results are views, errors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from tests.each import each
from tests.ops.test_join import numbers
from tests.oracle import LAYOUTS, check, compare_gradients, fails_alike, same, tensors

rng = np.random.default_rng(0)

# name: (shape of the input, the call with either library as F)
VIEWS = {
    "reshape": ((3, 4), lambda F, x: F.reshape(x, (2, 6))),
    "reshape method": ((3, 4), lambda F, x: x.reshape(2, -1)),
    "reshape tuple": ((3, 4), lambda F, x: x.reshape((-1, 3))),
    "reshape keyword": ((3, 4), lambda F, x: F.reshape(x, shape=(4, 3))),
    "reshape 0-d to 1-d": ((), lambda F, x: x.reshape(1, 1)),
    "reshape to 0-d": ((1, 1), lambda F, x: x.reshape(())),
    "reshape empty": ((0, 3), lambda F, x: x.reshape(3, 0, 2)),
    "reshape empty -1": ((0, 3), lambda F, x: x.reshape(-1, 3)),
    "reshape_as": ((3, 4), lambda F, x: x.reshape_as(F.zeros(4, 3))),
    "ravel": ((3, 4), lambda F, x: F.ravel(x)),
    "flatten": ((2, 3, 4), lambda F, x: F.flatten(x)),
    "flatten from": ((2, 3, 4), lambda F, x: x.flatten(1)),
    "flatten from to": ((2, 3, 4, 5), lambda F, x: x.flatten(start_dim=-3, end_dim=2)),
    "flatten one": ((2, 3), lambda F, x: x.flatten(1, 1)),
    "flatten 0-d": ((), lambda F, x: x.flatten()),
    "flatten empty": ((2, 0, 3), lambda F, x: x.flatten(0, 1)),
    "unflatten": ((2, 12), lambda F, x: F.unflatten(x, 1, (3, 4))),
    "unflatten -1": ((12, 2), lambda F, x: x.unflatten(0, (3, -1))),
    "squeeze": ((1, 3, 1, 2), lambda F, x: F.squeeze(x)),
    "squeeze dim": ((1, 3, 1), lambda F, x: x.squeeze(-1)),
    "squeeze dims": ((1, 3, 1, 1), lambda F, x: x.squeeze((0, 3))),
    "squeeze several": ((1, 3, 1, 1), lambda F, x: x.squeeze(0, 3)),
    "squeeze larger": ((2, 3), lambda F, x: x.squeeze(1)),
    "squeeze 0-d": ((), lambda F, x: x.squeeze(0)),
    "unsqueeze": ((2, 3), lambda F, x: F.unsqueeze(x, 1)),
    "unsqueeze end": ((2, 3), lambda F, x: x.unsqueeze(-1)),
    "unsqueeze 0-d": ((), lambda F, x: x.unsqueeze(0)),
    "transpose": ((2, 3, 4), lambda F, x: F.transpose(x, 0, 2)),
    "transpose negative": ((2, 3, 4), lambda F, x: x.transpose(-1, -2)),
    "transpose 0-d": ((), lambda F, x: x.transpose(0, -1)),
    "swapaxes": ((2, 3, 4), lambda F, x: F.swapaxes(x, 0, 1)),
    "swapdims": ((2, 3, 4), lambda F, x: x.swapdims(0, 1)),
    "t": ((2, 3), lambda F, x: F.t(x)),
    "t 1-d": ((3,), lambda F, x: x.t()),
    "t 0-d": ((), lambda F, x: x.t()),
    "T": ((2, 3), lambda F, x: x.T),
    "mT": ((2, 3, 4), lambda F, x: x.mT),
    "permute": ((2, 3, 4), lambda F, x: F.permute(x, (2, 0, 1))),
    "permute method": ((2, 3, 4), lambda F, x: x.permute(-1, 0, 1)),
    "permute keyword": ((2, 3, 4), lambda F, x: F.permute(x, dims=[1, 2, 0])),
    "permute 0-d": ((), lambda F, x: x.permute(())),
    "movedim": ((2, 3, 4), lambda F, x: F.movedim(x, 0, -1)),
    "movedim several": ((2, 3, 4, 5), lambda F, x: x.movedim((0, 1), (-1, 0))),
    "moveaxis": ((2, 3, 4), lambda F, x: F.moveaxis(x, 2, 0)),
    "expand": ((3, 1), lambda F, x: x.expand(3, 4)),
    "expand new": ((3, 1), lambda F, x: x.expand(2, -1, 4)),
    "expand same": ((3, 4), lambda F, x: x.expand(-1, -1)),
    "expand tuple": ((3, 1), lambda F, x: x.expand((2, 3, 1))),
    "expand 0-d": ((), lambda F, x: x.expand(2, 3)),
    "expand to empty": ((1, 3), lambda F, x: x.expand(0, 3)),
    "expand_as": ((3,), lambda F, x: x.expand_as(F.zeros(2, 3))),
    "broadcast_to": ((3, 1), lambda F, x: F.broadcast_to(x, (2, 3, 4))),
    "broadcast_to sizes": ((3, 1), lambda F, x: x.broadcast_to(2, 3, 4)),
    "broadcast_to size": ((3, 1), lambda F, x: x.broadcast_to(size=(2, 3, 4))),
    "diagonal": ((3, 4), lambda F, x: F.diagonal(x)),
    "diagonal above": ((3, 4), lambda F, x: x.diagonal(1)),
    "diagonal below": ((3, 4), lambda F, x: x.diagonal(-1)),
    "diagonal outside": ((3, 4), lambda F, x: x.diagonal(9)),
    "diagonal of a batch": ((2, 3, 4), lambda F, x: x.diagonal(offset=0, dim1=-1, dim2=0)),
    "broadcast_tensors": ((3, 1), lambda F, x: F.broadcast_tensors(x, F.zeros(4))[0]),
    "meshgrid": ((3,), lambda F, x: F.meshgrid(x, x[:2], indexing="ij")[0]),
    "meshgrid xy": ((3,), lambda F, x: F.meshgrid([x, x[:2], x[:1]], indexing="xy")[0]),
    "meshgrid 0-d": ((), lambda F, x: F.meshgrid(x.expand(2), x, indexing="ij")[1]),
    "unfold": ((3, 7), lambda F, x: x.unfold(1, 3, 2)),
    "unfold overlapping": ((5, 2), lambda F, x: x.unfold(0, 3, 1)),
    "unfold apart": ((3, 7), lambda F, x: x.unfold(-1, 2, 4)),
    "unfold whole": ((3, 4), lambda F, x: x.unfold(0, 3, 1)),
    "unfold 0-d": ((), lambda F, x: x.unfold(0, 1, 1)),
    "unflatten one": ((2, 3), lambda F, x: x.unflatten(-1, (3,))),
    "contiguous": ((3, 4), lambda F, x: x.contiguous()),
}
COPIES = {
    "reshape copying": ((3, 4), lambda F, x: x.T.reshape(2, 6)),
    "contiguous copying": ((3, 4), lambda F, x: x.T.contiguous()),
    "clone": ((3, 4), lambda F, x: x.clone()),
    "repeat": ((2, 3), lambda F, x: x.repeat(2, 3)),
    "repeat new dims": ((2, 3), lambda F, x: x.repeat((2, 1, 2))),
    "repeat 0-d": ((), lambda F, x: x.repeat(3)),
    "repeat zero times": ((2, 3), lambda F, x: x.repeat(0, 1)),
    "repeat empty": ((0, 3), lambda F, x: x.repeat(2, 2)),
    "tile": ((2, 3), lambda F, x: F.tile(x, (2,))),
    "tile more": ((3,), lambda F, x: F.tile(x, dims=(2, 2))),
    "flip": ((2, 3, 4), lambda F, x: F.flip(x, (0, 2))),
    "flip method": ((2, 3), lambda F, x: x.flip(-1)),
    "flip keyword": ((2, 3), lambda F, x: F.flip(x, dims=[0])),
    "flip none": ((2, 3), lambda F, x: F.flip(x, ())),
    "flip 0-d": ((), lambda F, x: F.flip(x, ())),
    "fliplr": ((2, 3), lambda F, x: F.fliplr(x)),
    "flipud": ((2, 3), lambda F, x: F.flipud(x)),
    "roll": ((3, 4), lambda F, x: F.roll(x, 2, 1)),
    "roll back": ((3, 4), lambda F, x: x.roll(-1, 0)),
    "roll flat": ((3, 4), lambda F, x: x.roll(5)),
    "roll several": ((3, 4), lambda F, x: F.roll(x, shifts=(1, 2), dims=(0, 1))),
    "roll twice": ((3, 4), lambda F, x: x.roll((1, 2), (1, 1))),
    "roll empty": ((0, 3), lambda F, x: x.roll(1, 0)),
    "rot90": ((3, 4), lambda F, x: F.rot90(x)),
    "rot90 back": ((2, 3, 4), lambda F, x: F.rot90(x, -1, (2, 0))),
    "rot90 twice": ((2, 3, 4), lambda F, x: x.rot90(6, [1, 2])),
    "rot90 not": ((3, 4), lambda F, x: x.rot90(4)),
    "diff": ((3, 4), lambda F, x: F.diff(x)),
    "diff twice": ((3, 4), lambda F, x: x.diff(n=2, dim=0)),
    "diff more often than it can": ((3, 4), lambda F, x: x.diff(9)),
    "diff with ends": ((3, 4), lambda F, x: F.diff(x, 2, 1, prepend=F.ones(3, 1), append=F.zeros(3, 2))),
    "diff 0 times": ((3, 4), lambda F, x: x.diff(0, prepend=F.ones(3, 1))),
    "diag_embed": ((2, 3), lambda F, x: F.diag_embed(x)),
    "diag_embed below": ((2, 3), lambda F, x: x.diag_embed(-2, 0, -1)),
    "diag_embed empty": ((2, 0), lambda F, x: x.diag_embed(1)),
    "diagflat": ((2, 3), lambda F, x: F.diagflat(x, 1)),
    "diagflat 0-d": ((), lambda F, x: F.diagflat(x)),
    "trace": ((3, 4), lambda F, x: F.trace(x * 1)),
    "trace empty": ((0, 4), lambda F, x: (x * 1).trace()),
    "unfold of nothing": ((3, 4), lambda F, x: x.unfold(1, 0, 2)),
    "repeat repeats=": ((2, 3), lambda F, x: x.repeat(repeats=(2, 1))),
    "tril": ((3, 4), lambda F, x: F.tril(x)),
    "tril above": ((2, 3, 4), lambda F, x: x.tril(1)),
    "triu": ((3, 4), lambda F, x: F.triu(x)),
    "triu below": ((4, 3), lambda F, x: x.triu(diagonal=-1)),
    "triu empty": ((0, 3), lambda F, x: x.triu()),
    "diag of a vector": ((3,), lambda F, x: F.diag(x)),
    "diag of a vector above": ((3,), lambda F, x: x.diag(2)),
    "diag of a matrix": ((3, 4), lambda F, x: F.diag(x)),
    "diag of a matrix below": ((3, 4), lambda F, x: x.diag(-1)),
    "diag of an empty vector": ((0,), lambda F, x: x.diag()),
}
CASES = {**VIEWS, **COPIES}


@each("layout", LAYOUTS)
@each("case", CASES)
def test_against_pytorch(case, layout):
    shape, call = CASES[case]
    check(lambda x: call(mytorch, x), lambda x: call(torch, x), LAYOUTS[layout](numbers(shape)))


@each("dtype", ["float64", "float16", "int64", "uint8", "bool"])
@each("case", CASES)
def test_dtypes(case, dtype):
    shape, call = CASES[case]
    check(lambda x: call(mytorch, x), lambda x: call(torch, x), numbers(shape, dtype))


@each("case", VIEWS)
def test_views_share_memory_and_version(case):
    shape, call = VIEWS[case]
    x = mytorch.Tensor(numbers(shape))
    y = call(mytorch, x)
    x += 1
    assert y._version is x._version
    his = torch.from_numpy(x.numpy())
    same(y, call(torch, his))


@each("case", COPIES)
def test_copies_have_memory_of_their_own(case):
    shape, call = COPIES[case]
    x = mytorch.Tensor(numbers(shape))
    y = call(mytorch, x)
    before = y.numpy().copy()
    x += 1
    np.testing.assert_array_equal(y.numpy(), before)


@pytest.mark.parametrize("call", [
    lambda x: x.view(-1), lambda x: x.view(2, 6), lambda x: x.view((4, 3)), lambda x: x.view(3, 2, 2),
    lambda x: x.T.view(2, 2, 3), lambda x: x[:, ::2].view(3, 2, 1),
    lambda x: x[:1].expand(3, 4).view(3, 2, 2),
    lambda x: x.view_as(x.reshape(2, 6)), lambda x: x[:0].view(4, 0),
])
def test_view(call):
    check(call, call, numbers((3, 4)))


@pytest.mark.parametrize("call", [
    lambda x: x.T.view(-1), lambda x: x[:, 1:].view(9), lambda x: x.expand(2, 3, 4).view(24),
    lambda x: x[:, :2].view(6),
])
def test_view_that_memory_does_not_allow(call):
    fails_alike(call, call, numbers((3, 4)), match=r"view size .* not compatible")


ERRORS = {
    "reshape": (lambda F, x: x.reshape(2, 7), r"shape '\[2, 7\]' is invalid for input of size 12"),
    "reshape -1": (lambda F, x: x.reshape(5, -1), r"shape '\[5, -1\]' is invalid for input of size 12"),
    "reshape two -1": (lambda F, x: x.reshape(-1, -1), r"only one dimension can be inferred.*\[-1, -1\]"),
    "reshape -2": (lambda F, x: x.reshape(-2, -6), r"\[-2, -6\]"),
    "reshape empty": (lambda F, x: x[:0].reshape(0, -1), r"0 elements into shape \[0, -1\]"),
    "reshape float": (lambda F, x: x.reshape(2.0, 6), "2.0"),
    "view": (lambda F, x: x.view(5), r"shape '\[5\]' is invalid for input of size 12"),
    "flatten": (lambda F, x: x.flatten(1, 0), "start_dim 1 .* end_dim 0"),
    "flatten dim": (lambda F, x: x.flatten(0, 2), r"\[-2, 1\], but got 2"),
    "unflatten": (lambda F, x: x.unflatten(0, (2, 2)), r"\[2, 2\] .* dim 0 \(3\)"),
    "squeeze": (lambda F, x: x.squeeze(2), r"\[-2, 1\], but got 2"),
    "squeeze twice": (lambda F, x: x.squeeze((0, -2)), "multiple times"),
    "unsqueeze": (lambda F, x: x.unsqueeze(3), r"\[-3, 2\], but got 3"),
    "transpose": (lambda F, x: x.transpose(0, 2), r"\[-2, 1\], but got 2"),
    "t": (lambda F, x: x.reshape(3, 2, 2).t(), "got 3"),
    "mT": (lambda F, x: x[0].mT, "1 dimensions"),
    "permute few": (lambda F, x: x.permute(0), r"\[0\] .* 2 dimensions"),
    "permute many": (lambda F, x: x.permute(0, 1, 2), r"3 dims \[0, 1, 2\] for .* 2 dimensions"),
    "permute function": (lambda F, x: F.permute(x, (0, 5, 0)), r"3 dims \[0, 5, 0\] for .* 2 dimensions"),
    "permute twice": (lambda F, x: x.permute(0, 0), r"\[0, 0\]"),
    "permute dim": (lambda F, x: x.permute(0, 2), r"\[-2, 1\], but got 2"),
    "movedim": (lambda F, x: x.movedim((0, 1), (0,)), "as many"),
    "movedim many": (lambda F, x: x.movedim((0, 1, 2), (0, 1)), r"got \(0, 1, 2\) and \(0, 1\)"),
    "expand": (lambda F, x: x.expand(3, 5), r"\(5\) .* \(4\) at dimension 1"),
    "expand new -1": (lambda F, x: x.expand(-1, 3, 4), r"\(-1\) .* dimension 0"),
    "expand few": (lambda F, x: x.expand(4), r"\[4\] .* 2 dimensions"),
    "broadcast_to": (lambda F, x: F.broadcast_to(x, (2, 4)), r"\(2\) .* \(3\) at dimension 0"),
    "diagonal": (lambda F, x: x.diagonal(0, 1, -1), "1 and -1"),
    "repeat": (lambda F, x: x.repeat(2), r"\[2\] .* 2-d"),
    "repeat negative": (lambda F, x: x.repeat(-1, 2), r"\[-1, 2\]"),
    "flip": (lambda F, x: x.flip(0, 0), "multiple times"),
    "flip dim": (lambda F, x: x.flip(2), r"\[-2, 1\], but got 2"),
    "roll": (lambda F, x: x.roll((1, 2), 0), r"\[1, 2\] and dims \[0\]"),
    "roll flat": (lambda F, x: x.roll((1, 2)), r"\[1, 2\]"),
    "tril": (lambda F, x: x[0].tril(), r"at least 2 dimensions.*\[4\]"),
    "diag": (lambda F, x: x.reshape(3, 2, 2).diag(), "3-D"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, match = ERRORS[case]
    fails_alike(lambda x: call(mytorch, x), lambda x: call(torch, x), numbers((3, 4)), match=match)


@pytest.mark.parametrize("call", [
    lambda x: mytorch.squeeze(x, axis=0), lambda x: mytorch.unsqueeze(x, axis=0), lambda x: x.squeeze(axis=0),
])
def test_numpy_names(call):
    assert call(mytorch.Tensor(numbers((1, 3)))).shape in ((3,), (1, 1, 3))


@pytest.mark.parametrize("name", ["reshape", "flatten", "squeeze", "transpose", "expand", "flip"])
def test_only_tensors(name):
    with pytest.raises(TypeError, match=f"{name}.*: expected a Tensor, got list"):
        getattr(mytorch, name)([1, 2], 0, 0)


def test_contiguous_gives_back_the_same_tensor():
    x = mytorch.Tensor(numbers((3, 4)))
    assert x.contiguous() is x
    y = x.T.contiguous()
    assert y.is_contiguous() and not x.T.is_contiguous()
    assert y.contiguous() is y


@pytest.mark.parametrize("case, grown", [
    (lambda x: x.expand(2, 3, 1), True), (lambda x: x.expand(3, 4), True),
    (lambda x: x.expand(-1, -1), False),
    (lambda x: x.expand(1, 3, 1), False), (lambda x: x.expand(2, 3, 1)[0], False),
])
def test_writing_to_an_expanded_tensor(case, grown):
    ours, theirs = mytorch.Tensor(np.ones((3, 1), np.float32)), torch.ones(3, 1)
    if grown:
        with pytest.raises(RuntimeError, match="single memory location"):
            case(ours).add_(1)
        with pytest.raises(RuntimeError, match="single memory location"):
            case(theirs).add_(1)
    else:
        case(ours).add_(1)
        case(theirs).add_(1)
    same(ours, theirs)


def test_writing_to_a_diagonal():
    def fill(x):
        y = x * 2
        y.diagonal().mul_(3)
        return y

    check(fill, fill, numbers((3, 4)))


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def regrouped(draw):
    """A shape, and another one with as many elements."""
    factors = draw(st.lists(st.integers(1, 4), max_size=5))
    cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
    bounds = [0, *cuts, len(factors)]
    return tuple(factors), tuple(int(np.prod(factors[a:b])) for a, b in zip(bounds, bounds[1:], strict=False))


@settings(max_examples=60, deadline=None)
@given(regrouped(), st.randoms(use_true_random=False))
def test_reshape_of_any_permutation(shapes, random):
    before, after = shapes
    order = random.sample(range(len(before)), len(before))

    def call(x):
        return x.permute(order).reshape(after)

    check(call, call, numbers(before))


@settings(max_examples=60, deadline=None)
@given(shapes, st.data())
def test_expand_to_any_shape(shape, data):
    new = data.draw(st.lists(st.integers(0, 3), max_size=2))
    sizes = [data.draw(st.sampled_from([n, -1] if n != 1 else [1, -1, 0, 3])) for n in shape]

    def call(x):
        return x.expand((*new, *sizes))

    check(call, call, numbers(shape))


def view_steps(shape):
    """The name of a view method and its arguments, for a tensor of this shape."""
    dim = st.integers(0, max(len(shape) - 1, 0))
    return st.one_of(
        st.tuples(st.just("transpose"), st.tuples(dim, dim)),
        st.tuples(st.just("unsqueeze"), st.tuples(st.integers(0, len(shape)))),
        st.tuples(st.just("squeeze"), st.tuples(dim)),
        st.tuples(st.just("flatten"), st.tuples(dim, dim).map(sorted)),
        st.tuples(st.just("expand"), st.just((2, *shape))),
    )


@settings(max_examples=60, deadline=None)
@given(shapes, st.data())
def test_views_of_views(shape, data):
    """Any chain of views has PyTorch's strides, values and gradient."""
    mine, his = tensors([numbers(shape)], grad=True)
    (x,), (y,) = mine, his
    for _ in range(data.draw(st.integers(1, 4))):
        step, arguments = data.draw(view_steps(tuple(x.shape)))
        x, y = getattr(x, step)(*arguments), getattr(y, step)(*arguments)
    same(x, y)
    if x.numel() and all(n > 1 for n in x.shape):
        assert x.stride() == y.stride()
    compare_gradients([x], [y], mine, his)
