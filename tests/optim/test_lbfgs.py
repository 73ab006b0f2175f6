"""L-BFGS against PyTorch: the same iterates, closures and state."""

import copy

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from tests.oracle import torch_of

SEARCHES = [None, "strong_wolfe"]


def rosenbrock(t, x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


def quadratic(t, x):
    return (x * x * t.tensor([1.0, 3.0, 10.0, 30.0], dtype=t.float64)[: len(x)]).sum()


def run(t, function, start, calls, **options):
    """The parameters after each call of `step`, the losses, the state, and all points of evaluation."""
    x = t.tensor(start, dtype=t.float64).requires_grad_()
    optimizer = t.optim.LBFGS([x], **options)
    seen, after, losses = [], [], []

    def closure():
        optimizer.zero_grad()
        loss = function(t, x)
        loss.backward()
        seen.append(x.detach().numpy().copy())
        return loss

    for _ in range(calls):
        losses.append(float(optimizer.step(closure)))
        after.append(x.detach().numpy().copy())
    return np.array(seen), np.array(after), losses, optimizer.state_dict()["state"][0]


CASES = {
    "one call": (1, {"max_iter": 30}),
    "several calls": (4, {"max_iter": 5}),
    "short history": (2, {"max_iter": 12, "history_size": 2}),
    "few evaluations": (3, {"max_iter": 10, "max_eval": 7}),
    "coarse": (2, {"max_iter": 30, "tolerance_grad": 0.1, "tolerance_change": 1e-3}),
    "one iteration": (6, {"max_iter": 1}),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("what", CASES)
@pytest.mark.parametrize("function", [rosenbrock, quadratic])
def test_the_same_iterates(function, what, search):
    calls, options = CASES[what]
    lr = 1 if search or function is quadratic else 1e-3  # without a search, Rosenbrock's valley is left
    start = [-1.2, 1.0, 0.7, -0.3]
    ours, theirs = (
        run(t, function, start, calls, lr=lr, line_search_fn=search, **options) for t in (mytorch, torch)
    )
    assert ours[0].shape == theirs[0].shape
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-6, atol=1e-10)
    for name in ("n_iter", "func_evals"):
        assert ours[3][name] == theirs[3][name]
    if search and what == "one call":
        assert ours[2] and np.abs(ours[1][-1]).max() < (1e-3 if function is quadratic else 1.5)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_small_network(search):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal((20, 2))
    losses = []
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    ours = mytorch.nn.Sequential(mytorch.nn.Linear(3, 5), mytorch.nn.Tanh(), mytorch.nn.Linear(5, 2)).double()
    ours.load_state_dict(theirs.state_dict())
    for t, model in ((mytorch, ours), (torch, theirs)):
        inputs, targets = t.tensor(x), t.tensor(y)
        optimizer = t.optim.LBFGS(model.parameters(), lr=0.3, max_iter=8, line_search_fn=search)

        def closure(t=t, model=model, optimizer=optimizer, inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = t.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        losses.append([float(optimizer.step(closure)) for _ in range(3)])
    np.testing.assert_allclose(*losses, rtol=1e-8)
    assert losses[0][-1] < 0.8 * losses[0][0]
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6, atol=1e-8)


def test_state_continues():
    """Half the steps, then a copy of the state in a new optimizer: as without the interruption."""
    whole = run(mytorch, rosenbrock, [-1.2, 1.0], 4, max_iter=3, line_search_fn="strong_wolfe")[1]
    x = mytorch.tensor([-1.2, 1.0], dtype="float64", requires_grad=True)
    optimizer = optim.LBFGS([x], max_iter=3, line_search_fn="strong_wolfe")
    for i in range(4):
        if i == 2:
            state, x = copy.deepcopy(optimizer.state_dict()), x.detach().clone().requires_grad_()
            optimizer = optim.LBFGS([x], max_iter=9)
            optimizer.load_state_dict(state)

        def closure(x=x):
            x.grad = None
            loss = rosenbrock(mytorch, x)
            loss.backward()
            return loss

        optimizer.step(closure)
        np.testing.assert_array_equal(x.detach().numpy(), whole[i])


def test_parameters_without_a_gradient_and_at_the_minimum():
    x, unused = (mytorch.tensor(v, requires_grad=True) for v in ([3.0], [5.0]))
    optimizer = optim.LBFGS([x, unused], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (x**2).sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 9 and abs(float(x)) < 1e-6 and float(unused) == 5
    assert optimizer.step(closure) is not None  # the gradient is 0: one evaluation


def test_wrong_arguments():
    x = [mytorch.ones(2, requires_grad=True)]
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        optim.LBFGS(x, lr=-1)
    with pytest.raises(ValueError, match="1-element"):
        optim.LBFGS(x, lr=mytorch.ones(2))
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": x}, {"params": [mytorch.ones(1, requires_grad=True)]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported, got line_search_fn='armijo'"):
        optim.LBFGS(x, line_search_fn="armijo").step(lambda: x[0].sum())
    assert repr(optim.LBFGS(x)) == repr(torch.optim.LBFGS([torch_of(np.ones(2)).requires_grad_()]))


def test_on_a_gpu(fake_cuda):
    found = []
    for device in ("cpu", "cuda:1"):
        x = mytorch.tensor([-1.2, 1.0], dtype="float64", device=device, requires_grad=True)
        optimizer = optim.LBFGS([x], max_iter=9, line_search_fn="strong_wolfe")

        def closure(x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = rosenbrock(mytorch, x)
            loss.backward()
            return loss

        optimizer.step(closure)
        found.append(x.detach().cpu().numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)
