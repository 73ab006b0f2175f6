"""The GPT-2 that both libraries train: sizes, initial weights and tokens, made from a seed by NumPy."""

from dataclasses import dataclass

import numpy as np

BETAS, WEIGHT_DECAY, MAX_GRAD_NORM = (0.9, 0.95), 0.1, 1.0  # matrices and embeddings decay, as GPTs do
EMBEDDING, HEAD = "transformer.wte.weight", "lm_head.weight"
FOLLOWED = 0.9  # how often the one token that usually follows another does follow
ACTIVE = 1024  # tokens that occur at all


@dataclass(frozen=True)
class Config:
    """Sizes of a GPT-2 and of its batches."""

    n_layer: int
    n_head: int
    n_embd: int
    context_length: int
    batch_size: int
    vocab_size: int

    @property
    def tokens(self) -> int:  # of one training step
        return self.batch_size * self.context_length

    @property
    def parameters(self) -> int:
        C = self.n_embd
        return (self.vocab_size + self.context_length) * C + self.n_layer * (12 * C * C + 2 * C) + C


CONFIGS = {
    "nano": Config(4, 4, 128, 64, 12, 65),  # nanoGPT's settings for a laptop's CPU
    "small": Config(6, 6, 384, 256, 4, 65),  # nanoGPT's Shakespeare model, a smaller batch
    "gpt2": Config(12, 12, 768, 256, 1, 50304),  # GPT-2 124M, vocabulary padded to a multiple of 64
    "tiny": Config(2, 2, 32, 16, 2, 64),  # for the tests
}


def initial_weights(config: Config, seed: int = 7) -> dict[str, np.ndarray]:
    """Returns GPT-2's initial weights under nanoGPT's names; linear weights are (out, in).

    Normal with deviation 0.02, and 0.02 / sqrt(2 n_layer) where a layer feeds the residual stream; norms
    start at one.
    """
    random = np.random.default_rng(seed)
    width = config.n_embd

    shapes = {EMBEDDING: (config.vocab_size, width), "transformer.wpe.weight": (config.context_length, width)}
    for i in range(config.n_layer):
        for name, shape in {
            "ln_1": (width,), "attn.c_attn": (3 * width, width), "attn.c_proj": (width, width),
            "ln_2": (width,), "mlp.c_fc": (4 * width, width), "mlp.c_proj": (width, 4 * width),
        }.items():
            shapes[f"transformer.h.{i}.{name}.weight"] = shape
    shapes["transformer.ln_f.weight"] = (width,)
    weights = {}
    for name, shape in shapes.items():
        std = 0.02 / (2 * config.n_layer) ** 0.5 if "c_proj" in name else 0.02
        is_norm = len(shape) == 1
        values = np.ones(shape) if is_norm else random.standard_normal(shape, np.float32) * np.float32(std)
        weights[name] = values.astype(np.float32, copy=False)
    return weights | {HEAD: weights[EMBEDDING]}


def chain(config: Config, batches: int, seed: int = 1234) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens of a noisy Markov chain and those that follow, int64 (batches, batch, context) each.

    Each of the ACTIVE tokens has one that follows it in 9 of 10 cases; else any of them follows. With pure
    noise the losses of two libraries would part by chance: those of PyTorch with one and two threads do.
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


def learning_rate(step: int, highest: float = 6e-4, warm_up: int = 20) -> float:
    """Returns that of step 0, 1, …: it rises to `highest` in `warm_up` steps, and stays there."""
    return highest * min(1.0, (step + 1) / warm_up)


def flops_per_token(config: Config) -> int:
    """Returns the operations of forward and backward for a token: 6 a weight, and those of the attention.

    Source: Chowdhery et al., "PaLM", 2022, appendix B. https://arxiv.org/abs/2204.02311
    """
    C = config.n_embd
    matrices = config.vocab_size * C + config.n_layer * 12 * C * C
    return 6 * matrices + 12 * config.n_layer * C * config.context_length
