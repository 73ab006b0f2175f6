"""REINFORCE and an actor-critic loss, as PyTorch's examples write them, on a walk along a line."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from mount import fill
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.action_head, self.value_head = nn.Linear(2, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def episode(model, rng):
    position, saved, rewards, entropy = 0.0, [], [], []
    for step in range(12):
        state = torch.from_numpy(np.array([position, step / 12], dtype=np.float32))
        probs, value = model(state)
        m = Categorical(probs)
        action = torch.tensor(int(rng.random() < probs[1].item()))
        saved.append((m.log_prob(action), value))
        entropy.append(m.entropy())
        position += 0.5 if action.item() else -0.5
        rewards.append(-abs(position - 2))
    return saved, rewards, entropy


def losses():
    torch.use_deterministic_algorithms(True)
    model = fill(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    rng, eps = np.random.default_rng(3), np.finfo(np.float32).eps.item()
    for _ in range(5):
        saved, rewards, entropy = episode(model, rng)
        R, returns = 0, []
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        policy_losses, value_losses = [], []
        for (log_prob, value), R in zip(saved, returns, strict=True):
            policy_losses.append(-log_prob * (R - value.item()))
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss = loss - 0.01 * torch.stack(entropy).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
    torch.use_deterministic_algorithms(False)
