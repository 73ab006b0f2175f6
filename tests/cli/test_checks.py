"""mytorchrun test: it passes here, and where something is wrong it says so and fails."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mytorch.cli import checks
from tests.distributed.launched import ROOT, needs_mpi

BROKEN = Path(__file__).parent / "broken_checks.py"


def run(*arguments, **variables):
    """(exit code, stdout, stderr)"""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "mytorch.cli", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
        timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **variables},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


SIZES = [1, pytest.param(2, marks=needs_mpi)]


@pytest.mark.parametrize("size", SIZES)
def test_all_is_well_here(size):
    code, out, err = run("test", "--cpu", "--num_processes", size, PYTHONIOENCODING="utf-8")
    assert code == 0, out + err
    lines = out.splitlines()
    assert lines[0].startswith(f"{size} process") and lines[-1] == f"all {len(checks.CHECKS)} checks passed"
    assert [line for line in lines if line.startswith("✓")] == [f"✓ {name}" for name in checks.CHECKS]


def test_one_process_needs_no_mpi(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('hidden')")
    paths = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    code, out, err = run("test", "--cpu", "--num_processes", "1", PYTHONPATH=paths)
    assert code == 0, out + err
    code, _, err = run("test", "--cpu", "--num_processes", "2", PYTHONPATH=paths)
    assert code == 2 and "2 processes need MPI" in err


FAULTS = {  # what is broken: (the check that finds it, what it says)
    "sum": ("collectives", "all_reduce is off by"),
    "average": ("gradients of DDP equal those of one process", "gradient of 0.weight is off by"),
    "order": ("data sharding", "an epoch"),
    "skip": ("mixed precision", "a step with an infinite gradient was made"),
    "loading": ("checkpoints", "the number of steps after loading is off by 2"),
    "window": ("gradient accumulation", "a weight is off by"),
}


@needs_mpi
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    name, text = FAULTS[fault]
    code, out, err = run("launch", "--cpu", "-n", 2, BROKEN, fault, name, PYTHONIOENCODING="utf-8")
    assert code == 1, out + err
    (line,) = out.splitlines()[1:]
    assert line.startswith(f"✗ {name}: rank ") and text in line
    assert f"checks failed: {name}" in err and "root cause" in err


@pytest.mark.parametrize("size", SIZES)
def test_an_error_ends_all_and_is_shown(size):
    code, out, err = run(
        "launch", "--cpu", "-n", size, "--timeout", 5, BROKEN, "error", PYTHONIOENCODING="utf-8"
    )
    assert code == 1
    assert f"✗ collectives: rank {size - 1}: OSError: no such wire" in out
    assert "root cause" in err and "OSError: no such wire" in err


@pytest.mark.parametrize("encoding, marks", [("utf-8", "✓✗"), ("ascii", ("ok", "FAILED"))])
def test_marks(encoding, marks, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert (checks._mark(True), checks._mark(False)) == tuple(marks)
