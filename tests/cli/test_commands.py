"""Every command says what it does, and ends with 2 and a message where it is called wrongly."""

import os
import re
import subprocess
import sys

import pytest

import mytorch
from mytorch.cli import main
from mytorch.cli.main import COMMANDS
from tests.distributed.launched import surroundings
from tests.every import every

OPTIONS = {
    "config": ["--config_file", "--default", "--show", "--num_processes", "--mixed_precision", "--log_wandb"],
    "launch": ["--config", "--num_processes", "--num_gpus", "--max_restarts", "--mixed_precision", "SCRIPT"],
    "test": ["--config", "--num_processes", "--cpu", "--timeout"],
    "env": ["--json"],
    "estimate-memory": ["--model_size", "--batch_size", "--zero_stage", "--optimizer", "16 s N C"],
    "compile": ["FILE", "cross_entropy"],
    "timeline": ["log", "--output", "--start", "--end", "--dpi"],
    "top": ["--pid", "--once", "--interval"],
    "trace": ["--seconds", "--instructions", "--dir", "--pid"],
}


def test_every_command_has_a_row():
    assert set(OPTIONS) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert end.value.code == 0 and f"usage: mytorchrun {command}" in out
    missing = [option for option in OPTIONS[command] if option not in out]
    assert not missing and not re.search(r"%\(|None", out)


def test_without_a_command_it_prints_its_help(capsys):
    assert main([]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: mytorchrun") and not printed.err
    assert every(command in printed.out for command in COMMANDS)


WRONG = {  # what is called: what it says
    "unknown command": (["fly"], "invalid choice: 'fly'"),
    "config: no number": (["config", "--num_processes", "two"], "invalid int value: 'two'"),
    "config: zero": (["config", "--num_processes", "0"], "num_processes must be a positive number, got 0"),
    "config: fp8": (["config", "--mixed_precision", "fp8"], "invalid choice: 'fp8'"),
    "config: two ways": (
        ["config", "--num_processes", "2", "--num_gpus", "2"], "num_gpus=2 exclude each other"),
    "config: no terminal": (["config"], "stdin is no terminal; pass --default"),
    "config: uneven": (
        ["config", "--num_processes", "3", "--nnodes", "2"],
        "num_processes=3 (what was chosen) is no multiple of nnodes=2"),
    "show: no file": (["config", "--show", "--config_file", "no.yaml"], "can't read no.yaml"),
    "launch: no script": (["launch"], "required: SCRIPT"),
    "launch: no such script": (["launch", "no.py"], "no such script: no.py"),
    "launch: no file": (["launch", "--config", "no.yaml", "x.py"], "can't read no.yaml"),
    "launch: rank": (["launch", "--node_rank", "1", "x.py"], "node_rank=1 (command line) must be less than"),
    "launch: port": (["launch", "--master_port", "70000", "x.py"], "must be a port, 1 to 65535, got 70000"),
    "test: none": (["test", "--num_processes", "0"], "mytorchrun test: command line: num_processes must be"),
    "estimate: size": (["estimate-memory", "--model_size", "huge"], "invalid choice: 'huge'"),
    "estimate: layers": (["estimate-memory", "--n_layer", "0"], "expected a positive number, got 0"),
    "estimate: heads": (["estimate-memory", "--n_head", "7"], "must be divisible by n_head, got n_embd=768"),
    "estimate: length": (
        ["estimate-memory", "--sequence_length", "2000"], "2000 tokens exceed the context length of 1024"),
    "env: argument": (["env", "all"], "unrecognized arguments: all"),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_error(unbuffered, monkeypatch):
    """As in `mytorchrun top --once | head -1`."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "mytorch.cli", "top", "--once", "--interval", "0.01"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, "")


CLOSED = """
import os, sys
for number in map(int, sys.argv.pop(1).split(",")):
    os.close(number)
os.execv(sys.executable, [sys.executable, "-m", "mytorch.cli", *sys.argv[1:]])
"""


@pytest.mark.parametrize("numbers, command, code", [
    ("1", ["--version"], 0), ("1", ["env"], 0), ("0,1,2", ["env", "--json"], 0),
    ("1", ["launch", "--cpu", "-n", "1", "script.py"], 0), ("2", ["launch", "no.py"], 2),
    ("0,1", ["launch", "--cpu", "-n", "1", "script.py"], 0),
    ("0", ["config", "--config_file", "c.yaml"], 2), ("1", ["top", "--once"], None),
])
def test_a_stream_that_is_closed_is_no_error(numbers, command, code, tmp_path):
    """As by `mytorchrun … >&-`: what is written goes nowhere, and into no file that has its number now."""
    (tmp_path / "script.py").write_text("import sys; print(1); sys.exit(sys.stdout is None)")
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, numbers, *command], cwd=tmp_path, env=surroundings(),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )
    assert code in (None, done.returncode) and "Traceback" not in done.stderr, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_a_line(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mytorch.cli", "env"], cwd=tmp_path, env=surroundings(), stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=120,
        )
    assert "the output can't be written" in done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_the_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"mytorch {mytorch.__version__}\n"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_ends_with_2_and_says_why(name, capsys, monkeypatch, tmp_path):
    if name.startswith(("config", "show", "launch: no file")):
        pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    arguments, text = WRONG[name]
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    assert code == 2
    captured = capsys.readouterr()
    assert text in captured.err and captured.out == ""
