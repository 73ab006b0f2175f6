"""Parameters: what may be given to `.data`."""

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim


@pytest.mark.parametrize(
    "given", [mytorch.full((3,), 2.0), mytorch.Array([2.0] * 3), np.full(3, 2, "float32")]
)
def test_data_takes_a_tensor_as_in_pytorch(given):
    p = nn.Parameter(mytorch.zeros(3))
    optimizer = optim.SGD([p], lr=1.0)
    p.data = given
    assert type(p.data) is mytorch.Array and p.is_leaf and p.requires_grad
    (p * p).sum().backward()
    assert p.grad.tolist() == [4] * 3
    optimizer.step()
    assert p.tolist() == [-2] * 3


def test_data_shares_the_tensor_s_memory():
    p, x = nn.Parameter(mytorch.zeros(3)), mytorch.ones(3)
    p.data = x
    x[0] = 7
    assert p.tolist() == [7, 1, 1]


def test_data_takes_nothing_else():
    p = nn.Parameter(mytorch.zeros(3))
    with pytest.raises(TypeError, match="None"):
        p.data = None
    assert p.tolist() == [0] * 3
