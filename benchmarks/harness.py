"""What all benchmarks on the CPU share: processes that take turns, quiet chunks, facts of the machine.

The controller and its workers exchange one line of JSON at a time over the worker's stdin and stdout. A
worker describes itself once, then answers each `{"steps": K, "restart": bool}` with the times and figures of
its next K steps, and ends when stdin closes; so no worker outlives its controller.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import gc
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
LOOK = 0.25  # seconds of looking whether the machine is quiet
PAUSE = 0.05  # seconds for which the threads of the worker before may spin, waiting for its next job
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
Step = Callable[[], float]

# What is compared is what each library chooses for this processor. Some systems name older kernels for
# all users, so that results are the same on all their machines.
KERNEL_CHOICES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES", "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES",
)  # fmt: skip


# The machine.


def cpu_model() -> str:
    """The processor's name, with the cores that this process may use and the widest vectors that it has."""
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return f"{platform.processor() or platform.machine()} ({os.cpu_count()} cores)"
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = facts.get("flags", "").split()
    known = {"avx512f": ", AVX-512", "avx2": ", AVX2"}
    vectors = next((label for flag, label in known.items() if flag in flags), "")
    return f"{facts.get('model name', platform.machine())} ({len(os.sched_getaffinity(0))} cores{vectors})"


def total_busy_seconds() -> float | None:
    """Time since boot that the cores open to this process have not been idle; None without /proc/stat.

    Taken as clock minus idle: the kernel measures idle time exactly, while it samples the other columns.
    Time that a hypervisor gave to another machine counts as busy. Source: proc_stat(5).
    """
    try:
        lines = (PROC / "stat").read_text().splitlines()
    except FileNotFoundError:
        return None
    cores = os.sched_getaffinity(0)
    columns = {name: values for name, *values in (line.split() for line in lines)}
    idle = sum(int(columns[f"cpu{core}"][3]) + int(columns[f"cpu{core}"][4]) for core in cores)
    return time.clock_gettime(time.CLOCK_BOOTTIME) * len(cores) - idle / TICKS


def tree_busy_seconds(root: int) -> float:
    """CPU time of process `root` and its descendants, the ended ones included. Source: proc_pid_stat(5)."""
    parent, used = {}, {}
    for folder in PROC.glob("[0-9]*"):
        try:
            columns = (folder / "stat").read_text().rpartition(")")[2].split()  # the name may hold spaces
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we were reading
        parent[int(folder.name)] = int(columns[1])
        used[int(folder.name)] = sum(int(ticks) for ticks in columns[11:15])  # its own, its dead children's

    def descends(pid: int) -> bool:
        while pid not in (root, 0):
            pid = parent.get(pid, 0)
        return pid == root

    return sum(ticks for pid, ticks in used.items() if descends(pid)) / TICKS


