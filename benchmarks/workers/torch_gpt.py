"""The training step in PyTorch: GPT-2 as nanoGPT trains it, without dropout and biases.

With --tuned the model is compiled, and AdamW is the fused one; else all is as a user gets it.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import Step, serve
from benchmarks.problem import ADAMW, CONFIGS, MAX_GRAD_NORM, WEIGHT_DECAY, Config, load_problem


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        qkv = self.c_attn(x).split(C, dim=2)
        q, k, v = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, heads, T, C / heads)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=False)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=False)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """GPT-2 (Radford et al. 2019) under nanoGPT's parameter names."""

    def __init__(self, config: Config):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.context_length, config.n_embd),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd, bias=False),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(idx.shape[1], device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(positions)  # (B, T, C)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))  # (B, T, vocabulary)
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def training_steps(config: Config, problem: str, tuned: bool = False) -> list[Step]:
    """One callable a batch, each a whole training step that returns the loss."""
    weights, batches = load_problem(problem)
    model = GPT(config)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, **ADAMW, fused=tuned or None)
    forward = torch.compile(model) if tuned else model

    def step(x: Tensor, y: Tensor) -> float:
        _, loss = forward(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return [partial(step, torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches]


def blas() -> str:
    """Whether oneMKL multiplies with AVX-512, from the processor that it names while it does so."""
    if not torch.backends.mkl.is_available():
        return "no oneMKL"
    with tempfile.TemporaryFile("w+") as log:
        stdout = os.dup(1)
        os.dup2(log.fileno(), 1)
        with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
            torch.ones(2, 2) @ torch.ones(2, 2)
        ctypes.CDLL(None).fflush(None)  # MKL prints through C's own buffer
        os.dup2(stdout, 1)
        os.close(stdout)
        log.seek(0)
        said = log.read()
    found = re.search(r"64 architecture (.*?) (?:processors|instructions)", said)
    processor = found[1] if found else "unknown"
    return f"oneMKL {'with' if 'AVX-512' in processor else 'without'} AVX-512 (processor: {processor})"


def main(config: str, problem: str, *options: str) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    about = {"version": f"PyTorch {torch.__version__}", "blas": blas(), "threads": torch.get_num_threads()}
    serve(about, lambda: training_steps(CONFIGS[config], problem, "--tuned" in options))


if __name__ == "__main__":
    main(*sys.argv[1:])
