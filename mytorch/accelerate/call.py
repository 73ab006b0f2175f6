"""What `notebook_launcher` runs as each process: `python -m mytorch.accelerate.call MODULE FUNCTION ARGS`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..serialization import load


def main() -> None:
    """Call the function with what is in the file ARGS."""
    module, name, args = sys.argv[1:]
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    target(*load(args))


if __name__ == "__main__":
    main()
