"""Processes that the package starts: they import this mytorch, and no file of the current folder."""

import subprocess
import sys
from pathlib import Path

import pytest

import mytorch
from tests.distributed.launched import PROGRAMS, ROOT, is_alive, needs_mpi, surroundings, wait_for

NAMES = ("numba", "mpi4py", "numpy", "yaml", "cupy", "json", "ml_dtypes")
SAFE = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]


@pytest.fixture
def folder(tmp_path):
    """A folder whose files have the names of modules, and say so if they are imported."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path)!r} + '/imported {name}', 'w')\n1 / 0\n")
    yield tmp_path
    assert not list(tmp_path.glob("imported *"))


def run(command, folder, code=0, **variables):
    done = subprocess.run(
        command, cwd=folder, env=surroundings(**variables), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", ["1", pytest.param("2", marks=needs_mpi)])
def test_ranks(folder, ranks):
    command = [*SAFE, "-m", "mytorch.cli", "launch", "--cpu", "-n", ranks, PROGRAMS / "print_environment.py"]
    assert run(command, folder).count('"RANK"') == int(ranks)


@needs_mpi
def test_env(folder):
    assert "can't be loaded" not in run([*SAFE, "-m", "mytorch.cli", "env"], folder)


PATHS = "import mytorch, sys; print([mytorch.__file__, sys.path[0]])"


@pytest.mark.parametrize("safe", [False, True])
def test_a_script_has_its_folder_first(tmp_path, safe):
    """Unless the user wants none."""
    script, variables = tmp_path / "script.py", {"PYTHONSAFEPATH": "1"} if safe else {}
    script.write_text(PATHS)
    command = [*SAFE, "-m", "mytorch.cli", "launch", "--cpu", "-n", "1", script]
    _, first = eval(run(command, ROOT, **variables))
    assert (first == str(tmp_path)) == (not safe or sys.version_info < (3, 11))


def test_a_module_has_the_current_folder_first(tmp_path):
    (tmp_path / "module.py").write_text(PATHS)
    command = [sys.executable, "-m", "mytorch.cli", "launch", "--cpu", "-n", "1", "-m", "module"]
    assert eval(run(command, tmp_path)) == [mytorch.__file__, str(tmp_path)]


IN_CHECKOUT = """
import sys
sys.path.append({root!r})
import mytorch
from mytorch.accelerate import notebook_launcher
from mytorch.nn import functional as F
def train():
    F.relu(mytorch.ones(3))
    print("from", mytorch.__file__, flush=True)
if __name__ == "__main__":
    notebook_launcher(train, (), 2, use_cpu=True)
"""


@needs_mpi
def test_a_checkout_that_is_not_installed(folder):
    """As a notebook in it, which puts its folder on the path: its processes find the package there."""
    script = folder / "script.py"
    script.write_text(IN_CHECKOUT.format(root=str(ROOT)))
    assert run([*SAFE, script], folder, PYTHONPATH="").splitlines() == [f"from {mytorch.__file__}"] * 2


IN_BACKGROUND = """
import time, mytorch
from mytorch.nn.fused_ops import background
deadline = time.monotonic() + 240
while not background.is_compiled("gelu") and time.monotonic() < deadline:
    workers = background._jobs._workers
    assert all(worker._process.poll() is None for worker in workers)
    time.sleep(0.02)
print(background.stamp("gelu").exists())
"""


def test_the_worker_that_compiles(folder):
    pytest.importorskip("numba")
    variables = {"MYTORCH_COMPILE": "background", "MYTORCH_CACHE": str(folder / "cache")}
    assert run([*SAFE, "-c", IN_BACKGROUND], folder, **variables) == "True\n"


WORKERS = """
import mytorch
from mytorch.utils.data import DataLoader
if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        loader = DataLoader(range(4), num_workers=1, multiprocessing_context=method)
        print([batch.tolist() for batch in loader])
"""


def test_the_workers_of_a_loader(folder):
    (folder / "inside").mkdir()
    script = folder / "inside" / "script.py"
    script.write_text(WORKERS)
    assert run([*SAFE, script], folder).splitlines() == ["[[0], [1], [2], [3]]"] * 2


PROGRAM = """
import os, subprocess, sys, time
from mytorch.utils.start import python
print(subprocess.Popen([*python("mytorch.cli"), "compile", "-", str(os.getpid())]).pid, flush=True)
time.sleep(600)
"""


def test_the_worker_that_compiles_ends_with_a_killed_program():
    """Also while another process keeps the pipe open."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )
    worker = int(program.stdout.readline())
    wait_for(lambda: len(list(Path(f"/proc/{worker}/task").iterdir())) > 1, 60)  # it has begun to watch
    program.kill()
    program.wait()
    wait_for(lambda: not is_alive(worker), 60)
    program.stdin.close()
    program.stdout.close()
