"""Blocks of a selective state space, whose step sizes and projections depend on the input (Mamba)."""

import math

import torch
import torch.nn.functional as F
from mount import fill, numbers
from torch import nn


class SelectiveStateSpace(nn.Module):
    def __init__(self, d_model, d_state=4, d_conv=3, expand=2):
        super().__init__()
        self.d_inner, self.d_state, self.d_conv = expand * d_model, d_state, d_conv
        self.dt_rank = math.ceil(d_model / 4)
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(
            self.d_inner, self.d_inner, kernel_size=d_conv, groups=self.d_inner, padding=d_conv - 1
        )
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner)
        A = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(self.d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.A_log._no_weight_decay = True
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, hidden_states):
        _, length, _ = hidden_states.shape
        x, z = self.in_proj(hidden_states).chunk(2, dim=-1)
        x = self.conv1d(x.transpose(1, 2))[..., :length].transpose(1, 2)
        x = F.silu(x)
        dt, B, C = torch.split(self.x_proj(x), [self.dt_rank, self.d_state, self.d_state], dim=-1)
        y = self.scan(x, F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log.float()), B, C)
        return self.out_proj(y * F.silu(z))

    def scan(self, u, delta, A, B, C):
        batch, length, _ = u.shape
        decay = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        inputs = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        state = u.new_zeros(batch, self.d_inner, self.d_state)
        ys = []
        for t in range(length):
            state = decay[:, t] * state + inputs[:, t]
            ys.append(torch.einsum("bdn,bn->bd", state, C[:, t]))
        return torch.stack(ys, dim=1) + u * self.D


class Block(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm, self.mixer = nn.RMSNorm(d_model, eps=1e-5), SelectiveStateSpace(d_model)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Model(nn.Module):
    def __init__(self, vocab_size, d_model, n_layer):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList([Block(d_model) for _ in range(n_layer)])
        self.norm_f = nn.RMSNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def cumulated(decay, inputs):
    """The same recurrence for all steps at once, by sums of logarithms: for a check of the loop."""
    log = torch.cumsum(torch.log(decay), dim=1)
    return torch.exp(log) * torch.cumsum(inputs * torch.exp(-log), dim=1)


def losses():
    model = Model(vocab_size=11, d_model=8, n_layer=2)
    kept = [name for name, _ in model.named_parameters() if name.endswith(("A_log", "D"))]
    start = {name: model.get_parameter(name).detach().clone() for name in kept}
    fill(model)
    with torch.no_grad():
        for name, value in start.items():
            model.get_parameter(name).add_(value)
    decay = [p for n, p in model.named_parameters() if not getattr(p, "_no_weight_decay", False)]
    rest = [p for n, p in model.named_parameters() if getattr(p, "_no_weight_decay", False)]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    ids = (numbers(4, 13) * 100).long() % 11
    for _ in range(6):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield loss.item()
    a, b = torch.sigmoid(numbers(2, 6, 3)), numbers(2, 6, 3, seed=2)
    state, states = torch.zeros(2, 3), []
    for t in range(6):
        state = a[:, t] * state + b[:, t]
        states.append(state)
    assert torch.allclose(cumulated(a, b), torch.stack(states, 1), atol=1e-4)
    yield state.sum().item()
