"""How large all is that is measured: in full, in a quick look, and for the tests of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.gpu.clock import Effort
from benchmarks.problem import Config


@dataclass(frozen=True)
class Size:
    """
    Attributes:
        rows: how many of a kernel's odd cases are compared (None: all).
        real: whether its cases of real size are compared as well.
        copied: bytes of the array that is copied to find the bandwidth.
        matrices: the products that are tried to find the matrix rate, N x N each.
        flushed: bytes that are overwritten to empty the cache; 0 for four times its size.
        kernels: the GPT-2 whose shapes the kernels are timed on.
        train: the one that is trained for its speed, and `windows` of `steps` steps that are timed.
        half: the one that is trained in float16 for its losses, `half_steps` long.
    """

    rows: int | None
    real: bool
    copied: int
    matrices: tuple[int, ...]
    flushed: int
    effort: Effort
    kernels: Config
    train: Config
    windows: int
    steps: int
    half: Config
    half_steps: int


def _gpt2(batch_size: int) -> Config:
    return Config(12, 12, 768, 1024, batch_size, 50304)  # 124M; vocabulary padded to a multiple of 64


_TINY = Config(2, 2, 32, 16, 2, 64)

SIZES = {
    "full": Size(
        rows=None, real=True, copied=1 << 31, matrices=(4096, 8192, 16384), flushed=0, effort=Effort(),
        kernels=_gpt2(64), train=_gpt2(64), windows=5, steps=5, half=_gpt2(8), half_steps=200,
    ),
    "quick": Size(
        rows=3, real=False, copied=1 << 29, matrices=(8192,), flushed=0, effort=Effort(50.0, 5, 50),
        kernels=_gpt2(4), train=_gpt2(8), windows=2, steps=3, half=_gpt2(2), half_steps=30,
    ),
    "tiny": Size(
        rows=1, real=False, copied=1 << 16, matrices=(64,), flushed=1 << 16, effort=Effort(0.0, 2, 2),
        kernels=_TINY, train=_TINY, windows=2, steps=2, half=_TINY, half_steps=12,
    ),
}  # fmt: skip

BATCHES = 8  # that a run goes round in which is timed
BETAS = (0.9, 0.95)  # of AdamW
FOLLOWED = 0.9  # how often the one token that usually follows another does follow
ACTIVE = 1024  # tokens that occur at all


def chain(config: Config, batches: int, seed: int = 1234) -> tuple[np.ndarray, np.ndarray]:
    """A noisy Markov chain: tokens and those that follow them, two int64 arrays (batches, batch, context).

    Each of the ACTIVE tokens has one that follows it in 9 of 10 cases; else any of them follows.
    """
    random = np.random.default_rng(seed)
    active = min(ACTIVE, config.vocab_size)
    usual = random.permutation(active)
    shape = batches, config.batch_size
    tokens = np.empty((*shape, config.context_length + 1), np.int64)
    tokens[..., 0] = random.integers(0, active, shape)
    for t in range(config.context_length):
        follows = random.random(shape) < FOLLOWED
        tokens[..., t + 1] = np.where(follows, usual[tokens[..., t]], random.integers(0, active, shape))
    return np.ascontiguousarray(tokens[..., :-1]), np.ascontiguousarray(tokens[..., 1:])


def least_loss(config: Config) -> float:
    """The entropy of the chain in nats a token: no model can have a smaller loss, but by chance."""
    active = min(ACTIVE, config.vocab_size)
    rare = (1 - FOLLOWED) / active
    common = FOLLOWED + rare
    return float(-(common * np.log(common) + (active - 1) * rare * np.log(rare)))


def learning_rate(step: int, highest: float = 6e-4, warm_up: int = 20) -> float:
    """Of step 0, 1, …: it rises to `highest` in `warm_up` steps, and stays there."""
    return highest * min(1.0, (step + 1) / warm_up)


def flops_per_token(config: Config) -> int:
    """Multiplications and additions of forward and backward for a token: 6 a parameter, and the attention's.

        6 N + 12 layers width context

    N counts the matrices: the token table once, as the output layer; positions and norms are no products.
    Source: Chowdhery et al., "PaLM", 2022, appendix B. https://arxiv.org/abs/2204.02311
    """
    C = config.n_embd
    matrices = config.vocab_size * C + config.n_layer * 12 * C * C
    return 6 * matrices + 12 * config.n_layer * C * config.context_length


def parameters(config: Config) -> int:
    """How many numbers the model has."""
    C = config.n_embd
    return (config.vocab_size + config.context_length) * C + config.n_layer * (12 * C * C + 2 * C) + C
