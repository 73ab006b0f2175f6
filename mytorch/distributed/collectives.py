"""
Collectives on tensors, with the names, arguments and meaning of torch.distributed.

All ranks of a group call the same one, with the same shapes and dtypes. A tensor may be a Tensor, an Array,
or a raw NumPy or CuPy array; results are written into the tensors given. With `async_op=True` a call returns
a `Work` at once, and the tensors must not be touched before its `wait()`.

Each raises DistTimeout (not all ranks came in time), DistMismatch (they wanted different things: the message
names each rank's call), TypeError or ValueError (the arguments don't fit).

Source: https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.device import cupy
from .engines import Request
from .operands import (
    Operand,
    check_alike,
    check_kind,
    check_own,
    check_ratio,
    empty_flat,
    end,
    flat,
    members,
    operands,
    root_of,
    rows,
    stack,
    store_flat,
    store_rows,
    uneven,
)
from .reduce_op import ReduceOp, check_op
from .work import Work

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
    "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter",
]  # fmt: skip


def all_reduce(
    tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """tensor = the sum (or what `op` says) of the ranks' tensors, on every rank, the same to the last bit."""
    if (pg := members("all_reduce", group)) is None:
        return None
    x = Operand("all_reduce", tensor, written=True)
    check_op("all_reduce", op, x.own.dtype)
    work = pg.run("all_reduce", x.own, lambda e: e.all_reduce(x.raw, op), f", {op.value}", x.store)
    return end(work, async_op, tensor)


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """tensor = that of rank `src` (or of the group's rank `group_src`), on every rank."""
    if (pg := members("broadcast", group)) is None:
        return None
    root = root_of("broadcast", pg, src, group_src)
    x = Operand("broadcast", tensor, written=root != pg.rank())
    store = None if root == pg.rank() else x.store
    work = pg.run("broadcast", x.own, lambda e: e.broadcast(x.raw, root), f", src={pg.ranks[root]}", store)
    return end(work, async_op, tensor)


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """tensor = the sum (or what `op` says) of the ranks' tensors, on rank `dst`; elsewhere it stays."""
    if (pg := members("reduce", group)) is None:
        return None
    root = root_of("reduce", pg, dst, group_dst)
    x = Operand("reduce", tensor, written=root == pg.rank())
    check_op("reduce", op, x.own.dtype)
    detail = f", {op.value}, dst={pg.ranks[root]}"
    store = x.store if root == pg.rank() else None
    work = pg.run("reduce", x.own, lambda e: e.reduce(x.raw, root, op), detail, store)
    return end(work, async_op, tensor)


def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """tensor_list[r] = the tensor of rank r, on every rank; their shapes may differ from rank to rank."""
    if (pg := members("all_gather", group)) is None:
        return None
    x = Operand("all_gather", tensor)
    parts = operands("all_gather", tensor_list, pg.size(), written=True)
    counts, detail = uneven("all_gather", x, parts, pg.rank())
    out = rows(x, pg.size()) if counts is None else empty_flat(parts)
    store = store_rows(out, parts) if counts is None else store_flat(out, parts)
    work = pg.run("all_gather", x.own, lambda e: e.all_gather(out, x.raw, counts), detail, store, not counts)
    return end(work, async_op, *tensor_list)


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """output_tensor = the tensors of all ranks in a row: (n, …) to (size n, …) or (size, n, …)."""
    if (pg := members("all_gather_into_tensor", group)) is None:
        return None
    x = Operand("all_gather_into_tensor", input_tensor)
    out = Operand("all_gather_into_tensor", output_tensor, written=True)
    check_ratio("all_gather_into_tensor", out, x, pg.size())
    table = out.raw.reshape((pg.size(), *x.raw.shape))
    work = pg.run("all_gather_into_tensor", x.own, lambda e: e.all_gather(table, x.raw), store=out.store)
    return end(work, async_op, output_tensor)


