"""A job in which one rank goes wrong in the way that the first argument names; the second is a folder.

Each rank writes its process id there, so that the test can see that none is left.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import mytorch.distributed as dist

how, folder = sys.argv[1], Path(sys.argv[2])
dist.init_process_group()
rank = dist.get_rank()
x = np.ones(8, np.float32)
dist.all_reduce(x)
(folder / f"pid-{rank}.partial").write_text(str(os.getpid()))
(folder / f"pid-{rank}.partial").rename(folder / f"pid-{rank}")


def memory_error():
    raise MemoryError("no room for 123 bytes")


def exception():
    raise ValueError("boom on rank 1")


def leave_a_child():
    """One in a session of its own, that takes no hint."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", code, folder], start_new_session=True)
    raise ValueError("boom, with a child")


def nan_loss():
    from mytorch.accelerate import Accelerator
    from mytorch.core import tensor

    Accelerator(cpu=True).backward(tensor(float("nan"), requires_grad=True))


def stop():
    while True:  # whoever continues it
        os.kill(os.getpid(), signal.SIGSTOP)


WAYS = {
    "exception": exception,
    "leave_a_child": leave_a_child,
    "memory_error": memory_error,
    "nan_loss": nan_loss,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": stop,
    "early_exit": lambda: sys.exit(0),
    "exit_3": lambda: sys.exit(3),
    "os_exit_3": lambda: os._exit(3),
    "hang": lambda: time.sleep(1000),
    "other_collective": lambda: dist.broadcast(x, 0),
    "other_shape": lambda: dist.all_reduce(x[:5]),
    "other_dtype": lambda: dist.all_reduce(x.astype(np.float64)),
    "other_op": lambda: dist.all_reduce(x, dist.ReduceOp.MAX),
    "no_receiver": lambda: dist.send(np.ones(1 << 20), 0),
}
if how in WAYS and rank == 1:
    WAYS[how]()
if how in WAYS:
    dist.all_reduce(x)
elif how == "for_ever":  # until somebody ends it
    while True:
        dist.all_reduce(x)
        x[:] = 1
        time.sleep(0.01)
elif how == "until_told":  # and then it needs the others once more, to save
    told = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: told.append(number))
    while True:
        x[:] = bool(told)
        dist.all_reduce(x)
        if x.any():
            break
    (folder / f"saved-{rank}").touch()
    dist.barrier()
    sys.exit(130)
elif how == "deaf":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: (folder / f"told-{rank}").touch())
    while True:
        time.sleep(0.1)
elif how == "sleep":
    time.sleep(1000)
print(f"rank {rank} is done")
