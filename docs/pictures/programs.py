"""
Draws the pictures of docs/programs.md.

    python docs/pictures/programs.py
"""

from __future__ import annotations

from pathlib import Path

import mytorch
from mytorch import nn
from mytorch.nn import functional as F

FOLDER = Path(__file__).resolve().parent


def pictures() -> dict[str, str]:
    """Returns the pictures, SVG, by the names of their files."""
    vectors = [mytorch.ones(4) for _ in range(4)]
    program = mytorch.capture(step, *vectors)
    x = mytorch.ones(8, 16)
    return {
        "before.svg": program.draw().svg(),
        "after.svg": program.optimized().draw().svg(),
        "block.svg": mytorch.capture(block(), x, x).optimized().draw().svg(),
    }


def step(w, x, y, z):
    return mytorch.add(mytorch.mul(w, x), mytorch.mul(y, z))


def block():
    linear, norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def block(x, target):
        loss = F.mse_loss(x + linear(norm(x)), target)
        return loss, mytorch.autograd.grad(loss, [linear.weight])

    return block


if __name__ == "__main__":
    for name, content in pictures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
        print(FOLDER / name)
