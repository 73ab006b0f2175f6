"""Groups of some ranks, handles, barriers, and a second beginning."""

import warnings
from datetime import timedelta

import numpy as np
from against_numpy import check, numbers, numbers_of_all, raises, rank, same, size

import mytorch.distributed as dist
from tests.every import every


@check
def groups_have_their_own_ranks():
    even = list(range(0, size(), 2))
    group = dist.new_group(even[::-1])
    if rank() in even:
        assert dist.get_rank(group) == even.index(rank()) and dist.get_world_size(group) == len(even)
        assert dist.get_process_group_ranks(group) == even
        assert dist.get_global_rank(group, dist.get_rank(group)) == rank()
        assert dist.get_group_rank(group, rank()) == even.index(rank())
        x = numbers(rank())
        dist.all_reduce(x, group=group)
        same(x, sum(numbers(of) for of in even))
        x = numbers(rank())
        dist.broadcast(x, even[-1], group)
        same(x, numbers(even[-1]))
        found = [None] * len(even)
        dist.all_gather_object(found, rank(), group)
        assert found == even
        dist.destroy_process_group(group)
        raises(ValueError, "destroyed", lambda: dist.all_reduce(x, group=group))
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(group) == -1 == dist.get_world_size(group)
        for ask in (dist.get_backend, dist.get_process_group_ranks, lambda g: dist.get_global_rank(g, 0)):
            raises(ValueError, "this rank isn't in the group", lambda ask=ask: ask(group))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = numbers(rank())
            assert dist.all_reduce(x, group=group) is None and dist.recv(x, 0, group) == -1
        same(x, numbers(rank()))
        assert len(seen) == 2 and every("isn't in the group" in str(one.message) for one in seen)
    all_ranks = dist.new_group()
    x = numbers(rank())
    dist.all_reduce(x, group=all_ranks)
    same(x, numbers_of_all().sum(0))


@check
def groups_in_an_order_of_their_own():
    backwards = list(range(size()))[::-1]
    group = dist.new_group(backwards, sort_ranks=False)
    assert dist.get_process_group_ranks(group) == backwards and dist.get_rank(group) == size() - 1 - rank()
    assert dist.get_global_rank(group, 0) == size() - 1 and dist.get_group_rank(group, 0) == size() - 1
    found = np.empty(size(), np.int64)
    dist.all_gather_into_tensor(found, np.array([rank()]), group)
    same(found, backwards)
    for how in ({"src": 0}, {"group_src": size() - 1}):
        x = numbers(rank())
        dist.broadcast(x, group=group, **how)
        same(x, numbers(0))
    if rank() == 0 and size() > 1:
        dist.send(numbers(0), group=group, group_dst=size() - 2)
    elif rank() == 1:
        assert dist.recv(x, group=group) == 0
        same(x, numbers(0))


@check
def many_at_once():
    """Started in one order and waited for in another."""
    given = [numbers(rank(), seed=i) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in given]
    out = np.empty((size(), 5), np.float32)
    works.append(dist.all_gather_into_tensor(out, numbers(rank(), shape=5), async_op=True))
    for work in works[::-1]:
        assert work.wait() is True and work.is_completed() and work.is_success()
        assert work.exception() is None and work.wait()
    for i, x in enumerate(given):
        same(x, numbers_of_all(seed=i).sum(0))
    same(out, numbers_of_all(shape=5))


@check
def asking_until_it_is_over_is_enough():
    """The result is where it belongs then, also if it had to be cast, divided or copied there."""
    halves, view = numbers(rank(), dtype="float16"), numbers(rank()).T
    parts = [np.zeros((3, 4), np.float32) for _ in range(size())]
    works = [
        dist.all_reduce(halves, dist.ReduceOp.AVG, async_op=True),
        dist.all_reduce(view, async_op=True),
        dist.all_gather(parts, numbers(rank()), async_op=True),
    ]
    while not all([work.is_completed() for work in works]):
        pass
    same(halves, (numbers_of_all().sum(0) / np.float32(size())).astype(np.float16))
    same(view, numbers_of_all().sum(0).T)
    same(np.stack(parts), numbers_of_all())
    assert every(work.wait() for work in works)
    same(halves, (numbers_of_all().sum(0) / np.float32(size())).astype(np.float16))


@check
def barriers():
    assert dist.barrier() is None and dist.barrier(async_op=True).wait()
    dist.barrier(timeout=timedelta(seconds=50))
    dist.monitored_barrier(timeout=timedelta(seconds=50), wait_all_ranks=True)


@check
def it_can_begin_again():
    backend, own, ranks = dist.get_backend(), rank(), size()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    raises(ValueError, "init_process_group", lambda: dist.get_rank())
    raises(ValueError, f"rank {own} of {ranks}", lambda: dist.init_process_group(world_size=ranks + 1))
    dist.init_process_group(backend, timeout=30)
    x = numbers(rank())
    dist.all_reduce(x)
    same(x, numbers_of_all().sum(0))
