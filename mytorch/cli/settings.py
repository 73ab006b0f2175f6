"""
The settings of a run, and where each comes from: the strongest source that has a value gives it.

    script > command line > environment > file > default

The file is YAML, written by `mytorchrun config`: ~/.cache/mytorch/default_config.yaml, or what the variable
MYTORCH_CONFIG or --config_file names. `mytorchrun launch` passes on to the ranks, in the environment, what an
Accelerator reads.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..accelerate.world import is_true
from ..distributed.environment import TIMEOUT, TIMEOUT_VARIABLE
from ..utils import atomic_write

CONFIG_VARIABLE = "MYTORCH_CONFIG"
INSTALL = "pip install 'mytorch[launch]'"
SOURCES = ("script", "command line", "environment", "file")
DEFAULT = "default"


class SettingsError(ValueError):
    """A setting can't be used; the message names it, its value, and where it stands."""


@dataclass(frozen=True)
class Field:
    """A setting.

    Args:
        name: in files and, with two dashes, on the command line.
        type: int, float, bool or str.
        default: None leaves it open.
        variable: of the environment.
        about: what it is, for --help and questions.
        check: what must hold of a value, in words, and the function that says so.
        is_accelerators: an Accelerator reads its variable.
        asked_if: whether `mytorchrun config` asks for it, after what was answered.
    """

    name: str
    type: type
    default: Any
    variable: str
    about: str
    check: tuple[str, Callable[[Any], bool]] | None = None
    choices: tuple[str, ...] = ()
    is_accelerators: bool = False
    asked_if: Callable[[Mapping[str, Any]], bool] = lambda answers: True


_POSITIVE = "a positive number", lambda value: 0 < value < math.inf
_SECONDS = "a positive number of seconds", _POSITIVE[1]
_NOT_NEGATIVE = "a number that isn't negative", lambda value: value >= 0
_PORT = "a port, 1 to 65535", lambda value: 0 < value < 65536
_NOT_EMPTY = "not empty", bool


def _several(answers: Mapping[str, Any]) -> bool:
    return (answers.get("nnodes") or 1) > 1


FIELDS = [
    Field("nnodes", int, 1, "MYTORCH_NNODES", "machines", _POSITIVE),
    Field("node_rank", int, 0, "MYTORCH_NODE_RANK", "which of them this is, from 0", _NOT_NEGATIVE,
          asked_if=_several),
    Field("master_addr", str, "127.0.0.1", "MYTORCH_MASTER_ADDR", "address of machine 0", _NOT_EMPTY,
          asked_if=_several),
    Field("master_port", int, 29500, "MYTORCH_MASTER_PORT", "a free port there", _PORT, asked_if=_several),
    Field("hostfile", str, None, "MYTORCH_HOSTFILE", "file with a line `host slots=8` for each machine",
          _NOT_EMPTY, asked_if=_several),
    Field("cpu", bool, False, "MYTORCH_CPU", "use no GPU", is_accelerators=True),
    Field("num_processes", int, None, "MYTORCH_NUM_PROCESSES", "processes, on all machines together",
          _POSITIVE, asked_if=lambda answers: answers["cpu"]),
    Field("num_gpus", int, None, "MYTORCH_NUM_GPUS", "GPUs on each machine, a process for each", _POSITIVE,
          asked_if=lambda answers: not answers["cpu"]),
    Field("mixed_precision", str, "no", "MYTORCH_MIXED_PRECISION", "precision of the model",
          choices=("no", "fp16", "bf16"), is_accelerators=True),
    Field("gradient_accumulation_steps", int, 1, "MYTORCH_GRADIENT_ACCUMULATION_STEPS",
          "micro-batches for each update", _POSITIVE, is_accelerators=True),
    Field("timeout", float, TIMEOUT, TIMEOUT_VARIABLE, "seconds that a collective may take", _SECONDS),
    Field("max_restarts", int, 0, "MYTORCH_MAX_RESTARTS", "start again so often after a failure",
          _NOT_NEGATIVE),
    Field("log_wandb", bool, False, "MYTORCH_LOG_WANDB", "log to Weights & Biases", is_accelerators=True),
]  # fmt: skip
BY_NAME = {field.name: field for field in FIELDS}
_COUNTS = ("num_processes", "num_gpus")  # two ways to say how many ranks there are


