"""The job that every implementation gets: sizes, initial weights and batches, made from a seed by NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

ADAMW = {"lr": 1e-3, "betas": (0.9, 0.99)}
WEIGHT_DECAY, MAX_GRAD_NORM = 0.1, 1.0  # decay of matrices and embeddings only, as GPTs are trained
EMBEDDING = "transformer.wte.weight"
HEAD = "lm_head.weight"
NUM_BATCHES = 16


@dataclass(frozen=True)
class Config:
    """Sizes of one GPT-2 and of its batches."""

    n_layer: int
    n_head: int
    n_embd: int
    context_length: int
    batch_size: int
    vocab_size: int

    @property
    def tokens(self) -> int:
        """Tokens in one training step."""
        return self.batch_size * self.context_length

    def __str__(self) -> str:
        return (
            f"{self.n_layer} layers, {self.n_head} heads, {self.n_embd} wide, "
            f"context {self.context_length}, batch {self.batch_size}, vocabulary {self.vocab_size}"
        )


CONFIGS = {
    "nano": Config(4, 4, 128, 64, 12, 65),  # nanoGPT's settings for a laptop's CPU
    "small": Config(6, 6, 384, 256, 4, 65),  # nanoGPT's Shakespeare model, a smaller batch
    "gpt2": Config(12, 12, 768, 256, 1, 50304),  # GPT-2 124M, vocabulary padded to a multiple of 64
    "tiny": Config(2, 2, 16, 8, 2, 11),  # for the tests
}


def initial_weights(config: Config, seed: int = 7) -> dict[str, np.ndarray]:
    """GPT-2's initial weights under nanoGPT's names; linear weights are (out, in).

    Normal with deviation 0.02, and 0.02 / sqrt(2 n_layer) where a layer feeds the residual stream; norms
    start at one.
    """
    random = np.random.default_rng(seed)
    width = config.n_embd

    def normal(*shape: int, std: float = 0.02) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(std)

    into_residual = 0.02 / (2 * config.n_layer) ** 0.5
    weights = {
        EMBEDDING: normal(config.vocab_size, width),
        "transformer.wpe.weight": normal(config.context_length, width),
    }
    for i in range(config.n_layer):
        block = f"transformer.h.{i}."
        weights[block + "ln_1.weight"] = np.ones(width, np.float32)
        weights[block + "attn.c_attn.weight"] = normal(3 * width, width)
        weights[block + "attn.c_proj.weight"] = normal(width, width, std=into_residual)
        weights[block + "ln_2.weight"] = np.ones(width, np.float32)
        weights[block + "mlp.c_fc.weight"] = normal(4 * width, width)
        weights[block + "mlp.c_proj.weight"] = normal(width, 4 * width, std=into_residual)
    weights["transformer.ln_f.weight"] = np.ones(width, np.float32)
    return weights


def make_batches(config: Config, seed: int = 1234) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the tokens that follow them: two int64 arrays (NUM_BATCHES, batch, context).

    A token is followed by one of four, so that the losses move from the first steps on. With pure noise they
    stay, then part by chance: PyTorch with one thread and PyTorch with two differed by 5e-2 after 80 steps.
    """
    random = np.random.default_rng(seed)
    tokens = np.empty((NUM_BATCHES, config.batch_size, config.context_length + 1), np.int64)
    tokens[..., 0] = random.integers(0, config.vocab_size, tokens.shape[:-1])
    for t in range(config.context_length):
        choice = random.integers(0, 4, tokens.shape[:-1])
        tokens[..., t + 1] = (5 * tokens[..., t] + choice) % config.vocab_size
    return np.ascontiguousarray(tokens[..., :-1]), np.ascontiguousarray(tokens[..., 1:])


def save_problem(path: Path, config: Config) -> None:
    """Write weights and batches of `config` to one npz file."""
    inputs, targets = make_batches(config)
    np.savez(path, inputs=inputs, targets=targets, **initial_weights(config))


def load_problem(path: str) -> tuple[dict[str, np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    """Read what `save_problem` wrote: the state dict (the tied head under both names) and the batches."""
    with np.load(path) as arrays:
        weights = {name: arrays[name] for name in arrays.files}
    batches = list(zip(weights.pop("inputs"), weights.pop("targets"), strict=True))
    weights[HEAD] = weights[EMBEDDING]
    return weights, batches
