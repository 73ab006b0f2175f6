"""The speed of a training, in tokens per second and as MFU, its share of the devices' peak; its memory."""

from __future__ import annotations

import functools
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import cuda
from ..backends.device import as_device
from ..core.tensor import from_raw
from ..stream import report

if TYPE_CHECKING:
    from ..models.language_model import LanguageModel
    from .accelerator import Accelerator

# 10¹² FLOP/s of dense products in half precision with float32 sums, and in float32 without TF32: figures of
# the makers' data sheets, of the models with SXM modules where a name doesn't say PCIe or NVL.
PEAKS = {
    "B200": (2250.0, 75.0), "H200": (989.0, 67.0), "H100 NVL": (835.0, 60.0), "H100 PCIe": (756.0, 51.0),
    "H100": (989.0, 67.0), "A100": (312.0, 19.5), "A40": (149.7, 37.4), "A10G": (70.0, 35.0),
    "A10": (125.0, 31.2), "L40S": (362.0, 91.6), "L4": (121.0, 30.3), "V100": (125.0, 15.7),
    "T4": (65.0, 8.1), "RTX 4090": (165.2, 82.6), "RTX 3090": (71.0, 35.6),
}


def peak_flops(device: Any, is_half: bool, count: int = 1) -> float | None:
    """Returns the peak FLOP/s of `count` known GPUs, or None; that of a CPU is measured."""
    if as_device(device).type == "cpu":
        return count * measured_peak_flops()
    name = cuda.get_device_name(device)
    found = (peaks for key, peaks in PEAKS.items() if re.search(rf"\b{key}\b", name))
    half, single = next(found, (None, None))
    peak = half if is_half else single
    return None if peak is None else count * 1e12 * peak


def measured_peak_flops(size: int = 1024, times: int = 20) -> float:
    """Returns the FLOP/s of products of float32 matrices on the CPU: the fastest of some."""
    x, seconds = from_raw(np.ones((size, size), np.float32)), []
    for _ in range(times):
        start = time.perf_counter()
        x @ x
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def peak_memory(device: Any) -> int:
    """Returns the largest number of bytes so far, of arrays on a GPU, or of the process with a CPU."""
    if as_device(device).type != "cpu":
        return cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Throughput:
    """Measures the tokens a second, and the model FLOPs utilization:

        MFU = tokens a second · FLOPs of a token / peak

    Args:
        tokens: in an iteration of all processes.
        flops_per_token: of forward and backward pass; see `LanguageModel.flops_per_token`.
        peak: FLOP/s of all devices together, or a function that returns them; None: no MFU. The function is
            called again if a rate exceeds its result: other programs used the cores while it measured.

    Source: Chowdhery et al., "PaLM", 2022, https://arxiv.org/abs/2204.02311, section 4.1.

    >>> from mytorch.accelerate.throughput import Throughput
    >>> throughput = Throughput(1024, 1e9, peak=1e12)
    >>> throughput.start(0)
    >>> list(throughput.measure(10))
    ['tokens_per_second', 'mfu']
    """

    def __init__(
        self, tokens: int, flops_per_token: float, peak: float | Callable[[], float | None] | None = None
    ):
        self.tokens, self.flops_per_token = tokens, flops_per_token
        self._peak: Callable[[], float | None] = peak if callable(peak) else lambda: peak
        self.peak = self._peak()

    @classmethod
    def of(
        cls, accelerator: Accelerator, model: LanguageModel, tokens: int, peak: float | None = None
    ) -> Throughput:
        """Returns that of a training.

        Args:
            tokens: in an iteration of each process.
            peak: FLOP/s of each device; None: of the known GPU, or measured.
        """
        count, is_half = accelerator.num_processes, accelerator.mixed_precision != "no"
        own = functools.partial(peak_flops, accelerator.device, is_half, count)
        return cls(tokens * count, model.flops_per_token(), peak * count if peak else own)

    def start(self, iteration: int) -> None:
        """Begins to measure after this iteration."""
        self._first = self._last = iteration, time.perf_counter()

    def measure(self, iteration: int) -> dict[str, float]:
        """Returns the means since `start`, "tokens_per_second" and, with a peak, "mfu"."""
        now = iteration, time.perf_counter()
        if iteration > self._last[0] and now[1] > self._last[1]:
            self._latest, self._last = self._speed(self._last, now), now
        speed = self._speed(self._first, now)
        report(iteration, self._latest)
        rate = self.flops_per_token * max(speed, self._latest)
        if self.peak is not None and rate > self.peak:
            self.peak = max(self.peak, self._peak())
        return {"tokens_per_second": round(speed, 2), **self._mfu(speed)}

    def text(self) -> str:
        """Returns the speed between the last two calls of `start` or `measure`, with the time of an
        iteration: without what came before, as the compilation of kernels."""
        mfu = "".join([f", MFU {share:.1%}" for share in self._mfu(self._latest).values()])
        return f"{self.tokens / self._latest:.2f} s a step, {self._latest:,.0f} tokens/s{mfu}"

    def _speed(self, before: tuple[int, float], now: tuple[int, float]) -> float:
        return self.tokens * (now[0] - before[0]) / (now[1] - before[1])

    def _mfu(self, speed: float) -> dict[str, float]:
        return {} if self.peak is None else {"mfu": speed * self.flops_per_token / self.peak}
