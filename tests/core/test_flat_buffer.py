"""FlatBuffer: the layout of values, gradients and moments; which tensors can lie in one vector."""

import numpy as np
import pytest

import mytorch
from mytorch import optim
from mytorch.backends.holding import HoldingKind
from mytorch.core.flat_buffer import grouped
from tests.every import every
from tests.optim.flat_cases import offset, parameters


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values_and_gradients_lie_end_to_end(dtype):
    params = parameters(dtype=dtype)
    values = [p.data.numpy().copy() for p in params]
    flat = optim.FlatBuffer(params)
    end = 0
    for p, value, (start, stop) in zip(params, values, flat.spans, strict=True):
        assert start == end and stop - start < p.numel() + 64
        end = stop
        assert p.dtype == dtype and p.data.shape == value.shape
        np.testing.assert_array_equal(p.data.numpy(), value)
        p.backward(np.full(p.shape, 2, dtype))
        if p.numel():
            assert p.data.numpy().ctypes.data % 64 == 0
            assert offset(p.data, flat.data) == offset(p.grad, flat.grad) == start
    assert len(flat.data) == len(flat.grad) == flat.size == end
    assert flat.grad.sum() == 2 * sum(p.numel() for p in params)  # the padding is zero


def test_any_memory_layout_goes_in():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = [a.T, a[::-1, ::-2], np.broadcast_to(np.float32(3), (2, 2)), np.asfortranarray(a)]
    params = [mytorch.Tensor(x, requires_grad=True) for x in arrays]
    optim.FlatBuffer(params)
    for p, x in zip(params, arrays, strict=True):
        np.testing.assert_array_equal(p.data.numpy(), x)
        assert p.is_contiguous()


def test_gradients_alone_in_the_layout_of_another_buffer():
    single, half = parameters(), parameters(dtype="float16")
    values = [p.data for p in half]
    spans = optim.FlatBuffer(single).spans
    flat = optim.FlatBuffer(half, spans, values=False)
    assert flat.spans == spans and flat.data is None
    assert every(p.data is value for p, value in zip(half, values, strict=True))
    half[1].backward(np.ones(7, np.float16))
    assert offset(half[1].grad, flat.grad) == spans[1][0]


def test_foreign_gradients_are_copied_or_bound():
    params = parameters(shapes=[(3,), (2,), (4,)])
    flat = optim.FlatBuffer(params)
    params[1].backward(np.ones(2, np.float32))
    foreign = params[0].grad = mytorch.Array([1.0, 2.0, 3.0])
    flat.collect_grads()
    assert params[0].grad is foreign and flat.grad[:3].tolist() == [1, 2, 3]
    flat.grad *= 2
    flat.return_grads()
    assert foreign.tolist() == [2, 4, 6] and params[1].grad.tolist() == [2, 2]
    flat.zero_grad()
    assert foreign.tolist() == [0, 0, 0] and params[1].grad.tolist() == [0, 0]
    foreign[...] = 5
    flat.bind_grads()
    assert params[0].grad is not foreign and offset(params[0].grad, flat.grad) == 0
    assert params[0].grad.tolist() == [5, 5, 5] and params[2].grad is None
    params[2].backward(np.ones(4, np.float32))
    flat.zero_grad()
    assert not flat.grad.any() and not params[2].grad.numpy().any() and foreign.tolist() == [5, 5, 5]


def test_sections_are_the_longest_ones():
    flat = optim.FlatBuffer(parameters())  # 15, 7, 1, 16, 0 and 65 elements, in sections of 16, 0 and 80
    everything = flat.sections([True] * 6)
    assert list(everything) == [slice(0, flat.size)] and flat.size == 16 * 4 + 80
    assert list(flat.sections([True, False, True, True, True, False])) == [slice(0, 16), slice(32, 64)]
    assert list(flat.sections([False] * 4 + [True, False])) == []  # no elements
    assert flat.section(1, 3) == slice(16, 48)


def test_moments_by_name():
    params = parameters(dtype="float16")
    flat = optim.FlatBuffer(params)
    flat.add_moments(("exp_avg",), np.dtype("float32"))
    (vector,) = flat.moments.values()
    assert vector.dtype == np.float32 and vector.shape == flat.data.shape and not vector.any()
    for view, p in zip(flat.views(vector), params, strict=True):
        assert view.shape == p.data.shape
        view[...] = 1
    assert vector.sum() == sum(p.numel() for p in params)


def test_a_buffer_notices_what_is_assigned():
    for assign in (
        lambda p: setattr(p, "data", p.data.clone()),
        lambda p: setattr(p, "grad_slot", None),
    ):
        params = parameters()
        flat = optim.FlatBuffer(params)
        params[0].grad = mytorch.Array(np.ones((5, 3), np.float32))
        assert flat.is_current()
        assign(params[3])
        assert not flat.is_current()


class Sized(HoldingKind):
    """A kind whose small arrays must not share a vector with large ones."""

    def group(self, raw):
        return raw.size > 2


def test_a_vector_holds_one_dtype_on_one_device_of_one_kind_and_what_the_kind_adds(fake_cuda):
    plain = [mytorch.ones(2), mytorch.ones(2).double(), mytorch.ones(2, device="cuda:0"), mytorch.ones(5)]
    with Sized():
        sized = [mytorch.ones(2), mytorch.ones(5), mytorch.ones(1)]
    with Sized():
        other = mytorch.ones(2)
    assert plain[0].device == sized[0].device == other.device == "cpu"  # by name
    found = grouped([*plain, *sized, other, plain[0], sized[0]])
    assert [[id(t) for t in group] for group in found] == [
        [id(t) for t in group]
        for group in ([plain[0], plain[3]], [plain[1]], [plain[2]], [sized[0], sized[2]], [sized[1]], [other])
    ]


def test_an_optimizer_has_a_vector_for_each_group():
    with Sized():
        params = [mytorch.ones(size, requires_grad=True) for size in (2, 5, 1)]
        optimizer = optim.SGD(params, lr=1.0)
        for p in params:
            p.sum().backward()
        optimizer.step()
    assert [flat.params for flat in optimizer.flat_buffers()] == [(params[0], params[2]), (params[1],)]
    assert every(p.grad_slot.holds(p.grad) for p in params) and [float(p.sum()) for p in params] == [0, 0, 0]
