"""
Compiles the kernels of the CPU in the background, while NumPy computes.

Numba takes a second or more for a kernel, once per machine: it is cached on disk. So that the first step
need not wait, `registry` asks `is_compiled` before it loads a file of kernels. At the first question a
process begins to compile that file (see `mytorch.cli.compile`; one process a core); until it has,
composites run their manual variants. These differ in the last digits, and dropout draws other numbers, so
a run that must repeat another bit by bit sets MYTORCH_COMPILE=wait: kernels are then compiled where they
are first called. The same is true of what mytorchrun launches, as ranks must compute alike, and of the
workers of a DataLoader.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

from ...backends.threads import available_cores
from ...core.grad_mode import is_grad_enabled
from ...utils.start import python
from .kernels import IN_ADVANCE

MODES = ("background", "wait")


def is_compiled(file: str) -> bool:
    """Returns whether a file of kernels can be loaded at once; if not, it is being compiled.

    Raises:
        ValueError: the environment variable MYTORCH_COMPILE has another value than those in MODES.
    """
    if file not in IN_ADVANCE or waits():
        return True
    return all([_is_compiled(each) for each in _needed(file)])  # all of them begin at once


def _is_compiled(file: str) -> bool:
    if file not in _jobs.finished and _jobs.is_due(file):
        if stamp(file).exists():
            _jobs.finish(file)
        else:
            _jobs.add(file)
    return file in _jobs.finished


@functools.cache
def _needed(file: str) -> tuple[str, ...]:
    """Returns the files that are loaded with this one, whose kernels are registered, too; itself last."""
    if file == "gemm":
        return (file,)
    source = (Path(__file__).parent / "numba" / f"{file}.py").read_text(encoding="utf-8")
    siblings = re.findall(r"^from \.(\w+) import", source, re.MULTILINE)
    imported = [name for name in siblings if name in IN_ADVANCE]
    below = [each for name in imported for each in _needed(name)]
    return tuple(dict.fromkeys(["gemm", *below, file]))


@functools.cache
def waits() -> bool:
    """Returns whether kernels are compiled where they are first called."""
    mode = os.environ.get("MYTORCH_COMPILE", MODES[0])
    if mode not in MODES:
        raise ValueError(f"MYTORCH_COMPILE is one of {', '.join(MODES)}; got {mode!r}")
    is_launched = "RANK" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ
    multiprocessing = sys.modules.get("multiprocessing")  # a worker has imported it
    is_worker = bool(multiprocessing and multiprocessing.parent_process())
    return mode == "wait" or is_launched or is_worker or cache_folder() is None


def cache_folder() -> Path | None:
    """Returns the folder of mytorch's cache; None for a user without a home, as in some containers."""
    home = os.environ.get("MYTORCH_CACHE") or os.path.expanduser("~/.cache/mytorch")
    return None if home.startswith("~") else Path(home)


def stamp(file: str) -> Path:
    """Returns the path of the file that says that a file of kernels is compiled, for this CPU and version."""
    root = cache_folder()
    if root is None:
        raise RuntimeError("there is no home folder for mytorch's cache; set MYTORCH_CACHE to a folder")
    return root / "numba" / _version() / file


@functools.cache
def _version() -> str:
    """Returns a hash of everything that makes Numba compile again."""
    import importlib.metadata  # takes a tenth as long as all of mytorch

    here = Path(__file__).parent
    sources = [*sorted((here / "numba").glob("*.py")), *sorted((here.parents[1] / "backends").glob("*.py"))]
    parts = [
        str(here), platform.python_version(), importlib.metadata.version("numba"), cpu_features(),
        os.environ.get("NUMBA_CACHE_DIR", ""),
    ]
    content = "\n".join(parts).encode() + b"".join(source.read_bytes() for source in sources)
    return hashlib.sha256(content).hexdigest()[:16]


def cpu_features() -> str:
    """Returns the instruction sets of the CPU, or what else is known of it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), platform.machine())
    except OSError:
        return platform.processor() or platform.machine()


def _is_current(folder: str) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:  # one of them is gone
        return False


class _Worker:
    """A process that compiles one file after another; it ends when this process does, however that ends."""

    def __init__(self):
        command = [*python("mytorch.cli"), "compile", "-", str(os.getpid())]
        # Without the current folder, whose files needn't be modules.
        path = [folder for folder in sys.path if folder and not _is_current(folder)]
        env = {**os.environ, "MYTORCH_COMPILE": "wait", "PYTHONPATH": os.pathsep.join(path)}
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, text=True
        )
        self.file: str | None = None

    def begin(self, file: str) -> None:
        self.file = file
        with contextlib.suppress(BrokenPipeError):  # it has died: see `is_idle`
            self._process.stdin.write(f"{file}\n")
            self._process.stdin.flush()

    def is_idle(self) -> bool:
        """Returns whether the file is compiled; also if the process died: this one then shows why."""
        return self.file is None or stamp(self.file).exists() or self._process.poll() is not None

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate()


class _Jobs:
    """The files to compile, in the order in which they were wanted; a worker for each core."""

    def __init__(self):
        self.finished: set[str] = set()
        self._wanted: list[str] = []
        self._waiting: list[str] = []
        self._workers: list[_Worker] = []
        self._start = 0.0
        self._said = False
        self._looks: dict[str, float] = {}  # when to look for each file again

    def is_due(self, file: str) -> bool:
        """Returns whether to look for a file on the disk: not in each call of a kernel, which would cost more
        than the call."""
        now = time.monotonic()
        if now < self._looks.get(file, 0.0):
            return False
        self._looks[file] = now + 0.1
        return True

    def add(self, file: str) -> None:
        """Compiles a file, if that hasn't begun; looks at those that have."""
        if file not in self._wanted:
            if not self._wanted:
                self._start = time.monotonic()
                atexit.register(self.stop)
                self._said = is_grad_enabled() and _is_first()
                if self._said:
                    _say("mytorch: compiling kernels in the background, once per machine; NumPy computes now")
            self._wanted.append(file)
            self._waiting.append(file)
        self._hand_out()

    def finish(self, file: str) -> None:
        self.finished.add(file)
        if self._wanted and self.finished.issuperset(self._wanted):
            if self._said:
                seconds = time.monotonic() - self._start
                _say(f"mytorch: {len(self._wanted)} files of kernels are compiled ({seconds:.0f} s)")
            self.stop()

    def _hand_out(self) -> None:
        for worker in list(self._workers):
            if worker.file is not None and worker.is_idle():
                file, worker.file = worker.file, None
                self.finish(file)
        while self._waiting:
            idle = next((worker for worker in self._workers if worker.file is None), None)
            if idle is None and len(self._workers) < available_cores():
                idle = _Worker()
                self._workers.append(idle)
            if idle is None:
                return
            idle.begin(self._waiting.pop(0))

    def stop(self) -> None:
        """Ends the processes; what they have compiled stays cached."""
        for worker in self._workers:
            worker.stop()
        self._wanted, self._waiting, self._workers = [], [], []


def _is_first() -> bool:
    """Returns whether no process of this machine has said that kernels are compiled, and notes that one has.

    A short program ends before they are; the next one continues with those that are missing, and is silent.
    """
    path = stamp("said")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # nothing can be kept, so that every program compiles
        return True
    return True


def _say(line: str) -> None:
    """Prints a line for a user who trains; without gradients a text may be on its way to the screen."""
    if is_grad_enabled():
        print(line, file=sys.stderr, flush=True)


_jobs = _Jobs()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _jobs.__init__())
