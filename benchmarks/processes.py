"""Work for a process of its own: one line of JSON a question, and an answer to each, whatever happens.

A question is {"do": task, …}, an answer {"result": …} or {"error": text}. A worker ends when its stdin
closes, so none outlives its controller.
"""

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

from benchmarks.machine import environment

TAIL = 3000  # characters of what a process said before it ended


class Worker:
    """A process that runs `python -m` with these arguments, and answers questions."""

    def __init__(self, command: Iterable[str], env: dict[str, str]):
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - until close()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", *command],
            env=environment() | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            text=True, start_new_session=True,  # with the processes that it may start
        )
        self._lines: queue.Queue = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, question: dict, limit: float | None = None) -> dict:
        """Returns the answer, within `limit` seconds; one with "ended" if the process is of no more use."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        try:
            line = self._lines.get(timeout=limit)
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
        """Ends the process and those that it started, and waits for it."""
        with contextlib.suppress(ProcessLookupError, BrokenPipeError), self.process, self._said:
            os.killpg(self.process.pid, signal.SIGKILL)


def ask_all(
    command: Iterable[str], env: dict[str, str], questions: Iterable[dict], limit: float, deadline: float
) -> Iterator[tuple[dict, dict]]:
    """Yields each question with its answer, from one process as long as that lives, then from a fresh one.

    Args:
        limit: seconds for one question.
        deadline: time.monotonic() after which nothing more begins, and at which a running question ends.
    """
    worker = None
    try:
        for question in questions:
            left = deadline - time.monotonic()
            if left <= 0:
                yield question, {"error": "not run: the time is over"}
                continue
            worker = worker or Worker(command, env)
            answer = worker.ask(question, min(limit, left))
            if answer.pop("ended", False):
                worker.close()
                worker = None
            yield question, answer
    finally:
        if worker is not None:
            worker.close()


def serve(tasks: dict[str, Callable[..., Any]], check: Callable[[], Any] = lambda: None) -> None:
    """Answers questions until stdin closes; a task gets the rest of its question by name.

    Args:
        check: raises if the process can't be used any more after an error, as after an illegal address.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"result": tasks[question.pop("do")](**question)}
        except Exception:
            answer = {"error": traceback.format_exc(limit=-20)}
            try:
                check()
            except Exception as error:
                answer["error"] += f"\nThe process can't be used after it: {error}"
                answer["ended"] = True
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "ended" in answer:
            sys.exit(1)
