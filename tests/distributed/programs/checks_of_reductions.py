"""all_reduce, reduce and reduce_scatter: each dtype and operation, the precision of halves, the same bits."""

import numpy as np
from against_numpy import ALL_DTYPES, bfloat16, check, numbers, numbers_of_all, raises, rank, same, size

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import ReduceOp

EXPECTED = {
    ReduceOp.SUM: lambda table: table.sum(0, dtype=table.dtype),
    ReduceOp.PRODUCT: lambda table: table.prod(0, dtype=table.dtype),
    ReduceOp.MIN: lambda table: table.min(0),
    ReduceOp.MAX: lambda table: table.max(0),
    ReduceOp.AVG: lambda table: table.sum(0) / table.dtype.type(size()),
    ReduceOp.BAND: np.bitwise_and.reduce,
    ReduceOp.BOR: np.bitwise_or.reduce,
    ReduceOp.BXOR: np.bitwise_xor.reduce,
}
BITWISE = {ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR}


def undefined_for(dtype):
    """The operations that have no meaning for a dtype."""
    kind = np.dtype(dtype).kind
    if kind in "iub":
        return {ReduceOp.AVG}
    return BITWISE | ({ReduceOp.MIN, ReduceOp.MAX} if kind == "c" else set())


def reduced(op, dtype, **how):
    """What NumPy finds; halves are reduced in float32 and rounded once, and a sum of bools is "any"."""
    table = numbers_of_all(dtype=dtype, **how)
    half = dtype in ("float16", bfloat16)
    return EXPECTED[op](table.astype("float32") if half else table).astype(dtype)


@check
def all_reduce_of_each_dtype_with_each_op():
    for dtype in ALL_DTYPES:
        for op in (op for op in ReduceOp if op not in undefined_for(dtype)):  # on all ranks in the same order
            x = numbers(rank(), dtype=dtype)
            assert dist.all_reduce(x, op) is None
            same(x, reduced(op, dtype))
        for op in undefined_for(dtype):
            raises(ValueError, f"ReduceOp.{op.name} is not defined", lambda op=op: dist.all_reduce(x, op))  # noqa: B023


@check
def integers_wrap_around():
    x = np.array([127, -128], np.int8)
    dist.all_reduce(x)
    same(x, (np.array([127, -128]) * size()).astype(np.int8))


@check
def halves_are_summed_in_float32():
    """0.5 would be lost, were it added to 2048 in float16; with four ranks that shows."""
    for dtype, large in ((np.float16, 2048), (bfloat16, 256)):
        total = np.full(3, np.float32(large + 0.5 * (size() - 1)), dtype)
        mine = np.full(3, large if rank() == 0 else 0.5, dtype)
        x = mine.copy()
        dist.all_reduce(x)
        same(x, total)
        x = mine.copy()
        dist.reduce(x, 0)
        same(x, total if rank() == 0 else mine)
        x = np.empty(3, dtype)
        dist.reduce_scatter(x, [mine] * size())
        same(x, total)


@check
def halves_overflow_only_in_the_end():
    """The sum is 65504 · size, too large for float16; the average isn't."""
    x = np.full(2, 65504, np.float16)
    dist.all_reduce(x, ReduceOp.AVG)
    same(x, np.full(2, 65504, np.float16))
    dist.all_reduce(x)
    same(x, np.full(2, np.inf if size() > 1 else 65504, np.float16))


@check
def inf_and_nan_travel():
    x = np.array([np.inf if rank() == size() - 1 else 1.0, np.nan if rank() == 0 else 1.0], np.float32)
    dist.all_reduce(x)
    same(x, np.array([np.inf, np.nan], np.float32))


@check
def all_ranks_get_the_same_bits():
    x = np.random.default_rng(rank()).standard_normal(100_003).astype(np.float32)
    dist.all_reduce(x)
    parts = [np.empty_like(x) for _ in range(size())]
    dist.all_gather(parts, x)
    for part in parts:
        same(part, x)


