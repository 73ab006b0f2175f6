"""GPT-2 trained in half precision by either library: for its speed, and for its losses."""

import time
from importlib import import_module

from benchmarks.gpt import chain
from benchmarks.gpu.sizes import SIZES

BATCHES = 8  # that a run goes round in which is timed


def train(library, size: str, mode: str, device: str = "cuda") -> dict:
    """Times windows of training steps in float16, of which each ends with a wait for the GPU.

    Args:
        mode: "eager"; of mytorch "captured": forward and backward are a CUDA graph, the update never is; of
            PyTorch "compiled".

    Returns:
        {"windows_ms": [of a step], "bytes": memory that is held, and see `losses`}
    """
    sizes, found = SIZES[size], []
    options = {"compiled": True} if mode == "compiled" else {}
    trainer = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(
        sizes.train, device, "float16", **options
    )
    batches = [library.from_numpy(a).to(device) for a in chain(sizes.train, BATCHES)]
    if mode == "captured":
        trainer.capture(*(a[0] for a in batches))

    def window() -> float:
        begin = time.perf_counter()
        for _ in range(sizes.steps):
            found.append(trainer.step(*(a[len(found) % BATCHES] for a in batches)))
        library.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / sizes.steps

    window()  # compiles and tunes
    ms = [window() for _ in range(sizes.windows)]
    return {"windows_ms": ms, **told(trainer, found), "bytes": library.cuda.memory_reserved()}


def losses(library, size: str, dtype: str, device: str = "cuda") -> dict:
    """Trains in a half precision; returns {"losses": [one a step], "scale": of the loss at the end}."""
    config, steps = SIZES[size].half, SIZES[size].half_steps
    trainer = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(config, device, dtype)
    batches = zip(*chain(config, steps), strict=True)
    found = [trainer.step(*(library.from_numpy(a).to(device) for a in batch)) for batch in batches]
    return told(trainer, found)


def told(trainer, found: list) -> dict:
    """Returns what is read from the GPU when all is done."""
    return {"losses": [float(loss.item()) for loss in found], "scale": trainer.scaler.get_scale()}
