"""The processes of a run: rank and number, and collectives that do nothing in a single process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .. import distributed as dist
from ..backends.device import DeviceLike, as_device, device, is_available
from ..distributed.environment import seconds, started_size

if TYPE_CHECKING:
    from ..distributed import ProcessGroup

T = TypeVar("T")

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_MAIN_SECONDS = 600.0
_left: dict[str, int] = {}  # the rank, after the process group was destroyed
dist.worlds.of_each_rank(sys.modules[__name__], "_left", dict)


def start() -> bool:
    """Initializes the process group, if a launcher started several processes; returns whether it did."""
    if dist.is_initialized() or started_size() == 1:
        return False
    dist.init_process_group()
    return True


def setting(name: str, value: T | None, default: T, read: Callable[[str], T] = str) -> T:
    """Returns the script's value; if None, the environment's MYTORCH_<name>; else the default.

    Raises:
        ValueError: `read` refuses the text.
    """
    if value is not None:
        return value
    text = os.environ.get(f"MYTORCH_{name}")
    try:
        return read(text) if text else default
    except ValueError as error:
        raise ValueError(f"environment variable MYTORCH_{name}: {error}") from error


def is_true(text: str) -> bool:
    """Returns the bool of a word such as "yes" or "0".

    Raises:
        ValueError: another word.
    """
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError(f"expected true or false, got {text!r}")
    return word in _TRUE


def world_size(group: ProcessGroup | None = None) -> int:
    return dist.get_world_size(group) if dist.is_initialized() else 1


def rank(group: ProcessGroup | None = None) -> int:
    return dist.get_rank(group) if dist.is_initialized() else _left.get("rank", 0)


def local_rank() -> int:
    """Returns the rank of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if dist.is_initialized() or _left else 0


def own_device(wanted: DeviceLike, cpu: bool = False) -> device:
    """Returns the wanted device; of several processes that want "cuda", or None, each has a GPU of its own.

    Args:
        cpu: None is the CPU; else it is the GPU, where there is one.

    Raises:
        ValueError: the meta device, which holds no data; "cuda:N" for several processes.
        RuntimeError: the device doesn't exist.
    """
    wanted = device("cuda" if is_available() and not cpu else "cpu") if wanted is None else device(wanted)
    if wanted.type == "meta":
        raise ValueError("device='meta': its tensors hold no data to train with")
    if wanted.type == "cuda" and wanted.index is None:
        return as_device(f"cuda:{local_rank()}")
    if wanted.type == "cuda" and world_size() > 1:
        raise ValueError(f"device={str(wanted)!r}: several processes have a GPU each, with device='cuda'")
    return as_device(wanted)


def leave() -> None:
    """Destroys the process group; the rank stays, so that only one process prints the result."""
    mine = dist.get_rank()
    dist.barrier()
    dist.destroy_process_group()
    _left["rank"] = mine


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def all_gather_object(obj: T) -> list[T]:
    """Returns the objects of all processes, by rank."""
    out = [obj] * world_size()
    if len(out) > 1:
        dist.all_gather_object(out, obj)
    return out


def broadcast_object(obj: T, src: int = 0) -> T:
    """Returns the object of process `src`."""
    if world_size() == 1:
        return obj
    box = [obj]
    dist.broadcast_object_list(box, src=src)
    return box[0]


def on_main(function: Callable[..., T], *args: Any) -> T:
    """Calls a function on the main process only; returns its result, or raises its error, on all.

    The others wait ten minutes at least, longer than for a collective: the function reads and writes files.
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
