"""`joined`: pieces that lie in memory as in one array, so that the gradient of `split` needs no copy."""

import numpy as np
import pytest

import mytorch
from mytorch.core.op import op
from mytorch.ops.split import joined
from tests.every import every


def buffer(*shape):
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


base, vector = buffer(4, 6), buffer(9)
a, b = np.split(base, 2, 1)
WHOLE = {
    "thirds": (np.split(buffer(2, 5, 12), 3, 2), 2),
    "unequal": (np.split(buffer(2, 7), [3, 4], 1), 1),
    "first dim": (np.split(buffer(6, 4), 2, 0), 0),
    "one": ([buffer(3, 4)], 1),
    "batch of one": (np.split(buffer(1, 5, 6), 2, 2), 2),
    "heads": ([part.reshape(2, 5, 4) for part in np.split(buffer(2, 5, 3, 2, 2), 3, 2)], 2),
    "a part of the array": (np.split(base[:, :4], 2, 1), 1),
    "every other element": (np.split(buffer(4, 12)[:, ::2], 2, 1), 1),
    "reversed rows": ([a[::-1], b[::-1]], 1),
    "transposed": (np.split(buffer(4, 4).T, 2, 1), 1),
    "memory of bytes": (np.split(np.frombuffer(bytes(32), "float32"), 2), 0),
}
NOT_WHOLE = {
    "out of order": ([b, a], 1),
    "one twice": ([a, a], 1),
    "memory of their own": ([a.copy(), b.copy()], 1),
    "one with memory of its own": ([a, b.copy()], 1),
    "overlapping": ([vector[:6], vector[3:6]], 0),
    "a gap": ([vector[:3], vector[4:]], 0),
    "another dim": (np.split(buffer(4, 4), 2, 1), 0),
    "one is reversed": ([a, b[::-1]], 1),
    "repeated": ([np.broadcast_to(np.float32(1), (2, 2))] * 2, 1),
    "another dtype": ([a, b.view("int32")], 1),
    "nothing": ([np.empty((2, 0)), np.empty((2, 0))], 1),
}
STACKED = {
    "first dim": (list(buffer(3, 2, 4)), 0),
    "middle": (list(np.moveaxis(buffer(2, 3, 4), 1, 0)), 1),
    "last": (list(np.moveaxis(buffer(2, 4, 3), -1, 0)), 2),
    "numbers": (list(np.split(vector, 9)), 0),
    "heads": (list(buffer(2, 5, 3, 2, 4).transpose(2, 0, 3, 1, 4)), 0),
    "backwards": (list(buffer(3, 2, 4)[::-1]), 0),
}
first, second, third = buffer(3, 2, 4)
NOT_STACKED = {
    "uneven": ([first, third, second], 0),
    "one twice": ([first, first], 0),
    "memory of their own": ([first.copy(), second.copy()], 0),
    "another layout": ([first, second, third[::-1]], 0),
}


@pytest.mark.parametrize(("parts", "dim"), WHOLE.values(), ids=WHOLE)
def test_pieces_in_one_piece_of_memory_are_joined_without_a_copy(parts, dim):
    whole = joined(parts, dim)
    assert every(np.shares_memory(whole, part) for part in parts)
    np.testing.assert_array_equal(whole, np.concatenate(parts, dim))


@pytest.mark.parametrize(("parts", "dim"), STACKED.values(), ids=STACKED)
def test_slices_at_equal_distances_are_stacked_without_a_copy(parts, dim):
    whole = joined(parts, dim, new_dim=True)
    assert every(np.shares_memory(whole, part) for part in parts)
    np.testing.assert_array_equal(whole, np.stack(parts, dim))


@pytest.mark.parametrize(("parts", "dim"), NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_other_pieces_are_not(parts, dim):
    assert joined(parts, dim) is None


@pytest.mark.parametrize(("parts", "dim"), NOT_STACKED.values(), ids=NOT_STACKED)
def test_other_slices_are_not(parts, dim):
    assert joined(parts, dim, new_dim=True) is None


@op
def first_of(x, y, gradients):
    """x, with these as the gradients of x and y."""
    return x, lambda g: tuple(gradients)


CUTS = [lambda x: x.split(3, 1), lambda x: x.chunk(2, 1), lambda x: x.split([3, 3], 1)]


@pytest.mark.parametrize("cut", CUTS)
def test_gradients_that_lie_side_by_side_become_one_without_a_copy(cut):
    x, whole, seen = mytorch.randn(2, 6).requires_grad_(), buffer(2, 6), []
    doubled = x * 2
    doubled.register_hook(lambda g: seen.append(g.numpy()))
    first_of(*cut(doubled), np.split(whole, 2, 1)).sum().backward()
    assert seen[0] is not whole and np.shares_memory(seen[0], whole)
    np.testing.assert_array_equal(seen[0], buffer(2, 6))
    np.testing.assert_array_equal(x.grad.numpy(), 2 * buffer(2, 6))


def test_the_gradient_of_unbind_needs_no_copy_either():
    x, whole, seen = mytorch.randn(3, 2, 2).requires_grad_(), buffer(3, 2, 2), []
    doubled = x * 2
    doubled.register_hook(lambda g: seen.append(g.numpy()))
    y, z, _ = doubled.unbind()
    first_of(y, z, whole[:2]).sum().backward()  # the third has no gradient: then it is copied
    assert not np.shares_memory(seen[0], whole)
    np.testing.assert_array_equal(seen[0], [*buffer(3, 2, 2)[:2], np.zeros((2, 2))])
    y, z = (x[:2] * 2).unbind()
    first_of(y, z, whole[:2]).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy()[:2], 4 * buffer(3, 2, 2)[:2])


def test_a_leaf_s_gradient_never_shares_memory_with_the_pieces():
    x, whole = mytorch.randn(2, 6).requires_grad_(), buffer(2, 6)
    for _ in range(2):
        first_of(*x.split(3, 1), np.split(whole, 2, 1)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * buffer(2, 6))
    np.testing.assert_array_equal(whole, buffer(2, 6))
