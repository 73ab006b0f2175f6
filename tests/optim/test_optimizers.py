"""Optimizers step by step against PyTorch's: parameters and state."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from tests.every import every
from tests.optim.cases import CASES, STEPS, give_grads, make, parameters, run, same_parameters, same_state


@pytest.mark.parametrize("case", CASES)
def test_trajectory(case):
    """Parameters without a gradient are left alone: their state and step count stay."""
    ours, theirs = parameters(dtype="float64")
    optimizer, oracle = make(case, ours, theirs)
    before = ours[0].data.numpy().copy()
    # 1 has no gradient every third step, 3 never has one, 5 from the tenth step on
    run(
        optimizer, oracle, ours, theirs,
        skip=lambda step: {3} | ({1} if step % 3 == 0 else {5} if step < 10 else set()),
    )
    assert not np.allclose(before, ours[0].data.numpy())
    exact = {"rtol": 1e-13, "atol": 1e-13}
    same_parameters(ours, theirs, **exact)
    same_state(optimizer, oracle, **exact)
    steps = {i: int(entry["step"]) for i, entry in optimizer.state_dict()["state"].items() if "step" in entry}
    if case.startswith("Adagrad"):
        assert steps.pop(3) == 0  # its state is there from the beginning
    assert steps in ({}, {0: 25, 1: 16, 2: 25, 4: 25, 5: 19})


def test_lr_may_change_between_steps():
    ours, theirs = parameters()
    groups = [[{"params": params[:2], "lr": 0.02}, {"params": params[2:]}] for params in (ours, theirs)]
    optimizer, oracle = make("AdamW GPT", *groups)
    for _ in range(2):
        run(optimizer, oracle, ours, theirs, steps=3)
        for group in optimizer.param_groups + oracle.param_groups:
            group["lr"] *= 0.5
    same_parameters(ours, theirs)
    same_state(optimizer, oracle)


def test_options_may_be_tensors_or_numpy_numbers():
    ours, theirs = parameters()
    optimizer = optim.AdamW(ours, lr=mytorch.Tensor(0.01), betas=(np.float64(0.8), np.float64(0.9)))
    oracle = torch.optim.AdamW(theirs, lr=0.01, betas=(0.8, 0.9))
    run(optimizer, oracle, ours, theirs)
    same_parameters(ours, theirs)


def test_half_precision_computes_and_keeps_state_in_float32():
    ours, theirs = parameters(dtype="float16")
    theirs = [q.detach().float().requires_grad_() for q in theirs]
    optimizer, oracle = make("AdamW GPT", ours, theirs, lr=0.01)
    rng = np.random.default_rng(3)
    for _ in range(STEPS):
        for p, q in zip(ours, theirs, strict=True):
            g = np.asarray(rng.standard_normal(p.shape) * 1e-4, np.float16)  # g * g is nothing in float16
            p.grad = mytorch.Array(g)
            q.grad = torch.tensor(g).float()
        optimizer.step()
        oracle.step()
        for q in theirs:
            q.data = q.data.half().float()
    for p, q in zip(ours, theirs, strict=True):
        assert p.dtype == np.float16
        np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), rtol=1e-3, atol=1e-4)
    state = optimizer.state[ours[0]]
    assert state["exp_avg_sq"].dtype == np.float32
    np.testing.assert_allclose(
        state["exp_avg_sq"].numpy(), oracle.state[theirs[0]]["exp_avg_sq"].numpy(), 1e-5
    )


def test_a_network_trains_as_in_pytorch():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 6)).astype(np.float32), rng.standard_normal((16, 2)).astype(np.float32)

    def loss(params, x, y):
        w1, b1, w2 = params
        return (((x @ w1 + b1).tanh() @ w2 - y) ** 2).mean()

    ours, theirs = parameters(shapes=[(6, 8), (8,), (8, 2)])
    optimizer, oracle = optim.AdamW(ours, lr=0.01), torch.optim.AdamW(theirs, lr=0.01)
    mine, his = [], []
    for _ in range(STEPS):
        for record, params, opt, tensor in (
            (mine, ours, optimizer, mytorch.Tensor),
            (his, theirs, oracle, torch.from_numpy),
        ):
            opt.zero_grad()
            value = loss(params, tensor(x), tensor(y))
            value.backward()
            opt.step()
            record.append(value.item())
    np.testing.assert_allclose(mine, his, rtol=2e-6)
    same_parameters(ours, theirs)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_model_in_another_dtype(when):
    """The optimizer is made before the model is cast, or after."""
    torch.manual_seed(0)
    oracle_model = torch.nn.Linear(4, 3).double()
    model = mytorch.nn.Linear(4, 3)
    if when == "after":
        model.double()
    optimizer, oracle = (
        optim.AdamW(model.parameters(), lr=0.1),
        torch.optim.AdamW(oracle_model.parameters(), lr=0.1),
    )
    model.double()
    model.load_state_dict({k: mytorch.Tensor(v.numpy()) for k, v in oracle_model.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 4))
    for _ in range(5):
        for net, opt, tensor in ((model, optimizer, mytorch.Tensor), (oracle_model, oracle, torch.tensor)):
            opt.zero_grad()
            (net(tensor(x)) ** 2).sum().backward()
            opt.step()
    for p, q in zip(model.parameters(), oracle_model.parameters(), strict=True):
        assert p.dtype == np.float64
        np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), rtol=1e-12)


def test_closure():
    ours, theirs = parameters(shapes=[(3,)])
    optimizer, oracle = make("SGD nesterov", ours, theirs)

    def closure_of(opt, p):
        def closure():
            opt.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        return closure

    for _ in range(3):
        with mytorch.no_grad():  # the closure is run with gradients all the same
            mine = optimizer.step(closure_of(optimizer, ours[0]))
        his = oracle.step(closure_of(oracle, theirs[0]))
        assert mine.item() == pytest.approx(his.item(), rel=1e-6)
    same_parameters(ours, theirs)
    assert optimizer.step() is None


def test_zero_grad():
    ours, theirs = parameters()
    optimizer, oracle = make("SGD nesterov", ours, theirs)
    give_grads(ours, theirs, np.random.default_rng(0), skip={2})
    optimizer.zero_grad(set_to_none=False)
    oracle.zero_grad(set_to_none=False)
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        assert p.grad is None or not p.grad.numpy().any()
    optimizer.zero_grad()
    assert every(p.grad is None for p in ours)


def test_zero_grad_to_zeros_still_moves_by_momentum():
    ours, theirs = parameters()
    optimizer, oracle = make("SGD nesterov", ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=2)
    for _ in range(3):
        for opt in (optimizer, oracle):
            opt.zero_grad(set_to_none=False)
            opt.step()
    same_parameters(ours, theirs)


def test_named_parameters_in_all_groups_or_in_none():
    ours, _ = parameters(shapes=[(2,), (3,)])
    optimizer = optim.SGD(zip("ab", ours, strict=True), lr=0.1)
    with pytest.raises(ValueError, match="Some param names are missing: 1 of 2"):
        optim.SGD([("a", ours[0]), ours[1]])
    with pytest.raises(ValueError, match="cannot add param group without names"):
        optimizer.add_param_group({"params": [mytorch.Tensor([1.0], requires_grad=True)]})


def test_repr():
    ours, theirs = parameters(shapes=[(2,)])
    groups = [{"params": ours}, {"params": [mytorch.Tensor([1.0], requires_grad=True)], "lr": 3}]
    groups_theirs = [{"params": theirs}, {"params": [torch.ones(1, requires_grad=True)], "lr": 3}]
    assert repr(optim.SGD(groups, lr=0.5)) == repr(torch.optim.SGD(groups_theirs, lr=0.5))


def test_an_optimizer_of_ones_own_is_a_formula():
    class SignDescent(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def state_names(self, group):
            return ("total",)

        def update(self, x, step, group):
            x.state["total"] += x.grad
            x.data -= group["lr"] * step * np.sign(x.state["total"])

    p = mytorch.Tensor([1.0, 2.0], requires_grad=True)
    optimizer = SignDescent([p], lr=0.5)
    for g in ([1.0, 1.0], [-3.0, 1.0]):
        p.grad = mytorch.Array(g)
        optimizer.step()
    assert p.tolist() == [1 - 0.5 + 1, 2 - 0.5 - 1]
    assert optimizer.state[p]["total"].tolist() == [-2, 2] and int(optimizer.state[p]["step"]) == 2


def test_an_optimizer_written_for_pytorch():
    def lion(torch):
        class Lion(torch.optim.Optimizer):
            def __init__(self, params, lr=1e-2, beta=0.9, weight_decay=0.1):
                super().__init__(params, {"lr": lr, "beta": beta, "weight_decay": weight_decay})

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        if len(state) == 0:
                            state["step"], state["exp_avg"] = 0, torch.zeros_like(p)
                        state["step"] += 1
                        p.mul_(1 - group["lr"] * group["weight_decay"])
                        mean = state["exp_avg"]
                        mean.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                        p.add_(torch.sign(mean), alpha=-group["lr"] / state["step"])

        return Lion

    ours, theirs = parameters()
    optimizer, oracle = lion(mytorch)(ours), lion(torch)(theirs)
    run(optimizer, oracle, ours, theirs, steps=4)
    other, other_oracle = lion(mytorch)(ours), lion(torch)(theirs)
    other.load_state_dict(optimizer.state_dict())
    other_oracle.load_state_dict(oracle.state_dict())
    run(other, other_oracle, ours, theirs, steps=4)
    same_parameters(ours, theirs)
    assert other.state[ours[0]]["step"] == 8


def test_an_optimizer_around_another():
    """Which takes its groups and doesn't call `Optimizer.__init__()`, as those written for PyTorch."""

    def lookahead(torch):
        class Lookahead(torch.optim.Optimizer):
            def __init__(self, inner):
                self.inner, self.param_groups, self.calls = inner, inner.param_groups, 0
                self.slow = [p.detach().clone() for p in self.param_groups[0]["params"]]

            @torch.no_grad()
            def step(self):
                self.inner.step()
                self.calls += 1
                if self.calls % 2 == 0:
                    for slow, p in zip(self.slow, self.param_groups[0]["params"], strict=True):
                        p.copy_(slow.lerp_(p, 0.5))

            def zero_grad(self):
                self.inner.zero_grad()

        return lambda params: Lookahead(torch.optim.SGD(params, lr=0.1, momentum=0.9))

    ours, theirs = parameters()
    run(lookahead(mytorch)(ours), lookahead(torch)(theirs), ours, theirs, steps=4)
    same_parameters(ours, theirs)
