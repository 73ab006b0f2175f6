"""
The settings of a run and their sources: the first of these that has a value sets it.

    script > command line > environment > file > default

The file is YAML, written by `mytorchrun config`: ~/.cache/mytorch/default_config.yaml, or the one that the
variable MYTORCH_CONFIG or --config_file names. `mytorchrun launch` sets the environment that an Accelerator
reads, for all ranks.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from ..accelerate.world import is_true
from ..distributed.environment import TIMEOUT, TIMEOUT_VARIABLE
from ..utils import atomic_write
from ..utils.reading import read_text

CONFIG_VARIABLE = "MYTORCH_CONFIG"
INSTALL = "pip install 'mytorch[launch]'"
SOURCES = ("script", "command line", "environment", "file")
DEFAULT = "default"
_LONGEST_FILE, _DEEPEST = 100_000, 10  # bytes, lists in lists


SettingValue: TypeAlias = bool | int | float | str | None


class SettingsError(ValueError):
    """A setting can't be used; the message names it, its value and its source."""


@dataclass(frozen=True)
class Field:
    """A setting.

    Args:
        name: in files and, with two dashes, on the command line.
        type: int, float, bool or str.
        default: None leaves it open.
        variable: its variable of the environment.
        about: its description, for --help and questions.
        check: the condition of a value, in words, and the function that tests it.
        is_accelerators: an Accelerator reads its variable.
        asked_if: whether `mytorchrun config` asks for it, as a function of the answers so far.
    """

    name: str
    type: type
    default: SettingValue
    variable: str
    about: str
    check: tuple[str, Callable[[int | float | str], bool]] | None = None
    choices: tuple[str, ...] = ()
    is_accelerators: bool = False
    asked_if: Callable[[Mapping[str, SettingValue]], bool] = lambda answers: True


_POSITIVE = "a positive number", lambda value: 0 < value < math.inf
_SECONDS = "a positive number of seconds", _POSITIVE[1]
_NOT_NEGATIVE = "a number that isn't negative", lambda value: value >= 0
_PORT = "a port, 1 to 65535", lambda value: 0 < value < 65536
_NOT_EMPTY = "not empty", bool


def _several(answers: Mapping[str, SettingValue]) -> bool:
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
    Field("max_restarts", int, 0, "MYTORCH_MAX_RESTARTS", "restarts after a failure",
          _NOT_NEGATIVE),
    Field("log_wandb", bool, False, "MYTORCH_LOG_WANDB", "log to Weights & Biases", is_accelerators=True),
]
BY_NAME = {field.name: field for field in FIELDS}
_COUNTS = ("num_processes", "num_gpus")  # two ways to set the number of ranks


@dataclass(frozen=True)
class Value:
    """A value and its source: one of SOURCES, or "default"; the file with its path."""

    value: SettingValue
    source: str


def resolve(
    script: Mapping[str, SettingValue] | None = None, command: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None, file: str | os.PathLike | None = None,
) -> dict[str, Value]:
    """Returns every setting with its source, by name.

    Args:
        script, command: values by name; None means not given. Names of other options are ignored.
        environment: os.environ if None.
        file: the file; if None the one that the environment names, or the default one.

    Raises:
        SettingsError: an unknown key in the file, a value of the wrong type or out of range, a missing file
            that was named, inconsistent values.
    """
    environment = os.environ if environment is None else environment
    path = config_path(file, environment)
    must_exist = file is not None or bool(environment.get(CONFIG_VARIABLE))
    from_file = read(path) if must_exist or path.exists() else {}
    command_line = _checked_all(command or {}, "command line")
    variables = {field.name: _from_text(field, environment.get(field.variable)) for field in FIELDS}
    given = (_checked_all(script or {}, "script"), command_line, variables, from_file)
    return _merge(list(zip(given, (*SOURCES[:-1], f"file {path}"), strict=True)))


def check(values: Mapping[str, SettingValue], source: str) -> None:
    """Raises SettingsError unless these settings are valid and consistent."""
    _merge([(_checked_all(values, source), source)])


def _merge(given: list[tuple[Mapping[str, SettingValue], str]]) -> dict[str, Value]:
    """Returns the settings of several sources, of which the first has precedence."""
    found = {field.name: Value(field.default, DEFAULT) for field in FIELDS}
    for values, source in reversed(given):
        counts = {name: values[name] for name in _COUNTS if values.get(name) is not None}
        if len(counts) == 2:
            both = " and ".join(f"{name}={value}" for name, value in counts.items())
            raise SettingsError(f"{source}: {both} exclude each other")
        if counts:  # either setting replaces both of a weaker source
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
            f"num_processes={ranks.value} ({ranks.source}) is no multiple of "
            f"nnodes={nodes.value} ({nodes.source})"
        )


def _checked_all(values: Mapping[str, object], source: str) -> dict[str, SettingValue]:
    return {name: _checked(field, values.get(name), source) for name, field in BY_NAME.items()}


