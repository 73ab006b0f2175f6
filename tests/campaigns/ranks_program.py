"""
What the campaign `ranks` launches: FOLDER RANK STEP PLACE FAULT.

A training with DistributedDataParallel, in which one rank has a fault at a place of a step. Each rank writes
its process id to the folder. After SHORTEST a collective counts as hanging, once all ranks run.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.distributed.ddp import DistributedDataParallel

SHORTEST, LONG, STEPS = 3, 300, 6  # seconds; steps
NEVER_COMPLETE = ("stop", "hang", "no_receiver", "skip_a_collective")


def raise_error():
    raise ValueError("a fault was planted")


def stop():
    while True:  # also after SIGCONT
        os.kill(os.getpid(), signal.SIGSTOP)


FAULTS = {
    "exception": raise_error,
    "memory_error": lambda: np.empty(1 << 60, np.uint8),
    "exit_5": lambda: sys.exit(5),
    "exit_0": lambda: sys.exit(0),
    "os_exit_5": lambda: os._exit(5),
    "os_exit_0": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": stop,
    "hang": lambda: time.sleep(10_000),
    "other_shape": lambda: dist.all_reduce(np.ones(5, np.float32)),
    "other_dtype": lambda: dist.all_reduce(np.ones(8, np.int64)),
    "other_collective": lambda: dist.broadcast(np.ones(8, np.float32), 0),
    "no_receiver": lambda: dist.send(np.ones(1 << 20), (dist.get_rank() + 1) % dist.get_world_size()),
    "skip_a_collective": lambda: dist.recv(np.ones(3), (dist.get_rank() + 1) % dist.get_world_size()),
}


def main():
    folder, rank, step, place, fault = sys.argv[1:]
    dist.init_process_group(timeout=LONG)
    if fault in NEVER_COMPLETE:  # all ranks run now, so a short timeout holds on a busy machine, too
        dist.destroy_process_group()
        dist.init_process_group(timeout=SHORTEST)
    (Path(folder) / f"pid-{dist.get_rank()}").write_text(str(os.getpid()))
    dist.barrier()
    where = (rank, step, place)
    train(lambda now, at: (str(dist.get_rank()), str(now), at) == where and FAULTS[fault]())
    print("done")


def train(act):
    mytorch.use_fused(False)  # no kernel is compiled
    mytorch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    now = [0]
    weight = next(model.parameters())

    def backward(p):
        act(now[0], "backward")

    weight.register_post_accumulate_grad_hook(backward)
    for now[0] in range(STEPS):
        act(now[0], "forward")
        loss = model(mytorch.ones(2, 8)).square().mean()
        loss.backward()
        act(now[0], "update")
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(np.ones(8, np.float32))  # as for a mean of the losses


if __name__ == "__main__":
    main()
