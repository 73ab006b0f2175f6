"""GPT-2 trained in half precision by either library: for its speed, and for its losses."""

from __future__ import annotations

import importlib
import time
from typing import Any

from benchmarks.gpt import chain
from benchmarks.gpu.sizes import Size

BATCHES = 8  # that a run goes round in which is timed


def trainer_of(library: Any, *args: Any, **options: Any) -> Any:
    """Returns a `Trainer` of the library: see `gpt_mytorch`, `gpt_torch`."""
    return importlib.import_module(f"benchmarks.gpt_{library.__name__}").Trainer(*args, **options)


def train(library: Any, size: Size, mode: str, device: str = "cuda") -> dict:
    """Times windows of training steps in float16, of which each ends with a wait for the GPU.

    Args:
        mode: "eager"; of mytorch "captured": forward and backward are a CUDA graph, the update never is; of
            PyTorch "compiled".

    Returns:
        {"windows_ms": [of a step], "bytes": memory that is held, and see `losses`}
    """
    options = {"compiled": True} if mode == "compiled" else {}
    trainer = trainer_of(library, size.train, device, "float16", **options)
    batches = [library.from_numpy(a).to(device) for a in chain(size.train, BATCHES)]
    if mode == "captured":
        trainer.capture(*(a[0] for a in batches))
    found: list = []

    def window() -> float:
        begin = time.perf_counter()
        for _ in range(size.steps):
            found.append(trainer.step(*(a[len(found) % BATCHES] for a in batches)))
        library.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / size.steps

    window()  # compiles and tunes
    ms = [window() for _ in range(size.windows)]
    return {"windows_ms": ms, **told(trainer, found), "bytes": library.cuda.memory_reserved()}


def losses(library: Any, size: Size, dtype: str, device: str = "cuda") -> dict:
    """Trains in a half precision; returns {"losses": [one a step], "scale": of the loss at the end}."""
    trainer, found = trainer_of(library, size.half, device, dtype), []
    for batch in zip(*chain(size.half, size.half_steps), strict=True):
        found.append(trainer.step(*(library.from_numpy(a).to(device) for a in batch)))
    return told(trainer, found)


def told(trainer: Any, found: list) -> dict:
    """Returns what is read from the GPU when all is done."""
    return {"losses": [float(loss.item()) for loss in found], "scale": trainer.scaler.get_scale()}
