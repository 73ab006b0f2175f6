"""
Collectives on tensors, with the names, arguments and meaning of torch.distributed.

All ranks of a group call the same one, with the same shapes and dtypes. A tensor may be a Tensor, an Array,
or a raw NumPy or CuPy array; results are written to the tensors passed. With `async_op=True` a call returns
a `Work` at once, and the tensors must not be used before its `wait()`.

Each raises DistTimeout (some rank didn't call it in time), DistMismatch (the ranks made different calls; the
message lists them), TypeError or ValueError (the arguments don't fit).

Source: https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backends.device import device_of
from ..backends.kinds import cupy
from .backends import Request
from .environment import Timeout
from .operands import (
    Operand,
    check_own_count,
    check_ratio,
    check_same,
    check_same_kind,
    empty_flat,
    empty_rows,
    flatten,
    group_of,
    operands,
    root_of,
    stack,
    store_flat,
    store_rows,
    uneven_counts,
    wait_unless_async,
)
from .process_group import ProcessGroup
from .reduce_op import ReduceOp, check_op
from .work import TensorLike, Work

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
    "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter",
]


def all_reduce(
    tensor: TensorLike, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Reduces the ranks' tensors with `op` into `tensor`, bit for bit the same on every rank."""
    if (pg := group_of("all_reduce", group)) is None:
        return None
    x = Operand("all_reduce", tensor, written=True)
    check_op("all_reduce", op, x.array.dtype)
    work = pg.run("all_reduce", x.array, lambda b: b.all_reduce(x.raw, op), f", {op.value}", x.store)
    return wait_unless_async(work, async_op, tensor)


