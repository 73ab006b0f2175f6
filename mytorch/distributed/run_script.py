"""
Runs the script as one rank: `main` takes the arguments [-m] SCRIPT ARGS.

The launcher starts it. It sets the rank's environment variables, ends all ranks when the
script fails, and exits together with them.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from pathlib import Path

from ..stream import publish
from ..utils.parent_death import die_with_parent
from ..utils.start import has_safe_path
from . import error_report, exit_watch
from .environment import started_size

_SINGLE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def main() -> None:
    """Runs the script in sys.argv as `__main__`."""
    die_with_parent()
    context = None
    try:
        if started_size() > 1:
            from .mpi_context import mpi_context

            context = mpi_context()
            context.export()
        else:
            error_report.install(0, None)
            for name, value in _SINGLE.items():
                os.environ.setdefault(name, value)
        publish()
        _run(sys.argv[1:])
    except SystemExit as end:
        if end.code not in (None, 0):
            if not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
            error_report.fail(end)
    except BaseException as error:
        error_report.fail(error)
    if context is not None:
        try:
            error_report.flush_output()
            context.finalize()
            exit_watch.start(context.rank)
        except BaseException as error:
            error_report.fail(error)


def _run(argv: list[str]) -> None:
    """Runs a script, or with -m a module, as Python's command line does."""
    if not argv:
        raise SystemExit("run_script: expected a script")
    if argv[0] == "-m":
        sys.argv = argv[1:]
        if not argv[1].startswith("mytorch."):  # what is ours needs nothing from the current folder
            _put_first(os.getcwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    script = Path(argv[0])
    code = compile(script.read_bytes(), str(script), "exec")
    sys.argv = argv
    _put_first(str(script.resolve().parent))
    # Not runpy.run_path, which clears the module at its end, while threads and atexit functions still use it.
    module = types.ModuleType("__main__")
    module.__file__, module.__builtins__ = str(script), __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _put_first(folder: str) -> None:
    """Puts the folder of the script before all others, as Python's command line does."""
    if not has_safe_path():
        sys.path.insert(0, folder)
