"""Every collective against NumPy, on as many ranks as there are: what each check found goes to a folder.

A rank knows the numbers of all others, because each draws them in the same way.
"""

import json
import sys
import traceback
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import ReduceOp

CHECKS = {}
bfloat16 = np.dtype(ml_dtypes.bfloat16)
ALL_DTYPES = [
    "float16", "float32", "float64", "complex64", "int8", "uint8", "int16", "int32", "int64", "bool"
]  # fmt: skip


def check(function):
    CHECKS[function.__name__] = function
    return function


def numbers(of, shape=(3, 4), dtype="float32", seed=0):
    """What rank `of` has."""
    x = np.random.default_rng([seed, of]).integers(1, 6, shape)
    return (x % 2 if dtype == "bool" else x).astype(dtype)


def everybodys(**how):
    return np.stack([numbers(of, **how) for of in range(size)])


def same(found, expected):
    """Equal in every bit, and in dtype and shape."""
    found = found.numpy() if isinstance(found, (mytorch.Tensor, mytorch.Array)) else found
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    np.testing.assert_array_equal(found, expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)


@check
def all_reduce_of_each_dtype():
    for dtype in [*ALL_DTYPES, bfloat16]:
        x, table = numbers(rank, dtype=dtype), everybodys(dtype=dtype)
        assert dist.all_reduce(x) is None
        wide = table.astype("float32") if dtype in ("float16", bfloat16) else table
        same(x, (wide.any(0) if dtype == "bool" else wide.sum(0)).astype(dtype))


@check
def all_reduce_with_each_op():
    table = everybodys(dtype="int64")
    expected = {
        ReduceOp.SUM: table.sum(0), ReduceOp.PRODUCT: table.prod(0),
        ReduceOp.MIN: table.min(0), ReduceOp.MAX: table.max(0),
        ReduceOp.BAND: np.bitwise_and.reduce(table), ReduceOp.BOR: np.bitwise_or.reduce(table),
        ReduceOp.BXOR: np.bitwise_xor.reduce(table),
    }  # fmt: skip
    for op, value in expected.items():
        x = numbers(rank, dtype="int64")
        dist.all_reduce(x, op)
        same(x, value)
    for dtype in ("float16", "float32", "complex64"):
        x, table = numbers(rank, dtype=dtype), everybodys(dtype=dtype)
        dist.all_reduce(x, ReduceOp.AVG)
        wide = np.complex64 if dtype == "complex64" else np.float32
        same(x, (table.astype(wide).sum(0) / size).astype(dtype))
    bools = everybodys(dtype="bool", seed=3)
    x = bools[rank].copy()
    dist.all_reduce(x, ReduceOp.PRODUCT)
    same(x, bools.all(0))


@check
def halves_are_summed_in_float32():
    """0.5 would be lost, were it added to 2048 in float16; with four ranks that shows."""
    for dtype, large in ((np.float16, 2048), (bfloat16, 256)):
        x = np.full(3, large if rank == 0 else 0.5, dtype)
        dist.all_reduce(x)
        same(x, np.full(3, np.float32(large + 0.5 * (size - 1)), dtype))


@check
def all_ranks_get_the_same_bits():
    x = np.random.default_rng(rank).standard_normal(100_003).astype(np.float32)
    dist.all_reduce(x)
    parts = [np.empty_like(x) for _ in range(size)]
    dist.all_gather(parts, x)
    for part in parts:
        same(part, x)


@check
def tensors_arrays_and_views_are_written_in_place():
    total = everybodys().sum(0)
    t = mytorch.tensor(numbers(rank))
    version = t._version.count
    dist.all_reduce(t)
    same(t, total)
    assert t._version.count == version + 1
    a = mytorch.Array(numbers(rank))
    dist.all_reduce(a)
    same(a, total)
    base = np.zeros((4, 6), np.float32)
    base[:, ::2] = numbers(rank).T
    dist.all_reduce(base.T[::2])
    same(base[:, ::2], total.T)
    same(base[:, 1::2], np.zeros((4, 3), np.float32))
    number = np.array(float(rank))
    dist.all_reduce(number)
    same(number, sum(range(size), 0.0))
    empty = np.empty((0, 3), np.float32)
    dist.all_reduce(empty)
    p = mytorch.nn.Parameter(mytorch.ones(3) * rank)
    dist.broadcast(p, size - 1)
    same(p.data, np.full(3, size - 1, np.float32))