@dataclass(frozen=True)
class Value:
    """A value and its source: one of SOURCES, or "default"; the file with its path."""

    value: Any
    source: str


def resolve(
    script: Mapping[str, Any] | None = None,
    command: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: str | os.PathLike | None = None,
) -> dict[str, Value]:
    """Every setting, by name, with where it comes from.

    Args:
        script, command: by name; None means not given. Names that are no settings are passed over.
        environment: os.environ if None.
        file: the file; the one that the environment names, or the default one, if None.

    Raises:
        SettingsError: an unknown key in the file, a value of the wrong type or out of range, a file that was
            asked for and isn't there, values that don't fit each other.
    """
    environment = os.environ if environment is None else environment
    path = config_path(file, environment)
    must_exist = file is not None or bool(environment.get(CONFIG_VARIABLE))
    from_file = read(path) if must_exist or path.exists() else {}
    command_line = _checked_all(command or {}, "command line")
    variables = {field.name: _from_text(field, environment.get(field.variable)) for field in FIELDS}
    given = (_checked_all(script or {}, "script"), command_line, variables, from_file)
    return _merge(list(zip(given, (*SOURCES[:-1], f"file {path}"), strict=True)))


def check(values: Mapping[str, Any], where: str) -> None:
    """Raise SettingsError unless these settings are right, each and together."""
    _merge([(_checked_all(values, where), where)])


def _merge(given: list[tuple[Mapping[str, Any], str]]) -> dict[str, Value]:
    """The settings of several sources, the strongest first."""
    found = {field.name: Value(field.default, DEFAULT) for field in FIELDS}
    for values, source in reversed(given):
        counts = {name: values[name] for name in _COUNTS if values.get(name) is not None}
        if len(counts) == 2:
            both = " and ".join(f"{name}={value}" for name, value in counts.items())
            raise SettingsError(f"{source}: {both} say the same in two ways; give one of them")
        if counts:  # a stronger word on the number of ranks replaces a weaker one, in whichever way
            found.update({name: Value(None, DEFAULT) for name in _COUNTS})
        found.update({name: Value(value, source) for name, value in values.items() if value is not None})
    _check_together(found)
    return found


def _check_together(found: dict[str, Value]) -> None:
    nodes, rank, ranks = found["nnodes"], found["node_rank"], found["num_processes"]
    if rank.value >= nodes.value:
        raise SettingsError(
            f"node_rank={rank.value} ({rank.source}) must be less than nnodes={nodes.value} ({nodes.source})"
        )
    if ranks.value is not None and ranks.value % nodes.value:
        raise SettingsError(
            f"num_processes={ranks.value} ({ranks.source}) can't be shared out evenly among "
            f"nnodes={nodes.value} ({nodes.source})"
        )


