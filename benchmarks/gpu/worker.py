"""The process that measures one library: python -m benchmarks.gpu.worker mytorch|torch SIZE"""

import functools
import platform
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu import training, vectors
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.programs import program_time
from benchmarks.gpu.sizes import SIZES, Size
from benchmarks.kernel_jobs import Job, Passes, jobs, self_attention
from benchmarks.processes import serve


def about(library) -> dict:
    """Returns what the figures depend on; an exception says what is missing: a GPU, CuPy, or Triton."""
    if library.__name__ == "torch":
        if not library.cuda.is_available():
            raise RuntimeError(f"PyTorch {library.__version__} finds no GPU")
        cudnn = library.backends.cudnn.version()
        return {"pytorch": library.__version__, "cuda": library.version.cuda, "cudnn": cudnn}
    from mytorch.backends.kinds import cupy
    from mytorch.nn.fused_ops import triton

    properties = library.cuda.get_device_properties(0)
    if reason := triton.why_not():
        raise RuntimeError(f"Triton's kernels can't run here: {reason}")
    driver, others = Path("/proc/driver/nvidia/version"), ("numpy", "triton", "ml_dtypes")
    return {
        "gpu": properties.name, "memory_bytes": properties.total_memory,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "unknown",
        "cuda_runtime": cupy().cuda.runtime.runtimeGetVersion(), "python": platform.python_version(),
        "mytorch": library.__version__, "cupy": cupy().__version__,
        **{name: import_module(name).__version__ for name in others if find_spec(name)},
    }


def kernel_time(library, size: Size, kernel: str, mode: str) -> dict:
    """Returns {"shape": …, "cost": (bytes, bytes back, operations, operations back), "forward": times of that
    pass, "both": times of both passes, or None}."""
    if kernel in vectors.BYTES:
        n = size.kernels.parameters
        times = {"forward": Clock(library, size)(vectors.calls(library, n)[kernel]), "both": None}
        return {"shape": f"{n}", "cost": (vectors.BYTES[kernel] * n, 0, 0, 0), **times}
    if mode == "compiled":
        library._dynamo.reset()
    job = next(known for known in jobs(size.kernels, size.images) if known.name == kernel)
    return _job_time(library, size, job, mode)


def attention_time(library, size: Size, kernel: str, products: int) -> dict:
    """Returns what `kernel_time` does, for a whole batch, with 5 or 7 products in the backward pass."""
    from mytorch.nn.fused_ops.triton import attention_backward

    attention_backward.has_five_products = lambda *_, **__: products == 5
    return _job_time(library, size, self_attention(size.kernels, size.kernels.batch_size), "eager")


def _job_time(library, size: Size, job: Job, mode: str) -> dict:
    clock, passes = Clock(library, size), Passes(library, job, "cuda", "float16", mode)
    times = {"forward": clock(passes.forward), "both": None if job.no_grad else clock(passes.both)}
    moved, moved_back, *flops = job.cost
    return {"shape": job.size, "cost": (2 * moved, 2 * moved_back, *flops), **times}


def main(name: str, size: str) -> None:
    library = import_module(name)
    tasks = [kernel_time, program_time, training.train, training.profile]
    if name == "mytorch":
        from benchmarks.gpu.ceilings import ceiling
        from tests.triton import on_gpu

        tasks += [ceiling, on_gpu.compare, on_gpu.compare_chunks, attention_time]
    check = library.cuda.synchronize if library.cuda.is_available() else lambda: None
    sized = {task.__name__: functools.partial(task, library, SIZES[size]) for task in tasks}
    serve({"about": lambda: about(library), **sized}, check)


if __name__ == "__main__":
    main(*sys.argv[1:])
