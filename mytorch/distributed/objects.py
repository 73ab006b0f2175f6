"""Collectives on Python objects: pickled, moved as bytes, unpickled; among ranks that trust each other.

Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from .collectives import all_gather_into_tensor, broadcast, gather, scatter
from .operands import members, root_of
from .point_to_point import recv, send

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]  # fmt: skip


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """object_list[r] = the object of rank r, on every rank."""
    if (pg := members("all_gather_object", group)) is None:
        return
    _check_list("all_gather_object", object_list, pg.size())
    data, sizes = _padded(obj, pg)
    table = np.empty((pg.size(), data.size), np.uint8)
    all_gather_into_tensor(table, data, pg)
    object_list[:] = _objects(table, sizes)


def gather_object(
    obj: Any,
    object_gather_list: list | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """object_gather_list[r] = the object of rank r, on rank `dst` (0 by default)."""
    if (pg := members("gather_object", group)) is None:
        return
    root = _root("gather_object", pg, dst, group_dst)
    here = root == pg.rank()
    if here:
        _check_list("gather_object", object_gather_list, pg.size())
    elif object_gather_list:
        raise ValueError("gather_object(): object_gather_list is for rank dst alone")
    data, sizes = _padded(obj, pg)
    parts = [np.empty_like(data) for _ in range(pg.size())] if here else None
    gather(data, parts, group=pg, group_dst=root)
    if here:
        object_gather_list[:] = _objects(parts, sizes)


def broadcast_object_list(
    object_list: list,
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """object_list[i] = that of rank `src` (0 by default), for every i, on every rank."""
    if (pg := members("broadcast_object_list", group)) is None:
        return
    root = _root("broadcast_object_list", pg, src, group_src)
    here = root == pg.rank()
    data = _pickled(list(object_list)) if here else None
    size = np.array([data.size if here else 0])
    broadcast(size, group=pg, group_src=root)
    if not here:
        data = np.empty(size[0], np.uint8)
    broadcast(data, group=pg, group_src=root)
    if not here:
        found = pickle.loads(data)
        if len(found) != len(object_list):
            raise ValueError(
                f"broadcast_object_list(): rank {pg.ranks[root]} sent {len(found)} objects, "
                f"the list of this rank has {len(object_list)}"
            )
        object_list[:] = found


def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """scatter_object_output_list[0] = the object at this rank's place in the list of rank `src`."""
    if (pg := members("scatter_object_list", group)) is None:
        return
    root = _root("scatter_object_list", pg, src, group_src)
    here = root == pg.rank()
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_list(): the output list must have a place for the object")
    parts, sizes = None, np.zeros(pg.size(), np.int64)
    if here:
        _check_list("scatter_object_list", scatter_object_input_list, pg.size())
        parts = [_pickled(obj) for obj in scatter_object_input_list]
        sizes[:] = [part.size for part in parts]
    broadcast(sizes, group=pg, group_src=root)
    room = int(sizes.max())
    if here:
        parts = [np.pad(part, (0, room - part.size)) for part in parts]
    mine = np.empty(room, np.uint8)
    scatter(mine, parts, group=pg, group_src=root)
    scatter_object_output_list[0] = pickle.loads(mine[: sizes[pg.rank()]])


def send_object_list(
    object_list: list,
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the objects to rank `dst`, which calls `recv_object_list`."""
    if (pg := members("send_object_list", group)) is None:
        return
    if not object_list:
        raise ValueError("send_object_list(): expected a list with at least one object")
    peer = root_of("send_object_list", pg, dst, group_dst)
    parts = [_pickled(obj) for obj in object_list]
    send(np.array([part.size for part in parts]), group=pg, group_dst=peer)
    send(np.concatenate(parts), group=pg, group_dst=peer)


def recv_object_list(
    object_list: list,
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """object_list[i] = the i-th of as many objects of rank `src`; returns that rank, -1 outside."""
    if (pg := members("recv_object_list", group)) is None:
        return -1
    if not object_list:
        raise ValueError("recv_object_list(): expected a list with a place for each object")
    peer = root_of("recv_object_list", pg, src, group_src)
    sizes = np.empty(len(object_list), np.int64)
    recv(sizes, group=pg, group_src=peer)
    data = np.empty(sizes.sum(), np.uint8)
    recv(data, group=pg, group_src=peer)
    ends = np.cumsum(sizes)
    object_list[:] = [pickle.loads(data[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    return pg.ranks[peer]


def _pickled(obj: Any) -> np.ndarray:
    return np.frombuffer(bytearray(pickle.dumps(obj)), np.uint8)


def _padded(obj: Any, pg: Any) -> tuple[np.ndarray, np.ndarray]:
    """The object as bytes, padded to the longest of all ranks; and how long each is."""
    data = _pickled(obj)
    sizes = np.empty(pg.size(), np.int64)
    all_gather_into_tensor(sizes, np.array([data.size]), pg)
    return np.pad(data, (0, int(sizes.max()) - data.size)), sizes


def _objects(table: Any, sizes: np.ndarray) -> list:
    return [pickle.loads(row[:size]) for row, size in zip(table, sizes, strict=True)]


def _root(where: str, pg: Any, rank: int | None, group_rank: int | None) -> int:
    return root_of(where, pg, 0 if rank is None and group_rank is None else rank, group_rank)


def _check_list(where: str, objects: Any, size: int) -> None:
    if not isinstance(objects, list) or len(objects) != size:
        found = f"{len(objects)}" if isinstance(objects, list) else type(objects).__name__
        raise ValueError(f"{where}(): expected a list of {size} objects, one a rank, got {found}")
