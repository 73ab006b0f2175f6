"""One of everything, in seconds: if this passes, the pieces fit together."""

import numpy as np

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small classifier with one of each kind of layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.body = nn.Sequential(
            nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 16)
        )
        self.head = nn.Linear(16, 3)
        self.register_buffer("calls", mytorch.zeros(1))

    def forward(self, idx):
        x = self.embedding(idx)  # (B, T, C)
        x = x + F.scaled_dot_product_attention(x, x, x, is_causal=True)
        self.calls += 1
        return self.head(self.body(x).mean(1))


def test_train_save_load_and_continue(tmp_path):
    mytorch.manual_seed(0)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 10, (60, 6))
    labels = (tokens >= 5).sum(1) // 3  # learnable from the mean over the tokens
    data = TensorDataset(mytorch.from_numpy(tokens), mytorch.from_numpy(labels))
    loader = DataLoader(data, batch_size=20, shuffle=True)
    model = Net()
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
    losses = []
    for _ in range(60):
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() / len(loader)
        schedule.step()
        losses.append(total)
    assert losses[0] > 0.5 and losses[-1] < 0.3, losses

    mytorch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.safetensors"
    )
    state = mytorch.load(tmp_path / "state.safetensors")
    twin = Net()
    twin.load_state_dict(state["model"])
    x = mytorch.from_numpy(tokens)
    assert (twin.eval()(x).argmax(1) == model.eval()(x).argmax(1)).all()
    assert twin.calls.item() == model.calls.item()
    again = mytorch.optim.AdamW(twin.parameters(), lr=1.0)
    again.load_state_dict(state["optimizer"])
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
