"""The folder of a run stays while its launcher lives, wherever that is."""

import os
import shutil
import subprocess
import sys

import pytest

from mytorch.distributed import run_folder

from .launched import ROOT, surroundings


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A folder in place of /dev/shm."""
    new = run_folder._new_folder
    monkeypatch.setattr(run_folder, "_new_folder", lambda base, locked: new(tmp_path, locked))
    return tmp_path


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_has_no_lock_is_removed(memory):
    """Whatever process number is in its name."""
    living = run_folder.RunFolder(2)
    (living.path / "recorder-0").touch()
    for name in ("mytorchrun-999999999-x", f"mytorchrun-{os.getpid()}-x", "mytorchrun-x", "another"):
        (memory / name).mkdir()
        (memory / name / "recorder-0").touch()
    (memory / "mytorchrun-link").symlink_to(memory / "another")
    (memory / "mytorchrun-file").touch()
    os.mkfifo(memory / "mytorchrun-fifo")
    run_folder.remove_stale_folders(memory)
    others = ["another", "mytorchrun-fifo", "mytorchrun-file", "mytorchrun-link"]
    assert left(memory) == sorted([living.path.name, *others])
    assert left(living.path) == left(memory / "another") == ["recorder-0"]
    living.remove()
    assert left(memory) == others


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_what_is_another_users_stays(memory):
    folder = memory / "mytorchrun-999999999-x"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    run_folder.remove_stale_folders(memory)
    assert folder.exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(memory, monkeypatch):
    """By a launcher that starts at the same moment."""
    lock, seen = run_folder._lock, []

    def late(path):
        seen.append(path)
        if len(seen) == 1:
            monkeypatch.setattr(run_folder, "_lock", lock)
            run_folder.remove_stale_folders(memory)
        return lock(path)

    monkeypatch.setattr(run_folder, "_lock", late)
    run = run_folder.RunFolder(1)
    assert left(memory) == [run.path.name] and run.path != seen[0]
    run.remove()


def test_without_locks_nothing_is_removed(memory, monkeypatch):
    def no_lock(path):
        raise OSError("no locks available")

    monkeypatch.setattr(run_folder, "_lock", no_lock)
    run, other = run_folder.RunFolder(1), run_folder.RunFolder(1)
    run_folder.remove_stale_folders(memory)
    assert left(memory) == sorted([run.path.name, other.path.name])
    run.remove()
    other.remove()
    assert left(memory) == []


NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
OTHER = """
import pathlib, sys
from mytorch.distributed import run_folder
run_folder.remove_stale_folders(pathlib.Path(sys.argv[1]))
"""


def has_namespaces():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_namespaces(), reason="no process namespaces")
def test_a_launcher_that_sees_other_processes_removes_nothing_that_lives(memory):
    run = run_folder.RunFolder(1)
    (memory / "mytorchrun-5-x").mkdir()
    command = [*NAMESPACE, sys.executable, "-c", OTHER, memory]
    subprocess.run(command, cwd=ROOT, env=surroundings(), check=True)
    assert left(memory) == [run.path.name]
    run.remove()
