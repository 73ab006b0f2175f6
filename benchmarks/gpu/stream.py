"""Items of work for a process of its own, one line of JSON each, and an answer to each, whatever it does.

An item is {"do": task, …}. It is answered with {"result": …} or {"error": text}. One that fails, hangs, or
takes the process or the GPU down doesn't take the rest with it: these go to a fresh process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

PATIENCE = 3  # processes that may end one after another without an answer
TAIL = 3000  # characters of what a process said before it ended


class Worker:
    """A process that runs `python -m module` and answers items.

    What it writes to stderr is kept for the message of its end.
    """

    def __init__(self, module: str, env: dict[str, str]):
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - until close()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", module],
            env=os.environ | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,  # with the processes that it may start
        )
        self._lines: queue.Queue = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, item: dict, limit: float) -> dict:
        """The answer to an item; one with "ended" if the process is of no more use.

        Args:
            limit: seconds that it may take, a start of the process included.
        """
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(item) + "\n")
            self.process.stdin.flush()
        try:
            line = self._lines.get(timeout=max(limit, 0.01))
        except queue.Empty:
            return {"error": f"no answer within {limit:.0f} s{self._tail()}", "ended": True}
        if line is None:
            code = self.process.wait()
            return {"error": f"the process ended with exit code {code}{self._tail()}", "ended": True}
        return json.loads(line)

    def _tail(self) -> str:
        self._said.seek(0)
        said = self._said.read()[-TAIL:].strip()
        return f"; it said:\n{said}" if said else ""

    def close(self) -> None:
        """End the process and those that it started, and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._said):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def ask_all(
    module: str, env: dict[str, str], items: Iterable[dict], limit: float, deadline: float
) -> Iterator[tuple[dict, dict]]:
    """Each item with its answer, from one process as long as that lives.

    Args:
        limit: seconds for one item.
        deadline: time.monotonic() from which on nothing more is begun, and what runs is ended.
    """
    worker, silent = None, 0
    try:
        for item in items:
            left = deadline - time.monotonic()
            if left <= 0:
                yield item, {"error": "not run: the section's time is over"}
                continue
            if silent >= PATIENCE:
                yield item, {"error": f"not run: {silent} processes ended, one after another"}
                continue
            worker = worker or Worker(module, env)
            answer = worker.ask(item, min(limit, left))
            if answer.pop("ended", False):
                worker.close()
                worker, silent = None, silent + 1
            else:
                silent = 0
            yield item, answer
    finally:
        if worker is not None:
            worker.close()


def serve(tasks: dict[str, Callable[..., Any]], works: Callable[[], Any]) -> None:
    """The worker's end: answer items until stdin closes.

    Args:
        tasks: what an item's "do" may be; a task gets the rest of the item by name.
        works: raises if the GPU can't be used any more, as after an illegal address.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    for line in sys.stdin:
        item = json.loads(line)
        try:
            answer = {"result": tasks[item.pop("do")](**item)}
        except Exception:
            answer = {"error": traceback.format_exc(limit=-20)}
            try:
                works()
            except Exception as error:
                answer["error"] += f"\nThe GPU can't be used after it: {error}"
                answer["ended"] = True
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "ended" in answer:
            sys.exit(1)
