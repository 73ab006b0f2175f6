"""The process that measures one library: python -m benchmarks.gpu.worker mytorch|torch"""

import functools
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.gpu import training, vectors
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import SIZES
from benchmarks.kernel_jobs import Passes, jobs
from benchmarks.processes import serve


def about_torch(torch) -> dict:
    """Returns versions; raises RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU")
    return {"pytorch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


def about_mytorch(mytorch) -> dict:
    """Returns what the figures depend on; an exception says what is missing: CuPy, a GPU, or Triton."""
    from mytorch.backends.device import cupy
    from mytorch.nn.fused_ops import triton

    properties = mytorch.cuda.get_device_properties(0)
    if reason := triton.why_not():
        raise RuntimeError(f"Triton's kernels can't run here: {reason}")
    driver = Path("/proc/driver/nvidia/version")
    versions = {}
    for name in ("numpy", "triton", "ml_dtypes"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "gpu": properties.name,
        "memory_bytes": properties.total_memory,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "unknown",
        "cuda_runtime": cupy().cuda.runtime.runtimeGetVersion(),
        "python": platform.python_version(),
        "mytorch": mytorch.__version__,
        "cupy": cupy().__version__,
        **versions,
    }


def kernel_time(library, size: str, job: str, compiled: bool) -> dict:
    """Returns {"forward": times, "both": times or None}, of the forward pass and of both passes."""
    sizes, options = SIZES[size], {}
    clock = Clock(library, sizes)
    if job in vectors.BYTES:
        return {"forward": clock(vectors.calls(library, sizes.kernels.parameters)[job]), "both": None}
    if compiled:
        library._dynamo.reset()
        options["compiled"] = functools.partial(library.compile, dynamic=False)
    found = next(known for known in jobs(sizes.kernels, sizes.images) if known.name == job)
    passes = Passes(library, found, "cuda", "float16", **options)
    return {"forward": clock(passes.forward), "both": None if found.no_grad else clock(passes.both)}


def main(name: str) -> None:
    library = import_module(name)
    tasks = {"kernel_time": kernel_time, "train": training.train, "losses": training.losses}
    if name == "torch":
        tasks["about"] = about_torch
    else:
        from benchmarks.gpu import ceilings, parity

        tasks |= {"about": about_mytorch, "ceiling": ceilings.measure, "compare": parity.compare}
    check = library.cuda.synchronize if library.cuda.is_available() else lambda: None
    serve({key: functools.partial(task, library) for key, task in tasks.items()}, check)


if __name__ == "__main__":
    main(sys.argv[1])
