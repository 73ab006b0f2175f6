"""Generation with a cache in PyTorch, eager: one cache from the start; no more is computed than needed."""

from __future__ import annotations

import os
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.decode import LENGTHS, fingerprint
from benchmarks.harness import Step, serve
from benchmarks.problem import CONFIGS, Config, load_problem
from benchmarks.workers.torch_gpt import GPT, Attention, blas

Cache = list[tuple[Tensor, Tensor]]  # keys and values (1, heads, context, C / heads) of each layer


def new_cache(config: Config) -> Cache:
    shape = (1, config.n_head, config.context_length, config.n_embd // config.n_head)
    return [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.n_layer)]


def attend(module: Attention, x: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
    B, T, C = x.shape
    q, k, v = (
        part.view(B, T, module.n_head, -1).transpose(1, 2) for part in module.c_attn(x).split(C, dim=2)
    )
    end = position + T
    keys[:, :, position:end], values[:, :, position:end] = k, v
    y = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], is_causal=T > 1)
    return module.c_proj(y.transpose(1, 2).reshape(B, T, C))


def next_token(model: GPT, tokens: Tensor, cache: Cache, position: int) -> Tensor:
    """The most probable token (1, 1) after the cache's and `tokens` (1, T); T is 1, or the cache is empty."""
    parts = model.transformer
    x = parts.wte(tokens) + parts.wpe.weight[position : position + tokens.shape[1]]
    for block, (keys, values) in zip(parts.h, cache, strict=True):
        x = x + attend(block.attn, block.ln_1(x), keys, values, position)
        x = x + block.mlp(block.ln_2(x))
    return model.lm_head(parts.ln_f(x[:, -1:])).argmax(-1)


@torch.inference_mode()
def generate(model: GPT, config: Config, prompt: Tensor, new: int) -> list[int]:
    cache, tokens, text, position = new_cache(config), prompt, prompt[0].tolist(), 0
    for _ in range(new):
        following = next_token(model, tokens, cache, position)
        position += tokens.shape[1]
        tokens = following
        text.append(tokens.item())
    return text


def generation(config: str, problem: str) -> list[Step]:
    """One callable: it writes a text and returns its fingerprint."""
    model, length = GPT(CONFIGS[config]).eval(), LENGTHS[config]
    weights = load_problem(problem)[0]
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    prompt = torch.from_numpy(length.prompt_of(config))
    return [lambda: fingerprint(generate(model, CONFIGS[config], prompt, length.new))]


def main(config: str, problem: str) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    about = {"version": f"PyTorch {torch.__version__}", "blas": blas(), "threads": torch.get_num_threads()}
    serve(about, lambda: generation(config, problem))


if __name__ == "__main__":
    main(*sys.argv[1:])
