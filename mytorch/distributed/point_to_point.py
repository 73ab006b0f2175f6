"""From one rank to another: send, recv, and their asynchronous forms."""

from __future__ import annotations

from typing import Any

from .operands import Operand, check_tag, end, members, raw_of, root_of
from .work import Work
from .world import as_group

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def isend(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begin to send `tensor` to rank `dst`; it must not be written before the `wait()` of the result.

    Raises:
        ValueError: `dst` is this rank, or not in the group; or a tag below 0.
    """
    if (pg := members("isend", group)) is None:
        return None
    peer = root_of("isend", pg, dst, group_dst)
    if peer == pg.rank():
        raise ValueError(f"isend(): rank {pg.ranks[peer]} can't send to itself")
    check_tag("isend", tag)
    x = Operand("isend", tensor)
    return pg.run(f"send(to {pg.ranks[peer]})", x.own, lambda e: e.send(x.raw, peer, tag), peers=(peer,))


def irecv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begin to receive into `tensor` from rank `src`, or from any if None (not over NCCL).

    Raises:
        ValueError: `src` is this rank, or not in the group; or a tag below 0.
    """
    if (pg := members("irecv", group)) is None:
        return None
    anyone = src is None and group_src is None
    peer = None if anyone else root_of("irecv", pg, src, group_src)
    if peer == pg.rank():
        raise ValueError(f"irecv(): rank {pg.ranks[peer]} can't receive from itself")
    check_tag("irecv", tag)
    x = Operand("irecv", tensor, written=True)
    name = "recv(from any)" if anyone else f"recv(from {pg.ranks[peer]})"
    peers = tuple(r for r in range(pg.size()) if r != pg.rank()) if anyone else (peer,)
    work = pg.run(name, x.own, lambda e: e.recv(x.raw, peer, tag), store=x.store, peers=peers)
    return end(work, True, tensor)


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
    return work.source_rank()


class P2POp:
    """One part of `batch_isend_irecv`.

    Args:
        op: isend or irecv.
        tensor: what to send or receive into.
        peer: a global rank.
        group: by default that of all ranks.
        tag: tells messages apart.
        group_peer: the rank in the group, instead of `peer`.

    Raises:
        TypeError: `tensor` is no tensor.
        ValueError: another `op`, or no peer, or two.
    """

    def __init__(
        self, op: Any, tensor: Any, peer: int | None = None, group: Any = None, tag: int = 0,
        group_peer: int | None = None,
    ):  # fmt: skip
        if op not in (isend, irecv):
            raise ValueError(f"P2POp(): op is isend or irecv, got {op!r}")
        raw_of("P2POp", tensor)
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer, self.group_peer = peer, group_peer
        if (pg := as_group(group)) is not None:
            self.group_peer = root_of("P2POp", pg, peer, group_peer)
            self.peer = pg.ranks[self.group_peer]


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several sends and receives that may wait for each other; returns a handle for each.

    Raises:
        ValueError: not a list of P2POp, nothing in it, or of different groups.
    """
    if (
        not isinstance(p2p_op_list, list)
        or not p2p_op_list
        or not all(isinstance(p, P2POp) for p in p2p_op_list)
    ):
        raise ValueError("batch_isend_irecv(): expected a list of P2POp, with at least one in it")
    if len({id(as_group(p.group)) for p in p2p_op_list}) > 1:
        raise ValueError("batch_isend_irecv(): all of them must be of one group")
    if (group := members("batch_isend_irecv", p2p_op_list[0].group)) is None:
        return []
    with group.together():
        return [p.op(p.tensor, group=p.group, tag=p.tag, **_peer_of(p)) for p in p2p_op_list]


def _peer_of(p: P2POp) -> dict[str, int]:
    return {"group_dst" if p.op is isend else "group_src": p.group_peer}