def _checked(field: Field, value: object, source: str) -> SettingValue:
    """Returns the value, an int as a float for a float setting; None stays None."""
    if value is None:
        return None
    if field.type is float and type(value) is int:
        value = float(value) if abs(value) < 1e300 else math.inf
    if value is False and "no" in field.choices:  # YAML reads `no` without quotes as False
        value = "no"
    if type(value) is not field.type:
        got = f"{_shown(value)} of type {type(value).__name__}"
        raise SettingsError(f"{source}: {field.name} is of type {field.type.__name__}, got {got}")
    if field.choices and value not in field.choices:
        allowed = ", ".join(field.choices)
        raise SettingsError(f"{source}: {field.name} is one of {allowed}, got {_shown(value)}")
    if field.check is not None and not field.check[1](value):
        got = f"{value:g}" if field.type is float else _shown(value)
        raise SettingsError(f"{source}: {field.name} must be {field.check[0]}, got {got}")
    return value


def _shown(value: object) -> str:
    """Returns a value as text, of a file that may be damaged."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number that is too large"
    return text if len(text) <= 200 else f"{text[:200]} …"


def parse(field: Field, text: str, source: str) -> SettingValue:
    """Returns the value of a text.

    Raises:
        SettingsError: not a value of this type, or one out of range.
    """
    if field.type is bool:
        try:
            return is_true(text)
        except ValueError:
            raise SettingsError(f"{source}: {field.name} is true or false, got {text!r}") from None
    try:
        value = field.type(text.strip())
    except ValueError:
        kind = field.type.__name__
        raise SettingsError(f"{source}: {field.name} is of type {kind}, got {text!r}") from None
    return _checked(field, value, source)


def _from_text(field: Field, text: str | None) -> SettingValue:
    return parse(field, text, f"environment variable {field.variable}") if text else None


def config_path(file: str | os.PathLike | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """Returns the path of the file: `file`, or that in MYTORCH_CONFIG, or the default."""
    environment = os.environ if environment is None else environment
    chosen = file or environment.get(CONFIG_VARIABLE)
    return Path(os.path.expanduser(chosen or "~/.cache/mytorch/default_config.yaml"))  # ~ may stay


def read(path: Path) -> dict[str, SettingValue]:
    """Returns the settings in a file, each of them checked.

    Raises:
        SettingsError: no such file, no YAML, an unknown or repeated key, a wrong value; PyYAML isn't
            installed.
    """
    yaml = _yaml(f"to read {path}")
    try:
        text = read_text(path, _LONGEST_FILE)
        _check_simple(yaml, text)
        found, nodes = yaml.safe_load(text), yaml.compose(text)
    except (OSError, ValueError) as error:
        raise SettingsError(f"can't read {path}: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{path} is no YAML of settings: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: expected lines of the form `name: value`, got {_shown(found)}")
    for name, count in Counter(key.value for key, _ in nodes.value).items():
        if count > 1:  # YAML would use the last
            raise SettingsError(f"{path}: {_shown(name)[1:-1]} is set {count} times")
    for key, value in found.items():
        if key not in BY_NAME:
            raise SettingsError(
                f"{path}: unknown key {_shown(key)} (value {_shown(value)}); the settings are "
                f"{', '.join(BY_NAME)}"
            )
    return {key: _checked(BY_NAME[key], value, str(path)) for key, value in found.items()}


def _check_simple(yaml: ModuleType, text: str) -> None:
    """Raises YAMLError for what settings don't need, which makes a small file take minutes or gigabytes."""
    depth = 0
    for event in yaml.parse(text):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError("lists are nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"settings have no aliases, got *{event.anchor[:100]}")


def write(path: Path, values: Mapping[str, SettingValue]) -> None:
    """Writes the settings that aren't None, atomically.

    Raises:
        SettingsError: the file can't be written, or the home folder is unknown; PyYAML isn't installed.
    """
    if path.parts[:1] == ("~",):
        raise SettingsError(f"the home folder is unknown for {path}: pass another file as --config_file")
    yaml = _yaml(f"to write {path}")
    kept = {name: values[name] for name in BY_NAME if values.get(name) is not None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"can't write {path}: {error}") from error


def _yaml(why: str) -> ModuleType:
    try:
        import yaml
    except ImportError as error:
        raise SettingsError(
            f"{why}, PyYAML is needed, which can't be imported ({error}): {INSTALL}"
        ) from error
    return yaml


def add_arguments(parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
    """Adds an option for each setting; one that isn't given is None."""
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
    """Returns the environment variables of the settings that an Accelerator reads, without defaults."""
    return {
        field.variable: str(found[field.name].value)
        for field in FIELDS
        if field.is_accelerators and found[field.name].source != DEFAULT
    }


def table(found: Mapping[str, Value]) -> str:
    """Returns a line for each setting: its name, value and source."""
    rows = [(name, "(open)" if v.value is None else str(v.value), v.source) for name, v in found.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)
