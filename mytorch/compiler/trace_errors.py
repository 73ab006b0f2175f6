"""Where the trace of a function failed, as far as its user is concerned."""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Callable
from pathlib import Path

from .graph_breaks.watching import frames_of

_LIBRARY = sysconfig.get_path("stdlib")
_PACKAGE = str(Path(__file__).parents[1])


def place_of(error: BaseException, function: Callable) -> str:
    """Returns the line of the user's program at which an error was raised: "train.py:12"."""
    if users := _users_frames(error):
        return f"{Path(users[-1][0]).name}:{users[-1][1]}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return type(function).__name__ if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def is_in_package(error: Exception) -> bool:
    """Returns whether an installed package does what can't be traced."""
    frames = _users_frames(error) if isinstance(error, NotImplementedError) else []
    return bool(frames) and _is_packages(frames[-1][0])


def _users_frames(error: BaseException) -> list[tuple[str, int]]:
    """Returns the files and lines in which an error came about, without those of Python and the package."""
    frames = [(code.co_filename, line) for code, line in frames_of(error)]
    found = [(file, line) for file, line in frames if not file.startswith((_PACKAGE, "<frozen"))]
    return [x for x in found if x[0].endswith("py") and (_is_packages(x[0]) or not x[0].startswith(_LIBRARY))]


def _is_packages(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