@check
def tensors_arrays_and_views_are_written_in_place():
    total = numbers_of_all().sum(0)
    t = mytorch.tensor(numbers(rank()))
    version = t._version.count
    dist.all_reduce(t)
    same(t, total)
    assert t._version.count == version + 1
    a = mytorch.Array(numbers(rank()))
    dist.all_reduce(a)
    same(a, total)
    base = np.zeros((4, 6), np.float32)
    base[:, ::2] = numbers(rank()).T
    dist.all_reduce(base.T[::2])
    same(base[:, ::2], total.T)
    same(base[:, 1::2], np.zeros((4, 3), np.float32))
    number = np.array(float(rank()))
    dist.all_reduce(number)
    same(number, sum(range(size()), 0.0))
    empty = np.empty((0, 3), np.float32)
    dist.all_reduce(empty)


@check
def parameters_and_their_views():
    p = mytorch.nn.Parameter(mytorch.ones(2, 3) * rank())
    dist.all_reduce(p)
    same(p.data, np.full((2, 3), sum(range(size())), np.float32))
    with mytorch.no_grad():
        dist.all_reduce(p[:, 1])
    expected = np.full((2, 3), sum(range(size())), np.float32)
    expected[:, 1] *= size()
    same(p.data, expected)


@check
def reduce_to_each_rank():
    for dst in range(size()):
        for dtype in ("float16", "int32", "bool"):
            x = numbers(rank(), dtype=dtype).T
            dist.reduce(x, dst)
            same(x, (reduced(ReduceOp.SUM, dtype) if rank() == dst else numbers(rank(), dtype=dtype)).T)
    x = np.array(float(rank()))
    dist.reduce(x, group_dst=size() - 1, op=ReduceOp.MAX)
    same(x, float(rank()))


@check
def reduce_scatter_in_both_forms():
    table = np.stack([numbers_of_all(seed=of + 1) for of in range(size())])  # (of, to, 3, 4)
    for op, expected in ((ReduceOp.SUM, table.sum(0)), (ReduceOp.MAX, table.max(0))):
        out = np.empty((3, 4), np.float32)
        dist.reduce_scatter(out, list(table[rank()]), op)
        same(out, expected[rank()])
        out = mytorch.empty(3, 4)
        dist.reduce_scatter_tensor(out, table[rank()].reshape(-1, 4), op)
        same(out, expected[rank()])
    half = np.empty((3, 4), np.float16)
    dist.reduce_scatter_tensor(half, table[rank()].astype(np.float16), ReduceOp.AVG)
    same(half, (table.sum(0) / np.float32(size())).astype(np.float16)[rank()])
    number = np.array(0.0)
    dist.reduce_scatter_tensor(number, np.arange(size(), dtype=float))
    same(number, float(rank() * size()))
    buffer = table[rank()].copy()
    dist.reduce_scatter_tensor(buffer[rank()], buffer)  # in place
    same(buffer[rank()], table.sum(0)[rank()])


@check
def reduce_scatter_of_different_shapes():
    for dtype in ("float16", "int64"):
        out = np.empty((rank(), 2), dtype)
        work = dist.reduce_scatter(
            out, [numbers(rank(), (to, 2), dtype, seed=to) for to in range(size())], async_op=True
        )
        work.wait()
        same(out, numbers_of_all(shape=(rank(), 2), dtype=dtype, seed=rank()).sum(0).astype(dtype))


@check
def large_arrays():
    """Several at once, repeatedly: the backend reuses its buffers."""
    for i in range(3):
        kinds = ((1_000_003, "f4"), (500_001, "f8"), (700_001, "f2"))
        given = [np.full(n, rank() + i, dtype) for n, dtype in kinds]
        works = [dist.all_reduce(x, async_op=True) for x in given]
        for x, work in zip(given, works, strict=True):
            work.wait()
            assert (x == sum(of + i for of in range(size()))).all()
    x = np.full(6_000_001, rank() + 1, np.float32)
    dist.all_reduce(x, ReduceOp.AVG)
    assert (x == (size() + 1) / 2).all()
    dist.broadcast(x, 0)
