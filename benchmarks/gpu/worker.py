"""The process that measures mytorch: it answers the items of all sections (see `stream`)."""

from __future__ import annotations

import functools
import gc
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import mytorch
from benchmarks.gpu import ceilings, parity, times, training
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import SIZES, Size
from benchmarks.gpu.stream import serve
from mytorch import cuda
from mytorch.backends.device import cupy
from tests.triton import harness


def about() -> dict[str, Any]:
    """What the figures depend on. An exception says what is missing: CuPy, a GPU, or Triton."""
    runtime = cupy().cuda.runtime
    properties = cuda.get_device_properties()
    from mytorch.nn.fused_ops import triton

    reason = triton.why_not()
    if reason:
        raise RuntimeError(f"Triton's kernels can't run here: {reason}")
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "driver": _kernel_driver(),
        "cuda_driver": _dotted(runtime.driverGetVersion()),
        "cuda_runtime": _dotted(runtime.runtimeGetVersion()),
        "python": platform.python_version(),
        "mytorch": mytorch.__version__,
        "cupy": cupy().__version__,
        **{name: _version(name) for name in ("numpy", "triton", "ml_dtypes")},
        "bfloat16": _why_no_bfloat16(),
    }


def _why_no_bfloat16() -> str:
    """Why CuPy has no arrays of bfloat16 here; "" if it has."""
    if harness.BFLOAT16 is None:
        return "CuPy needs the package ml_dtypes for it: pip install ml_dtypes"
    try:
        x = np.ones(2, harness.BFLOAT16)
        back = parity.to_cpu(np.copy(parity.to_gpu(x)))
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        return f"this CuPy has no such arrays ({type(error).__name__}: {error})"
    return "" if back.tobytes() == x.tobytes() else f"this CuPy made {back} of {x}"


def _dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _kernel_driver() -> str:
    """The version of NVIDIA's kernel module, which the CUDA runtime doesn't know."""
    try:
        said = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            return "unknown"
    return next((word for word in said.split() if word[:1].isdigit() and "." in word), "unknown")


def clock(size: Size) -> Clock:
    """The clock for mytorch's work on the current GPU, whose memory is given back first."""
    gc.collect()
    cuda.empty_cache()
    count = size.flushed or 4 * cuda.get_device_properties().L2_cache_size
    return Clock(cuda, functools.partial(cupy().empty(count, "uint8").fill, 0), size.effort)


def ceiling(size: str, what: str) -> dict:
    return ceilings.measure(what, SIZES[size], clock(SIZES[size]))


def kernel_time(size: str, job: str, dtype: str) -> dict:
    return times.measure(mytorch, times.job(job, SIZES[size], dtype), dtype, clock(SIZES[size]))


def compare(kernel: str, table: str, row: int, dtype: str) -> dict:
    """Odd cases with the configuration that comes first, cases of real size with the one that is fastest."""
    if table == "odd":
        os.environ["MYTORCH_TUNE"] = "0"
    else:
        os.environ.pop("MYTORCH_TUNE", None)
    return parity.compare(kernel, table, row, dtype)


def train(size: str, captured: bool) -> dict:
    return training.train(SIZES[size], captured)


def train_half(size: str) -> dict:
    return training.train_half(SIZES[size])


if __name__ == "__main__":
    serve(
        {
            "about": about, "ceiling": ceiling, "kernel_time": kernel_time, "compare": compare,
            "train": train, "train_half": train_half,
        },
        works=cuda.synchronize,
    )  # fmt: skip
