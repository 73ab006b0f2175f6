"""From rank to rank: send, recv, their asynchronous forms and batches; and objects."""

import numpy as np
from against_numpy import ALL_DTYPES, check, numbers, raises, rank, same, size

import mytorch
import mytorch.distributed as dist


@check
def sending_round_the_ring():
    if size() == 1:
        return
    to, of = (rank() + 1) % size(), (rank() - 1) % size()
    for dtype in ALL_DTYPES:
        x = np.empty((4, 3), dtype)
        works = [dist.isend(numbers(rank(), dtype=dtype).T, to), dist.irecv(x, of)]
        for work in works:
            work.wait()
        same(x, numbers(of, dtype=dtype).T)
    x = mytorch.empty(4, 3).T
    ops = [dist.P2POp(dist.isend, numbers(rank()), to), dist.P2POp(dist.irecv, x, group_peer=of, tag=0)]
    assert [(p.peer, p.group_peer) for p in ops] == [(to, to), (of, of)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(x, numbers(of))
    dist.barrier()


@check
def receiving_from_any_rank_and_by_tag():
    if size() == 1:
        return
    if rank() == 0:
        seen = []
        for _ in range(size() - 1):
            x = np.empty(2, np.int64)
            seen.append(dist.recv(x))
            same(x, [seen[-1], 7])
        assert sorted(seen) == list(range(1, size()))
        first, second = np.empty(1), np.empty(1)
        assert dist.recv(second, 1, tag=2) == 1 and dist.recv(first, group_src=1, tag=1) == 1
        same(np.concatenate([first, second]), [1.0, 2.0])
    else:
        dist.send(np.array([rank(), 7]), 0)
        if rank() == 1:
            works = [dist.isend(np.array([float(tag)]), 0, tag=tag) for tag in (1, 2)]
            for work in works:
                work.wait()
    dist.barrier()


@check
def messages_that_do_not_fit():
    """PyTorch over Gloo fills a part of the tensor without a word."""
    sizes = {"8": (2, 4), "": (8, 4)}  # MPI calls the second "more"
    for found, (sent, expected) in sizes.items():
        if rank() == 0 and size() > 1:
            dist.send(np.ones(sent, np.float32), 1)
        elif rank() == 1:
            text = f"a tensor of 16 bytes can't receive a message of {found}"
            raises(dist.DistError, text, lambda expected=expected: dist.recv(np.zeros(expected, "f4"), 0))
    dist.barrier()


@check
def objects_of_different_sizes():
    found = [None] * size()
    dist.all_gather_object(found, {"rank": rank(), "text": "x" * 1000 * rank()})
    assert found == [{"rank": of, "text": "x" * 1000 * of} for of in range(size())]
    for root in range(size()):
        things = [rank(), "a" * rank(), None]
        dist.broadcast_object_list(things, root)
        assert things == [root, "a" * root, None]
        found = [None] * size() if rank() == root else None
        dist.gather_object(list(range(rank())), found, dst=root)
        assert found == ([list(range(of)) for of in range(size())] if rank() == root else None)
        out = [None]
        dist.scatter_object_list(out, ["y" * of for of in range(size())] if rank() == root else None, root)
        assert out == ["y" * rank()]


@check
def objects_from_rank_to_rank():
    if rank() == 0 and size() > 1:
        dist.send_object_list(["text", {"a": [1, None]}], group_dst=1)
    elif rank() == 1:
        found = [0, 0]
        assert dist.recv_object_list(found, 0) == 0
        assert found == ["text", {"a": [1, None]}]
    dist.barrier()
