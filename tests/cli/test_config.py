"""mytorchrun config: by questions, by options, and what it shows."""

import builtins
import os
import sys

import pytest

from mytorch.cli import config, main, settings

yaml = pytest.importorskip("yaml")
ENTER, DOWN, CLEAR, CTRL_C, CTRL_D = "\r", "\x1b[B", "\x15", "\x03", "\x04"


def stored(path):
    return yaml.safe_load(path.read_text())


def where(home):
    return home / ".cache" / "mytorch" / "default_config.yaml"


@pytest.fixture
def answer(monkeypatch):
    """Lets the keyboard type something before a function is called."""
    pytest.importorskip("questionary")
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(config, "device_count", lambda: 0)

    def type_in(keys, call):
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text("".join(keys))
            return call()

    return type_in


# nnodes, (node_rank, address, port, hostfile), CPU or GPU, processes or GPUs, precision, steps, timeout,
# restarts, wandb
ONE_MACHINE = [ENTER, ENTER, CLEAR, "4", ENTER, DOWN, ENTER, CLEAR, "8", ENTER, ENTER, ENTER, DOWN, ENTER]
TWO_MACHINES = [
    CLEAR, "2", ENTER, CLEAR, "1", ENTER, CLEAR, "node0", ENTER, ENTER, "hosts.txt", ENTER, DOWN, ENTER,
    CLEAR, "8", ENTER, ENTER, ENTER, CLEAR, "0.5", ENTER, CLEAR, "3", ENTER, ENTER,
]
DEFAULTS = {
    "nnodes": 1, "node_rank": 0, "master_addr": "127.0.0.1", "master_port": 29500, "cpu": False,
    "mixed_precision": "no", "gradient_accumulation_steps": 1, "timeout": 60.0, "max_restarts": 0,
    "log_wandb": False,
}
ANSWERS = {
    "one machine": (ONE_MACHINE, {
        "cpu": True, "num_processes": 4, "mixed_precision": "fp16", "gradient_accumulation_steps": 8,
        "log_wandb": True}),
    "two machines": (TWO_MACHINES, {
        "nnodes": 2, "node_rank": 1, "master_addr": "node0", "hostfile": "hosts.txt", "num_gpus": 8,
        "timeout": 0.5, "max_restarts": 3}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_questions(name, answer, home, capsys):
    keys, expected = ANSWERS[name]
    assert answer(keys, lambda: main(["config"])) == 0
    assert stored(where(home)) == DEFAULTS | expected
    assert capsys.readouterr().out == f"wrote {where(home)}\n"


def test_old_answers_are_proposed(answer, home):
    path = where(home)
    settings.write(
        path, DEFAULTS | {"cpu": True, "num_processes": 3, "mixed_precision": "fp16", "timeout": 7.5}
    )
    before = stored(path)
    assert answer([ENTER] * 8, lambda: main(["config"])) == 0
    assert stored(path) == before


def test_a_wrong_answer_is_not_taken(answer):
    zero_then_two = [CLEAR, "0", ENTER, CLEAR, "2", ENTER]
    keys = [ENTER, ENTER, *zero_then_two, ENTER, ENTER, ENTER, ENTER, ENTER]
    assert answer(keys, lambda: config.ask(DEFAULTS))["num_processes"] == 2


STOPPED = {"Ctrl-C": [ENTER, CTRL_C], "Ctrl-D": [CLEAR, CTRL_D]}


@pytest.mark.parametrize("keys", STOPPED)
def test_ctrl_c_writes_nothing(keys, answer, home, capsys):
    assert answer(STOPPED[keys], lambda: main(["config"])) == 130
    assert not where(home).exists() and "nothing was written" in capsys.readouterr().err


OPTIONS = {  # what is in the file, the options: what is then in it
    "defaults": (None, ["--default"], DEFAULTS),
    "defaults instead of the file": ({"num_gpus": 8, "timeout": 5.0}, ["--default"], DEFAULTS),
    "bfloat16": (None, ["--mixed_precision", "bf16"], DEFAULTS | {"mixed_precision": "bf16"}),
    "defaults and one": (None, ["--default", "--num_processes", "4"], DEFAULTS | {"num_processes": 4}),
    "one setting": ({"timeout": 5.0}, ["--cpu"], DEFAULTS | {"timeout": 5.0, "cpu": True}),
    "off again": ({"log_wandb": True}, ["--no-log_wandb"], DEFAULTS),
    "the other count": ({"num_gpus": 8}, ["--num_processes", "2"], DEFAULTS | {"num_processes": 2}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_ask_nothing(name, tmp_path):
    before, options, expected = OPTIONS[name]
    path = tmp_path / "config.yaml"
    if before:
        settings.write(path, before)
    assert main(["config", "--config_file", str(path), *options]) == 0
    assert stored(path) == expected


def test_the_variable_names_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MYTORCH_CONFIG", str(tmp_path / "mine.yaml"))
    assert main(["config", "--default"]) == 0
    assert stored(tmp_path / "mine.yaml") == DEFAULTS
    assert capsys.readouterr().out == f"wrote {tmp_path / 'mine.yaml'}\n"


def test_without_a_home(tmp_path, monkeypatch, capsys):
    """As in a container whose user has no name: everything works but for the default file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does then
    assert main(["config", "--show"]) == 0
    assert {line.split()[-1] for line in capsys.readouterr().out.splitlines()} == {"default"}
    assert main(["config", "--default"]) == 2
    assert "the home folder is unknown for ~/.cache" in capsys.readouterr().err
    assert main(["config", "--default", "--config_file", "mine.yaml"]) == 0
    assert sorted(os.listdir()) == ["home", "mine.yaml"]


def test_show(tmp_path, monkeypatch, capsys):
    path = tmp_path / "c.yaml"
    settings.write(path, {"num_processes": 2, "timeout": 5.0, "max_restarts": 1})
    monkeypatch.setenv("MYTORCH_MAX_RESTARTS", "2")
    assert main(["config", "--show", "--config_file", str(path), "--timeout", "9"]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == list(settings.BY_NAME)
    found = {name: (value, source) for name, value, source in lines}
    assert found["num_processes"] == ("2", f"file {path}")
    assert found["timeout"] == ("9.0", "command line")
    assert found["max_restarts"] == ("2", "environment")
    assert found["num_gpus"] == ("(open)", "default")


@pytest.mark.parametrize("module, options", [("questionary", []), ("yaml", ["--default"])])
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    module, options, monkeypatch, capsys, home
):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.partition(".")[0] == module:
            raise ImportError(f"No module named '{name}'")
        return real(name, *rest)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert main(["config", *options]) == 2
    err = capsys.readouterr().err
    assert "pip install 'mytorch[launch]'" in err and f"No module named '{module}'" in err
    assert not where(home).exists()
