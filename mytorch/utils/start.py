"""
Starts Python with a module of this package, in a process that sees no file of the current folder.

`python -m` puts the current folder before all others, so that a numpy.py or numba.py in it would be imported.
A process begins with this file instead, which imports the package from where its parent has it.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

FILE = os.path.abspath(__file__)


def python(module: str, *flags: str) -> list[str]:
    """Returns the command line of a process that calls a module's `main`; its arguments may follow."""
    return [sys.executable, *flags, FILE, module]


def has_safe_path() -> bool:
    """Returns whether the user wants no folder before all others: `python -P`, PYTHONSAFEPATH=1."""
    return getattr(sys.flags, "safe_path", False)  # since Python 3.11


def open_streams() -> None:
    """Opens those of the standard streams that are closed, as by `command >&-`, to write to and read nothing.

    Else the next file or pipe of this process would have their number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w" if number else "r")  # noqa: SIM115 - as long as this process
            if stream.fileno() == number:
                os.set_inheritable(number, True)
            setattr(sys, name, stream)


def _begin() -> None:
    if not has_safe_path():
        del sys.path[0]  # the folder of this file
    root = os.path.dirname(os.path.dirname(os.path.dirname(FILE)))
    spec = PathFinder.find_spec("mytorch", [root])
    package = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    if root not in sys.path:
        sys.path.append(root)  # for the processes that this one starts
    del sys.argv[0]
    sys.exit(importlib.import_module(sys.argv[0]).main())


if __name__ == "__main__":
    _begin()
