"""What the scripts say of a device that is not there, and the commands that they show."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mytorch.utils import scripts

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "train": ["train_gpt2.py"],
    "smoke": ["-m", "benchmarks.smoke"],
    "finetune": ["finetune_gpt2.py", "folder"],
    "inference": ["inference_gpt2.py", "folder"],
    "chat": ["-m", "mytorch.chat", "folder"],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_gpu_that_is_not_there_costs_a_line(script):
    done = subprocess.run(
        [sys.executable, *SCRIPTS[script], "--device", "cuda:99"], cwd=ROOT, capture_output=True, text=True,
        timeout=120,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("--device cuda:99: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("device", "says"),
    [("tpu", "a device is 'cpu', 'cuda'"), ("meta", "tensors without data"), ("cuda:9", "there are 2 GPUs")],
)
def test_other_devices_that_are_none(device, says, fake_cuda):
    with pytest.raises(SystemExit, match=f"^--device {device}: .*{says}"):
        scripts.usable_device(device)


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0"])
def test_a_device_that_is_there(name, fake_cuda):
    assert scripts.usable_device(name) == name


def test_a_hint_runs_outside_of_an_active_environment(tmp_path, monkeypatch):
    """Where the shell finds no Python, or another one."""
    (tmp_path / "a b").mkdir()
    script = tmp_path / "a b" / "show.py"
    script.write_text("import mytorch, sys; print(sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for path, folder in (("/nonexistent", tmp_path), (os.path.dirname(sys.executable), tmp_path / "a b")):
        monkeypatch.setenv("PATH", path)
        monkeypatch.chdir(folder)
        line = scripts.python_command(script, "it's", "x y")
        done = subprocess.run(
            ["/bin/sh", "-c", line], env={**environment, "PATH": path}, capture_output=True, text=True,
            timeout=120,
        )
        assert done.stdout == "[\"it's\", 'x y']\n", (line, done.stderr)


def test_a_hint_is_short(tmp_path, monkeypatch):
    python = tmp_path / ".venv/bin/python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.chdir(tmp_path)
    assert shlex.split(scripts.python_command(tmp_path / "a.py", 1)) == [".venv/bin/python", "a.py", "1"]
    monkeypatch.chdir("/")
    monkeypatch.setattr("shutil.which", lambda name: str(python))
    assert scripts.python_command(tmp_path / "a.py")[:7] == "python "
