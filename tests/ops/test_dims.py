"""Reading `dim` and `keepdim`, and NumPy's names for them."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.ops.dims import canonical_dim, canonical_dims, numpy_names
from tests.oracle import check, fails_alike


@pytest.mark.parametrize(
    ("dim", "ndim", "want"),
    [(0, 3, 0), (2, 3, 2), (-1, 3, 2), (-3, 3, 0), (0, 0, 0), (-1, 0, 0), (np.int64(1), 2, 1)],
)
def test_one_dim(dim, ndim, want):
    assert canonical_dim(dim, ndim) == want
    assert type(canonical_dim(dim, ndim)) is int


@pytest.mark.parametrize(
    ("dim", "ndim", "want"),
    [(None, 3, (0, 1, 2)), (None, 0, ()), (1, 3, (1,)), ((2, 0), 3, (0, 2)), ([-1, 0], 3, (0, 2)),
     ((), 3, ()), (-1, 0, (0,))],
)
def test_several_dims(dim, ndim, want):
    assert canonical_dims(dim, ndim) == want


@pytest.mark.parametrize(("dim", "ndim"), [(2, 2), (-3, 2), (1, 0), (-2, 0)])
def test_a_dim_out_of_range(dim, ndim):
    span = max(ndim, 1)
    for read in (canonical_dim, canonical_dims, lambda d, n: canonical_dims((d,), n)):
        with pytest.raises(IndexError, match=rf"range of \[-{span}, {span - 1}\], but got {dim}"):
            read(dim, ndim)


@pytest.mark.parametrize("dim", [1.0, "0", True, None, (0,)])
def test_a_dim_that_is_no_integer(dim):
    with pytest.raises(TypeError, match="a dim is an int"):
        canonical_dim(dim, 2)


@pytest.mark.parametrize("dim", [(0, 0), (1, -1), [0, 1, -2]])
def test_a_dim_twice(dim):
    with pytest.raises(RuntimeError, match="appears multiple times in the list of dims"):
        canonical_dims(dim, 2)


def test_numpy_names_are_translated():
    @numpy_names
    def shape(x, dim=None, keepdim=False):
        """Doc."""
        return dim, keepdim

    assert shape(0, axis=1, keepdims=True) == shape(0, dim=1, keepdim=True) == shape(0, 1, True) == (1, True)
    assert shape.__doc__ == "Doc." and shape.__name__ == "shape"
    with pytest.raises(TypeError, match="'dim' twice"):
        shape(0, dim=1, axis=1)
    with pytest.raises(TypeError, match="axes"):
        shape(0, axes=1)


NAMED = [
    "sum",
    "mean",
    "var",
    "std",
    "amax",
    "amin",
    "any",
    "all",
    "norm",
    "logsumexp",
    "prod",
    "argmax",
    "argmin",
]


@pytest.mark.parametrize("name", NAMED)
def test_reductions_take_axis_and_keepdims(name):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    check(lambda a: ours(a, axis=1, keepdims=True), lambda a: theirs(a, dim=1, keepdim=True), x)
    check(lambda a: getattr(a, name)(axis=0), lambda a: getattr(a, name)(dim=0), x)


@pytest.mark.parametrize("name", [name for name in NAMED if name not in ("norm", "std", "var")])
def test_reductions_refuse_a_second_dim_as_keepdim(name):
    for call in (lambda a: getattr(a, name)(0, 1), lambda a: getattr(a, name)(0, keepdim=1)):
        fails_alike(call, call, np.ones((2, 3), "float32"), match="keepdim must be a bool, got 1")


@pytest.mark.parametrize("name", [*NAMED, "max", "min", "sort", "argsort"])
def test_ops_refuse_a_wrong_dim(name):
    x, scalar = np.ones((2, 3), "float32"), np.ones((), "float32")
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    fails_alike(lambda a: ours(a, dim=2), lambda a: theirs(a, dim=2), x, match=r"\[-2, 1\], but got 2")
    fails_alike(lambda a: ours(a, dim=-3), lambda a: theirs(a, dim=-3), x, match=r"\[-2, 1\], but got -3")
    fails_alike(lambda a: ours(a, dim=1), lambda a: theirs(a, dim=1), scalar, match=r"\[-1, 0\], but got 1")
    fails_alike(lambda a: ours(a, dim=0.5), lambda a: theirs(a, dim=0.5), x, match="a dim is an int, got 0.5")
    if name not in ("max", "min", "prod", "argmax", "argmin", "sort", "argsort"):
        fails_alike(
            lambda a: ours(a, dim=(1, -1)), lambda a: theirs(a, dim=(1, -1)), x, match="multiple times"
        )
    with pytest.raises(TypeError, match="axis|dim"):
        ours(Tensor(x), dim=0, axis=0)