@check
def broadcast_from_each_rank():
    for dtype in [*ALL_DTYPES, bfloat16]:
        for src in range(size):
            x = numbers(rank, dtype=dtype)
            dist.broadcast(x, src)
            same(x, numbers(src, dtype=dtype))
    x = numbers(rank)
    dist.broadcast(x, group_src=size - 1)
    same(x, numbers(size - 1))


@check
def reduce_to_each_rank():
    for dst in range(size):
        x = numbers(rank, dtype="float16")
        dist.reduce(x, dst)
        mine = everybodys(dtype="float16").sum(0) if rank == dst else numbers(rank, dtype="float16")
        same(x, mine.astype("float16"))


@check
def gather_and_scatter():
    for root in range(size):
        parts = [np.empty((3, 4), np.float32) for _ in range(size)] if rank == root else None
        dist.gather(numbers(rank), parts, dst=root)
        if rank == root:
            same(np.stack(parts), everybodys())
        x = np.empty((3, 4), np.float32)
        mine = [mytorch.tensor(row) for row in everybodys(seed=root)] if rank == root else None
        dist.scatter(x, mine, src=root)
        same(x, numbers(rank, seed=root))


@check
def all_gather_in_both_forms():
    parts = [mytorch.empty(4, 3) for _ in range(size)]
    dist.all_gather(parts, numbers(rank).T)
    for of, part in enumerate(parts):
        same(part, numbers(of).T)
    out = np.empty((3 * size, 4), np.float32)
    dist.all_gather_into_tensor(out, numbers(rank))
    same(out, everybodys().reshape(-1, 4))
    out = np.empty((size, 3, 4), np.float32)
    dist.all_gather_into_tensor(out, numbers(rank))
    same(out, everybodys())


@check
def reduce_scatter_in_both_forms():
    table = np.stack([everybodys(seed=of + 1) for of in range(size)])  # (of, to, 3, 4)
    for op, expected in ((ReduceOp.SUM, table.sum(0)), (ReduceOp.MAX, table.max(0))):
        out = np.empty((3, 4), np.float32)
        dist.reduce_scatter(out, list(table[rank]), op)
        same(out, expected[rank])
        out = mytorch.empty(3, 4)
        dist.reduce_scatter_tensor(out, table[rank].reshape(-1, 4), op)
        same(out, expected[rank])
    half = np.empty((3, 4), np.float16)
    dist.reduce_scatter_tensor(half, table[rank].astype(np.float16), ReduceOp.AVG)
    same(half, (table.sum(0) / np.float32(size)).astype(np.float16)[rank])


@check
def all_to_all_in_both_forms():
    table = np.arange(size * size * 6).reshape(size, size, 2, 3)
    outs = [np.empty((2, 3), np.int64) for _ in range(size)]
    dist.all_to_all(outs, list(table[rank]))
    same(np.stack(outs), table[:, rank])
    outs = [np.empty(rank + of, np.float32) for of in range(size)]  # pieces of different lengths
    dist.all_to_all(outs, [np.full(rank + to, 10 * rank + to, np.float32) for to in range(size)])
    for of in range(size):
        same(outs[of], np.full(rank + of, 10 * of + rank, np.float32))
    out = np.empty((size * 2, 3), np.int64)
    dist.all_to_all_single(out, table[rank].reshape(-1, 3))
    same(out, table[:, rank].reshape(-1, 3))
    out = np.empty((sum(rank + 1 for _ in range(size)), 2), np.float32)
    given = np.concatenate([np.full((to + 1, 2), 10 * rank + to, np.float32) for to in range(size)])
    dist.all_to_all_single(out, given, [rank + 1] * size, [to + 1 for to in range(size)])
    same(out, np.concatenate([np.full((rank + 1, 2), 10 * of + rank, np.float32) for of in range(size)]))


@check
def many_at_once():
    """Started in one order and waited for in another."""
    given = [numbers(rank, seed=i) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in given]
    out = np.empty((size, 5), np.float32)
    works.append(dist.all_gather_into_tensor(out, numbers(rank, shape=5), async_op=True))
    for work in works[::-1]:
        assert work.wait() is True and work.is_completed() and work.is_success()
        assert work.exception() is None and work.wait()
    for i, x in enumerate(given):
        same(x, everybodys(seed=i).sum(0))
    same(out, everybodys(shape=5))


