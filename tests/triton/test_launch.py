"""Run the tests of launches on a GPU that is made of stand-ins; and what is said where there is none."""

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mytorch.nn.fused_ops import triton
from tests.triton.test_kernels import ROOT, run, without_torch  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


@pytest.fixture
def libcuda(tmp_path):
    """A folder with a stand-in for libcuda.so.1."""
    package = Path(importlib.util.find_spec("triton").origin).parent
    source, made = Path(__file__).parent / "fake_cuda.c", tmp_path / "libcuda.so.1"
    headers = package / "backends/nvidia/include"
    subprocess.run(["gcc", "-shared", "-fPIC", "-I", headers, "-o", made, source], check=True)
    return str(tmp_path)


def test_launches(libcuda, without_torch, tmp_path):  # noqa: F811
    run(
        "tests/triton/launched.py", without_torch, LD_LIBRARY_PATH=libcuda, TRITON_LIBCUDA_PATH=libcuda,
        TRITON_CACHE_DIR=str(tmp_path / "cache"), TRITON_INTERPRET="0",
    )


def why_not(*path, blocked="", **environment):
    """What a fresh process says, with these folders before all others, and without a module."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys({blocked.split()!r}))
from mytorch.nn.fused_ops import triton
print(triton.why_not())
print([name for name in ("torch", "triton") if sys.modules.get(name)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def some_cupy(tmp_path):
    """A folder with a package `cupy`, which is never imported."""
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text("raise RuntimeError('too early')")
    return tmp_path


def test_a_missing_package_is_named(without_torch):  # noqa: F811
    reason, loaded = why_not(without_torch, blocked="triton")
    assert reason == "Triton is not installed: pip install 'mytorch[triton]'" and loaded == "[]"
    reason, loaded = why_not(without_torch, blocked="cupy")
    assert reason.startswith("CuPy is not installed: pip install 'mytorch[cuda12]'")


def test_a_machine_without_a_gpu(without_torch, some_cupy, tmp_path):  # noqa: F811
    reason, loaded = why_not(without_torch, TRITON_LIBCUDA_PATH=str(tmp_path))
    assert reason.startswith("there is no NVIDIA driver (") and "libcuda.so.1" in reason
    assert loaded == "[]", "finding that out took seconds"


@pytest.mark.parametrize(
    ("version", "given", "chosen"),
    [("12.8", None, "12.9"), ("12.9", None, None), ("12.8", "/own/ptxas", None)],
)
def test_the_assembler_of_triton_3_6_is_replaced(monkeypatch, version, given, chosen):
    """It miscompiles attention; one that TRITON_PTXAS_PATH names stays."""
    choose_assembler = importlib.import_module("mytorch.nn.fused_ops.triton.driver").choose_assembler
    if given is None:
        monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    else:
        monkeypatch.setenv("TRITON_PTXAS_PATH", given)
    ptxas = SimpleNamespace(version=version)
    tools = SimpleNamespace(ptxas=ptxas, ptxas_blackwell=SimpleNamespace(path="12.9"))
    choose_assembler(tools)
    assert tools.ptxas == (chosen or ptxas)


def test_a_machine_without_a_compiler(libcuda, without_torch, some_cupy, tmp_path):  # noqa: F811
    (some_cupy / "cupy" / "__init__.py").write_text(
        "import types; cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=0, setDevice=0))"
    )
    reason, _ = why_not(
        without_torch, TRITON_LIBCUDA_PATH=libcuda, LD_LIBRARY_PATH=libcuda, CC="no-such-compiler",
        TRITON_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert "needs a C compiler" in reason and "no-such-compiler" in reason


def test_the_stand_in_for_cupy_has_no_kernels(fake_cuda):
    assert triton.why_not() == "this CuPy is a stand-in without a GPU"
