"""A job in which a message doesn't come, or ranks disagree while more is under way, as the argument says."""

import json
import sys

import numpy as np

import mytorch.distributed as dist

how = sys.argv[1]
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
    """Of both messages rank 0 hears only when rank 1 has ended; the large one waits there for a receiver."""
    wait_for_the_end_of_rank_1()
    assert dist.recv(x, 1, tag=2) == 1 and x.tolist() == [5, 5]
    work = dist.irecv(large, 1, tag=1)
    assert not work._request.cancel()  # it is coming
    assert work.wait() and large.min() == 7


def disagree():
    """The second operation differs; rank 0 has begun two more of them before rank 1 begins."""
    if rank == 1:
        dist.recv(x, 0)
    works = [dist.all_reduce(np.ones(n), async_op=True) for n in ((8, 8, 8, 8), (8, 5))[rank]]
    if rank == 0:
        dist.send(x, 1)
    works[-1].wait()


# Of a rank that has ended, or will without a message.
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
    """What each says; the last one ends the job."""
    *others, last = WAITS
    for name in others:
        try:
            WAITS[name]()
            print(json.dumps([name, "no error", []]))
        except dist.DistMismatch as error:
            print(json.dumps([name, str(error), error.finished]))
    WAITS[last]()


if how == "disagree":
    disagree()
elif rank == 0:
    {"all_waits": all_waits, "sent_before_the_end": sent_before_the_end}[how]()
elif how == "sent_before_the_end":
    dist.isend(large * 7, 0, tag=1)
    dist.send(x * 5, 0, tag=2)
print(f"rank {rank} is done")
