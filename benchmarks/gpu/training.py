"""GPT-2 trained in float16 by mytorch: for its speed, step by step or as a CUDA graph, and for its losses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mytorch
from benchmarks.gpu.half import HalfTrainer
from benchmarks.gpu.sizes import BATCHES, BETAS, Size, chain, learning_rate
from benchmarks.problem import EMBEDDING, HEAD, MAX_GRAD_NORM, WEIGHT_DECAY, Config, initial_weights
from mytorch import cuda
from mytorch.models.gpt2 import GPT2, GPT2Config
from mytorch.nn.fused_ops import registry

DEVICE = "cuda"


def train(size: Size, captured: bool) -> dict:
    """Times of windows of training steps, of which each ends with a wait for the GPU.

    Args:
        captured: forward and backward are a CUDA graph. The update, a few launches, never is.

    Returns:
        {"ms": [of a step, a number a window], "losses": [one a step], "bytes": memory that is held, …}
    """
    config = size.train
    trainer = make_trainer(config)
    inputs, targets = (mytorch.from_numpy(a).to(DEVICE) for a in chain(config, BATCHES))
    forward_backward: Callable = trainer.forward_backward
    if captured:
        forward_backward = cuda.make_graphed_step(forward_backward, (inputs[0], targets[0]))
    losses: list = []

    def window() -> float:
        begin = time.perf_counter()
        for _ in range(size.steps):
            k = len(losses) % BATCHES
            set_rate(trainer, len(losses))
            losses.append(forward_backward(inputs[k], targets[k]).clone())
            trainer.update()
        cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / size.steps

    window()  # compiles and tunes
    ms = [window() for _ in range(size.windows)]
    return {"ms": ms, **told(trainer, losses), "bytes": cuda.memory_reserved()}


def train_half(size: Size) -> dict:
    """The losses of a run, and what became of the loss scale."""
    config, losses = size.half, []
    trainer = make_trainer(config)
    for step, (x, y) in enumerate(zip(*chain(config, size.half_steps), strict=True)):
        set_rate(trainer, step)
        losses.append(trainer.forward_backward(*(mytorch.from_numpy(a).to(DEVICE) for a in (x, y))).clone())
        trainer.update()
    return told(trainer, losses)


def make_trainer(config: Config) -> HalfTrainer:
    """GPT-2 without biases and dropout, with the initial weights that PyTorch gets."""
    sizes: dict[str, Any] = {"n_layer": config.n_layer, "n_head": config.n_head, "n_embd": config.n_embd}
    model = GPT2(GPT2Config(config.vocab_size, config.context_length, bias=False, **sizes))
    weights = initial_weights(config)
    model.load_state_dict({**weights, HEAD: weights[EMBEDDING]})
    model = model.to(DEVICE)
    fused = None if registry.why_not("cuda") else True  # the stand-in for CuPy has no kernels
    groups = model.parameter_groups(WEIGHT_DECAY)
    return HalfTrainer(model, groups, max_norm=MAX_GRAD_NORM, lr=0.0, betas=BETAS, fused=fused)


def set_rate(trainer: HalfTrainer, step: int) -> None:
    for group in trainer.optimizer.param_groups:
        group["lr"] = learning_rate(step)


def told(trainer: HalfTrainer, losses: list) -> dict:
    """What is read from the GPU when all is done."""
    scale = trainer.loss_scale
    return {
        "losses": [float(loss.item()) for loss in losses],
        "scale": scale.scale.get().item(),
        "skipped": int(scale.skipped.get().item()),
    }
