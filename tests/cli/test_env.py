"""mytorchrun env: everything a bug report needs; what is missing is said, and nothing breaks."""

import builtins
import importlib.metadata
import json
import platform
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.backends import threads
from mytorch.cli import env, main
from tests.every import every

SECTIONS = {
    "versions": ["mytorch", "Python", "NumPy", "Numba", "CuPy", "Triton", "mpi4py", "C library"],
    "BLAS and memory": ["library", "kernels", "tuning of BLAS", "tuning of malloc"],
    "threads": ["mytorch uses", "pool", "OpenBLAS uses", "kernels for the CPU"],
    "CPU": ["model", "instructions", "allowed by affinity", "quota of the container", "cores to use"],
    "GPU": ["GPUs", "nvidia-smi", "CUDA of the driver", "CUDA runtime", "NCCL", "kernels for the GPU"],
    "MPI": ["library", "mpiexec", "Slurm job"],
    "settings": ["file"],
    "environment variables": [],
}


def report(capsys):
    assert main(["env", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_in_it(capsys, monkeypatch):
    monkeypatch.setenv("MYTORCH_CPU", "1")
    monkeypatch.setenv("MYTORCH_API_KEY", "abc")
    found = report(capsys)
    assert list(found) == list(SECTIONS)
    for section, names in SECTIONS.items():
        assert set(names) <= set(found[section])
        assert every(isinstance(value, str) and value for value in found[section].values())
    assert not [value for facts in found.values() for value in facts.values() if value.startswith("failed:")]
    assert found["versions"]["mytorch"].startswith(mytorch.__version__)
    assert found["versions"]["NumPy"] == np.__version__
    assert found["versions"]["Python"].startswith(platform.python_version())
    assert found["threads"]["mytorch uses"] == str(threads.get_num_threads())
    assert found["environment variables"]["MYTORCH_CPU"] == "1"
    assert found["environment variables"]["MYTORCH_API_KEY"] == "(hidden)"


def test_as_text(capsys):
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(SECTIONS)
    assert any(line.split() == ["NumPy", np.__version__] for line in lines)


def test_what_is_not_installed(capsys, monkeypatch):
    real_import, real_find, real_version = (
        builtins.__import__,
        env.importlib.util.find_spec,
        env.importlib.metadata,
    )
    gone = {"numba", "cupy", "triton", "mpi4py"}

    def refuse(name, *rest):
        if name.partition(".")[0] in gone:
            raise ImportError(f"No module named '{name}'")
        return real_import(name, *rest)

    def version(name):
        if name.partition("-")[0] in gone:
            raise importlib.metadata.PackageNotFoundError(name)
        return real_version_of(name)

    real_version_of = real_version.version
    for name in gone:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr(env.importlib, "import_module", lambda name, *rest: refuse(name) or None)
    monkeypatch.setattr(
        env.importlib.util, "find_spec", lambda name: None if name in gone else real_find(name)
    )
    monkeypatch.setattr(env.importlib.metadata, "version", version)
    monkeypatch.setattr(env.launcher_command, "find_mpiexec", no_mpiexec)
    monkeypatch.setattr(env, "openblas", lambda: None)
    for name, value in (("_reason", None), ("running", False)):  # as before the first check of the pool
        monkeypatch.setattr(env.threads, name, value)
    monkeypatch.setattr(env.fused_ops, "why_not", env.fused_ops.why_not.__wrapped__)  # nothing is remembered
    monkeypatch.setenv("PATH", "")
    found = report(capsys)
    for name, extra in (("Numba", "cpu"), ("CuPy", "cuda12"), ("Triton", "triton"), ("mpi4py", "mpi")):
        assert found["versions"][name] == f"not installed: pip install 'mytorch[{extra}]'"
    for name in ("GPUs", "CUDA of the driver", "CUDA runtime", "NCCL"):
        assert found["GPU"][name].startswith("not installed: CuPy can't be imported (No module named 'cupy")
    assert found["GPU"]["nvidia-smi"].startswith("not installed: nvidia-smi can't be run")
    assert found["MPI"]["library"] == "not installed: pip install 'mytorch[mpi]'"
    assert found["MPI"]["mpiexec"] == "not installed: there is no mpiexec"
    assert found["BLAS and memory"]["kernels"] == "unknown"
    assert "Numba is not installed: pip install 'mytorch[cpu]'" in found["threads"]["pool"]
    assert "Numba is not installed" in found["threads"]["kernels for the CPU"]


def no_mpiexec():
    raise env.launcher_command.LaunchError("there is no mpiexec")


def test_with_gpus(capsys, monkeypatch):
    properties = {"name": b"Some GPU", "major": 9, "minor": 0, "totalGlobalMem": 80 << 30}
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 2, getDeviceProperties=lambda i: properties,
        driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 12080,
    )
    nccl = types.SimpleNamespace(get_version=lambda: 22703)
    fakes = {
        "cupy": types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)),
        "cupy.cuda.nccl": nccl,
    }
    monkeypatch.setattr(env.importlib, "import_module", fakes.__getitem__)
    gpu = {name: env._result_of(probe) for name, probe in env._GPU.items() if name != "kernels for the GPU"}
    assert gpu["GPUs"] == "0: Some GPU (9.0, 80 GiB), 1: Some GPU (9.0, 80 GiB)"
    assert (gpu["CUDA of the driver"], gpu["CUDA runtime"], gpu["NCCL"]) == ("13.0", "12.8", "2.27.3")


