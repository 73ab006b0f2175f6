"""
Faults of one of several ranks during a training.

The launcher ends the job, with an exit code that isn't 0, and names the root cause, and no process is left.
"""

import re
import time
from pathlib import Path

from tests.campaigns.ranks_program import FAULTS, STEPS
from tests.distributed.launched import is_alive, left_behind, pids, start

DEADLINE = 300  # seconds
TRIES = 1
KNOWN = {}
PROGRAM = Path(__file__).with_name("ranks_program.py")
PLACES = ["forward", "backward", "update"]
AFTERWARDS = 60  # seconds for what is killed to be gone, on a busy machine

# The exit code, and what the root cause says; {rank} is the one with the fault.
EXPECTED = {
    "exception": (1, "rank {rank} on .*, exception:\nValueError: a fault was planted"),
    "memory_error": (1, "rank {rank} on .*, exception:\n.*MemoryError"),
    "exit_5": (5, "rank {rank} on .*, exception:\nSystemExit: 5"),
    "exit_0": (1, r"rank {rank} exited, as with sys.exit\(0\)"),
    "os_exit_5": (5, "rank {rank} ended with exit code 5, without an error report"),
    "os_exit_0": (1, "rank {rank} ended with exit code 0, without an error report"),
    "kill": (137, "rank {rank} on .*, signal:\nkilled by SIGKILL"),
    "segfault": (139, "rank {rank} on .*, signal:\nkilled by SIGSEGV"),
    "stop": (1, r"timeout:(?s:.*)\n  rank {rank}: .* \(process \d+ is stopped\)"),
    "hang": (1, r"timeout:(?s:.*)\n  rank {rank}: (?s:.*)ranks_program.py\", line \d+"),
    "other_shape": (1, r"mismatch:(?s:.*)rank {rank}: all_reduce\(\(5,\), float32"),
    "other_dtype": (1, r"mismatch:(?s:.*)rank {rank}: all_reduce\(\(8,\), int64"),
    "other_collective": (1, r"mismatch:(?s:.*)rank {rank}: broadcast\("),
    "no_receiver": (1, r"timeout:(?s:.*)\n  rank {rank}: send\(to \d\)"),
    "skip_a_collective": (1, r"timeout:(?s:.*)\n  rank {rank}: recv\(from \d\)"),
}


def draw(random):
    ranks = random.randint(2, 4)
    fault, place = random.choice(list(FAULTS)), random.choice(PLACES)
    return fault, ranks, random.randrange(ranks), random.randrange(STEPS), place


def check(folder, fault, ranks, rank, step, place):
    job = start("-n", ranks, PROGRAM, folder, rank, step, place, fault)
    try:
        out, err = job.communicate()  # the runner's deadline holds
    finally:
        job.kill()
    text = f"exit code {job.returncode}\n{out}\n{err}"
    causes = re.findall(r"(?ms)^=== mytorchrun: root cause ===\n(.*?)\n=== end of root cause ===$", err)
    assert len(causes) == 1, f"{len(causes)} root causes instead of one; {text}"
    code, pattern = EXPECTED[fault]
    pattern = pattern.replace("{rank}", str(rank))
    assert re.search(pattern, causes[0]), f"{pattern!r} is not in the root cause; {text}"
    assert job.returncode == code, f"not exit code {code}; {text}"
    assert len(pids(folder)) == ranks, text
    end = time.monotonic() + AFTERWARDS
    while (left := living(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left, f"left behind: {left}; {text}"


def living(folder):
    return [pid for pid in pids(folder) if is_alive(pid)] + left_behind(f"{folder} ")