@check
def asking_is_enough_to_move_on():
    x = numbers(rank)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    work.wait()
    same(x, everybodys().sum(0))


@check
def sending_round_the_ring():
    if size == 1:
        return
    to, of = (rank + 1) % size, (rank - 1) % size
    x = np.empty((4, 3), np.float32)
    works = [dist.isend(numbers(rank).T, to), dist.irecv(x, of)]
    for work in works:
        work.wait()
    same(x, numbers(of).T)
    x = mytorch.empty(3, 4)
    ops = [dist.P2POp(dist.isend, numbers(rank), to), dist.P2POp(dist.irecv, x, of)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(x, numbers(of))
    dist.barrier()


@check
def receiving_from_any_rank_and_by_tag():
    if size == 1:
        return
    if rank == 0:
        seen = []
        for _ in range(size - 1):
            x = np.empty(2, np.int64)
            seen.append(dist.recv(x))
            same(x, [seen[-1], 7])
        assert sorted(seen) == list(range(1, size))
        first, second = np.empty(1), np.empty(1)
        assert dist.recv(second, 1, tag=2) == 1 and dist.recv(first, 1, tag=1) == 1
        same(np.concatenate([first, second]), [1.0, 2.0])
    else:
        dist.send(np.array([rank, 7]), 0)
        if rank == 1:
            works = [dist.isend(np.array([float(tag)]), 0, tag=tag) for tag in (1, 2)]
            for work in works:
                work.wait()
    dist.barrier()


@check
def groups_have_their_own_ranks():
    even = list(range(0, size, 2))
    group = dist.new_group(even[::-1])
    if rank in even:
        assert dist.get_rank(group) == even.index(rank) and dist.get_world_size(group) == len(even)
        assert dist.get_process_group_ranks(group) == even
        assert dist.get_global_rank(group, dist.get_rank(group)) == rank
        assert dist.get_group_rank(group, rank) == even.index(rank)
        x = numbers(rank)
        dist.all_reduce(x, group=group)
        same(x, sum(numbers(of) for of in even))
        x = numbers(rank)
        dist.broadcast(x, even[-1], group)
        same(x, numbers(even[-1]))
        found = [None] * len(even)
        dist.all_gather_object(found, rank, group)
        assert found == even
        dist.destroy_process_group(group)
        raises(ValueError, "destroyed", lambda: dist.all_reduce(x, group=group))
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(group) == -1 == dist.get_world_size(group)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = numbers(rank)
            assert dist.all_reduce(x, group=group) is None
        same(x, numbers(rank))
        assert "isn't in the group" in str(seen[0].message)
    everybody = dist.new_group()
    x = numbers(rank)
    dist.all_reduce(x, group=everybody)
    same(x, everybodys().sum(0))


@check
def objects_of_different_sizes():
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * 1000 * rank})
    assert found == [{"rank": of, "text": "x" * 1000 * of} for of in range(size)]
    for root in range(size):
        things = [rank, "a" * rank, None]
        dist.broadcast_object_list(things, root)
        assert things == [root, "a" * root, None]
        found = [None] * size if rank == root else None
        dist.gather_object(list(range(rank)), found, dst=root)
        assert found == ([list(range(of)) for of in range(size)] if rank == root else None)
        out = [None]
        dist.scatter_object_list(out, ["y" * of for of in range(size)] if rank == root else None, root)
        assert out == ["y" * rank]


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


@check
def large_arrays():
    x = np.full(6_000_001, rank + 1, np.float32)
    dist.all_reduce(x)
    assert (x == size * (size + 1) / 2).all()
    dist.broadcast(x, 0)


@check
def it_can_begin_again():
    dist.destroy_process_group()
    assert not dist.is_initialized()
    raises(ValueError, "init_process_group", lambda: dist.get_rank())
    raises(ValueError, f"rank {rank} of {size}", lambda: dist.init_process_group(world_size=size + 1))
    dist.init_process_group(BACKEND, timeout=30)
    x = numbers(rank)
    dist.all_reduce(x)
    same(x, everybodys().sum(0))


if __name__ == "__main__":
    BACKEND = sys.argv[2] if len(sys.argv) > 2 else None
    dist.init_process_group(BACKEND)
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {}
    for name, run in CHECKS.items():
        try:
            run()
            found[name] = ""
        except AssertionError:  # all ranks have communicated; any other error ends the job
            found[name] = traceback.format_exc()
    found["backend"] = dist.get_backend()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(found))
