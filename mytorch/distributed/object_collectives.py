"""Collectives on Python objects, which are pickled; only for ranks that trust each other.

Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np

from ..backends.device import RawArray
from .collectives import all_gather_into_tensor, broadcast, gather, scatter
from .operands import group_of, root_of
from .point_to_point import recv, send
from .process_group import ProcessGroup

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]


def all_gather_object(object_list: list, obj: object, group: ProcessGroup | None = None) -> None:
    """Copies the object of rank r to `object_list[r]` on every rank."""
    if (pg := group_of("all_gather_object", group)) is None:
        return
    _check_list("all_gather_object", object_list, pg.size())
    data, sizes = _padded(obj, pg)
    table = np.empty((pg.size(), data.size), np.uint8)
    all_gather_into_tensor(table, data, pg)
    object_list[:] = _objects(table, sizes)


def gather_object(
    obj: object, object_gather_list: list | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, group_dst: int | None = None,
) -> None:
    """Copies the object of rank r to `object_gather_list[r]` on rank `dst` (0 by default)."""
    if (pg := group_of("gather_object", group)) is None:
        return
    root = _root("gather_object", pg, dst, group_dst)
    is_root = root == pg.rank()
    if is_root:
        _check_list("gather_object", object_gather_list, pg.size())
    elif object_gather_list:
        raise ValueError("gather_object(): object_gather_list is for rank dst alone")
    data, sizes = _padded(obj, pg)
    buffers = [np.empty_like(data) for _ in range(pg.size())] if is_root else None
    gather(data, buffers, group=pg, group_dst=root)
    if is_root:
        object_gather_list[:] = _objects(buffers, sizes)


def broadcast_object_list(
    object_list: list, src: int | None = None, group: ProcessGroup | None = None, device: object = None,
    group_src: int | None = None,
) -> None:
    """Copies the objects in the list of rank `src` (0 by default) to `object_list` on every rank."""
    if (pg := group_of("broadcast_object_list", group)) is None:
        return
    root = _root("broadcast_object_list", pg, src, group_src)
    is_root = root == pg.rank()
    data = _pickled(list(object_list)) if is_root else None
    size = np.array([data.size if is_root else 0])
    broadcast(size, group=pg, group_src=root)
    if not is_root:
        data = np.empty(size[0], np.uint8)
    broadcast(data, group=pg, group_src=root)
    if not is_root:
        found = pickle.loads(data)
        if len(found) != len(object_list):
            raise ValueError(
                f"broadcast_object_list(): rank {pg.ranks[root]} sent {len(found)} objects, "
                f"the list of this rank has {len(object_list)}"
            )
        object_list[:] = found


def scatter_object_list(
    scatter_object_output_list: list, scatter_object_input_list: list | None = None, src: int | None = None,
    group: ProcessGroup | None = None, group_src: int | None = None,
) -> None:
    """Copies the r-th object in the list of rank `src` to `scatter_object_output_list[0]` of rank r."""
    if (pg := group_of("scatter_object_list", group)) is None:
        return
    root = _root("scatter_object_list", pg, src, group_src)
    is_root = root == pg.rank()
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_list(): the output list must have at least one element")
    buffers, sizes = None, np.zeros(pg.size(), np.int64)
    if is_root:
        _check_list("scatter_object_list", scatter_object_input_list, pg.size())
        buffers = [_pickled(obj) for obj in scatter_object_input_list]
        sizes[:] = [buffer.size for buffer in buffers]
    broadcast(sizes, group=pg, group_src=root)
    longest = int(sizes.max())
    if is_root:
        buffers = [np.pad(buffer, (0, longest - buffer.size)) for buffer in buffers]
    received = np.empty(longest, np.uint8)
    scatter(received, buffers, group=pg, group_src=root)
    scatter_object_output_list[0] = pickle.loads(received[: sizes[pg.rank()]])


def send_object_list(
    object_list: list, dst: int | None = None, group: ProcessGroup | None = None, device: object = None,
    group_dst: int | None = None, use_batch: bool = False,
) -> None:
    """Sends the objects to rank `dst`, which calls `recv_object_list`."""
    if (pg := group_of("send_object_list", group)) is None:
        return
    if not object_list:
        raise ValueError("send_object_list(): expected a list with at least one object")
    peer = root_of("send_object_list", pg, dst, group_dst)
    buffers = [_pickled(obj) for obj in object_list]
    send(np.array([buffer.size for buffer in buffers]), group=pg, group_dst=peer)
    send(np.concatenate(buffers), group=pg, group_dst=peer)


def recv_object_list(
    object_list: list, src: int | None = None, group: ProcessGroup | None = None, device: object = None,
    group_src: int | None = None, use_batch: bool = False,
) -> int:
    """Receives as many objects as the list has from `src`; returns that rank, -1 outside the group."""
    if (pg := group_of("recv_object_list", group)) is None:
        return -1
    if not object_list:
        raise ValueError("recv_object_list(): expected a list with an element for each object")
    peer = root_of("recv_object_list", pg, src, group_src)
    sizes = np.empty(len(object_list), np.int64)
    recv(sizes, group=pg, group_src=peer)
    data = np.empty(sizes.sum(), np.uint8)
    recv(data, group=pg, group_src=peer)
    ends = np.cumsum(sizes)
    object_list[:] = [pickle.loads(data[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    return pg.ranks[peer]


def _pickled(obj: object) -> np.ndarray:
    return np.frombuffer(bytearray(pickle.dumps(obj)), np.uint8)


def _padded(obj: object, pg: ProcessGroup) -> tuple[np.ndarray, np.ndarray]:
    """Returns the object as bytes, padded to the longest of all ranks, and the length of each."""
    data = _pickled(obj)
    sizes = np.empty(pg.size(), np.int64)
    all_gather_into_tensor(sizes, np.array([data.size]), pg)
    return np.pad(data, (0, int(sizes.max()) - data.size)), sizes


def _objects(table: Sequence[RawArray], sizes: np.ndarray) -> list:
    return [pickle.loads(row[:size]) for row, size in zip(table, sizes, strict=True)]


def _root(function: str, pg: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    return root_of(function, pg, 0 if rank is None and group_rank is None else rank, group_rank)


def _check_list(function: str, objects: object, size: int) -> None:
    if not isinstance(objects, list) or len(objects) != size:
        found = f"{len(objects)}" if isinstance(objects, list) else type(objects).__name__
        raise ValueError(f"{function}(): expected a list of {size} objects, one per rank, got {found}")
