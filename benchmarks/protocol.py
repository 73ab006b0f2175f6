"""How the controller and its workers talk: one line of JSON at a time over the worker's stdin and stdout.

A worker says once what it is, then answers each `{"steps": K, "restart": bool}` with the times and losses of
its next K training steps, and ends when stdin closes; so no worker outlives its controller.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks.machine import forget_peak_memory, peak_memory

Step = Callable[[], float]

# What is compared is what each library chooses for this processor. Some systems name older kernels for
# everybody, so that results are the same on all their machines.
KERNEL_CHOICES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES", "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES",
)  # fmt: skip


class WorkerError(RuntimeError):
    """A worker ended before it answered."""


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
