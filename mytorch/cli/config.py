"""`mytorchrun config`: writes the settings of `mytorchrun launch` into a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType

from ..backends.device import device_count
from . import settings
from .settings import FIELDS, INSTALL, Field, SettingsError, SettingValue

HELP = "ask for the settings that launch starts from, and write them to a file"
_HARDWARE = ("CPU", "GPU")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "--config_file", help="where (default: $MYTORCH_CONFIG, or ~/.cache/mytorch/default_config.yaml)"
    )
    parser.add_argument("--default", action="store_true", help="ask nothing: defaults, and the options given")
    parser.add_argument(
        "--show", action="store_true", help="write nothing: print every setting and where it comes from"
    )
    group = parser.add_argument_group(
        "settings", "with one of these nothing is asked; without --default the file's other ones stay"
    )
    settings.add_arguments(group)


def run(options: argparse.Namespace) -> int:
    """Writes the answers or options; returns the exit code, 2 for a wrong call."""
    try:
        if options.show:
            print(settings.table(settings.resolve(command=vars(options), file=options.config_file)))
            return 0
        path = settings.config_path(options.config_file)
        values = _chosen(options, path)
        settings.check(values, "what was chosen")
        settings.write(path, values)
    except SettingsError as error:
        print(f"mytorchrun config: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, EOFError):  # Ctrl-C, Ctrl-D
        print("mytorchrun config: nothing was written", file=sys.stderr)
        return 130
    print(f"wrote {path}")
    return 0


def _chosen(options: argparse.Namespace, path: Path) -> dict[str, SettingValue]:
    given = {f.name: getattr(options, f.name) for f in FIELDS if getattr(options, f.name) is not None}
    known = {} if options.default or not path.exists() else settings.read(path)
    start = {f.name: f.default for f in FIELDS} | known
    if options.default or given:
        for one, other in (("num_processes", "num_gpus"), ("num_gpus", "num_processes")):
            if one in given:
                start[other] = None
        return start | given
    if not sys.stdin.isatty():
        raise SettingsError("stdin is no terminal; pass --default, or an option for each setting")
    return ask(start)


def ask(start: dict[str, SettingValue]) -> dict[str, SettingValue]:
    """Asks for each setting, with the old values as defaults; returns the answers.

    Raises:
        SettingsError: questionary isn't installed.
        KeyboardInterrupt, EOFError: Ctrl-C, Ctrl-D.
    """
    try:
        import questionary
    except ImportError as error:
        raise SettingsError(
            f"questions need questionary, which can't be imported ({error}): {INSTALL}; "
            "--default and options for the settings need none"
        ) from error
    answers: dict[str, SettingValue] = {}
    for field in FIELDS:
        proposed = start.get(field.name)
        if not field.asked_if(answers):
            answers[field.name] = None if field.default is None else proposed
        else:
            answers[field.name] = _ask_one(questionary, field, proposed)
    return answers


def _ask_one(questionary: ModuleType, field: Field, proposed: SettingValue) -> SettingValue:
    if field.name == "cpu":
        proposed = _HARDWARE[not proposed and device_count() > 0]
        return questionary.select("Runs on", choices=list(_HARDWARE), default=proposed).unsafe_ask() == "CPU"
    message = f"{field.about[0].upper()}{field.about[1:]}"
    if field.type is bool:
        answer = questionary.select(message, choices=["no", "yes"], default="yes" if proposed else "no")
        return answer.unsafe_ask() == "yes"
    if field.choices:
        return questionary.select(message, choices=list(field.choices), default=proposed).unsafe_ask()
    if proposed is None and field.name in ("num_processes", "num_gpus"):
        proposed = max(1, device_count()) if field.name == "num_gpus" else 1

    def accepts(text: str) -> bool | str:
        try:
            settings.parse(field, text, "answer")
        except SettingsError as error:
            return str(error)
        return True

    text = "" if proposed is None else f"{proposed:g}" if field.type is float else str(proposed)
    return settings.parse(
        field, questionary.text(message, default=text, validate=accepts).unsafe_ask(), "answer"
    )
