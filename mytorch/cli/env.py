"""`mytorchrun env`: reports the machine and the installation, for a bug report."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np

from ..backends import threads, tune
from ..backends.openblas import OpenBLAS, openblas
from ..distributed import launcher_command
from ..nn import fused_ops
from ..utils.reading import read_text
from ..version import __version__
from .settings import config_path

HELP = "print versions, hardware and settings, for a bug report"
_PREFIXES = ("MYTORCH_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "GOMP_", "KMP_", "TRITON_", "CUDA_", "CUPY_",
             "NCCL_", "OMPI_", "PMI_", "SLURM_", "MALLOC_", "MASTER_")
_NAMES = ("USE_FUSED_OPS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PYTHONPATH",
          "LD_LIBRARY_PATH", "LD_PRELOAD")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
_FLAGS = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl",
          "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "asimd", "sve")
# In another process and without MPI_Init: a library that can't be loaded may abort the process.
_MPI_VERSION = """
import sys
sys.path[:] = filter(None, sys.path)  # without the current folder
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().split("\\0")[0].splitlines()[0])
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the report; returns the exit code, 0."""
    found = report()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    lines = []
    for section, facts in found.items():
        width = max(map(len, facts), default=0)
        lines += [section, *(f"  {name:<{width}}  {value}" for name, value in facts.items())]
    print("\n".join(lines))
    return 0


def report() -> dict[str, dict[str, str]]:
    """Returns the facts by section and name; a missing or broken part is reported with the reason."""
    sections = {
        "versions": {"mytorch": lambda: f"{__version__} in {Path(__file__).parents[1]}", **_VERSIONS},
        "BLAS and memory": _BLAS,
        "threads": _THREADS,
        "CPU": _CPU,
        "GPU": _GPU,
        "MPI": _MPI,
        "settings": {"file": _config_file},
    }
    found = {
        section: {name: _result_of(probe) for name, probe in probes.items()}
        for section, probes in sections.items()
    }
    return {**found, "environment variables": _variables()}


def _result_of(probe: Callable[[], object]) -> str:
    """Returns the result of a probe, or its error: any part of an installation may be broken."""
    try:
        return str(probe())
    except Exception as error:
        text = " ".join(str(error).split())
        return f"failed: {type(error).__name__}: {text}"


def _package(module: str, *distributions: str, extra: str = "") -> Callable[[], str]:
    """Returns a probe of a package's version, which doesn't import it."""

    def probe() -> str:
        for name in distributions or (module,):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
        if importlib.util.find_spec(module) is not None:
            return str(getattr(importlib.import_module(module), "__version__", "unknown version"))
        how = f": pip install 'mytorch[{extra}]'" if extra else f": no module named {module}"
        return f"not installed{how}"

    return probe


def _operating_system() -> str:
    name = platform.platform()
    with contextlib.suppress(OSError, AttributeError):  # Python 3.10 and later, on Linux
        name = f"{platform.freedesktop_os_release().get('PRETTY_NAME', '?')}, {name}"
    return name


_CUPY_WHEELS = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")
_VERSIONS = {
    "Python": lambda: f"{platform.python_version()} ({sys.executable})",
    "NumPy": lambda: np.__version__,
    "Numba": _package("numba", extra="cpu"),
    "CuPy": _package("cupy", *_CUPY_WHEELS, extra="cuda12"),
    "Triton": _package("triton", extra="triton"),
    "mpi4py": _package("mpi4py", extra="mpi"),
    "operating system": _operating_system,
    "C library": lambda: " ".join(platform.libc_ver()).strip() or "not glibc",
}


def _blas() -> str:
    library = openblas()
    if library is None:
        name = (
            np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {}).get("name", "unknown")
        )
        return f"{name}; not an OpenBLAS that can be inspected"
    return f"OpenBLAS, {library.path}"


def _of_openblas(get: Callable[[OpenBLAS], object]) -> Callable[[], object]:
    return lambda: "unknown" if openblas() is None else get(openblas())


_BLAS = {
    "library": _blas,
    "kernels": _of_openblas(lambda library: library.get_corename().decode()),
    "tuning of BLAS": lambda: tune.report().get("blas", "none"),
    "tuning of malloc": lambda: tune.report().get("malloc", "none"),
}


def _pool() -> str:
    why = threads.why_serial()
    return f"none, kernels run serially: {why}" if why else "Numba's, on OpenMP"


_THREADS = {
    "mytorch uses": threads.get_num_threads,
    "pool": _pool,
    "OpenBLAS uses": _of_openblas(lambda library: library.get_num_threads()),
    "kernels for the CPU": lambda: fused_ops.why_not("cpu") or "Numba's",
}


def _cpu_facts() -> dict[str, str]:
    """Returns the fields of the first CPU in /proc/cpuinfo."""
    text = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0]
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _model() -> str:
    facts = _cpu_facts() if os.path.exists("/proc/cpuinfo") else {}
    return facts.get("model name") or platform.processor() or platform.machine()


def _flags() -> str:
    if not os.path.exists("/proc/cpuinfo"):
        return "unknown: no /proc/cpuinfo"
    facts = _cpu_facts()
    has = set((facts.get("flags") or facts.get("Features", "")).split())
    return " ".join(flag for flag in _FLAGS if flag in has) or "none that matters"


def _affinity() -> str:
    if not hasattr(os, "sched_getaffinity"):
        return "unknown on this system"
    return f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"


def _quota() -> str:
    for path in (Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")):
        if path.exists():
            return f"{path.read_text().strip()} ({path})"
    return "none"


def _memory() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * size / 2**30:.1f} GiB"


_CPU = {
    "model": _model,
    "architecture": platform.machine,
    "instructions": _flags,
    "allowed by affinity": _affinity,
    "quota of the container": _quota,
    "cores to use": threads.available_cores,
    "memory": _memory,
}


def _cuda(get: Callable[[ModuleType], object]) -> Callable[[], str]:
    """Returns a probe of CuPy."""

    def probe() -> str:
        try:
            cupy = importlib.import_module("cupy")
        except ImportError as error:
            return f"not installed: CuPy can't be imported ({error}): pip install 'mytorch[cuda12]'"
        return str(get(cupy))

    return probe


def _names_of_gpus(cupy: ModuleType) -> str:
    runtime = cupy.cuda.runtime
    facts = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
    return ", ".join(
        f"{i}: {p['name'].decode()} ({p['major']}.{p['minor']}, {p['totalGlobalMem'] / 2**30:.0f} GiB)"
        for i, p in enumerate(facts)
    )


def _dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _nccl(cupy: ModuleType) -> str:
    number = importlib.import_module("cupy.cuda.nccl").get_version()
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _nvidia_smi() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except OSError as error:
        return f"not installed: nvidia-smi can't be run ({error.strerror})"
    return "; ".join((done.stdout or done.stderr).strip().splitlines()) or f"exit code {done.returncode}"


_GPU = {
    "GPUs": _cuda(_names_of_gpus),
    "nvidia-smi": _nvidia_smi,
    "CUDA of the driver": _cuda(lambda cupy: _dotted(cupy.cuda.runtime.driverGetVersion())),
    "CUDA runtime": _cuda(lambda cupy: _dotted(cupy.cuda.runtime.runtimeGetVersion())),
    "NCCL": _cuda(_nccl),
    "kernels for the GPU": lambda: fused_ops.why_not("cuda") or "Triton's",
}


def _library_of_mpi() -> str:
    if importlib.util.find_spec("mpi4py") is None:
        return "not installed: pip install 'mytorch[mpi]'"
    command = [sys.executable, "-c", _MPI_VERSION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        return done.stdout.strip()
    return f"can't be loaded: {' '.join(done.stderr.split())[-300:]}"


def _mpiexec() -> str:
    try:
        return launcher_command.find_mpiexec()
    except launcher_command.LaunchError as error:
        return f"not installed: {error}"


_MPI = {"library": _library_of_mpi, "mpiexec": _mpiexec, "Slurm job": launcher_command.under_slurm}


def _config_file() -> str:
    path = config_path()
    return f"{path}: {' '.join(read_text(path).split())}" if path.exists() else f"{path} does not exist"


def _variables() -> dict[str, str]:
    """Returns the variables that change the behaviour of mytorch; secrets are hidden."""
    names = sorted(name for name in os.environ if name.startswith(_PREFIXES) or name in _NAMES)
    return {
        name: "(hidden)" if any(word in name.upper() for word in _SECRET) else os.environ[name]
        for name in names
    }
