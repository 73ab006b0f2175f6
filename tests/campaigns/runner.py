"""Runs the cases of a campaign in a child process, so that a crash or a hang is a find like any other."""

import contextlib
import faulthandler
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import psutil

STEP = 0.25  # seconds
PROGRESS = 60  # seconds between two lines of progress
SHOWN = 2  # finds of the same kind that are shown


class Run:
    """The cases of one seed.

    Attributes:
        found: [(number, case, what is wrong)], without what is known.
    """

    def __init__(self, campaign, seed):
        self.campaign, self.seed = campaign, seed
        self.name = campaign.__name__.rpartition(".")[2]
        self.tries, self.finds, self.known, self.alike = Counter(), Counter(), Counter(), Counter()
        self.found, self._worker = [], None

    def case(self, number):
        return self.campaign.draw(random.Random(f"{self.name} {self.seed} {number}"))

    def cases(self, first, tries=sys.maxsize, seconds=float("inf")):
        """Runs cases from number `first` on."""
        start = printed = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"campaign-{self.name}-"))
        try:
            for number in range(first, first + tries):
                now = time.monotonic()
                if now - start > seconds:
                    break
                if now - printed > PROGRESS:
                    printed = now
                    print(f"{now - start:.0f} s: {number - first} tries, {len(self.found)} finds", flush=True)
                self._note(number, self._try(number, folder))
        finally:
            self._end_worker()
            shutil.rmtree(folder, ignore_errors=True)

    def _try(self, number, folder):
        """What is wrong in a case; "" if nothing is."""
        self._worker = self._worker or Worker(self.campaign, folder)
        try:
            return self._worker.check(self.case(number))
        except WorkerEnded as error:
            self._end_worker()
            return str(error)

    def _end_worker(self):
        if self._worker is not None:
            self._worker.end()
        self._worker = None

    def _note(self, number, wrong):
        case = self.case(number)
        kind = case[0]
        self.tries[kind] += 1
        if not wrong:
            return
        if any(re.search(pattern, f"{kind}: {wrong}") for pattern in self.campaign.KNOWN):
            self.known[kind] += 1
            return
        self.finds[kind] += 1
        self.found.append((number, case, wrong))
        error = re.search(r"(?m)^[\w.]+(?:Error|Exception|Exit|Lost|Warning)\b.*", wrong)
        alike = kind, error[0][:100] if error else wrong
        self.alike[alike] += 1
        if self.alike[alike] <= SHOWN:
            again = f"python -m tests.campaigns {self.name} --seed {self.seed} --only {number}"
            print(f"\nFOUND in case {number}: {case!r:.2000}\n{wrong.rstrip()}\nagain: {again}\n", flush=True)

    def table(self):
        """Tries and finds by kind."""
        width = max(map(len, [*self.tries, "kind"]))
        rows = [("kind", "tries", "finds", "known")]
        rows += [(kind, self.tries[kind], self.finds[kind], self.known[kind]) for kind in sorted(self.tries)]
        rows += [("all", self.tries.total(), self.finds.total(), self.known.total())]
        return "\n".join(f"{kind:<{width}} {a:>8} {b:>6} {c:>6}" for kind, a, b, c in rows)


class WorkerEnded(Exception):
    """The process that ran the cases crashed or hung."""


class Worker:
    """The process that runs the cases."""

    def __init__(self, campaign, folder):
        self._pipe, other = multiprocessing.Pipe()
        self._deadline = campaign.DEADLINE
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_work, args=(campaign, folder, self._pipe, other))
        self._process.start()
        other.close()

    def check(self, case):
        """What is wrong in a case; "" if nothing is."""
        self._pipe.send(case)
        # In steps: time in which the whole machine stood still doesn't count.
        for _ in range(int(self._deadline / STEP)):
            if self._pipe.poll(STEP):
                break
        else:
            os.kill(self._process.pid, signal.SIGUSR1)  # its stack, on stderr
            time.sleep(STEP)
            raise WorkerEnded(f"not over after {self._deadline} s")
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise WorkerEnded(f"the process ended with code {self._process.exitcode}") from None

    def end(self):
        self._pipe.close()  # an idle one ends by itself
        self._process.join(STEP)
        end_all(self._process.pid)
        self._process.join()


def _work(campaign, folder, parents, pipe):
    """Checks the cases that arrive; answers with a traceback, or ""."""
    parents.close()
    faulthandler.register(signal.SIGUSR1, sys.__stderr__)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while case := pipe.recv():
            own = Path(tempfile.mkdtemp(dir=folder))
            wrong = ""
            try:
                campaign.check(own, *case)
            except Exception as error:
                wrong = "".join(traceback.format_exception(error, chain=False))
            shutil.rmtree(own, ignore_errors=True)
            pipe.send(wrong)
    os._exit(0)  # nothing of the parent's is to be cleaned up here


def end_all(pid):
    """Kills a process and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
