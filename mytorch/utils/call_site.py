"""The line of the user's program that called the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).parent.parent) + os.sep


def call_site() -> str:
    """Returns `file:line` of the innermost frame outside of mytorch: the user's call."""
    frame = outermost = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<frozen")):
        frame = frame.f_back
    frame = frame or outermost
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
