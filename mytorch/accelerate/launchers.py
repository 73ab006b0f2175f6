"""notebook_launcher: starts several processes from a notebook or a script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from ..distributed.environment import started_size
from ..serialization import save
from ..stream.log import VARIABLE, path_for_ranks
from ..utils.start import python
from .notebook_source import MAIN, source_of


def notebook_launcher(
    function: Callable, args: tuple = (), num_processes: int | None = None,
    mixed_precision: str | None = None, use_cpu: bool = False,
) -> None:
    """Calls `function(*args)` in this process, or in several that the launcher starts.

    Args:
        function: several processes import it from its file. One of a notebook, or of a script without
            `if __name__ == "__main__":`, they get as source, with the imports, functions, classes and values
            that it uses there (see `notebook_source`): they run no other cell. It can't be a lambda or
            defined in another function.
        args: numbers, strings, tensors, and lists and dicts of these (see `serialization.save`).
        num_processes: 1 if None.
        mixed_precision: the default of an `Accelerator`.
        use_cpu: use no GPU.

    Raises:
        ValueError: the processes can't get the function or what it uses; no positive `num_processes`.
        RuntimeError: a process failed; or this is one of several already.
    """
    if num_processes is not None and (not isinstance(num_processes, int) or num_processes < 1):
        raise ValueError(f"notebook_launcher(): num_processes must be a positive int, got {num_processes!r}")
    settings = {"MIXED_PRECISION": mixed_precision, "CPU": "true" if use_cpu else None}
    environment = {f"MYTORCH_{name}": value for name, value in settings.items() if value is not None}
    if num_processes is None or num_processes == 1:
        with mock.patch.dict(os.environ, environment):
            function(*args)
        return
    with tempfile.TemporaryDirectory() as folder:
        call = _target_of(function, num_processes, Path(folder))
        file = Path(folder) / "call.bin"
        save({**call, "path": sys.path, "args": list(args)}, file)
        command = [*python("mytorch.distributed.launch"), "-n", str(num_processes)]
        command += [*(["--cpu"] if use_cpu else []), "-m", "mytorch.accelerate.call_function", str(file)]
        if log := path_for_ranks():  # of this process, which has written to it and removed the variable
            environment[VARIABLE] = log
        code = _run(command, {**os.environ, **environment})
    if code:
        raise RuntimeError(f"notebook_launcher(): {function.__qualname__} failed with exit code {code}")


def _target_of(function: Callable, num_processes: int, folder: Path) -> dict[str, Any]:
    """Returns module, file and name, by which the processes find the function, and values for the module."""
    if started_size() > 1:
        raise RuntimeError(
            f"notebook_launcher(): this process is one of {started_size()} already; in a module that its "
            'function is imported from, call it under `if __name__ == "__main__":`'
        )
    module, name, values = function.__module__, function.__qualname__, {}
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        if "<" in name or (module != MAIN and file is None):
            raise ValueError("put the function into a file beside the notebook and import it")
        if module == MAIN and (file is None or MAIN not in Path(file).read_text(encoding="utf-8")):
            source, values = source_of(name.partition(".")[0])
            file = folder / "notebook.py"
            file.write_text(source, encoding="utf-8")
    except ValueError as error:
        message = f"notebook_launcher(): {num_processes} processes can't see {module}.{name}: {error}"
        raise ValueError(message) from None
    return {"module": module, "file": os.path.abspath(file), "name": name, "values": values}


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Runs a command and prints its output, which a notebook then shows; returns the exit code."""
    job = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in job.stdout:
            print(line, end="", flush=True)
        return job.wait()
    finally:
        job.terminate()  # if the cell is interrupted
        job.wait()
        job.stdout.close()


def debug_launcher(function: Callable, args: tuple = (), num_processes: int = 2) -> None:
    """Calls `notebook_launcher` on CPUs, to test a script with several processes."""
    notebook_launcher(function, args, num_processes, use_cpu=True)
