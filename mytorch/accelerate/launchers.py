"""notebook_launcher: train from a notebook."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable

from ..serialization import save


def notebook_launcher(
    function: Callable, args: tuple = (), num_processes: int | None = None, use_cpu: bool = False
) -> None:
    """Call `function(*args)` in one process, or in several that the launcher starts.

    Args:
        function: for several processes it must be in a module: they can't see a notebook's cells.
        args: numbers, strings, tensors, and lists and dicts of these (see `serialization.save`).
        num_processes: 1 if None.
        use_cpu: use no GPU.

    Raises:
        ValueError: the function is defined in a notebook, or inside of another.
        RuntimeError: a process failed.
    """
    if num_processes is None or num_processes == 1:
        function(*args)
        return
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "<" in name:
        raise ValueError(
            f"notebook_launcher(): {num_processes} processes can't see {module}.{name}; put the function "
            "into a file beside the notebook and import it"
        )
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        save(list(args), file.name)
        command = [sys.executable, "-m", "mytorch.distributed.launch", "-n", str(num_processes)]
        command += [*(["--cpu"] if use_cpu else []), "-m", "mytorch.accelerate.call", module, name, file.name]
        code = subprocess.run(command).returncode
    if code:
        raise RuntimeError(f"notebook_launcher(): {module}.{name} failed with exit code {code}")
