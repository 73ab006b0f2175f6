"""From one rank to another: send, recv, and their asynchronous forms."""

from __future__ import annotations

from typing import Any

from .operands import Operand, members, root_of
from .work import Work

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def isend(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begin to send `tensor` to rank `dst`; it must not be written before the `wait()` of the result.

    Raises:
        ValueError: `dst` is this rank, or not in the group.
    """
    if (pg := members("isend", group)) is None:
        return None
    peer = root_of("isend", pg, dst, group_dst)
    if peer == pg.rank():
        raise ValueError(f"isend(): rank {pg.ranks[peer]} can't send to itself")
    x = Operand("isend", tensor)
    return pg.run(f"send(to {pg.ranks[peer]})", x.own, lambda e: e.send(x.raw, peer, tag), peer=True)


def irecv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begin to receive into `tensor` from rank `src`, or from any if None (not over NCCL).

    Raises:
        ValueError: `src` is this rank, or not in the group.
    """
    if (pg := members("irecv", group)) is None:
        return None
    anyone = src is None and group_src is None
    peer = None if anyone else root_of("irecv", pg, src, group_src)
    if peer == pg.rank():
        raise ValueError(f"irecv(): rank {pg.ranks[peer]} can't receive from itself")
    x = Operand("irecv", tensor, written=True)
    name = "recv(from any)" if anyone else f"recv(from {pg.ranks[peer]})"
    return pg.run(name, x.own, lambda e: e.recv(x.raw, peer, tag), store=x.store, peer=True)


def send(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> None:
    """Send `tensor` to rank `dst`; back when it may be written again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> int:
    """Receive into `tensor` from rank `src`, or from any if None; returns the sender's rank, -1 outside."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    if src is not None:
        return src
    return work.source_rank()


class P2POp:
    """One part of `batch_isend_irecv`: `op` is isend or irecv, `peer` a global rank."""

    def __init__(
        self,
        op: Any,
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ):
        if op not in (isend, irecv):
            raise ValueError(f"P2POp(): op is isend or irecv, got {op!r}")
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag
        self.group_peer = group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several sends and receives that may wait for each other; returns a handle for each."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv(): expected a list of P2POp, with at least one in it")
    first = members("batch_isend_irecv", p2p_op_list[0].group)
    if first is None:
        return []
    with first.together():
        works = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [work for work in works if work is not None]
