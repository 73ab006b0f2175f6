"""Device meshes: the ranks as an array with named dims, and a process group for each line along a dim.

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))      # eight ranks
    dist.all_reduce(x, group=mesh.get_group("tp"))                           # of the four in this rank's row
    mesh["dp"], mesh["dp", "tp"]._flatten("all")                             # others, of the same ranks

Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.DeviceMesh
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.tensor import Tensor, from_raw
from .process_group import ProcessGroup
from .world import (
    default_group,
    get_process_group_ranks,
    get_rank,
    init_process_group,
    is_initialized,
    new_group,
)

__all__ = ["DeviceMesh", "init_device_mesh"]


class _Entered(threading.local):
    meshes: tuple[DeviceMesh, ...] = ()


_entered = _Entered()


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None,
    backend_override: object = None,
) -> DeviceMesh:
    """Returns a mesh of all ranks, in their order; makes the default group if there is none.

    All ranks must call this, with the same arguments.

    Args:
        device_type: "cpu" or "cuda", of the arrays that its groups move.
        mesh_shape: the number of ranks along each dim.
        mesh_dim_names: of the dims, all different.
        backend_override: for code written for PyTorch, must be None.

    Raises:
        RuntimeError: names that are repeated, or are more or fewer than dims; a device with a number; or the
            shape has another number of ranks than there are.

    >>> from mytorch import distributed as dist
    >>> dist.init_process_group("fake", rank=5, world_size=8)
    >>> mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    >>> mesh, mesh.get_coordinate(), mesh["tp"].mesh
    (DeviceMesh((dp=2, tp=4), 'cpu', stride=(4, 1)), (1, 1), tensor([4 5 6 7], dtype=int32))
    >>> dist.destroy_process_group()
    """
    if backend_override is not None:
        raise NotImplementedError("init_device_mesh(): the groups of a mesh have the default group's backend")
    if not isinstance(device_type, str) or not device_type.isalpha():
        raise RuntimeError(f'init_device_mesh(): a device type is "cpu" or "cuda", got {device_type!r}')
    shape = tuple(mesh_shape)
    mesh = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)


class DeviceMesh:
    """An array of ranks. A dim has a group for each of its lines; a rank has that of its own line.

    A part of a mesh, as `mesh["tp"]`, is a mesh whose dims are some of those of the whole one, its *root*.

    Args:
        device_type: "cpu" or "cuda".
        mesh: the ranks, nested lists or an integer tensor.
        mesh_dim_names: of the dims.

    Raises:
        RuntimeError: see `init_device_mesh`.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None):
        ranks = np.array(mesh.numpy() if isinstance(mesh, (Tensor, Array)) else mesh, np.int32)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        _check_names(names, ranks.ndim)
        if not is_initialized():
            init_process_group()
        world = default_group()
        if not ranks.size or not {*ranks.flat} <= {*world.ranks} or len({*ranks.flat}) < ranks.size:
            raise RuntimeError(
                f"DeviceMesh: a mesh of ranks {ranks.tolist()} doesn't fit {world.size()} ranks, each once"
            )
        self._of_root(device_type, ranks, names)
        for axis in range(ranks.ndim):
            self._groups[axis,] = self._make_group((axis,))

    def _of_root(self, device_type: str, ranks: np.ndarray, names: tuple[str, ...] | None) -> None:
        self.device_type, self.mesh_dim_names, self._ranks = device_type, names, ranks
        self._root, self._axes = self, tuple([(axis,) for axis in range(ranks.ndim)])  # of the root's array
        self._groups: dict[tuple[int, ...], ProcessGroup | None] = {}  # by axes; a part has those of its root
        self._flattened: dict[str, tuple[int, ...]] = {}  # axes, by name
        here = np.argwhere(ranks == get_rank())
        self._place: tuple[int, ...] | None = tuple(map(int, here[0])) if len(here) else None

    def _make_group(self, axes: tuple[int, ...]) -> ProcessGroup | None:
        """Makes the groups of all lines along axes; returns that of this rank."""
        lines = [sorted(line) for line in self._lines(axes).tolist()]
        if lines == [[*default_group().ranks]]:
            return default_group()
        made = [new_group(line) for line in lines]
        return next((group for group in made if isinstance(group, ProcessGroup)), None)

    def _sizes(self, axes: tuple[int, ...]) -> list[int]:
        return [self._root._ranks.shape[axis] for axis in axes]

    def _lines(self, axes: tuple[int, ...]) -> np.ndarray:
        """Returns the ranks with a row for each line along axes of the root."""
        ranks = self._root._ranks
        others = [axis for axis in range(ranks.ndim) if axis not in axes]
        return ranks.transpose(*others, *axes).reshape(-1, math.prod(self._sizes(axes)))

    @property
    def mesh(self) -> Tensor:
        """The ranks, int32: for a part those that this rank's part has."""
        axes = tuple(chain(*self._axes))
        lines = self._lines(axes)
        mine = [line for line in lines if self._root._place is None or get_rank() in line]
        return from_raw((mine or lines)[0].reshape(self.shape).copy())

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each dim."""
        return tuple([math.prod(self._sizes(axes)) for axes in self._axes])

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._axes)

    def size(self, mesh_dim: int | None = None) -> int:
        """Returns the number of ranks, in all or along a dim."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[mesh_dim]

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """Returns the mesh of one or some dims, in the mesh's order; also of one that `_flatten` has made.

        Raises:
            RuntimeError: the mesh has no names.
            KeyError: it hasn't these, or they are in another order.
        """
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self.mesh_dim_names:
            return self
        known = self._root._flattened | dict(zip(self.mesh_dim_names, self._axes, strict=True))
        if missing := [name for name in names if name not in known]:
            raise KeyError(f"Invalid mesh_dim_name {missing[0]!r}: the mesh has {[*known]}")
        axes = tuple([known[name] for name in names])
        if [*chain(*axes)] != sorted({*chain(*axes)}):
            raise KeyError(f"Invalid mesh_dim_names {names}: dims are in the mesh's order, each once")
        return self._part(names, axes)

    def _part(self, names: tuple[str, ...], axes: tuple[tuple[int, ...], ...]) -> DeviceMesh:
        part = object.__new__(DeviceMesh)
        part.device_type, part.mesh_dim_names = self.device_type, names
        part._root, part._axes = self._root, axes
        return part

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: object = None) -> DeviceMesh:
        """Returns a mesh with one dim, of the ranks of all dims of this one; all ranks must call this.

        Args:
            mesh_dim_name: of the dim, also in the root; by default the names joined with "_".
        """
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        if self.ndim == 1 and name in self.mesh_dim_names:
            return self
        root, axes = self._root, tuple(chain(*self._axes))
        if root._flattened.setdefault(name, axes) != axes or name in root.mesh_dim_names:
            raise ValueError(f"_flatten(): the mesh has a dim {name!r} of other ranks")
        if axes not in root._groups:
            root._groups[axes] = root._make_group(axes)
        return self._part((name,), (axes,))

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Returns the group of this rank's line along a dim, which a mesh of one dim needs no argument for.

        Its ranks are sorted, in whatever order the mesh has them.

        Raises:
            RuntimeError: there are several dims, and none is named.
            KeyError: there is no such dim.
            IndexError: this rank isn't in the mesh.
        """
        group = self._root._groups[self._axes_of("get_group", mesh_dim)]
        if group is None:  # which would mean all ranks to a collective
            raise IndexError(f"get_group(): rank {get_rank()} is not in the mesh")
        return group

    def _axes_of(self, function: str, mesh_dim: int | str | None) -> tuple[int, ...]:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"{function}(): mesh_dim is necessary, as the mesh has {self.ndim} dims")
            mesh_dim = 0
        if isinstance(mesh_dim, str):
            return self[mesh_dim]._axes[0]
        if not -self.ndim <= mesh_dim < self.ndim:
            raise KeyError(f"{function}(): a mesh of {self.ndim} dims has no dim {mesh_dim}")
        return self._axes[mesh_dim]

    def get_all_groups(self) -> list[ProcessGroup]:
        """Returns the group of this rank's line along each dim."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup], device_type: str, mesh: Any = None, *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> DeviceMesh:
        """Returns the mesh of a group, or one with the line of this rank along each dim as its groups.

        Args:
            mesh: the ranks; necessary for several groups, as are the names.
        """
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if not groups:
            raise ValueError("from_group(): expected at least one ProcessGroup")
        if len(groups) > 1 and (mesh is None or mesh_dim_names is None):
            raise ValueError("from_group(): several groups need mesh and mesh_dim_names")
        own = get_process_group_ranks(groups[0]) if mesh is None else mesh
        ranks = np.array(own.numpy() if isinstance(own, (Tensor, Array)) else own, np.int32)
        if ranks.ndim != len(groups):
            raise ValueError(f"from_group(): {len(groups)} groups for a mesh of {ranks.ndim} dims")
        _check_names(mesh_dim_names, ranks.ndim)
        made = object.__new__(DeviceMesh)
        made._of_root(device_type, ranks, None if mesh_dim_names is None else tuple(mesh_dim_names))
        for axis, given in enumerate(groups):
            line = next((line for line in made._lines((axis,)) if get_rank() in line), None)
            if line is None or sorted(line) != sorted(get_process_group_ranks(given)):
                raise ValueError(f"from_group(): mesh {ranks.tolist()} doesn't fit {given!r} in dim {axis}")
            made._groups[axis,] = given
        return made

    def get_rank(self) -> int:
        """Returns the global rank of this process."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Returns this rank's rank in `get_group(mesh_dim)`, -1 outside of the mesh."""
        group = self._root._groups[self._axes_of("get_local_rank", mesh_dim)]
        return -1 if group is None else group.rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Returns where this rank is along each dim; None outside of the mesh."""
        if self._root._place is None:
            return None
        return tuple(map(int, np.argwhere(self.mesh.numpy() == get_rank())[0]))

    def __enter__(self) -> DeviceMesh:
        """Makes it the mesh of this thread within the block."""
        _entered.meshes = (*_entered.meshes, self)
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.meshes = _entered.meshes[:-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        ranks = self._root._ranks
        return self.device_type, self.mesh_dim_names, self._axes, ranks.shape, (*ranks.flat,)

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        shape = ", ".join(
            f"{name}={size}" for name, size in zip(names, self.shape, strict=True)
        ) if names else ", ".join(map(str, self.shape)) + "," * (self.ndim == 1)
        steps = np.empty(self._root._ranks.shape, np.int8).strides
        strides = tuple([steps[axes[-1]] for axes in self._axes])
        return f"DeviceMesh(({shape}), {self.device_type!r}, stride={strides})"


def current_mesh() -> DeviceMesh | None:
    """Returns the mesh whose `with` block runs in this thread, the innermost one."""
    return _entered.meshes[-1] if _entered.meshes else None


def _check_names(names: Sequence[str] | None, ndim: int) -> None:
    if names is None:
        return
    if len({*names}) < len(names):
        raise RuntimeError(f"Each mesh_dim_name must be unique, got {tuple(names)}")
    if len(names) != ndim:
        raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length, got {ndim}, {len(names)}")
