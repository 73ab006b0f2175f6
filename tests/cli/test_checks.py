"""mytorchrun test: it passes here, and where something is wrong it says so and fails."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mytorch.cli import checks
from tests.distributed.launched import ROOT, needs_mpi, surroundings

BROKEN = Path(__file__).parent / "broken_checks.py"


def run(*arguments, **variables):
    """(exit code, stdout, stderr)"""
    done = subprocess.run(
        [sys.executable, "-m", "mytorch.cli", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
        timeout=300, env=surroundings(**variables),
    )
    return done.returncode, done.stdout, done.stderr


SIZES = [1, pytest.param(2, marks=needs_mpi)]


@pytest.fixture
def without_mpi(tmp_path):
    """A PYTHONPATH on which mpi4py can't be imported."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('hidden')")
    return os.pathsep.join([str(tmp_path), str(ROOT)])


@pytest.mark.parametrize("size", SIZES)
def test_all_is_well_here(size, without_mpi):
    """One process needs no MPI."""
    hidden = {"PYTHONPATH": without_mpi} if size == 1 else {}
    code, out, err = run("test", "--cpu", "--num_processes", size, PYTHONIOENCODING="utf-8", **hidden)
    assert code == 0, out + err
    lines = out.splitlines()
    assert lines[0].startswith(f"{size} process") and lines[-1] == f"all {len(checks.CHECKS)} checks passed"
    assert [line for line in lines if line.startswith("✓")] == [f"✓ {name}" for name in checks.CHECKS]


def test_two_processes_need_mpi(without_mpi):
    code, _, err = run("test", "--cpu", "--num_processes", "2", PYTHONPATH=without_mpi)
    assert code == 2 and "2 processes need MPI" in err


SAYS = {  # the check: what it says of the fault beneath it
    "collectives": "all_reduce is off by",
    "gradients of DDP equal those of one process": "gradient of 0.weight is off by",
    "data sharding": "an epoch",
    "mixed precision": "a step with an infinite gradient was made",
    "checkpoints": "the number of steps after loading is off by 2",
    "gradient accumulation": "a weight is off by",
}


@needs_mpi
def test_faults_are_found():
    code, out, err = run("launch", "--cpu", "-n", 2, BROKEN, PYTHONIOENCODING="utf-8")
    assert code == 1, out + err
    lines = out.splitlines()[1:]
    assert len(lines) == len(SAYS)
    for line, (name, text) in zip(lines, SAYS.items(), strict=True):
        assert line.startswith(f"✗ {name}: rank ") and text in line
    assert f"{len(SAYS)} of {len(SAYS)} checks failed: {', '.join(SAYS)}" in err and "root cause" in err


@needs_mpi
def test_an_error_ends_all_and_is_shown():
    code, out, err = run(
        "launch", "--cpu", "-n", 2, "--timeout", 30, BROKEN, "error", PYTHONIOENCODING="utf-8"
    )
    assert code == 1
    assert "✗ collectives: rank 1: OSError: no such wire" in out
    assert "root cause" in err and "OSError: no such wire" in err


@pytest.mark.parametrize("encoding, marks", [("utf-8", "✓✗"), ("ascii", ("ok", "FAILED"))])
def test_marks(encoding, marks, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert (checks._mark(True), checks._mark(False)) == tuple(marks)
