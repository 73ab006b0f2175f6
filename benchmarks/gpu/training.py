"""GPT-2 trained in half precision by either library: its speed and its losses, and where its time goes."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
    }  # fmt: skip


def profile(library: Any, size: Size, mode: str, dtype: str, device: str = "cuda") -> dict:
    """Profiles training steps that wait for the GPU at their end.

    Returns:
        {"ms": of a step, "host_ms": until Python is done with it, "gradients_ms" and "update_ms" of the GPU,
        "kernels": [(name, calls, ms), …], "missing": why there are none}
    """
    trainer, batches = prepare(library, size.train, WARM_UP + size.steps + 2, device, dtype, mode)

    def timed() -> dict[str, float]:
        first, middle, last = (library.cuda.Event(enable_timing=True) for _ in range(3))
        library.cuda.synchronize()
        begin = time.perf_counter()
        first.record()
        trainer.step(*next(batches), middle.record)
        last.record()
        host = time.perf_counter() - begin
        library.cuda.synchronize()
        found = {"ms": (time.perf_counter() - begin) * 1e3, "host_ms": host * 1e3}
        return found | {"gradients_ms": first.elapsed_time(middle), "update_ms": middle.elapsed_time(last)}

    times = [timed() for _ in range(WARM_UP + size.steps)][WARM_UP:]
    medians = {name: statistics.median(each[name] for each in times) for name in times[0]}
    try:
        return {**medians, "kernels": kernels_of(timed), "missing": ""}
    except (ImportError, RuntimeError) as error:
        return {**medians, "kernels": [], "missing": str(error)}


def kernels_of(step: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """Returns the name, calls and milliseconds of all that the GPU runs in a step, the longest first.

    CUPTI, which PyTorch's profiler reads, sees the kernels of all libraries in this process. Raises
    ImportError or RuntimeError where there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"the profiler of PyTorch {torch.__version__} finds no GPU")
    for _ in range(2):  # the first starts CUPTI
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            step()
    if found := totals(seen.events()):
        return found
    raise RuntimeError("CUPTI shows no kernels: the driver may allow that to the administrator only")


def totals(events: Iterable[Any]) -> list[tuple[str, int, float]]:
    """Returns those of `kernels_of`, out of the events of PyTorch's profiler."""
    calls, ms = Counter(), Counter()
    for event in events:
        if event.device_type.name == "CUDA" and not event.is_user_annotation:
            calls[event.name] += 1
            ms[event.name] += event.time_range.elapsed_us() / 1e3
    return [(name, calls[name], time) for name, time in ms.most_common()]
