"""Vectors of parameters when the user assigns other gradients, values, states, dtypes or groups."""

import copy

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from tests.every import every
from tests.optim.flat_cases import offset, parameters, same, train, twins


def other_gradient(optimizer, p):
    p.grad = p.grad.clone()


def other_values(optimizer, p):
    p.data = mytorch.Array(p.data.numpy() * 2)


def other_state_tensor(optimizer, p):
    optimizer.state[p]["exp_avg"] = optimizer.state[p]["exp_avg"] + 1


def other_state(optimizer, p):
    optimizer.state[p] = {name: value.clone() * 2 for name, value in optimizer.state[p].items()}


def no_state(optimizer, p):
    optimizer.state.clear()


def no_state_of_one(optimizer, p):
    del optimizer.state[p]


def state_in_place(optimizer, p):
    optimizer.state[p]["exp_avg_sq"].mul_(3)
    optimizer.state[p]["step"].add_(5)


def other_order(optimizer, p):
    optimizer.param_groups[0]["params"].reverse()


def one_less(optimizer, p):
    group = optimizer.param_groups[0]
    group["params"] = [q for q in group["params"] if q is not p]  # `remove` would compare elements
    p.grad = None


def other_options(optimizer, p):
    optimizer.param_groups[0].update(lr=0.5, betas=(0.5, 0.5), amsgrad=True)


def other_groups(optimizer, p):
    params = optimizer.param_groups[0]["params"]
    optimizer.param_groups[0]["params"] = params[3:]
    optimizer.add_param_group({"params": params[:3], "lr": 0.5})


EXCHANGES = [
    other_gradient, other_values, other_state_tensor, other_state, no_state, no_state_of_one, state_in_place,
    other_order, one_less, other_options, other_groups,
]


class TorchSide:
    """PyTorch's optimizer and tensor behind the few names that the exchanges use."""

    @staticmethod
    def apply(exchange, optimizer, p):
        if exchange is other_values:
            p.data = p.data * 2
        elif exchange is other_options:
            optimizer.param_groups[0].update(lr=0.5, betas=(0.5, 0.5), amsgrad=True)
            for entry in optimizer.state.values():  # PyTorch would miss it
                entry["max_exp_avg_sq"] = torch.zeros_like(entry["exp_avg_sq"])
        else:
            exchange(optimizer, p)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_whatever_is_exchanged_counts(exchange):
    ours = parameters()
    theirs = twins(ours)
    optimizer, oracle = optim.AdamW(ours, lr=0.05), torch.optim.AdamW(theirs, lr=0.05)
    train(optimizer, oracle, ours, theirs)
    exchange(optimizer, ours[3])
    TorchSide.apply(exchange, oracle, theirs[3])
    optimizer.step()
    oracle.step()
    same(ours, theirs)
    train(optimizer, oracle, ours, theirs)
    same(ours, theirs)
    before = optimizer.flat_buffers()
    assert every(a is b for a, b in zip(before, optimizer.flat_buffers(), strict=True))


def test_a_gradient_in_memory_of_the_user_stays_there():
    (p,) = parameters(shapes=[(3,)])
    optimizer = optim.SGD([p], lr=1.0)
    mine = mytorch.Array([1.0, 2.0, 3.0])
    p.grad = mine
    before = p.data.numpy().copy()
    optimizer.step()
    mine[...] = 10
    optimizer.step()
    np.testing.assert_allclose(p.data.numpy(), before - [11, 12, 13], rtol=1e-6)
    assert np.shares_memory(p.grad.numpy(), mine.numpy())


def test_the_gradient_array_is_not_changed_by_a_step():
    for options in ({}, {"weight_decay": 0.1}, {"maximize": True}):
        for kind in (optim.SGD, optim.Adam):
            (p,) = parameters(shapes=[(3,)])
            optimizer = kind([p], **options)
            p.backward(np.array([1, 2, 3], np.float32))
            optimizer.step()
            assert p.grad.tolist() == [1, 2, 3]


def test_two_optimizers_take_turns_on_the_same_parameters():
    ours = parameters()
    theirs = twins(ours)
    pair = optim.AdamW(ours, lr=0.01), optim.SGD(ours[::-1], lr=0.1, momentum=0.9)
    oracles = torch.optim.AdamW(theirs, lr=0.01), torch.optim.SGD(theirs[::-1], lr=0.1, momentum=0.9)
    for turn in range(6):
        train(pair[turn % 2], oracles[turn % 2], ours, theirs, steps=2, seed=turn)
    same(ours, theirs)


def test_frozen_parameters_stay_out_until_they_are_thawed():
    ours = parameters()
    ours[1].requires_grad_(False)
    theirs = twins(ours)
    frozen = ours[1].data
    optimizer, oracle = optim.AdamW(ours, lr=0.01), torch.optim.AdamW(theirs, lr=0.01)
    some = [0, 2, 3, 4, 5]
    train(optimizer, oracle, [ours[i] for i in some], [theirs[i] for i in some])
    assert ours[1].data is frozen and ours[1] not in optimizer.state
    ours[1].requires_grad_()
    train(optimizer, oracle, ours, theirs)
    same(ours, theirs)
    ours[1].requires_grad_(False)
    train(optimizer, oracle, [ours[i] for i in some], [theirs[i] for i in some])
    same(ours, theirs)


def test_another_dtype_keeps_the_state():
    ours = parameters()
    theirs = twins(ours)
    optimizer, oracle = optim.AdamW(ours, lr=0.01), torch.optim.AdamW(theirs, lr=0.01)
    train(optimizer, oracle, ours, theirs)
    optimizer.zero_grad()
    for p in ours:
        p.data = p.data.astype("float64")
    for p, q in zip(ours, theirs, strict=True):
        g = np.ones(p.shape)
        p.grad, q.grad = mytorch.Array(g), torch.tensor(g, dtype=torch.float32)
    optimizer.step()
    oracle.step()
    same(ours, theirs)
    assert ours[0].dtype == optimizer.state[ours[0]]["exp_avg"].dtype == np.float64


def test_a_slot_that_was_lost_is_given_back():
    ours = parameters()
    theirs = twins(ours)
    optimizer, oracle = optim.AdamW(ours), torch.optim.AdamW(theirs)
    ours[0].grad_slot = None
    train(optimizer, oracle, ours, theirs, steps=1)
    (flat,) = optimizer.flat_buffers()
    flat.grad.fill(0)
    train(optimizer, oracle, ours, theirs, steps=1)
    assert offset(ours[0].grad, flat.grad) == 0 and flat.grad[:15].all()
    same(ours, theirs)


def test_tensors_in_one_memory_are_refused():
    a = np.ones(6, np.float32)
    p, q = mytorch.Tensor(a, requires_grad=True), mytorch.Tensor(a, requires_grad=True)
    with pytest.raises(
        ValueError, match=r"parameters 0 and 1 \(shapes \(6,\) and \(6,\)\) are different tensors"
    ):
        optim.SGD([p, q])


def test_a_deep_copy_of_a_parameter_is_on_its_own():
    ours = parameters()
    optimizer = optim.SGD(ours, lr=1.0)
    twin = copy.deepcopy(ours[0])
    before = twin.data.numpy().copy()
    ours[0].backward(np.ones((5, 3), np.float32))
    twin.backward(np.full((5, 3), 7, np.float32))
    assert ours[0].grad.numpy().max() == 1
    optimizer.step()
    np.testing.assert_array_equal(twin.data.numpy(), before)
    np.testing.assert_allclose(ours[0].data.numpy(), before - 1, rtol=1e-6)
