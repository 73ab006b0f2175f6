"""Process groups: init_process_group, new_group, destroy_process_group, ranks and sizes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from ..backends.device import is_available as has_gpu
from ..backends.door import processes
from . import environment, flight_recorder, turns
from .backends import Request
from .backends.local import LocalBackend
from .backends.threads import ThreadsBackend, ThreadsChecker
from .consistency import ConsistencyChecker
from .environment import Timeout
from .mpi_context import broadcast_bytes, mpi_context
from .process_group import ProcessGroup

if TYPE_CHECKING:
    from .process_group import Backend

BACKENDS = ("mpi", "nccl", "single", "fake", "threads")


class GroupMember:
    """The default group, and the value of a group for ranks outside of it, as in torch.distributed."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER: Final = object()


group = GroupMember
_groups: list[ProcessGroup] = []
_group_count = 0


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Timeout = None,
    world_size: int = -1, rank: int = -1, store: object = None, group_name: str = "",
    pg_options: object = None, device_id: object = None,
) -> None:
    """Makes the default process group, of all ranks.

    Args:
        backend: "mpi", "nccl" (NCCL for arrays on GPUs, MPI for those on the CPU), "single" (one process, no
            package needed), "fake" (this rank of a world of any size, whose other ranks give what it gives).
            By default single for one process, else nccl if there are GPUs, else mpi. In ranks that are
            threads, see `worlds`, each of them but "fake" is "threads".
        init_method: "env://" or None; MPI connects the processes.
        timeout: of each operation, a timedelta or seconds; 60 s by default, or the launcher's --timeout.
        world_size, rank: must match the processes that were started; "fake" uses them unchecked.
        store, group_name, pg_options, device_id: accepted, not used; `store` must be None unless "fake".

    Raises:
        ValueError: an unknown backend, or another `world_size` or `rank`.
        DistError: a default group exists, MPI is missing, or not all processes call this.
    """
    if is_initialized():
        raise environment.DistError("init_process_group(): a default process group exists already")
    backend = _backend_name(backend, world_size)
    if (store is not None and backend != "fake") or init_method not in (None, "env://"):
        raise ValueError(
            f"init_process_group(): MPI connects the processes, not store or init_method={init_method!r}"
        )
    limit = environment.seconds(timeout)
    if backend in ("single", "fake"):
        size, own_rank = (max(world_size, 1), max(rank, 0)) if backend == "fake" else (1, 0)
        _check_rank(world_size, rank, size, own_rank)
        made = _local_group("WORLD", tuple(range(size)), own_rank, backend, limit)
    elif backend == "threads":
        world = turns.current()
        _check_rank(world_size, rank, world.size, world.rank)
        world.generation[world.rank] += 1
        made = _threads_group("WORLD", tuple(range(world.size)), world.rank, limit)
        _barrier(made, "init_process_group()")
    else:
        context = mpi_context()
        _check_rank(world_size, rank, context.size, context.rank)
        context.export()
        context.barrier(f"init_process_group({backend!r})", limit)
        made = _mpi_group("WORLD", tuple(range(context.size)), backend, limit)
    GroupMember.WORLD = processes.group = made
    _groups.append(made)


def _backend_name(backend: str | None, world_size: int) -> str:
    name = backend.lower() if isinstance(backend, str) else backend
    if isinstance(name, str) and ":" in name:  # PyTorch's form, "cpu:mpi,cuda:nccl"
        parts = dict(part.split(":", 1) for part in name.split(",") if ":" in part)
        name = parts.get("cuda", parts.get("cpu"))
    if turns.current() is not None and name != "fake":
        return "threads"
    if name is None:
        is_single = environment.started_size() == 1 and world_size <= 1
        return "single" if is_single else "nccl" if has_gpu() else "mpi"
    if name not in BACKENDS or name == "threads":
        raise ValueError(
            f"init_process_group(): unknown backend {backend!r}, expected one of {', '.join(BACKENDS)}"
        )
    return name


def _check_rank(world_size: int, rank: int, size: int, own_rank: int) -> None:
    if world_size not in (-1, size) or rank not in (-1, own_rank):
        raise ValueError(
            f"init_process_group(): rank={rank}, world_size={world_size} on rank {own_rank} of {size}"
        )
    if not 0 <= own_rank < size:
        raise ValueError(f"init_process_group(): rank {own_rank} is not in 0 … {size - 1}")


def _local_group(name: str, ranks: tuple[int, ...], rank: int, backend: str, timeout: float) -> ProcessGroup:
    local = LocalBackend(len(ranks), rank)
    recorder = flight_recorder.FlightRecorder(rank)
    return ProcessGroup(name, ranks, rank, backend, local, lambda: local, None, timeout, recorder)


def _threads_group(name: str, ranks: tuple[int, ...], rank: int, timeout: float) -> ProcessGroup:
    """Makes a group of the world of this thread; `rank` is that in the group."""
    world = turns.current()
    key = world.generation[world.rank], name, ranks
    backend = ThreadsBackend(world.exchange, key, len(ranks), rank)
    checker = ThreadsChecker(world.exchange, key, name, ranks, rank)
    recorder = flight_recorder.FlightRecorder(world.rank)
    return ProcessGroup(
        name, ranks, rank, "threads", backend, lambda: backend, checker, timeout, recorder, world
    )


def _barrier(group: ProcessGroup, what: str) -> None:
    """Waits until all ranks of a group that are threads have called the same."""
    group.run(what, np.empty(0, np.uint8), lambda backend: Request()).wait()


