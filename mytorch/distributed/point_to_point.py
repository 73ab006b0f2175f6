"""Point-to-point communication: send, recv, and their asynchronous forms."""

from __future__ import annotations

from collections.abc import Callable

from .operands import Operand, check_tag, group_of, raw_of, root_of, wait_unless_async
from .process_group import ProcessGroup
from .work import TensorLike, Work
from .world import as_group

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def isend(
    tensor: TensorLike, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Starts to send `tensor` to rank `dst`; it must not be written before the `wait()` of the result.

    Raises:
        ValueError: `dst` is this rank, or not in the group; or a tag below 0.
    """
    if (pg := group_of("isend", group)) is None:
        return None
    peer = root_of("isend", pg, dst, group_dst)
    if peer == pg.rank():
        raise ValueError(f"isend(): rank {pg.ranks[peer]} can't send to itself")
    check_tag("isend", tag)
    x = Operand("isend", tensor)
    return pg.run(f"send(to {pg.ranks[peer]})", x.array, lambda b: b.send(x.raw, peer, tag), peers=(peer,))


def irecv(
    tensor: TensorLike, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Starts to receive into `tensor` from rank `src`, or from any rank if None (not with NCCL).

    Raises:
        ValueError: `src` is this rank, or not in the group; or a tag below 0.
    """
    if (pg := group_of("irecv", group)) is None:
        return None
    from_any = src is None and group_src is None
    peer = None if from_any else root_of("irecv", pg, src, group_src)
    if peer == pg.rank():
        raise ValueError(f"irecv(): rank {pg.ranks[peer]} can't receive from itself")
    check_tag("irecv", tag)
    x = Operand("irecv", tensor, written=True)
    name = "recv(from any)" if from_any else f"recv(from {pg.ranks[peer]})"
    peers = tuple(r for r in range(pg.size()) if r != pg.rank()) if from_any else (peer,)
    work = pg.run(name, x.array, lambda b: b.recv(x.raw, peer, tag), store=x.store, peers=peers)
    return wait_unless_async(work, True, tensor)


def send(
    tensor: TensorLike, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Sends `tensor` to rank `dst`; returns when it may be written again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: TensorLike, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receives into `tensor` from rank `src`, or any if None; returns that rank, -1 outside of the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One operation of `batch_isend_irecv`.

    Args:
        op: isend or irecv.
        tensor: sent, or received into.
        peer: a global rank.
        group: by default the group of all ranks.
        tag: distinguishes messages.
        group_peer: the rank in the group, instead of `peer`.

    Raises:
        TypeError: `tensor` is no tensor.
        ValueError: another `op`, no peer, or two peers.
    """

    def __init__(
        self, op: Callable[..., Work | None], tensor: TensorLike, peer: int | None = None,
        group: ProcessGroup | None = None, tag: int = 0, group_peer: int | None = None,
    ):
        if op not in (isend, irecv):
            raise ValueError(f"P2POp(): op is isend or irecv, got {op!r}")
        raw_of("P2POp", tensor)
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer, self.group_peer = peer, group_peer
        if (pg := as_group(group)) is not None:
            self.group_peer = root_of("P2POp", pg, peer, group_peer)
            self.peer = pg.ranks[self.group_peer]


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Starts several sends and receives that may depend on each other; returns a handle for each.

    Raises:
        ValueError: not a list of P2POp, an empty list, or different groups.
    """
    if (
        not isinstance(p2p_op_list, list)
        or not p2p_op_list
        or not all(isinstance(p, P2POp) for p in p2p_op_list)
    ):
        raise ValueError("batch_isend_irecv(): expected a list of P2POp, with at least one element")
    if len({id(as_group(p.group)) for p in p2p_op_list}) > 1:
        raise ValueError("batch_isend_irecv(): all of them must use the same group")
    if (group := group_of("batch_isend_irecv", p2p_op_list[0].group)) is None:
        return []
    with group.coalesce():
        return [p.op(p.tensor, group=p.group, tag=p.tag, **_peer_of(p)) for p in p2p_op_list]


def _peer_of(p: P2POp) -> dict[str, int]:
    return {"group_dst" if p.op is isend else "group_src": p.group_peer}
