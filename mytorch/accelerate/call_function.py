"""The program of `notebook_launcher`'s processes: `python -m mytorch.accelerate.call_function FILE`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..serialization import load


def main() -> None:
    """Calls the function that FILE names, with its arguments."""
    call = load(sys.argv[1])
    sys.path[:] = call["path"]
    target: Callable = _module(call["module"], call["file"], call["values"])
    for part in call["name"].split("."):
        target = getattr(target, part)
    target(*call["args"])


def _module(name: str, file: str, values: dict[str, Any]) -> ModuleType:
    """Returns a module by name or, if it can't be imported, from its file, with these variables."""
    if name != "__main__":
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise
    spec = importlib.util.spec_from_file_location("__mp_main__" if name == "__main__" else name, file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    vars(module).update(values)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
