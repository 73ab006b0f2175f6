"""
A job in which one rank fails: FOLDER WAY…, one way for each start of the job, in this order.

Each rank writes its process id to FOLDER/START, so that the test sees that none is left.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TIMEOUT = 3  # seconds, for ways in which an operation never completes
LONG = 300  # and for all others: longer than the test waits
NEVER_COMPLETE = ("stop", "hang", "no_receiver", "cut")

start = os.environ["MYTORCH_RESTART_COUNT"]
way, folder = sys.argv[2:][int(start)], Path(sys.argv[1]) / start
if way == "before_the_group" and os.environ["RANK"] == "1":
    sys.exit(0)

import mytorch.distributed as dist  # noqa: E402

dist.init_process_group(timeout=LONG)
if way in NEVER_COMPLETE:  # all ranks run now, so a short timeout holds on a busy machine, too
    dist.destroy_process_group()
    dist.init_process_group(timeout=TIMEOUT)
rank = dist.get_rank()
x = np.ones(8, np.float32)
dist.all_reduce(x)
folder.mkdir(exist_ok=True)
(folder / f"pid-{rank}.partial").write_text(str(os.getpid()))
(folder / f"pid-{rank}.partial").rename(folder / f"pid-{rank}")
dist.barrier()


def exception():
    raise ValueError("boom on rank 1")


def leave_a_child():
    """An exception, with a child in its own process session that ignores SIGTERM."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", code, folder], start_new_session=True)
    exception()


def nan_loss():
    import mytorch
    from mytorch.accelerate import Accelerator

    Accelerator(cpu=True).backward(mytorch.tensor(float("nan"), requires_grad=True))


def stop():
    while True:  # also after SIGCONT
        os.kill(os.getpid(), signal.SIGSTOP)


WAYS = {
    "exception": exception,
    "leave_a_child": leave_a_child,
    "nan_loss": nan_loss,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": stop,
    "early_exit": lambda: sys.exit(0),
    "exit_3": lambda: sys.exit(3),
    "os_exit_3": lambda: os._exit(3),
    "os_exit_0": lambda: os._exit(0),
    "hang": lambda: time.sleep(1000),
    "other_shape": lambda: dist.all_reduce(x[:5]),
    "no_receiver": lambda: dist.send(np.ones(1 << 20), 0),
}
if way in WAYS and rank == 1:
    WAYS[way]()
if way in WAYS:
    dist.all_reduce(x)
elif way in ("forever", "cut"):
    while True:
        dist.all_reduce(x)
        x[:] = 1
        time.sleep(0.01)
elif way == "until_signal":  # then the ranks need each other once more, to save
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: caught.append(number))
    (folder / f"ready-{rank}").touch()
    while True:
        x[:] = bool(caught)
        dist.all_reduce(x)
        if x.any():
            break
    (folder / f"saved-{rank}").touch()
    dist.barrier()
    sys.exit(130)
elif way == "ignore_signals":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: (folder / f"caught-{rank}").touch())
    (folder / f"ready-{rank}").touch()
    while True:
        time.sleep(0.1)
elif way == "sleep":
    time.sleep(1000)
print(f"rank {rank} is done")
