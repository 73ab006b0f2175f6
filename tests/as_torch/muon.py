"""An optimizer of one's own: Muon for matrices and Adam for the rest, with `torch._foreach_*`."""

import torch
from mount import fill, numbers
from torch import nn


@torch.compile
def zeropower(G, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G / (G.norm() + 1e-7)
    if G.size(0) > G.size(1):
        X = X.T
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.size(0) > G.size(1) else X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                if "buf" not in self.state[p]:
                    self.state[p]["buf"] = torch.zeros_like(p)
            bufs = [self.state[p]["buf"] for p in params]
            torch._foreach_mul_(bufs, group["momentum"])
            torch._foreach_add_(bufs, grads)
            updates = torch._foreach_add(grads, bufs, alpha=group["momentum"])
            matrices = [zeropower(u) if u.ndim == 2 else u for u in updates]
            torch._foreach_mul_(params, 1 - 0.01 * group["lr"])
            torch._foreach_add_(params, matrices, alpha=-group["lr"])


def losses():
    torch.set_float32_matmul_precision("high")
    model = fill(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 2)))
    ema = [p.detach().clone() for p in model.parameters()]
    optimizer = Muon(model.parameters())
    x, y = numbers(16, 6), numbers(16, 2, seed=2)
    for _ in range(6):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(ema, [p.detach() for p in model.parameters()], 0.1)
        yield loss.item()
    yield torch.stack(torch._foreach_norm(ema)).sum().item()
    torch.set_float32_matmul_precision("highest")
