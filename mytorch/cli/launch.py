"""`mytorchrun launch`: run a script as several processes."""

from __future__ import annotations

import argparse
import os
import sys

from ..distributed import launch
from ..distributed.launcher_command import NOT_LAUNCHED, LaunchError
from . import settings
from .settings import SettingsError

HELP = "run a script as several processes, on one machine or several"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the launcher, those of the Accelerator, and --config."""
    launch.add_arguments(parser)
    existing = {action.dest for action in parser._actions}
    settings.add_arguments(parser, [name for name in settings.BY_NAME if name not in existing])
    parser.add_argument(
        "--config", "--config_file", dest="config", help="YAML file of the settings that aren't given"
    )
    parser.add_argument("--no-cpu", dest="cpu", action="store_false", help="override cpu in the file")
    parser.set_defaults(**dict.fromkeys(settings.BY_NAME))  # None: not given


def run(options: argparse.Namespace) -> int:
    """Launches; returns the exit code, 2 for a wrong call."""
    try:
        found = settings.resolve(command=vars(options), file=options.config)
        vars(options).update({name: value.value for name, value in found.items()})
        os.environ.update(settings.exported(found))
        return launch.run(options)
    except (LaunchError, SettingsError) as error:
        print(f"mytorchrun {options.command}: {error}", file=sys.stderr)
        return NOT_LAUNCHED
