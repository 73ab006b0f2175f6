"""The process that measures one library: python -m benchmarks.gpu.worker mytorch|torch"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.gpu import training, vectors
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import SIZES
from benchmarks.kernel_jobs import Passes, jobs
from benchmarks.processes import serve


def about_torch(torch: Any) -> dict:
    """Returns versions; raises RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU")
    return {"pytorch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


def about_mytorch(mytorch: Any) -> dict:
    """Returns what the figures depend on; an exception says what is missing: CuPy, a GPU, or Triton."""
    from mytorch.backends.device import cupy
    from mytorch.nn.fused_ops import triton

    properties = mytorch.cuda.get_device_properties(0)
    if reason := triton.why_not():
        raise RuntimeError(f"Triton's kernels can't run here: {reason}")
    runtime = cupy().cuda.runtime.runtimeGetVersion()
    return {
        "gpu": properties.name,
        "memory_bytes": properties.total_memory,
        "driver": _driver(),
        "cuda_runtime": f"{runtime // 1000}.{runtime % 1000 // 10}",
        "python": platform.python_version(),
        "mytorch": mytorch.__version__,
        "cupy": cupy().__version__,
        **{name: _version(name) for name in ("numpy", "triton", "ml_dtypes")},
    }


def _driver() -> str:
    """Returns the version of NVIDIA's kernel module, which the CUDA runtime doesn't know."""
    file = Path("/proc/driver/nvidia/version")
    said = file.read_text().split() if file.exists() else []
    return next((word for word in said if word[:1].isdigit() and "." in word), "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def ceiling(library: Any, size: str, what: str) -> dict:
    from benchmarks.gpu import ceilings

    return ceilings.measure(what, SIZES[size], Clock(library, SIZES[size]))


def compare(library: Any, kernel: str, table: str, row: int, dtype: str) -> dict:
    """Compares odd cases with the configuration that comes first, those of real size with the fastest one."""
    from benchmarks.gpu import parity

    os.environ["MYTORCH_TUNE"] = "0" if table == "odd" else "1"
    return parity.compare(kernel, table, row, dtype)


def kernel_time(library: Any, size: str, job: str, dtype: str, compiled: bool) -> dict:
    """Returns {"forward": times, "both": times or None}, of the forward pass and of both passes."""
    clock, sizes = Clock(library, SIZES[size]), SIZES[size]
    if job in vectors.BYTES:
        return {"forward": clock(vectors.calls(library, sizes.kernels.parameters, dtype)[job]), "both": None}
    options = {}
    if compiled:
        library._dynamo.reset()
        options["compiled"] = functools.partial(library.compile, dynamic=False)
    found = next(known for known in jobs(sizes.kernels, sizes.images) if known.name == job)
    passes = Passes(library, found, "cuda", dtype, **options)
    return {"forward": clock(passes.forward), "both": None if found.no_grad else clock(passes.both)}


def train(library: Any, size: str, mode: str) -> dict:
    return training.train(library, SIZES[size], mode)


def losses(library: Any, size: str, dtype: str) -> dict:
    return training.losses(library, SIZES[size], dtype)


def main(name: str) -> None:
    library = importlib.import_module(name)
    about = about_torch if name == "torch" else about_mytorch
    tasks = {"about": about}
    tasks |= {task.__name__: task for task in (ceiling, compare, kernel_time, train, losses)}
    check = library.cuda.synchronize if library.cuda.is_available() else lambda: None
    serve({key: functools.partial(task, library) for key, task in tasks.items()}, check)


if __name__ == "__main__":
    main(sys.argv[1])
