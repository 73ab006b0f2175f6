"""Where settings come from: each source beats those after it; what is wrong is said, with its place."""

import os

import pytest

from mytorch.cli import main, settings
from mytorch.cli.settings import BY_NAME, SettingsError, Value, resolve
from mytorch.distributed import launch as distributed_launch
from tests.distributed.launched import ROOT, launch, needs_mpi

yaml = pytest.importorskip("yaml")


def written(tmp_path, text):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return path


# name: (default, in the file, in the environment, what that means, on the command line, in a script)
EXAMPLES = {
    "nnodes": (1, 2, "3", 3, 4, 5),
    "node_rank": (0, 1, "2", 2, 3, 4),
    "master_addr": ("127.0.0.1", "a", "b", "b", "c", "d"),
    "master_port": (29500, 1, "2", 2, 3, 4),
    "hostfile": (None, "a", "b", "b", "c", "d"),
    "cpu": (False, True, "no", False, True, False),
    "num_processes": (None, 60, "120", 120, 180, 240),
    "num_gpus": (None, 1, "2", 2, 3, 4),
    "mixed_precision": ("no", "fp16", "no", "no", "fp16", "no"),
    "gradient_accumulation_steps": (1, 2, "3", 3, 4, 5),
    "timeout": (60.0, 5, "2.5", 2.5, 3.0, 4.0),
    "max_restarts": (0, 1, "2", 2, 3, 4),
    "log_wandb": (False, True, "false", False, True, False),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_strongest_source_wins(name, tmp_path):
    default, in_file, text, meant, on_command_line, in_script = EXAMPLES[name]
    room = "nnodes: 6\n" if name == "node_rank" else ""
    path, empty = written(tmp_path, f"{room}{name}: {in_file}\n"), tmp_path / "empty.yaml"
    empty.touch()
    environment, command, script = {BY_NAME[name].variable: text}, {name: on_command_line}, {name: in_script}

    def found(*sources, file=path):
        value = resolve(*sources, file=file)[name]
        return value.value, value.source

    assert found(None, None, {}, file=empty) == (default, "default")
    assert found(None, None, {}) == (in_file, f"file {path}")
    assert found(None, None, environment) == (meant, "environment")
    assert found(None, command, environment) == (on_command_line, "command line")
    assert found(script, command, environment) == (in_script, "script")
    assert type(found(None, None, {})[0]) is BY_NAME[name].type


def test_which_file_is_read(tmp_path, home):
    path = written(tmp_path, "max_restarts: 1\n")
    other = tmp_path / "other.yaml"
    other.write_text("max_restarts: 2\n")
    by_default = home / ".cache/mytorch/default_config.yaml"
    assert resolve(environment={})["max_restarts"].source == "default"
    by_default.parent.mkdir(parents=True)
    by_default.write_text("max_restarts: 3\n")
    found = [
        resolve(environment={}),
        resolve(environment={"MYTORCH_CONFIG": str(path)}),
        resolve(environment={"MYTORCH_CONFIG": str(path)}, file=other),
    ]
    assert [f["max_restarts"].value for f in found] == [3, 1, 2]
    with pytest.raises(SettingsError, match=r"can't read .*gone.yaml"):
        resolve(environment={"MYTORCH_CONFIG": str(tmp_path / "gone.yaml")})


def test_two_ways_to_count_ranks_do_not_mix(tmp_path):
    path = written(tmp_path, "num_processes: 8\n")
    found = resolve(command={"num_gpus": 2}, environment={}, file=path)
    assert (found["num_gpus"].value, found["num_processes"].value) == (2, None)
    path.write_text("num_processes: 8\nnum_gpus: 2\n")
    with pytest.raises(SettingsError, match=r"settings.yaml: num_processes=8 and num_gpus=2 exclude"):
        resolve(environment={}, file=path)
    assert resolve(command={"num_processes": 3}, environment={}, file=written(tmp_path, "num_gpus: 1\n"))[
        "num_gpus"
    ] == settings.Value(None, "default")


WRONG = {  # file: message
    "num_procs: 4": "unknown key 'num_procs' (value 4); the settings are nnodes, node_rank",
    "num_processes: four": "num_processes is of type int, got 'four' of type str",
    "num_processes: true": "num_processes is of type int, got True of type bool",
    "num_processes: 2.0": "num_processes is of type int, got 2.0 of type float",
    "num_processes: 0": "num_processes must be a positive number, got 0",
    "num_processes: [2]": "num_processes is of type int, got [2] of type list",
    "cpu: 1": "cpu is of type bool, got 1 of type int",
    "master_addr: 7": "master_addr is of type str, got 7 of type int",
    "master_addr: ''": "master_addr must be not empty, got ''",
    "master_port: 65536": "master_port must be a port, 1 to 65535, got 65536",
    "mixed_precision: fp8": "mixed_precision is one of no, fp16, bf16, got 'fp8'",
    "mixed_precision: yes": "mixed_precision is of type str, got True of type bool",
    "timeout: .inf": "timeout must be a positive number of seconds, got inf",
    "timeout: .nan": "timeout must be a positive number of seconds, got nan",
    "max_restarts: -1": "max_restarts must be a number that isn't negative, got -1",
    "cpu: true\ncpu: false": "cpu is set 2 times",
    "- 1": "expected lines of the form `name: value`, got [1]",
    "cpu: [": "is no YAML",
    "[" * 5000: "is no YAML",
    "nnodes: 2\nnode_rank: 2": "node_rank=2 (file",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_named_with_key_and_value(text, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        resolve(environment={}, file=path)
    assert str(path) in str(raised.value) and WRONG[text] in str(raised.value)


def test_text_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="can't read"):
        resolve(environment={}, file=path)


WRONG_VARIABLES = {
    ("MYTORCH_CPU", "maybe"): "environment variable MYTORCH_CPU: cpu is true or false, got 'maybe'",
    ("MYTORCH_NNODES", "2.5"): "environment variable MYTORCH_NNODES: nnodes is of type int, got '2.5'",
    (
        "MYTORCH_DIST_TIMEOUT",
        "-1",
    ): "MYTORCH_DIST_TIMEOUT: timeout must be a positive number of seconds, got -1",
}


@pytest.mark.parametrize("variable", WRONG_VARIABLES)
def test_a_wrong_variable_is_named(variable):
    name, text = variable
    with pytest.raises(SettingsError) as raised:
        resolve(environment={name: text})
    assert WRONG_VARIABLES[variable] in str(raised.value)


@pytest.mark.parametrize(
    "text, value", [("1", True), ("YES", True), ("on", True), ("0", False), ("Off", False)]
)
def test_words_for_true_and_false(text, value):
    assert resolve(environment={"MYTORCH_CPU": text})["cpu"].value is value


def test_a_no_without_quotes_is_no_precision(tmp_path):
    found = resolve(environment={}, file=written(tmp_path, "mixed_precision: no\n"))
    assert found["mixed_precision"].value == "no"


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new folder" / "config.yaml"
    values = {name: example[3] for name, example in EXAMPLES.items() if name != "num_gpus"}
    settings.write(path, values)
    assert settings.read(path) == values
    assert list(yaml.safe_load(path.read_text())) == [name for name in BY_NAME if name in values]
    assert [file.name for file in path.parent.iterdir()] == ["config.yaml"]
    with pytest.raises(SettingsError, match="can't write"):
        settings.write(tmp_path, values)


def test_a_file_that_could_not_be_written_whole_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    settings.write(path, {"max_restarts": 1})

    def full(self, text, **options):
        self.open("w").write(text[:5])
        raise OSError("no space left")

    monkeypatch.setattr(type(path), "write_text", full)
    with pytest.raises(SettingsError, match=r"can't write .*config.yaml: no space left"):
        settings.write(path, {"max_restarts": 2})
    assert settings.read(path) == {"max_restarts": 1}


def test_only_what_an_accelerator_reads_is_passed_on(tmp_path):
    path = written(tmp_path, "gradient_accumulation_steps: 4\nmax_restarts: 2\n")
    found = resolve(command={"mixed_precision": "fp16"}, environment={}, file=path)
    assert settings.exported(found) == {
        "MYTORCH_MIXED_PRECISION": "fp16",
        "MYTORCH_GRADIENT_ACCUMULATION_STEPS": "4",
    }


@pytest.mark.parametrize("arguments, cpu", [([], True), (["--no-cpu"], False), (["--cpu"], True)])
def test_launch_can_take_a_switch_back(arguments, cpu, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(distributed_launch, "run", lambda options: seen.append(options) or 0)
    path = written(tmp_path, "cpu: true\nmax_restarts: 4\n")
    assert main(["launch", "--config", str(path), *arguments, "train.py", "--cpu"]) == 0
    (options,) = seen
    assert (options.cpu, options.max_restarts, options.script_args) == (cpu, 4, ["--cpu"])
    assert (options.nnodes, options.master_port, options.num_processes) == (1, 29500, None)


@pytest.mark.parametrize("arguments, timeout", [([], 30.0), (["--timeout", "5"], 5.0)])
def test_the_checks_are_launched_once_and_wait_shortly(arguments, timeout, tmp_path, monkeypatch):
    """Whatever the file says of a training."""
    seen = []
    monkeypatch.setattr(distributed_launch, "run", lambda options: seen.append(options) or 3)
    path = written(tmp_path, "num_processes: 2\nmax_restarts: 4\ntimeout: 900\n")
    assert main(["test", "--config", str(path), *arguments]) == 3
    (options,) = seen
    assert (options.max_restarts, options.timeout, options.num_processes) == (0, timeout, 2)
    assert options.module and options.script == "mytorch.cli.checks"


def test_the_table_has_name_value_and_source():
    found = {"cpu": Value(True, "file"), "num_gpus": Value(None, "default"), "timeout": Value(0.0, "x")}
    assert settings.table(found).splitlines() == [
        "cpu       True    file", "num_gpus  (open)  default", "timeout   0.0     x"
    ]


TELL = """
import os
names = ("MIXED_PRECISION", "GRADIENT_ACCUMULATION_STEPS", "DIST_TIMEOUT")
if os.environ["RANK"] == "0":
    print(os.environ["WORLD_SIZE"], *[os.environ.get(f"MYTORCH_{name}") for name in names])
"""


@needs_mpi
def test_launch_starts_from_the_file(tmp_path):
    """What the command line sets comes before it."""
    text = "num_processes: 2\nmixed_precision: fp16\ngradient_accumulation_steps: 4\ntimeout: 7\n"
    path, script = written(tmp_path, text), tmp_path / "tell.py"
    script.write_text(TELL)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    code, out, err = launch("--timeout", "9", "--config", path, script, PYTHONPATH=paths)
    assert code == 0, err
    assert out.strip() == "2 fp16 4 9.0"


def levels(count):
    """A file in which each line has the one before ten times."""
    lines = ["a: &a0 x"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, count)]
    return "\n".join(lines) + "\n"


STRANGE = {  # what is in the file: what is said
    "aliases": (levels(10), "settings have no aliases, got *a0"),
    "one alias": ("nnodes: &a 2\nnum_processes: *a\n", "settings have no aliases, got *a"),
    "merged": ("x: &a {nnodes: 2}\n<<: *a\n", "settings have no aliases, got *a"),
    "deep": ("[" * 50_000, "lists are nested too deeply"),
    "many keys": ("".join(f"k{n}: 1\n" for n in range(9000)), "unknown key 'k0'"),
    "a long key": (f"? {'k' * 90_000}\n: 1\n", "unknown key 'kkk"),
    "a long value": (f"nnodes: {'k' * 90_000}\n", "nnodes is of type int, got 'kkk"),
    "large": (" " * 200_000, "is larger than 100,000 bytes"),
    "digits": (f"nnodes: {'9' * 5000}\n", "settings.yaml"),
    "hex": (f"nnodes: 0x{'f' * 90_000}\nnum_processes: 1.5\n", "num_processes is of type int, got 1.5"),
    "hex, negative": (f"node_rank: -0x{'f' * 90_000}\n", "got a number that is too large"),
    "hex of seconds": (f"timeout: 0x{'f' * 90_000}\n", "timeout must be a positive number of seconds, got"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_file_is_an_error_of_one_line(name, tmp_path, capsys):
    text, message = STRANGE[name]
    path = written(tmp_path, text)
    assert main(["launch", "--config", str(path), "x.py"]) == 2
    error = capsys.readouterr().err
    assert message in error and str(path) in error and len(error) < 2000
