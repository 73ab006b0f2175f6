"""The training step in mytorch, through its ordinary public interface."""

from __future__ import annotations

import sys
from functools import partial

import mytorch  # before NumPy, as in a user's script: the import may choose OpenBLAS's kernels
from benchmarks.harness import Step, about_mytorch, serve
from benchmarks.problem import ADAMW, CONFIGS, MAX_GRAD_NORM, WEIGHT_DECAY, Config, load_problem
from mytorch.models.gpt2 import GPT2, GPT2Config


def training_steps(config: Config, problem: str) -> list[Step]:
    """One callable a batch, each a whole training step that returns the loss."""
    weights, batches = load_problem(problem)
    model = GPT2(
        GPT2Config(
            vocab_size=config.vocab_size,
            context_length=config.context_length,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_embd=config.n_embd,
            dropout_p=0.0,
            bias=False,
        )
    )
    model.load_state_dict(weights)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = mytorch.optim.AdamW(groups, **ADAMW)

    def step(x: mytorch.Tensor, y: mytorch.Tensor) -> float:
        _, loss = model(x, y)
        loss.backward()
        mytorch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return [partial(step, mytorch.from_numpy(x), mytorch.from_numpy(y)) for x, y in batches]


def main(config: str, problem: str) -> None:
    serve(about_mytorch(), lambda: training_steps(CONFIGS[config], problem))


if __name__ == "__main__":
    main(*sys.argv[1:])