def forget_peak_memory() -> bool:
    """Start this process's memory peak anew; False where that can't be. Source: proc_pid_clear_refs(5)."""
    try:
        (PROC / "self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    try:
        status = (PROC / "self/status").read_text()
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def openblas() -> dict[str, str]:
    """What the OpenBLAS of this process says of itself: kernel set ("SkylakeX", "Haswell", …) and threads.

    NumPy doesn't pass these on, so they are asked of the library that /proc/self/maps shows; else "unknown".
    """
    facts = {"core": "unknown", "threads": "unknown"}
    try:
        mapped = (PROC / "self/maps").read_text().splitlines()
    except FileNotFoundError:
        return facts
    path = next((line.split(maxsplit=5)[5] for line in mapped if "openblas" in line), None)
    if path is None:
        return facts
    library = ctypes.CDLL(path)
    for prefix in ("scipy_", ""):  # NumPy's wheels rename the functions, other builds don't
        for suffix in ("64_", ""):
            corename = getattr(library, f"{prefix}openblas_get_corename{suffix}", None)
            if corename is not None:
                corename.restype = ctypes.c_char_p
                threads = getattr(library, f"{prefix}openblas_get_num_threads{suffix}")
                return {"core": corename().decode(), "threads": str(threads())}
    return facts


def thread_environment(environ: dict[str, str]) -> dict[str, str]:
    """Two threads for every library, or what OMP_NUM_THREADS says; a variable that is set keeps its value."""
    threads = environ.get("OMP_NUM_THREADS", "2")
    return {name: environ.get(name, threads) for name in THREAD_VARIABLES}


def watch(action: Callable[[], Any]) -> tuple[Any, float | None]:
    """What `action()` returns, and how many cores other programs kept busy meanwhile (None: not known)."""
    begin, all_busy, own_busy = time.perf_counter(), total_busy_seconds(), tree_busy_seconds(os.getpid())
    result = action()
    seconds = time.perf_counter() - begin
    if all_busy is None:
        return result, None
    own_busy = tree_busy_seconds(os.getpid()) - own_busy
    return result, (total_busy_seconds() - all_busy - own_busy) / seconds


def wait_for_quiet(limit: float, deadline: float) -> None:
    """Return once other programs use at most `limit` cores, or when time.monotonic() passes `deadline`."""
    others = watch(lambda: time.sleep(LOOK))[1]
    tick = 0.01 / LOOK  # the least that can be seen
    while others is not None and others > limit + tick and time.monotonic() < deadline:
        others = watch(lambda: time.sleep(LOOK))[1]


# Processes.


class WorkerError(RuntimeError):
    """A worker ended before it answered."""


class LossMismatch(RuntimeError):
    """Two implementations computed different figures, so their times can't be compared."""


@dataclass(frozen=True)
class Variant:
    """An implementation: the module that is its worker, what it finds in its environment, its options."""

    label: str
    module: str
    env: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def own_choices(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without KERNEL_CHOICES; the first time something is left out, a line says what."""
    if dropped := tuple(f"{name}={environ[name]}" for name in KERNEL_CHOICES if name in environ):
        _tell_dropped(dropped)
    return {name: value for name, value in environ.items() if name not in KERNEL_CHOICES}


@functools.cache
def _tell_dropped(dropped: tuple[str, ...]) -> None:
    print(f"measured without {', '.join(dropped)}: each library chooses its kernels itself", file=sys.stderr)


class Worker:
    """The controller's end: one implementation in a clean process.

    `python -m module args…` runs with `env` added to this process's environment, which loses KERNEL_CHOICES
    (a line on stderr says so); `label` is for messages.
    """

    def __init__(self, label: str, module: str, args: list[str], env: dict[str, str]):
        self.label = label
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            env=own_choices(os.environ) | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> dict:
        """The worker's next message; WorkerError when it ended instead (its own message is on stderr)."""
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise WorkerError(f"the worker of {self.label!r} ended with exit code {code}; see its message")
        return json.loads(line)

    def run(self, steps: int, restart: bool = False) -> dict:
        """Do the next training steps, after a restart from the initial weights where asked to.

        Returns {"ms": [one a step], "losses": [one a step], "peak_memory": bytes since the restart}.
        """
        with contextlib.suppress(BrokenPipeError):  # it is gone: read() says so, with its exit code
            self.process.stdin.write(json.dumps({"steps": steps, "restart": restart}) + "\n")
            self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """End the worker and wait for it."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def started(variants: list[Variant], args: list[str]) -> Iterator[list[Worker]]:
    """Starts a worker for each variant, and ends all of them afterwards."""
    environment, workers = thread_environment(os.environ), []
    try:
        for variant in variants:
            options = [*args, *variant.options]
            workers.append(Worker(variant.label, variant.module, options, environment | variant.env))
        yield workers
    finally:
        for worker in workers:
            worker.close()


def serve(description: dict, start: Callable[[], list[Step]]) -> None:
    """The worker's end: announce `description`, then train as the controller asks.

    `start()` builds model and optimizer anew and gives one step a batch; a step returns its loss and is timed
    as a whole. The steps go round in a circle.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers

    def answer(message: dict) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    answer(description | {"peak_memory_without_start": forget_peak_memory()})
    steps, done = [], 0
    for line in sys.stdin:
        request = json.loads(line)
        if request["restart"]:
            steps = []  # the old model goes before the new one comes: two at once would be a false peak
            gc.collect()
            steps, done = start(), 0
            forget_peak_memory()
        ms, losses = [], []
        for _ in range(request["steps"]):
            begin = time.perf_counter()
            losses.append(steps[done % len(steps)]())
            ms.append((time.perf_counter() - begin) * 1e3)
            done += 1
        answer({"ms": ms, "losses": losses, "peak_memory": peak_memory()})


def about_mytorch() -> dict:
    """Returns the description of a worker with mytorch."""
    import mytorch

    blas = openblas()
    return {
        "version": f"mytorch {mytorch.__version__}, NumPy {version('numpy')}",
        "blas": f"OpenBLAS, kernels {blas['core']}",
        "threads": blas["threads"],
    }


# Chunks and turns.


@dataclass(frozen=True)
class Chunk:
    """Some training steps in a row: mean time of one, and the cores that others kept busy meanwhile."""

    ms: float
    other_cores: float | None  # None where the system doesn't tell

    def is_quiet(self, limit: float) -> bool:
        """Whether others used at most `limit` cores; an unknown load passes, and the report says so."""
        return self.other_cores is None or self.other_cores <= limit


@dataclass
class Measurement:
    """All that was measured of one implementation."""

    label: str
    about: dict
    chunks: list[Chunk] = field(default_factory=list)
    peak_memory: int = 0

    def quiet(self, limit: float) -> list[Chunk]:
        """The chunks that others did not disturb."""
        return [chunk for chunk in self.chunks if chunk.is_quiet(limit)]

    def times(self, limit: float) -> list[float]:
        """Milliseconds a step of the quiet chunks; of all of them where none was quiet."""
        return [chunk.ms for chunk in self.quiet(limit) or self.chunks]

    def median(self, limit: float) -> float:
        """Returns the median of `times`."""
        return statistics.median(self.times(limit))


def run_job(
    workers: list[Worker], measurements: list[Measurement], backwards: bool, repeats: int, tolerance: float
) -> None:
    """One job of one round, for every worker: `repeats` steps, of which the first third isn't timed.

    A core that was idle takes a few short steps to get going, and so do threads that slept: there is no pause
    between those steps and the timed ones.

    Raises LossMismatch where the figures that the steps return differ.
    """
    results, warm_up = {}, max(1, repeats // 3)
    turns = list(zip(workers, measurements, strict=True))
    for worker, measured in reversed(turns) if backwards else turns:
        time.sleep(PAUSE)
        timed, others = watch(lambda worker=worker: worker.run(repeats))
        measured.chunks.append(Chunk(statistics.median(timed["ms"][warm_up:]), others))
        results[worker.label] = timed["losses"][0]
    first, *rest = (results[worker.label] for worker in workers)
    if any(not math.isclose(first, other, rel_tol=tolerance, abs_tol=tolerance) for other in rest):
        raise LossMismatch(f"the results differ: {results}")


def take_turns(
    variants: list[Variant], args: list[str], jobs: int, rounds: int, limit: float, repeats: int,
    tolerance: float,
) -> tuple[list[dict], list[list[Measurement]]]:  # fmt: skip
    """Returns the workers' descriptions, and for every job the measurement of each.

    Args:
        args: of the workers; their steps are all jobs, in order, `repeats` times each.
        limit: the cores that other programs may use before a round is delayed, for ten seconds at most.
    """
    with started(variants, args) as workers:
        about = [worker.read() for worker in workers]
        for worker in workers:
            worker.run(0, restart=True)
        table = [[Measurement(w.label, a) for w, a in zip(workers, about, strict=True)] for _ in range(jobs)]
        for i in range(rounds):
            wait_for_quiet(limit, time.monotonic() + 10)
            for measurements in table:
                run_job(workers, measurements, i % 2 == 1, repeats, tolerance)
    return about, table


class TurnsParser(argparse.ArgumentParser):
    """The command line of a benchmark whose implementations take turns: `--rounds` and `--other-cores`.

    Args:
        name: of the benchmark's module.
        about: the module's docstring.
        rounds: the default.
    """

    def __init__(self, name: str, about: str, rounds: int):
        super().__init__(prog=f"python -m benchmarks.{name}", description=about.strip().splitlines()[0])
        self.add_argument(
            "--rounds",
            type=int,
            default=rounds,
            help="how often each implementation has its turn (%(default)s)",
        )
        self.add_argument(
            "--other-cores", type=float, default=0.05,
            help="a turn in which other programs used more cores than this isn't quiet (%(default)s)",
        )  # fmt: skip

    def parse_args(self, argv: list[str] | None = None) -> argparse.Namespace:
        args = super().parse_args(argv)
        if args.rounds < 1:
            self.error(f"--rounds must be at least 1, got {args.rounds}")
        return args


def measure(
    name: str, options: argparse.Namespace, variants: list[Variant], args: list[str], jobs: int, repeats: int,
    tolerance: float,
) -> tuple[list[dict], list[list[Measurement]]]:  # fmt: skip
    """Returns `take_turns` with the options of a `TurnsParser`; ends the program where it fails."""
    try:
        return take_turns(variants, args, jobs, options.rounds, options.other_cores, repeats, tolerance)
    except (LossMismatch, WorkerError) as error:
        sys.exit(f"benchmarks.{name}: {error}")


def table_lines(
    title: str, rows: list[tuple[str, list[float], list[Measurement]]], digits: int, limit: float
) -> list[str]:
    """A table of (label, a figure of each implementation, their measurements), as lines.

    The ratio is the last figure as a multiple of the first.
    """
    names = [measured.label for measured in rows[0][2]]
    columns = "".join(f"{name:>16}" for name in names)
    lines = [f"{title:<46}{columns}{'ratio':>8}{'quiet rounds':>16}"]
    for label, figures, measurements in rows:
        quiet = min(len(measured.quiet(limit)) for measured in measurements)
        lines.append(
            f"{label:<46}"
            + "".join(f"{figure:>16.{digits}f}" for figure in figures)
            + f"{figures[-1] / figures[0]:>8.2f}{quiet:>7} of {len(measurements[0].chunks)}"
        )
    return lines


def facts_lines(labels: list[str], about: list[dict]) -> list[str]:
    """Returns the processor, and what each worker said of itself, as lines."""
    lines = [cpu_model()]
    for label, facts in zip(labels, about, strict=True):
        more = f"; {facts['blas']}; {facts['threads']} threads" if "blas" in facts else ""
        lines.append(f"{label}: {facts['version']}{more}")
    return lines


def write_json(path: Path, result: dict) -> None:
    """Writes the figures to a file, which is whole or as it was."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(unfinished, path)
