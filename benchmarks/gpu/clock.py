"""How long a GPU takes for a call: CUDA events around it, with an empty cache, in medians."""

import gc
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.sizes import Size

WARM_UP = 3
LEAD = 1.5  # how many times as long as the host takes for a call, the GPU is kept busy before it
MOST_FILLS = 100


class Clock:
    """Measures calls on the current GPU; the same for mytorch and PyTorch.

    Before each call a buffer larger than the second-level cache is overwritten, as often as it takes for the
    host to be ahead of the GPU: so the times are those of the GPU, not of Python.
    """

    def __init__(self, library: Any, size: Size):
        gc.collect()
        library.cuda.empty_cache()
        count = size.flushed or 4 * library.cuda.get_device_properties(0).L2_cache_size
        self.cuda, self.size = library.cuda, size
        self.flush = library.empty(count, dtype=library.uint8, device="cuda").zero_

    def __call__(self, call: Callable[[], Any]) -> dict:
        """Returns {"ms": median, "fastest_ms": …, "slowest_ms": …, "runs": …} of a call."""
        for _ in range(WARM_UP):
            call()
        fills = self._fills(call)
        first = statistics.median(self._times(call, 3, fills))
        fewest, most = self.size.runs
        runs = int(min(most, max(fewest, self.size.ms / max(first, 1e-4))))
        times = self._times(call, runs, fills)
        extremes = {"fastest_ms": min(times), "slowest_ms": max(times)}
        return {"ms": statistics.median(times), **extremes, "runs": runs}

    def _fills(self, call: Callable[[], Any]) -> int:
        self.cuda.synchronize()
        begin = time.perf_counter()
        call()
        host = (time.perf_counter() - begin) * 1e3
        self.cuda.synchronize()
        flush = statistics.median(self._times(self.flush, 5, 1))
        return max(1, min(MOST_FILLS, math.ceil(LEAD * host / max(flush, 1e-4))))

    def _times(self, call: Callable[[], Any], runs: int, fills: int) -> list[float]:
        events = [[self.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
        for begin, end in events:
            for _ in range(fills):
                self.flush()
            begin.record()
            call()
            end.record()
        self.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in events]
