"""
What `mytorchrun launch` runs as each rank: `python -m mytorch.distributed.entry [-m] SCRIPT ARGS`.

It tells the script its rank, ends all ranks when one fails, and lets no rank end before the others.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from pathlib import Path

from . import failure
from .environment import started_size


def main() -> None:
    """Run the script in sys.argv as `__main__`."""
    failure.die_with_parent()
    session = None
    try:
        if started_size() > 1:
            from .session import session as begin

            session = begin()
            session.export()
        else:
            failure.install(0, None)
            for name, value in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)):
                os.environ.setdefault(name, str(value))
        _run(sys.argv[1:])
    except SystemExit as end:
        if end.code not in (None, 0):
            _say(end)
            failure.fail(end)
    except BaseException as error:
        failure.fail(error)
    if session is not None:
        _leave(session)


def _run(argv: list[str]) -> None:
    """Run a script, or with -m a module, as the command line would."""
    if not argv:
        raise SystemExit("entry: expected a script")
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    script = Path(argv[0])
    code = compile(script.read_bytes(), str(script), "exec")
    sys.argv = argv
    sys.path[0] = str(script.resolve().parent)
    # Not runpy.run_path: that empties the module at its end, under the feet of threads and atexit functions.
    module = types.ModuleType("__main__")
    module.__file__, module.__builtins__ = str(script), __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _say(end: SystemExit) -> None:
    if not isinstance(end.code, int):
        print(end.code, file=sys.stderr)


def _leave(session) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        session.leave()
    except BaseException as error:
        failure.fail(error)


if __name__ == "__main__":
    main()