@pytest.mark.parametrize(
    "out, err, text",
    [
        ("580.1, GPU A\n580.1, GPU B\n", "a warning", "580.1, GPU A; 580.1, GPU B"),
        ("", "no driver\n", "no driver"), ("", "", "exit code 9"),
    ],
)
def test_what_nvidia_smi_says(out, err, text, monkeypatch):
    done = types.SimpleNamespace(returncode=9, stdout=out, stderr=err)
    monkeypatch.setattr(env.subprocess, "run", lambda *a, **o: done)
    assert env._nvidia_smi() == text


@pytest.mark.parametrize("found, text", [(("glibc", "2.36"), "glibc 2.36"), (("", ""), "not glibc")])
def test_the_c_library(found, text, monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: found)
    assert env._VERSIONS["C library"]() == text


def broken(*arguments, **options):
    raise RuntimeError("out\nof order")


@pytest.mark.parametrize(
    "section, name, module, attribute",
    [
        ("GPU", "GPUs", env.importlib, "import_module"),
        ("MPI", "library", env.subprocess, "run"),
        ("threads", "pool", env.threads, "why_serial"),
        ("BLAS and memory", "library", env, "openblas"),
        ("CPU", "architecture", env, "_result_of"),
    ],
)
def test_what_is_broken_says_so_and_the_rest_is_there(section, name, module, attribute, capsys, monkeypatch):
    if attribute == "_result_of":
        monkeypatch.setitem(env._CPU, "architecture", broken)
    else:
        monkeypatch.setattr(module, attribute, broken)
    found = report(capsys)
    assert found[section][name] == "failed: RuntimeError: out of order"
    assert found["versions"]["NumPy"] == np.__version__


def test_an_mpi_that_can_not_be_loaded(monkeypatch):
    monkeypatch.setattr(env.importlib.util, "find_spec", lambda name: True)
    done = types.SimpleNamespace(returncode=1, stdout="", stderr="cannot load\n  MPI library")
    monkeypatch.setattr(env.subprocess, "run", lambda *a, **o: done)
    assert env._library_of_mpi() == "can't be loaded: cannot load MPI library"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_flags_are_the_cpus(capsys):
    facts = Path("/proc/cpuinfo").read_text()
    shown = report(capsys)["CPU"]["instructions"].split()
    assert every(f" {flag} " in facts.replace("\n", " ") for flag in shown)
    assert ("avx2" in shown) == (" avx2 " in facts)


def test_it_runs_by_itself():
    done = subprocess.run(
        [sys.executable, "-m", "mytorch.cli", "env"], capture_output=True, text=True, timeout=300, check=True
    )
    assert "versions" in done.stdout and done.stderr == ""
