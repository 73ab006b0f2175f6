"""GPT-2 trained in half precision by either library: its speed and its losses, and where its time goes."""

import statistics
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from benchmarks.gpt import Config, chain, flops_per_token
from benchmarks.gpu.sizes import Size

WARM_UP = 3  # steps before a profile: they compile and tune


def prepare(library: Any, config: Config, steps: int, *how: str) -> tuple[Any, Iterator[tuple]]:
    """Returns a trainer (see there `how`), and a batch for each step."""
    trainer = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(config, *how)
    x, y = (library.from_numpy(a).to(how[0]) for a in chain(config, steps))
    return trainer, ((x[k], y[k]) for k in range(steps))


def train(library: Any, size: Size, mode: str, dtype: str, device: str = "cuda") -> dict:
    """Times windows of training steps, of which each ends with a wait for the GPU.

    Returns:
        {"ms": of a step, "windows_ms": [of a step], "losses": [one a step], "bytes": memory held, …}
    """
    config, losses = size.train, []
    trainer, batches = prepare(library, config, (size.windows + 1) * size.steps, device, dtype, mode)

    def window() -> float:
        begin = time.perf_counter()
        losses.extend(trainer.step(*next(batches)) for _ in range(size.steps))
        library.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / size.steps

    window()  # compiles and tunes
    windows = [window() for _ in range(size.windows)]
    ms = statistics.median(windows)
    speed = config.tokens / ms * 1e3
    return {
        "ms": ms, "tokens_per_second": speed, "tflops": speed * flops_per_token(config) / 1e12,
        "windows_ms": windows, "config": str(config),
        "losses": [float(loss.item()) for loss in losses], "scale": trainer.scaler.get_scale(),
        "bytes": library.cuda.memory_reserved(),
    }


def profile(library: Any, size: Size, mode: str, dtype: str, device: str = "cuda") -> dict:
    """Profiles training steps that wait for the GPU at their end, by the library's own profiler.

    Returns:
        {"ms": of a step, "host_ms": until Python is done with it, "kernels": [(name, calls, ms), …]}
    """
    trainer, batches = prepare(library, size.train, WARM_UP + size.steps + 2, device, dtype, mode)

    def timed() -> tuple[float, float]:
        library.cuda.synchronize()
        begin = time.perf_counter()
        trainer.step(*next(batches))
        host = time.perf_counter() - begin
        library.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3, host * 1e3

    times = [timed() for _ in range(WARM_UP + size.steps)][WARM_UP:]
    ms, host_ms = map(statistics.median, zip(*times, strict=True))
    for _ in range(2):  # the first starts CUPTI
        with library.profiler.profile(activities=[library.profiler.ProfilerActivity.CUDA]) as seen:
            timed()
    rows = [(each.key, each.count, each.self_device_time_total / 1e3) for each in seen.key_averages()]
    kernels = sorted((row for row in rows if row[2]), key=lambda row: row[2], reverse=True)
    return {"ms": ms, "host_ms": host_ms, "kernels": kernels}
