"""What `notebook_launcher` runs as each process: `python -m mytorch.accelerate.call FILE`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from ..serialization import load


def main() -> None:
    """Call the function that FILE names, with the arguments there."""
    call = load(sys.argv[1])
    sys.path[:] = call["path"]
    target: Any = _module(call["module"], call["file"])
    for part in call["name"].split("."):
        target = getattr(target, part)
    target(*call["args"])


def _module(name: str, file: str) -> ModuleType:
    """By name, or from its file: a script, or what the one who calls has imported in a way of its own."""
    if name != "__main__":
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise
    spec = importlib.util.spec_from_file_location("__mp_main__" if name == "__main__" else name, file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