def reduce_scatter(
    output: Any,
    input_list: Sequence[Any],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """output = the sum (or what `op` says) over ranks of input_list[this rank]; its shapes may differ."""
    if (pg := members("reduce_scatter", group)) is None:
        return None
    out = Operand("reduce_scatter", output, written=True)
    parts = operands("reduce_scatter", input_list, pg.size())
    counts, detail = uneven("reduce_scatter", out, parts, pg.rank())
    check_op("reduce_scatter", op, out.own.dtype)
    table = stack(parts) if counts is None else flat(parts)
    work = pg.run(
        "reduce_scatter",
        out.own,
        lambda e: e.reduce_scatter(out.raw, table, op, counts),
        f", {op.value}{detail}",
        out.store,
        not counts,
    )
    return end(work, async_op, output)


def reduce_scatter_tensor(
    output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """output = this rank's part of the sum (or what `op` says) of the ranks' inputs, each in size parts."""
    if (pg := members("reduce_scatter_tensor", group)) is None:
        return None
    out, x = Operand("reduce_scatter_tensor", output, True), Operand("reduce_scatter_tensor", input)
    check_ratio("reduce_scatter_tensor", x, out, pg.size())
    check_op("reduce_scatter_tensor", op, out.own.dtype)
    table = x.raw.reshape((pg.size(), *out.raw.shape))
    work = pg.run(
        "reduce_scatter_tensor",
        out.own,
        lambda e: e.reduce_scatter(out.raw, table, op),
        f", {op.value}",
        out.store,
    )
    return end(work, async_op, output)


def gather(
    tensor: Any,
    gather_list: Sequence[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """gather_list[r] = the tensor of rank r, on rank `dst` (0 by default), where alone the list is given."""
    if (pg := members("gather", group)) is None:
        return None
    root = _root_or_first("gather", pg, dst, group_dst)
    x, out, store = Operand("gather", tensor), None, None
    if root == pg.rank():
        if not gather_list:
            raise ValueError("gather(): rank dst must give a gather_list")
        parts = operands("gather", gather_list, pg.size(), written=True)
        check_alike("gather", x, parts)
        out = rows(x, pg.size())
        store = store_rows(out, parts)
    elif gather_list:
        raise ValueError("gather(): gather_list is for rank dst alone")
    work = pg.run("gather", x.own, lambda e: e.gather(out, x.raw, root), f", dst={pg.ranks[root]}", store)
    return end(work, async_op, *(gather_list or ()))


def scatter(
    tensor: Any,
    scatter_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """tensor = scatter_list[this rank] of rank `src` (0 by default), where alone the list is given."""
    if (pg := members("scatter", group)) is None:
        return None
    root = _root_or_first("scatter", pg, src, group_src)
    out, table = Operand("scatter", tensor, written=True), None
    if root == pg.rank():
        if not scatter_list:
            raise ValueError("scatter(): rank src must give a scatter_list")
        parts = operands("scatter", scatter_list, pg.size())
        check_alike("scatter", out, parts)
        table = stack(parts)
    elif scatter_list:
        raise ValueError("scatter(): scatter_list is for rank src alone")
    detail = f", src={pg.ranks[root]}"
    work = pg.run("scatter", out.own, lambda e: e.scatter(out.raw, table, root), detail, out.store)
    return end(work, async_op, tensor)


def all_to_all(
    output_tensor_list: Sequence[Any],
    input_tensor_list: Sequence[Any],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """output_tensor_list[r] = the tensor that rank r has at the place of this rank; shapes may differ."""
    if (pg := members("all_to_all", group)) is None:
        return None
    outs = operands("all_to_all", output_tensor_list, pg.size(), written=True)
    parts = operands("all_to_all", input_tensor_list, pg.size())
    check_kind("all_to_all", parts[0], [*parts, *outs])
    x, out = flat(parts), flat(outs)
    counts, out_counts = [p.raw.size for p in parts], [p.raw.size for p in outs]
    check_own("all_to_all", counts[pg.rank()], out_counts[pg.rank()])
    work = pg.run(
        "all_to_all",
        x,
        lambda e: e.all_to_all(out, x, out_counts, counts),
        store=store_flat(out, outs),
        shaped=False,
    )
    return end(work, async_op, *output_tensor_list)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`all_to_all` of pieces of one tensor, cut along its first dimension, equally or as the sizes say."""
    if (pg := members("all_to_all_single", group)) is None:
        return None
    out, x = Operand("all_to_all_single", output, True), Operand("all_to_all_single", input)
    check_kind("all_to_all_single", out, [x])
    out_counts = _counts(out, output_split_sizes, pg.size())
    counts = _counts(x, input_split_sizes, pg.size())
    check_own("all_to_all_single", counts[pg.rank()], out_counts[pg.rank()])
    to, values = out.raw.reshape(-1), x.raw.reshape(-1)
    work = pg.run(
        "all_to_all_single",
        x.own,
        lambda e: e.all_to_all(to, values, out_counts, counts),
        store=out.store,
        shaped=False,
    )
    return end(work, async_op, output)


def _counts(x: Operand, sizes: Sequence[int] | None, ranks: int) -> list[int]:
    """How many elements go to or come from each rank."""
    length = x.own.shape[0] if x.own.ndim else 1
    if not sizes:
        if length % ranks:
            raise ValueError(f"all_to_all_single(): a first dimension of {length} isn't {ranks} equal parts")
        sizes = [length // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != length:
        raise ValueError(
            f"all_to_all_single(): split sizes {list(sizes)} don't cut {length} rows for {ranks} ranks"
        )
    row = x.own.size // length if length else 0
    return [size * row for size in sizes]


def _root_or_first(where: str, pg: Any, rank: int | None, group_rank: int | None) -> int:
    if rank is None and group_rank is None:
        rank = 0
    return root_of(where, pg, rank, group_rank)


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Work | None:
    """Wait until all ranks are here, and the work on this rank's current GPU stream is done."""
    if (pg := members("barrier", group)) is None:
        return None
    if pg.uses_gpu():
        cupy().cuda.get_current_stream().synchronize()
    # The comparison of what the ranks want is a barrier already: nobody sees its end before all have begun.
    work = pg.run("barrier", _NOTHING, lambda e: Request(), timeout=pg.timeout_of(timeout))
    return end(work, async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier`, as PyTorch calls the one whose error says which ranks didn't come: here any one does."""
    barrier(group, timeout=timeout)


_NOTHING = np.empty(0, np.uint8)