def _checked_all(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {name: _checked(field, values.get(name), where) for name, field in BY_NAME.items()}


def _checked(field: Field, value: Any, where: str) -> Any:
    """The value, an int as a float where that is wanted; None stays None."""
    if value is None:
        return None
    if field.type is float and type(value) is int:
        value = float(value)
    if value is False and "no" in field.choices:  # what YAML makes of a `no` without quotes
        value = "no"
    if type(value) is not field.type:
        got = f"{value!r} of type {type(value).__name__}"
        raise SettingsError(f"{where}: {field.name} is of type {field.type.__name__}, got {got}")
    if field.choices and value not in field.choices:
        raise SettingsError(f"{where}: {field.name} is one of {', '.join(field.choices)}, got {value!r}")
    if field.check is not None and not field.check[1](value):
        got = f"{value:g}" if field.type is float else repr(value)
        raise SettingsError(f"{where}: {field.name} must be {field.check[0]}, got {got}")
    return value


def parse(field: Field, text: str, where: str) -> Any:
    """The value that a text means.

    Raises:
        SettingsError: none, or one out of range.
    """
    if field.type is bool:
        try:
            return is_true(text)
        except ValueError:
            raise SettingsError(f"{where}: {field.name} is true or false, got {text!r}") from None
    try:
        value = field.type(text.strip())
    except ValueError:
        raise SettingsError(f"{where}: {field.name} is of type {field.type.__name__}, got {text!r}") from None
    return _checked(field, value, where)


def _from_text(field: Field, text: str | None) -> Any:
    return parse(field, text, f"environment variable {field.variable}") if text else None


def config_path(file: str | os.PathLike | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """Where the file is: `file`, or what MYTORCH_CONFIG says, or in ~/.cache/mytorch."""
    environment = os.environ if environment is None else environment
    chosen = file or environment.get(CONFIG_VARIABLE)
    return Path(os.path.expanduser(chosen or "~/.cache/mytorch/default_config.yaml"))  # ~ stays without home


def read(path: Path) -> dict[str, Any]:
    """The settings in a file, checked one by one.

    Raises:
        SettingsError: no such file, no YAML, an unknown key, one that comes twice, a wrong value; PyYAML
            isn't installed.
    """
    yaml = _yaml(f"to read {path}")
    try:
        text = path.read_text(encoding="utf-8")
        found, nodes = yaml.safe_load(text), yaml.compose(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"can't read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is no YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: expected lines of the form `name: value`, got {found!r}")
    names = [key.value for key, _ in nodes.value]
    for name in names:
        if names.count(name) > 1:  # of which YAML would take the last
            raise SettingsError(f"{path}: {name} stands there {names.count(name)} times")
    for key, value in found.items():
        if key not in BY_NAME:
            raise SettingsError(
                f"{path}: unknown key {key!r} (value {value!r}); there are {', '.join(BY_NAME)}"
            )
    return {key: _checked(BY_NAME[key], value, str(path)) for key, value in found.items()}


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write settings, whole or not at all; those that are None are left out.

    Raises:
        SettingsError: the file can't be written, or there is no home folder for it; PyYAML isn't installed.
    """
    if path.parts[:1] == ("~",):
        raise SettingsError(f"there is no home folder for {path}: name another file by --config_file")
    yaml = _yaml(f"to write {path}")
    kept = {name: values[name] for name in BY_NAME if values.get(name) is not None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"can't write {path}: {error}") from error


def _yaml(why: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise SettingsError(
            f"{why}, PyYAML is needed, which can't be imported ({error}): {INSTALL}"
        ) from error
    return yaml


def add_arguments(parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
    """Give a parser an option for each setting; one that isn't given is None."""
    for field in [BY_NAME[name] for name in names or BY_NAME]:
        if field.type is bool:
            parser.add_argument(
                f"--{field.name}", action=argparse.BooleanOptionalAction, default=None, help=field.about
            )
            continue
        default = "" if field.default is None else f" (default {field.default})"
        parser.add_argument(
            f"--{field.name}", type=field.type, choices=field.choices or None, help=field.about + default
        )


def exported(found: Mapping[str, Value]) -> dict[str, str]:
    """The environment that tells an Accelerator what is set; defaults are left to it."""
    return {
        field.variable: str(found[field.name].value)
        for field in FIELDS
        if field.is_accelerators and found[field.name].source != DEFAULT
    }


def table(found: Mapping[str, Value]) -> str:
    """A line for each setting: its name, its value, where it comes from."""
    rows = [(name, "(open)" if v.value is None else str(v.value), v.source) for name, v in found.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)
