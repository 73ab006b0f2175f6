"""The same training in PyTorch: autocast to float16, GradScaler, fused AdamW."""

from __future__ import annotations

import time

import torch
from torch import nn

from benchmarks.gpu.sizes import BATCHES, BETAS, Size, chain, learning_rate
from benchmarks.problem import EMBEDDING, HEAD, MAX_GRAD_NORM, WEIGHT_DECAY, Config, initial_weights
from benchmarks.workers.torch_gpt import GPT


class Trainer:
    """A model, its optimizer, and its scaler."""

    def __init__(self, config: Config, device: str, compiled: bool = False):
        self.device = device
        self.model = GPT(config).to(device)
        weights = initial_weights(config)
        weights[HEAD] = weights[EMBEDDING]
        self.model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        self.forward = torch.compile(self.model) if compiled else self.model
        self.parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in self.parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in self.parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=0.0, betas=BETAS, fused=True)
        self.scaler = torch.amp.GradScaler(device)

    def step(self, step: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.float16):
            _, loss = self.forward(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def train(size: Size, compiled: bool, device: str) -> dict:
    """See `training.train`."""
    trainer, losses = Trainer(size.train, device, compiled), []
    inputs, targets = (torch.from_numpy(a).to(device) for a in chain(size.train, BATCHES))

    def window() -> float:
        begin = time.perf_counter()
        for _ in range(size.steps):
            k = len(losses) % BATCHES
            losses.append(trainer.step(len(losses), inputs[k], targets[k]))
        _wait(device)
        return (time.perf_counter() - begin) * 1e3 / size.steps

    window()  # compiles
    ms = [window() for _ in range(size.windows)]
    reserved = torch.cuda.memory_reserved() if device == "cuda" else 0
    return {"ms": ms, **_told(trainer, losses), "bytes": reserved}


def train_half(size: Size, device: str) -> dict:
    """See `training.train_half`."""
    trainer, losses = Trainer(size.half, device), []
    for step, (x, y) in enumerate(zip(*chain(size.half, size.half_steps), strict=True)):
        losses.append(trainer.step(step, *(torch.from_numpy(a).to(device) for a in (x, y))))
    return _told(trainer, losses)


def _told(trainer: Trainer, losses: list) -> dict:
    return {"losses": [loss.item() for loss in losses], "scale": trainer.scaler.get_scale()}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
