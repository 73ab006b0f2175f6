"""
A job of three ranks in which messages don't arrive, or ranks disagree; in another way at each start.

First ranks 1 and 2 finish while rank 0 waits for them; then they disagree; then all is well.
"""

import json
import os

import numpy as np

import mytorch.distributed as dist

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group([1, 0], sort_ranks=False)
x, large = np.ones(2), np.ones(1 << 20)


def batch():
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1)]):
        work.wait()


def wait_for_the_end_of_rank_1():
    checker = dist.group.WORLD.checker
    checker.query_finished(1)
    while not checker.has_finished(1):
        pass


def sent_before_the_end():
    """Rank 0 receives both messages after rank 1 has finished; the large one waits there for a receiver."""
    if rank == 0:
        wait_for_the_end_of_rank_1()
        assert dist.recv(x, 1, tag=2) == 1 and x.tolist() == [5, 5]
        work = dist.irecv(large, 1, tag=1)
        assert not work._request.cancel()  # it is arriving
        assert work.wait() and large.min() == 7
    elif rank == 1:
        dist.isend(large * 7, 0, tag=1)
        dist.send(x * 5, 0, tag=2)


def disagree():
    """The second operation differs; rank 0 has started two more of them before rank 1 starts."""
    if rank == 1:
        dist.recv(x, 0)
    works = [dist.all_reduce(np.ones(n), async_op=True) for n in ((8, 5) if rank == 1 else (8, 8, 8, 8))]
    if rank == 0:
        dist.send(x, 1)
    works[-1].wait()


# For a rank that has finished, or will without a message.
WAITS = {
    "recv": lambda: dist.recv(x, 1),
    "recv_in_a_group": lambda: dist.recv(x, group=group, group_src=0),
    "irecv": lambda: dist.irecv(x, 1).wait(),
    "batch": batch,
    "send": lambda: dist.send(large, 1),
    "objects": lambda: dist.recv_object_list([None], 1),
    "recv_from_any": lambda: dist.recv(x),
}


def all_waits():
    """Prints the error of each; the last one ends the job."""
    *others, last = WAITS if rank == 0 else [""]
    for name in others:
        try:
            WAITS[name]()
            print(json.dumps([name, "no error", []]))
        except dist.DistMismatch as error:
            print(json.dumps([name, str(error), error.finished]))
    if last:
        WAITS[last]()


(all_waits, disagree, sent_before_the_end)[int(os.environ["MYTORCH_RESTART_COUNT"])]()
if os.environ["MYTORCH_RESTART_COUNT"] == "2":
    print(f"rank {rank} is done")
