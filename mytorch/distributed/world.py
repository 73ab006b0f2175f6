"""The groups of this process, from `init_process_group` to `destroy_process_group`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..backends.device import is_available as has_gpu
from . import environment, recorder
from .channel import Channel
from .engines.local import LocalEngine
from .group import ProcessGroup
from .session import session, share

BACKENDS = ("mpi", "nccl", "single", "fake")


class GroupMember:
    """Names for groups, as in torch.distributed."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = object()


group = GroupMember
_groups: list[ProcessGroup] = []
_names = 0


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1,
    rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Bring all ranks together in one group.

    Args:
        backend: "mpi", "nccl" (arrays on GPUs go over NCCL, those on the CPU over MPI), "single" (one
            process, no package needed), "fake" (pretends that there are others; for tests). By default what
            fits: single for one process, else nccl where there are GPUs, else mpi.
        init_method: "env://" or None; MPI brings the processes together.
        timeout: of each operation, a timedelta or seconds; 60 s by default, or what the launcher was given.
        world_size, rank: checked against what was started; backend "fake" takes them as they are.
        store, group_name, pg_options, device_id: for PyTorch's callers; not used, and `store` must be None.

    Raises:
        ValueError: an unknown backend, or a `world_size` or `rank` that isn't so.
        DistError: there is a group already, MPI is missing, or not all processes come.
    """
    if is_initialized():
        raise environment.DistError("init_process_group(): there is a default process group already")
    if store is not None or init_method not in (None, "env://"):
        raise ValueError(
            f"init_process_group(): MPI brings processes together, not store or init_method={init_method!r}"
        )
    backend = _choose(backend, world_size)
    limit = environment.seconds(timeout)
    if backend in ("single", "fake"):
        size, mine = (max(world_size, 1), max(rank, 0)) if backend == "fake" else (1, 0)
        _check_asked(world_size, rank, size, mine)
        GroupMember.WORLD = _local("WORLD", tuple(range(size)), mine, backend, limit)
    else:
        here = session()
        _check_asked(world_size, rank, here.size, here.rank)
        here.export()
        here.meet(f"init_process_group({backend!r})", limit)
        GroupMember.WORLD = _connected("WORLD", tuple(range(here.size)), backend, limit)
    _groups.append(GroupMember.WORLD)


def _choose(backend: str | None, world_size: int) -> str:
    name = backend.lower() if isinstance(backend, str) else backend
    if isinstance(name, str) and ":" in name:  # PyTorch's form, "cpu:mpi,cuda:nccl"
        parts = dict(part.split(":", 1) for part in name.split(",") if ":" in part)
        name = parts.get("cuda", parts.get("cpu"))
    if name is None:
        alone = environment.started_size() == 1 and world_size <= 1
        return "single" if alone else "nccl" if has_gpu() else "mpi"
    if name not in BACKENDS:
        raise ValueError(f"init_process_group(): there is no backend {backend!r}, but {', '.join(BACKENDS)}")
    return name


def _check_asked(world_size: int, rank: int, size: int, mine: int) -> None:
    if world_size not in (-1, size) or rank not in (-1, mine):
        raise ValueError(
            f"init_process_group(): this is rank {mine} of {size}, but rank={rank}, world_size={world_size}"
        )
    if not 0 <= mine < size:
        raise ValueError(f"init_process_group(): rank {mine} is not in 0 … {size - 1}")


def _local(name: str, ranks: tuple[int, ...], rank: int, backend: str, timeout: float) -> ProcessGroup:
    engine = LocalEngine(len(ranks), rank)
    log = recorder.Recorder(rank)
    return ProcessGroup(name, ranks, rank, backend, engine, lambda: engine, None, timeout, log)


def _connected(name: str, ranks: tuple[int, ...], backend: str, limit: float) -> ProcessGroup | None:
    """A group over MPI; all ranks call this, and those outside get None."""
    from .engines.mpi import MpiEngine

    here = session()
    comm = here.communicator(ranks)
    if comm is None:
        return None
    host = MpiEngine(comm)

    def device():
        if backend != "nccl":
            return host
        from .engines.nccl import NcclEngine

        return NcclEngine(comm.rank, comm.size, lambda data: share(comm, data, limit))

    channel = Channel(comm.Dup(), name, ranks)
    return ProcessGroup(name, ranks, comm.rank, backend, host, device, channel, limit, here.recorder)


def new_group(
    ranks: Iterable[int] | None = None, timeout: Any = None, backend: str | None = None,
    pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
    device_id: Any = None, sort_ranks: bool = True,
) -> Any:  # fmt: skip
    """A group of some ranks. All ranks must call this, in the same order; who isn't in it gets a mark.

    Args:
        ranks: global ranks; by default all.
        timeout, backend: by default those of the default group.
        use_local_synchronization: must be False, as in PyTorch with MPI.
        sort_ranks: in the group they are in ascending order; else in that of `ranks`.
        pg_options, group_desc, device_id: for PyTorch's callers; not used.

    Raises:
        ValueError: ranks that aren't there, or twice; or `use_local_synchronization`.
        DistError: not all ranks come, or they name others.
    """
    global _names
    world = default_group()
    if use_local_synchronization:
        raise ValueError("new_group(): MPI has no use_local_synchronization: all ranks must call this")
    chosen = tuple(world.ranks if ranks is None else ranks)
    chosen = tuple(sorted(chosen)) if sort_ranks else chosen
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(world.ranks) or not chosen:
        raise ValueError(
            f"new_group(): ranks {list(chosen)} are not some of 0 … {world.size() - 1}, each once"
        )
    backend = world.backend if backend is None else _choose(backend, world.size())
    limit = world.timeout if timeout is None else environment.seconds(timeout)
    _names += 1
    name = str(_names)
    if world.backend in ("single", "fake"):
        rank = chosen.index(world.rank()) if world.rank() in chosen else None
        made = None if rank is None else _local(name, chosen, rank, backend, limit)
    else:
        session().meet(f"new_group({list(chosen)}, {backend!r})", limit)
        made = _connected(name, chosen, backend, limit)
    if made is None:
        return GroupMember.NON_GROUP_MEMBER
    _groups.append(made)
    return made


def destroy_process_group(group: Any = None) -> None:
    """Forget a group, or, without an argument, all of them; `init_process_group` may follow."""
    if group is None or group is GroupMember.WORLD:
        default_group()
        GroupMember.WORLD = None
        _groups.clear()
    elif group in _groups:
        _groups.remove(group)
    elif group is not GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"destroy_process_group(): {group!r} is not a group, or is gone")


def is_initialized() -> bool:
    """Is there a default group?"""
    return GroupMember.WORLD is not None


def default_group() -> ProcessGroup:
    """The group of all ranks.

    Raises:
        ValueError: there is none.
    """
    if GroupMember.WORLD is None:
        raise ValueError("there is no default process group yet: call init_process_group() first")
    return GroupMember.WORLD


def as_group(group: Any) -> ProcessGroup | None:
    """The group that an argument means; None for one that this rank isn't in.

    Raises:
        ValueError: it was destroyed.
        TypeError: it is no group.
    """
    if group is None:
        return default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"expected a ProcessGroup, got {type(group).__name__}")
    if group not in _groups:
        raise ValueError(f"{group!r} was destroyed")
    return group


def get_rank(group: Any = None) -> int:
    """The rank of this process in the group; -1 if it isn't in it."""
    found = as_group(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks the group has; -1 if this process isn't in it."""
    found = as_group(group)
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """The backend of a group: mpi, nccl, single or fake."""
    return _member("get_backend", group).backend


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The global ranks of a group, in its order."""
    return list(_member("get_process_group_ranks", group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The global rank of a group's rank."""
    found = _member("get_global_rank", group)
    if not 0 <= group_rank < found.size():
        raise ValueError(f"get_global_rank(): {found!r} has no rank {group_rank}")
    return found.ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in a group of a global rank."""
    found = _member("get_group_rank", group)
    if global_rank not in found.ranks:
        raise ValueError(f"get_group_rank(): rank {global_rank} is not in {found!r}")
    return found.ranks.index(global_rank)


def _member(where: str, group: Any) -> ProcessGroup:
    found = as_group(group)
    if found is None:
        raise ValueError(f"{where}(): this rank isn't in the group")
    return found


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank of this process among those of its machine."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("get_node_local_rank(): LOCAL_RANK is not in the environment")
    return int(fallback_rank)
