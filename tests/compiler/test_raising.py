"""Errors that depend on elements: a compiled function raises them where eager code does, also for unused
results, and what was written before has been written."""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F

CASES = {
    "getitem": lambda x, i: x[i],
    "a column": lambda x, i: x[:, i],
    "take": lambda x, i: x.take(i * 100),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[None]),
    "take_along_dim": lambda x, i: x.take_along_dim(i[None], 0),
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[None], x, "amax"),
    "setitem": lambda x, i: x.clone().__setitem__(i, 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_put": lambda x, i: x.index_put((i,), mytorch.tensor(1.0)),
    "accumulated": lambda x, i: x.index_put((i,), mytorch.tensor(1.0), accumulate=True),
    "put": lambda x, i: x.put(i * 100, x[0, :2]),
    "an index without dims": lambda x, i: x[i[0]],
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "one_hot": lambda x, i: F.one_hot(i, 4),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2], i),
    "masked_scatter": lambda x, i: x.masked_scatter(x > 0, x[0, :1]),
    "remainder": lambda x, i: i % (i - 9),
    "floor_divide": lambda x, i: i // (i - 9),
    "fmod": lambda x, i: mytorch.fmod(i, i - 9),
    "inv": lambda x, i: mytorch.linalg.inv(x[:3, :3] * 0),
    "solve": lambda x, i: mytorch.linalg.solve(x[:3, :3] * 0, x[:3, :1]),
    "cholesky": lambda x, i: mytorch.linalg.cholesky(-x[:3, :3]),
    "eigh": lambda x, i: mytorch.linalg.eigh(x[:3, :3] * float("nan")),
    "svd": lambda x, i: mytorch.linalg.svd(x * float("nan")),
    "bernoulli": lambda x, i: mytorch.bernoulli(x),
    "negative distributions": lambda x, i: mytorch.multinomial(-x, 1),
    "empty distributions": lambda x, i: mytorch.multinomial(x * 0, 1),
    "few categories": lambda x, i: mytorch.multinomial((x > 10) * 1.0, 3),
    "normal": lambda x, i: mytorch.normal(x, -x),
    "binary_cross_entropy": lambda x, i: F.binary_cross_entropy(x, x * 0),
    "gaussian_nll_loss": lambda x, i: F.gaussian_nll_loss(x, x, -x),
    "repeat_interleave": lambda x, i: x.repeat_interleave(mytorch.cat([-i, i[:1]]), 0, output_size=9),
    "output_size": lambda x, i: x.repeat_interleave(mytorch.cat([i, i[:1]]), 0, output_size=9),
    "quantile": lambda x, i: x.quantile(x[0]),
    "none": lambda x, i: x * 2,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_errors_are_raised_where_eager_code_raises_them(name, is_used):
    def function(x, i, w):
        w.add_(1)
        y = CASES[name](x, i)
        w.add_(10)
        return (w * 2, y) if is_used else w * 2

    found = []
    for call in (function, mytorch.compile(function)):
        x, i, w = mytorch.arange(1.0, 13.0).reshape(3, 4), mytorch.tensor([9, 0]), mytorch.zeros(2)
        error = None
        try:
            call(x, i, w)
        except Exception as raised:
            error = type(raised)
        found.append((error, w.tolist()))
    assert found[0] == found[1] and (found[0][0] is None) is (name == "none")
    assert found[0][1] == ([11, 11] if name == "none" else [1, 1])


def test_gradients_before_an_error_are_there():
    weight = mytorch.nn.Parameter(mytorch.ones(2))

    @mytorch.compile
    def step(x, i):
        (weight * x).sum().backward()
        return x[i]

    with pytest.raises(IndexError):
        step(mytorch.ones(2), mytorch.tensor([5]))
    assert weight.grad.tolist() == [1, 1]


def test_a_write_after_an_error_does_not_happen():
    def function(x, i):
        y = (x * 2).exp() + 1
        z = x[i]
        x.copy_(y)
        return z

    x = mytorch.zeros(70_000)
    with pytest.raises(IndexError):
        mytorch.compile(function)(x, mytorch.tensor([70_000]))
    assert not np.any(x.numpy())
