"""Collectives that only move data: broadcast, gather, scatter, all_gather, all_to_all."""

import numpy as np
from against_numpy import ALL_DTYPES, check, numbers, numbers_of_all, raises, rank, same, size

import mytorch
import mytorch.distributed as dist


@check
def broadcast_from_each_rank():
    for dtype in ALL_DTYPES:
        for src in range(size()):
            x = numbers(rank(), dtype=dtype)
            dist.broadcast(x, src)
            same(x, numbers(src, dtype=dtype))
    x = numbers(rank())
    dist.broadcast(x, group_src=size() - 1)
    same(x, numbers(size() - 1))
    x = mytorch.nn.Parameter(mytorch.tensor(numbers(rank())).T)
    dist.broadcast(x, size() - 1)
    same(x.data, numbers(size() - 1).T)
    for shape in ((), (0, 2)):
        x = numbers(rank(), shape=shape)
        dist.broadcast(x, 0)
        same(x, numbers(0, shape=shape))


@check
def gather_and_scatter():
    for root in range(size()):
        for dtype in ALL_DTYPES:
            parts = [np.empty((3, 4), dtype) for _ in range(size())] if rank() == root else None
            dist.gather(numbers(rank(), dtype=dtype), parts, dst=root)
            if rank() == root:
                same(np.stack(parts), numbers_of_all(dtype=dtype))
        x = np.empty((4, 3), np.float32).T
        mine = [mytorch.tensor(row) for row in numbers_of_all(seed=root)] if rank() == root else None
        dist.scatter(x, mine, src=root)
        same(x, numbers(rank(), seed=root))
    found = [np.zeros(()) for _ in range(size())] if rank() == 0 else []  # rank 0 is the default
    dist.gather(np.array(float(rank())), found)
    same(np.array(found), np.arange(size() if rank() == 0 else 0, dtype=float))


@check
def all_gather_in_both_forms():
    for dtype in ALL_DTYPES:
        parts = [np.empty((4, 3), dtype) for _ in range(size())]
        dist.all_gather(parts, numbers(rank(), dtype=dtype).T)
        for of, part in enumerate(parts):
            same(part, numbers(of, dtype=dtype).T)
    out = np.empty((3 * size(), 4), np.float32)
    dist.all_gather_into_tensor(out, numbers(rank()))
    same(out, numbers_of_all().reshape(-1, 4))
    out = mytorch.empty(4, 3, size()).permute(2, 1, 0)
    dist.all_gather_into_tensor(out, numbers(rank()))
    same(out, numbers_of_all())
    out = np.empty(size())
    dist.all_gather_into_tensor(out, np.array(float(rank())))
    same(out, np.arange(size(), dtype=float))


@check
def all_gather_in_place():
    """The input is a part of the output, as where each rank updates its share of the parameters."""
    for dtype in ("float32", "float16"):
        buffer = np.zeros((size(), 3, 4), dtype)
        buffer[rank()] = numbers(rank(), dtype=dtype)
        dist.all_gather_into_tensor(buffer, buffer[rank()])
        same(buffer, numbers_of_all(dtype=dtype))
        buffer[np.arange(size()) != rank()] = 0
        dist.all_gather(list(buffer), buffer[rank()])
        same(buffer, numbers_of_all(dtype=dtype))


@check
def all_gather_of_different_shapes():
    for dtype in ("float32", "bool"):
        parts = [mytorch.tensor(np.zeros((of, 2), dtype)) for of in range(size())]
        dist.all_gather(parts, numbers(rank(), (rank(), 2), dtype))
        for of, part in enumerate(parts):
            same(part, numbers(of, (of, 2), dtype))


@check
def all_to_all_in_both_forms():
    for dtype in ALL_DTYPES:
        table = (np.arange(size() * size() * 6) % 7 % 2**8).reshape(size(), size(), 2, 3).astype(dtype)
        outs = [np.empty((3, 2), dtype).T for _ in range(size())]
        dist.all_to_all(outs, list(table[rank()]))
        same(np.stack(outs), table[:, rank()])
        out = np.empty((size() * 2, 3), dtype)
        dist.all_to_all_single(out, table[rank()].reshape(-1, 3))
        same(out, table[:, rank()].reshape(-1, 3))


@check
def all_to_all_of_different_lengths():
    outs = [np.empty(rank() + of, np.float32) for of in range(size())]
    dist.all_to_all(outs, [np.full(rank() + to, 10 * rank() + to, np.float32) for to in range(size())])
    for of in range(size()):
        same(outs[of], np.full(rank() + of, 10 * of + rank(), np.float32))
    out = np.empty((sum(rank() + 1 for _ in range(size())), 2), np.float32)
    given = np.concatenate([np.full((to + 1, 2), 10 * rank() + to, np.float32) for to in range(size())])
    dist.all_to_all_single(out, given, [rank() + 1] * size(), [to + 1 for to in range(size())])
    parts = [np.full((rank() + 1, 2), 10 * of + rank(), np.float32) for of in range(size())]
    same(out, np.concatenate(parts))


@check
def all_to_all_whose_ends_do_not_fit():
    """Each rank expects two rows from each other rank, which sends one: MPI would leave half as it is."""
    group = dist.new_group()  # in which something goes wrong
    if size() == 1:
        return
    expected = [1 if of == rank() else 2 for of in range(size())]
    out, given = np.zeros((sum(expected), 3)), np.ones((size(), 3))
    raises(
        dist.DistMismatch,
        f"expects {[3 * n for n in expected]} elements from the ranks, but they send {[3] * size()}",
        lambda: dist.all_to_all_single(out, given, expected, [1] * size(), group),
    )
