"""The process that measures one library: python -m benchmarks.gpu.worker mytorch|torch SIZE"""

import functools
import platform
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu import training, vectors
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import SIZES, Size
from benchmarks.kernel_jobs import Job, Passes, jobs, self_attention
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
    others = ("numpy", "triton", "ml_dtypes")
    return {
        "gpu": properties.name,
        "memory_bytes": properties.total_memory,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "unknown",
        "cuda_runtime": cupy().cuda.runtime.runtimeGetVersion(),
        "python": platform.python_version(),
        "mytorch": mytorch.__version__,
        "cupy": cupy().__version__,
        **{name: import_module(name).__version__ for name in others if find_spec(name)},
    }


def kernel_time(library, size: Size, kernel: str, mode: str) -> dict:
    """Returns {"shape": …, "cost": (bytes, bytes back, operations, operations back), "forward": times of that
    pass, "both": times of both passes, or None}."""
    if kernel in vectors.BYTES:
        n = size.kernels.parameters
        seen = {"forward": Clock(library, size)(vectors.calls(library, n)[kernel]), "both": None}
        return {"shape": f"{n}", "cost": (vectors.BYTES[kernel] * n, 0, 0, 0), **seen}
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
    cost = (2 * job.cost.forward, 2 * job.cost.backward, *job.cost[2:])
    seen = {"forward": clock(passes.forward), "both": None if job.no_grad else clock(passes.both)}
    return {"shape": job.size, "cost": cost, **seen}


def main(name: str, size: str) -> None:
    library = import_module(name)
    about = about_torch if name == "torch" else about_mytorch
    tasks = {"kernel_time": kernel_time, "train": training.train, "profile": training.profile}
    if name == "mytorch":
        from benchmarks.gpu import ceilings, parity

        own = ceilings.ceiling, parity.compare, parity.compare_chunks, attention_time
        tasks |= {task.__name__: task for task in own}
    check = library.cuda.synchronize if library.cuda.is_available() else lambda: None
    sized = {task: functools.partial(run, library, SIZES[size]) for task, run in tasks.items()}
    serve({"about": lambda: about(library), **sized}, check)


if __name__ == "__main__":
    main(*sys.argv[1:])
