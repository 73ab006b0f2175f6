"""What the training and inference scripts share: the value of `--device`, the command that a hint shows."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable

from ..backends.device import META, as_device


def usable_device(name: str) -> str:
    """Returns the name of a device, for `add_argument("--device", type=usable_device)`.

    Raises:
        SystemExit: it doesn't exist, or holds no data; with one line for the user.

    >>> from mytorch.utils.scripts import usable_device
    >>> usable_device("cpu")
    'cpu'
    """
    try:
        found = as_device(name)
    except RuntimeError as error:
        raise SystemExit(f"--device {name}: {error}") from None
    if found is META:
        raise SystemExit(f"--device {name}: tensors without data; there are cpu, cuda and cuda:N")
    return name


def require_bounds(
    parser: ArgumentParser, args: Namespace, at_least_1: Iterable[str] = (), at_least_0: Iterable[str] = (),
    below_1: Iterable[str] = (),
) -> None:
    """Ends the program with a line for the user if an option is out of range.

    Args:
        at_least_1, at_least_0: names of options that have a lower bound; infinity and NaN are refused, too.
        below_1: of those that are at least 0, too.

    Raises:
        SystemExit: as from `parser.error`.
    """
    bounds = {
        **dict.fromkeys(at_least_1, (1, math.inf, "at least 1")),
        **dict.fromkeys(at_least_0, (0, math.inf, "at least 0")),
        **dict.fromkeys(below_1, (0, 1, "at least 0 and below 1")),
    }
    for name, (low, high, text) in bounds.items():
        value = getattr(args, name)
        if value is not None and not low <= value < high:
            parser.error(f"--{name} must be {text}, got {value}")


def python_command(script: str | os.PathLike, *arguments: object) -> str:
    """Returns the line for a shell that runs a script with the Python that runs now.

    Python is called by its name where that finds it, else by its path: outside of an environment that isn't
    active `python` may be missing, or be one without mytorch.

    Args:
        script: its path; a file below the current folder is shown relative to it.
    """
    name = os.path.basename(sys.executable)
    python = name if shutil.which(name) == sys.executable else _shown(sys.executable)
    return shlex.join([python, _shown(script), *map(str, arguments)])


def _shown(path: str | os.PathLike) -> str:
    short = os.path.relpath(path)
    return os.path.abspath(path) if short.startswith(os.pardir) else short
