"""
Draws the picture of docs/autograd.md.

    python docs/pictures/autograd.py
"""

from __future__ import annotations

from pathlib import Path

import mytorch
from mytorch import nn

FOLDER = Path(__file__).resolve().parent


def pictures() -> dict[str, str]:
    """Returns the pictures, SVG, by the names of their files."""
    mytorch.manual_seed(0)
    model, x = Block(), mytorch.randn(8, 16, requires_grad=True)
    with mytorch.use_fused(False), mytorch.stream.record():
        loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    return {"graph.svg": mytorch.autograd.draw(loss, model=model, names={"x": x}).svg()}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(self.norm(x))


if __name__ == "__main__":
    for name, content in pictures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
        print(FOLDER / name)