def broadcast(
    tensor: TensorLike, src: int | None = None, group: ProcessGroup | None = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copies the tensor of rank `src` (or of the group's rank `group_src`) to `tensor` on every rank."""
    if (pg := group_of("broadcast", group)) is None:
        return None
    root = root_of("broadcast", pg, src, group_src)
    x = Operand("broadcast", tensor)
    is_read = root == pg.rank() and device_of(x.array).kind.ranks == 1  # and no other rank lies in it
    if not is_read:
        x.require_writable("broadcast")
    store = None if is_read else x.store
    work = pg.run("broadcast", x.array, lambda b: b.broadcast(x.raw, root), f", src={pg.ranks[root]}", store)
    return wait_unless_async(work, async_op, tensor)


def reduce(
    tensor: TensorLike, dst: int | None = None, op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:
    """Reduces the ranks' tensors with `op` into `tensor` on rank `dst`; on other ranks it is unchanged."""
    if (pg := group_of("reduce", group)) is None:
        return None
    root = root_of("reduce", pg, dst, group_dst)
    x = Operand("reduce", tensor, written=root == pg.rank())
    check_op("reduce", op, x.array.dtype)
    detail = f", {op.value}, dst={pg.ranks[root]}"
    store = x.store if root == pg.rank() else None
    work = pg.run("reduce", x.array, lambda b: b.reduce(x.raw, root, op), detail, store)
    return wait_unless_async(work, async_op, tensor)


def all_gather(
    tensor_list: Sequence[TensorLike], tensor: TensorLike, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Copies the tensor of rank r to `tensor_list[r]` on every rank; shapes may differ from rank to rank."""
    if (pg := group_of("all_gather", group)) is None:
        return None
    x = Operand("all_gather", tensor)
    tensors = operands("all_gather", tensor_list, pg.size(), written=True)
    counts, detail = uneven_counts("all_gather", x, tensors, pg.rank())
    out = empty_rows(x, pg.size()) if counts is None else empty_flat(tensors)
    store = store_rows(out, tensors) if counts is None else store_flat(out, tensors)
    work = pg.run(
        "all_gather", x.array, lambda b: b.all_gather(out, x.raw, counts), detail, store, not counts
    )
    return wait_unless_async(work, async_op, *tensor_list)


def all_gather_into_tensor(
    output_tensor: TensorLike, input_tensor: TensorLike, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Concatenates or stacks the ranks' tensors in `output_tensor`: (n, …) to (size n, …) or (size, n, …)."""
    if (pg := group_of("all_gather_into_tensor", group)) is None:
        return None
    x = Operand("all_gather_into_tensor", input_tensor)
    out = Operand("all_gather_into_tensor", output_tensor, written=True)
    check_ratio("all_gather_into_tensor", out, x, pg.size())
    table = out.raw.reshape((pg.size(), *x.raw.shape))
    work = pg.run("all_gather_into_tensor", x.array, lambda b: b.all_gather(table, x.raw), store=out.store)
    return wait_unless_async(work, async_op, output_tensor)


def reduce_scatter(
    output: TensorLike, input_list: Sequence[TensorLike], op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:
    """Reduces `input_list[r]` of all ranks with `op` into `output` of rank r; shapes may differ by rank."""
    if (pg := group_of("reduce_scatter", group)) is None:
        return None
    out = Operand("reduce_scatter", output, written=True)
    tensors = operands("reduce_scatter", input_list, pg.size())
    counts, detail = uneven_counts("reduce_scatter", out, tensors, pg.rank())
    check_op("reduce_scatter", op, out.array.dtype)
    table = stack(tensors) if counts is None else flatten(tensors)
    work = pg.run(
        "reduce_scatter",
        out.array,
        lambda b: b.reduce_scatter(out.raw, table, op, counts),
        f", {op.value}{detail}",
        out.store,
        not counts,
    )
    return wait_unless_async(work, async_op, output)


def reduce_scatter_tensor(
    output: TensorLike, input: TensorLike, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Reduces the ranks' inputs with `op`, and writes the r-th of equal parts to `output` of rank r."""
    if (pg := group_of("reduce_scatter_tensor", group)) is None:
        return None
    out, x = Operand("reduce_scatter_tensor", output, True), Operand("reduce_scatter_tensor", input)
    check_ratio("reduce_scatter_tensor", x, out, pg.size())
    check_op("reduce_scatter_tensor", op, out.array.dtype)
    table = x.raw.reshape((pg.size(), *out.raw.shape))
    work = pg.run(
        "reduce_scatter_tensor",
        out.array,
        lambda b: b.reduce_scatter(out.raw, table, op),
        f", {op.value}",
        out.store,
    )
    return wait_unless_async(work, async_op, output)


def gather(
    tensor: TensorLike, gather_list: Sequence[TensorLike] | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:
    """Copies the tensor of rank r to `gather_list[r]` on rank `dst` (0 by default); only that passes it."""
    if (pg := group_of("gather", group)) is None:
        return None
    root = _root_or_first("gather", pg, dst, group_dst)
    x, out, store = Operand("gather", tensor), None, None
    if root == pg.rank():
        if not gather_list:
            raise ValueError("gather(): rank dst must pass a gather_list")
        tensors = operands("gather", gather_list, pg.size(), written=True)
        check_same("gather", x, tensors)
        out = empty_rows(x, pg.size())
        store = store_rows(out, tensors)
    elif gather_list:
        raise ValueError("gather(): gather_list is for rank dst alone")
    work = pg.run("gather", x.array, lambda b: b.gather(out, x.raw, root), f", dst={pg.ranks[root]}", store)
    return wait_unless_async(work, async_op, *(gather_list or ()))


def scatter(
    tensor: TensorLike, scatter_list: Sequence[TensorLike] | None = None, src: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:
    """Copies `scatter_list[r]` of rank `src` (0 by default) to `tensor` of rank r; only that passes it."""
    if (pg := group_of("scatter", group)) is None:
        return None
    root = _root_or_first("scatter", pg, src, group_src)
    out, table = Operand("scatter", tensor, written=True), None
    if root == pg.rank():
        if not scatter_list:
            raise ValueError("scatter(): rank src must pass a scatter_list")
        tensors = operands("scatter", scatter_list, pg.size())
        check_same("scatter", out, tensors)
        table = stack(tensors)
    elif scatter_list:
        raise ValueError("scatter(): scatter_list is for rank src alone")
    detail = f", src={pg.ranks[root]}"
    work = pg.run("scatter", out.array, lambda b: b.scatter(out.raw, table, root), detail, out.store)
    return wait_unless_async(work, async_op, tensor)


def all_to_all(
    output_tensor_list: Sequence[TensorLike], input_tensor_list: Sequence[TensorLike],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:
    """Copies `input_tensor_list[r]` of rank s to `output_tensor_list[s]` of rank r; shapes may differ."""
    if (pg := group_of("all_to_all", group)) is None:
        return None
    outs = operands("all_to_all", output_tensor_list, pg.size(), written=True)
    tensors = operands("all_to_all", input_tensor_list, pg.size())
    check_same_kind("all_to_all", tensors[0], [*tensors, *outs])
    x, out = flatten(tensors), flatten(outs)
    counts, out_counts = [p.raw.size for p in tensors], [p.raw.size for p in outs]
    check_own_count("all_to_all", counts[pg.rank()], out_counts[pg.rank()])
    work = pg.run(
        "all_to_all",
        x,
        lambda b: b.all_to_all(out, x, out_counts, counts),
        store=store_flat(out, outs),
        same_shape=False,
    )
    return wait_unless_async(work, async_op, *output_tensor_list)


def all_to_all_single(
    output: TensorLike, input: TensorLike, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:
    """Does `all_to_all` with one tensor, split along its first dimension, equally or into the given sizes."""
    if (pg := group_of("all_to_all_single", group)) is None:
        return None
    out, x = Operand("all_to_all_single", output, True), Operand("all_to_all_single", input)
    check_same_kind("all_to_all_single", out, [x])
    out_counts = _counts(out, output_split_sizes, pg.size())
    counts = _counts(x, input_split_sizes, pg.size())
    check_own_count("all_to_all_single", counts[pg.rank()], out_counts[pg.rank()])
    result, values = out.raw.reshape(-1), x.raw.reshape(-1)
    work = pg.run(
        "all_to_all_single",
        x.array,
        lambda b: b.all_to_all(result, values, out_counts, counts),
        store=out.store,
        same_shape=False,
    )
    return wait_unless_async(work, async_op, output)


def _counts(x: Operand, sizes: Sequence[int] | None, ranks: int) -> list[int]:
    """Returns the number of elements for, or from, each rank."""
    length = x.array.shape[0] if x.array.ndim else 1
    if not sizes:
        if length % ranks:
            raise ValueError(f"all_to_all_single(): a first dimension of {length} isn't {ranks} equal parts")
        sizes = [length // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != length:
        raise ValueError(
            f"all_to_all_single(): split sizes {list(sizes)} don't cut {length} rows for {ranks} ranks"
        )
    row = x.array.size // length if length else 0
    return [size * row for size in sizes]


def _root_or_first(function: str, pg: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    if rank is None and group_rank is None:
        rank = 0
    return root_of(function, pg, rank, group_rank)


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: Sequence[int] | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Waits until all ranks have called it, and the work on this rank's current GPU stream is complete."""
    if (pg := group_of("barrier", group)) is None:
        return None
    if pg.uses_gpu():
        cupy().cuda.get_current_stream().synchronize()
    # The consistency check is a barrier itself: it completes on no rank before all have started it.
    work = pg.run("barrier", _EMPTY, lambda b: Request(), timeout=pg.timeout_of(timeout))
    return wait_unless_async(work, async_op)


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: Timeout = None, wait_all_ranks: bool = False
) -> None:
    """Calls `barrier`: here the error of every barrier lists the ranks that are missing."""
    barrier(group, timeout=timeout)


_EMPTY = np.empty(0, np.uint8)