def _mpi_group(name: str, ranks: tuple[int, ...], backend: str, limit: float) -> ProcessGroup | None:
    """Makes a group over MPI. All ranks call this; ranks outside of the group get None."""
    from .backends.mpi import MPIBackend

    context = mpi_context()
    comm = context.split(ranks)
    if comm is None:
        return None
    cpu_backend = MPIBackend(comm)

    def make_gpu_backend() -> Backend:
        if backend != "nccl":
            return cpu_backend
        from .backends.nccl import NCCLBackend

        return NCCLBackend(comm.rank, comm.size, lambda data: broadcast_bytes(comm, data, limit))

    checker = ConsistencyChecker(comm.Dup(), name, ranks)
    return ProcessGroup(
        name, ranks, comm.rank, backend, cpu_backend, make_gpu_backend, checker, limit, context.recorder
    )


def new_group(
    ranks: Iterable[int] | None = None, timeout: Timeout = None, backend: str | None = None,
    pg_options: object = None, use_local_synchronization: bool = False, group_desc: str | None = None,
    device_id: object = None, sort_ranks: bool = True,
) -> ProcessGroup | object:
    """Makes a group of some ranks; returns it, or GroupMember.NON_GROUP_MEMBER on ranks outside of it.

    All ranks must call this, in the same order.

    Args:
        ranks: global ranks; by default all.
        timeout, backend: by default those of the default group.
        use_local_synchronization: must be False, as in PyTorch with MPI.
        sort_ranks: sort them in the group; else they keep the order of `ranks`.
        pg_options, group_desc, device_id: accepted for PyTorch's callers, not used.

    Raises:
        ValueError: unknown or repeated ranks, or `use_local_synchronization`.
        DistError: not all ranks call this, or with other ranks.
    """
    global _group_count
    world = default_group()
    if use_local_synchronization:
        raise ValueError("new_group(): MPI has no use_local_synchronization: all ranks must call this")
    chosen = tuple(world.ranks if ranks is None else ranks)
    chosen = tuple(sorted(chosen)) if sort_ranks else chosen
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(world.ranks) or not chosen:
        raise ValueError(f"new_group(): ranks {list(chosen)} must be distinct and in 0 … {world.size() - 1}")
    backend = world.backend if backend is None else _backend_name(backend, world.size())
    limit = world.timeout if timeout is None else environment.seconds(timeout)
    _group_count += 1
    name = str(_group_count)
    if world.backend in ("single", "fake"):
        rank = chosen.index(world.rank()) if world.rank() in chosen else None
        new = None if rank is None else _local_group(name, chosen, rank, backend, limit)
    elif world.backend == "threads":
        _barrier(world, f"new_group({list(chosen)})")
        new = None
        if world.rank() in chosen:
            new = _threads_group(name, chosen, chosen.index(world.rank()), limit)
    else:
        mpi_context().barrier(f"new_group({list(chosen)}, {backend!r})", limit)
        new = _mpi_group(name, chosen, backend, limit)
    if new is None:
        return GroupMember.NON_GROUP_MEMBER
    _groups.append(new)
    return new


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Destroys a group, or all of them without an argument; `init_process_group` may be called again."""
    if group is None or group is GroupMember.WORLD:
        default_group()
        GroupMember.WORLD = processes.group = None
        for each in _groups:
            each.is_destroyed = True
        _groups.clear()
    elif group in _groups:
        group.is_destroyed = True
        _groups.remove(group)
    elif group is not GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"destroy_process_group(): {group!r} is not a group, or was destroyed")


def is_initialized() -> bool:
    """Returns whether the default group exists."""
    return GroupMember.WORLD is not None


def default_group() -> ProcessGroup:
    """Returns the group of all ranks.

    Raises:
        ValueError: it doesn't exist.
    """
    if GroupMember.WORLD is None:
        raise ValueError("the default process group does not exist: call init_process_group() first")
    return GroupMember.WORLD


def as_group(group: ProcessGroup | None) -> ProcessGroup | None:
    """Returns the group that an argument means; None if this rank isn't a member.

    Raises:
        ValueError: it was destroyed.
        TypeError: it isn't a group.
    """
    if group is None:
        return default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"expected a ProcessGroup, got {type(group).__name__}")
    if group.is_destroyed:
        raise ValueError(f"{group!r} was destroyed")
    return group


def get_rank(group: ProcessGroup | None = None) -> int:
    """Returns the rank of this process in the group; -1 if it isn't a member."""
    found = as_group(group)
    return -1 if found is None else found.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Returns the number of ranks in the group; -1 if this process isn't a member."""
    found = as_group(group)
    return -1 if found is None else found.size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """Returns the backend of a group: mpi, nccl, single or fake."""
    return _member_group("get_backend", group).backend


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """Returns the global ranks of a group, in its order."""
    return list(_member_group("get_process_group_ranks", group).ranks)


def get_global_rank(group: ProcessGroup | None, group_rank: int) -> int:
    """Returns the global rank of a group's rank."""
    found = _member_group("get_global_rank", group)
    if not 0 <= group_rank < found.size():
        raise ValueError(f"get_global_rank(): {found!r} has no rank {group_rank}")
    return found.ranks[group_rank]


def get_group_rank(group: ProcessGroup | None, global_rank: int) -> int:
    """Returns the rank in a group of a global rank."""
    found = _member_group("get_group_rank", group)
    if global_rank not in found.ranks:
        raise ValueError(f"get_group_rank(): rank {global_rank} is not in {found!r}")
    return found.ranks.index(global_rank)


def _member_group(function: str, group: ProcessGroup | None) -> ProcessGroup:
    found = as_group(group)
    if found is None:
        raise ValueError(f"{function}(): this rank isn't in the group")
    return found


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns the rank of this process among those on its machine."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("get_node_local_rank(): LOCAL_RANK is not in the environment")
    return int(fallback_rank)
