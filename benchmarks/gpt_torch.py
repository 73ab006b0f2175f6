"""The same GPT-2 in PyTorch, as nanoGPT trains it: autocast and GradScaler in half precision, fused AdamW."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gpt import BETAS, MAX_GRAD_NORM, WEIGHT_DECAY, Config, initial_weights, learning_rate

Cache = list[tuple[Tensor, Tensor]]  # keys and values (1, heads, context, C / heads) of each layer


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, past: int = 0) -> Tensor:
        B, T, C = x.shape
        qkv = self.c_attn(x).split(C, dim=2)
        q, k, v = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in qkv)
        if cache is not None:
            keys, values = (whole[:, :, : past + T] for whole in cache)
            keys[:, :, past:], values[:, :, past:] = k, v
            k, v = keys, values
        y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)  # (B, heads, T, C / heads)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        C = config.n_embd
        self.ln_1, self.attn = nn.LayerNorm(C, bias=False), Attention(config)
        self.ln_2 = nn.LayerNorm(C, bias=False)
        self.mlp = nn.ModuleDict({
            "c_fc": nn.Linear(C, 4 * C, bias=False), "c_proj": nn.Linear(4 * C, C, bias=False)
        })

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, past: int = 0) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache, past)
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """GPT-2 (Radford et al. 2019) under nanoGPT's parameter names, with the initial weights of `gpt`."""

    def __init__(self, config: Config):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.context_length, config.n_embd),
            "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
            "ln_f": nn.LayerNorm(config.n_embd, bias=False),
        })
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self.load_state_dict({name: torch.from_numpy(a) for name, a in initial_weights(config).items()})

    def features(self, idx: Tensor, cache: Cache | None = None, past: int = 0) -> Tensor:
        positions = torch.arange(past, past + idx.shape[1], device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(positions)  # (B, T, C)
        for block, layer in zip(self.transformer.h, cache or [None] * len(self.transformer.h), strict=True):
            x = block(x, layer, past)
        return self.transformer.ln_f(x)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        logits = self.lm_head(self.features(idx))  # (B, T, vocabulary)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Trainer:
    """A model and its AdamW, which is fused on a GPU, and on the CPU if it is compiled."""

    def __init__(self, config: Config, device: str = "cpu", dtype: str = "float32", mode: str = "eager"):
        compiled = mode == "compiled"
        self.model, self.steps = GPT(config).to(device), 0
        self.forward = torch.compile(self.model) if compiled else self.model
        self.parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in self.parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in self.parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        fused = True if compiled or device != "cpu" else None
        self.optimizer = torch.optim.AdamW(groups, betas=BETAS, fused=fused)
        self.autocast = torch.autocast(device, getattr(torch, dtype), enabled=dtype != "float32")
        self.scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes gradients and updates; returns the loss, without waiting for a GPU."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.steps)
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss = self.forward(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def generation(config: Config, prompt: Tensor, new: int):
    """Returns a function that generates `new` tokens after the prompt (1, T), as a list of both.

    There is one cache from the start, and no more is computed than needed.
    """
    model = GPT(config).eval()
    shape = (1, config.n_head, config.context_length, config.n_embd // config.n_head)

    @torch.inference_mode()
    def generate() -> list[int]:
        cache = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.n_layer)]
        tokens, text = prompt, prompt[0].tolist()
        for _ in range(new):
            x = model.features(tokens, cache, len(text) - tokens.shape[1])
            tokens = model.lm_head(x[:, -1:]).argmax(-1)
            text.append(tokens.item())
        return text

    return generate
