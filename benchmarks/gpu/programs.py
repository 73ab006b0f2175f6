"""The jobs of `benchmarks.compile` on a GPU: steps of training and functions, eager and compiled."""

import statistics
import time
from typing import Any

from benchmarks.compile_jobs import JOBS
from benchmarks.gpu.sizes import Size

WARM_UP = 4  # steps: they compile, and capture a CUDA graph


def program_time(library: Any, size: Size, job: str, mode: str, device: str = "cuda") -> dict:
    """Times windows of calls, of which each ends with a wait for the GPU.

    Returns:
        {"ms": of a call, "windows_ms": [of a call], "value": the loss after the first steps, or the first
        number of the result}
    """
    library.set_default_device(device)
    call = JOBS[job].make(library, mode)

    def window(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        library.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / count

    window(WARM_UP)
    value = float(call().reshape(-1)[0].item())
    count = max(1, int(size.ms / window(1)))
    windows = [window(count) for _ in range(size.windows)]
    return {"ms": statistics.median(windows), "windows_ms": windows, "value": value, "size": JOBS[job].size}
