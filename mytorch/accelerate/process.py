"""This process among the others: its rank, and collectives that do nothing where there is only one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import distributed as dist
from ..core.tensor import from_raw
from ..distributed.environment import seconds, started_size

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_MAIN_SECONDS = 600.0
_left: dict[str, int] = {}  # the rank of a process that has left the others


def start() -> bool:
    """Join the other processes, if a launcher started several; returns whether that was done here."""
    if dist.is_initialized() or started_size() == 1:
        return False
    dist.init_process_group()
    return True


def setting(name: str, given: Any, default: Any, read: Callable[[str], Any] = str) -> Any:
    """What the script gave; if it gave None, what the launcher says in MYTORCH_<name>; else the default.

    Raises:
        ValueError: that isn't what `read` takes.
    """
    if given is not None:
        return given
    text = os.environ.get(f"MYTORCH_{name}")
    try:
        return read(text) if text else default
    except ValueError as error:
        raise ValueError(f"environment variable MYTORCH_{name}: {error}") from error


def is_true(text: str) -> bool:
    """What a word means.

    Raises:
        ValueError: neither.
    """
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError(f"expected true or false, got {text!r}")
    return word in _TRUE


def world_size(group: Any = None) -> int:
    return dist.get_world_size(group) if dist.is_initialized() else 1


def rank(group: Any = None) -> int:
    return dist.get_rank(group) if dist.is_initialized() else _left.get("rank", 0)


def local_rank() -> int:
    """The number of this process on its machine, as the launcher says."""
    return int(os.environ.get("LOCAL_RANK", "0")) if dist.is_initialized() or _left else 0


def leave() -> None:
    """Leave the other processes; this one stays what it was, so that only one of them prints the result."""
    mine = dist.get_rank()
    dist.barrier()
    dist.destroy_process_group()
    _left["rank"] = mine


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def all_reduce_max(raw: Any, group: Any = None) -> None:
    """raw <- its largest value over all processes, in place."""
    if world_size(group) > 1:
        dist.all_reduce(from_raw(raw), op=dist.ReduceOp.MAX, group=group)


def all_gather_object(obj: Any) -> list:
    """What every process gave, by rank."""
    out: list = [obj] * world_size()
    if len(out) > 1:
        dist.all_gather_object(out, obj)
    return out


def broadcast_object(obj: Any, src: int = 0) -> Any:
    """What process `src` gave."""
    if world_size() == 1:
        return obj
    box = [obj]
    dist.broadcast_object_list(box, src=src)
    return box[0]


def on_main(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives on the main process, which alone calls it; its error is raised on all.

    The others wait for it longer than for a collective, ten minutes at least: it reads and writes files.
    """
    answer = None
    if rank() == 0:
        try:
            answer = function(*args), None
        except Exception as error:
            answer = None, error
    if world_size() > 1:
        dist.barrier(timeout=max(seconds(), _MAIN_SECONDS))
    result, error = broadcast_object(answer)
    if error is not None:
        raise error
    return result
