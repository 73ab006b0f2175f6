"""Optimizers as programs for PyTorch write them, on `.grad` and `.data`: the same source for both."""

import numpy as np
import pytest
import torch

import mytorch


def momentum(torch, params, lr=0.1, mu=0.9, wd=0.01):
    class MySGD(torch.optim.Optimizer):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    d_p = p.grad.data
                    if group["wd"] != 0:
                        d_p = d_p.add(p.data, alpha=group["wd"])
                    state = self.state[p]
                    if "m" not in state:
                        buf = state["m"] = torch.zeros_like(p.data)
                        buf.mul_(mu).add_(d_p)
                    else:
                        buf = state["m"]
                        buf.mul_(mu).add_(d_p, alpha=1)
                    p.data.add_(d_p.add(buf, alpha=mu), alpha=-group["lr"])

    return MySGD(params, {"lr": lr, "wd": wd}).step


def adam(torch, params, lr=0.1):
    class MyAdam(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    grad, state = p.grad, self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["exp_avg"] = torch.zeros_like(p)
                        state["exp_avg_sq"] = torch.zeros_like(p.data)
                    exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                    state["step"] += 1
                    exp_avg.mul_(0.9).add_(grad, alpha=0.1)
                    exp_avg_sq.mul_(0.999).addcmul_(grad, grad, value=0.001)
                    denom = exp_avg_sq.sqrt().div_((1 - 0.999 ** state["step"]) ** 0.5).add_(1e-8)
                    step_size = lr / (1 - 0.9 ** state["step"])
                    p.data.addcdiv_(exp_avg, denom, value=-step_size)

    return MyAdam(params, {}).step


def assigned(torch, params, lr=0.1):
    def step():
        for p in params:
            p.data = p.data - lr * p.grad

    return step


def assigned_a_result(torch, params, lr=0.1):
    def step():
        for p in params:
            p.data = p.data - lr * torch.sign(p.grad.data)

    return step


def under_no_grad(torch, params, lr=0.1):
    def step():
        with torch.no_grad():
            total = torch.norm(torch.stack([torch.norm(p.grad.detach(), 2.0) for p in params]), 2.0)
            for p in params:
                p.grad.mul_(1.0 / (total + 1e-6))
                p -= lr * p.grad
                p.sub_(p.grad.sign().mul_(0.01))
                noise = torch.zeros_like(p.data).uniform_(0, 1).mul(0)
                p.data.add_(noise)
                p.grad.data = p.grad.data * 0.5

    return step


def rms(torch, params, lr=0.1):
    averages = [torch.zeros(p.size()) for p in params]

    def step():
        for p, v in zip(params, averages, strict=True):
            g = p.grad.data.clone().clamp_(-1, 1)
            if not bool(g.isfinite().all()):
                raise AssertionError
            v.data.mul_(0.9).addcmul_(g, g, value=0.1)
            update = g / (v.sqrt() + 1e-6)
            p.data.add_(update.view(p.size()).masked_fill(update == 0, 0.0), alpha=-lr)
            p.grad.detach_()

    return step


def averaged(torch, params, lr=0.1):
    shadow = [p.data.clone() for p in params]

    def step():
        for p, s in zip(params, shadow, strict=True):
            p.data.add_(p.grad.data, alpha=-lr)
            s.mul_(0.5).add_(p.data, alpha=0.5)
            p.data.copy_(s)
            p.data.lerp_(s.float(), 0.5)

    return step


STYLES = {f.__name__: f for f in (momentum, adam, assigned, assigned_a_result, under_no_grad, rms, averaged)}


def train(torch, make_step):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    rng = np.random.default_rng(0)
    for p in model.parameters():
        p.data.copy_(torch.tensor(rng.uniform(-0.5, 0.5, tuple(p.shape)).astype("float32")))
    x = torch.tensor(rng.standard_normal((8, 3)).astype("float32"))
    step = make_step(torch, list(model.parameters()))
    for _ in range(4):
        model.zero_grad()
        (model(x) ** 2).mean().backward()
        step()
    return [p.detach().tolist() for p in model.parameters()]


@pytest.mark.parametrize("style", STYLES)
def test_it_trains_as_in_pytorch(style):
    for got, want in zip(train(mytorch, STYLES[style]), train(torch, STYLES[style]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("style", ["averaged", "under_no_grad", "rms"])
def test_gradients_stay_in_a_flat_buffer(style):
    model = mytorch.nn.Linear(3, 4)
    builtin = mytorch.optim.SGD(model.parameters(), lr=0.1)
    model(mytorch.ones(2, 3)).sum().backward()
    builtin.step()
    raws = [(p.data._array, p.grad._array) for p in model.parameters()]
    STYLES[style](mytorch, list(model.parameters()))()
    for p, (data, grad) in zip(model.parameters(), raws, strict=True):
        p.grad.mul_(2).zero_()
        assert p.data._array is data and p.grad._array is grad
