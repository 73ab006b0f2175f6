"""
ZeroRedundancyOptimizer: every rank keeps the optimizer state of its shard of the parameters.

With N ranks the state (8 bytes a parameter for Adam) takes 1/N of the memory on each. A rank updates its
shard, and broadcasts it to the others.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020,
https://arxiv.org/abs/1910.02054, section 5.1 (P_os)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..backends.device import on
from ..core.array import Array
from ..core.flat_buffer import FlatBuffer
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..nn.utils import clip_grad
from ..optim.flat_state import FlatGroup, FlatState
from ..optim.optimizer import Optimizer
from ..optim.param_groups import ParamGroup, Params, check_sizes
from ..optim.state_dict import copied
from ..optim.update import Clip
from .collectives import broadcast
from .join import Join, Joinable, JoinHook
from .object_collectives import gather_object
from .world import get_global_rank, get_rank, get_world_size, is_initialized
from .world import group as default_group

if TYPE_CHECKING:
    from .process_group import ProcessGroup


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is sharded over the ranks; its updates are those of `optimizer_class`.

    Args:
        params: as for every optimizer, the same on all ranks.
        optimizer_class: the optimizer, for instance AdamW.
        process_group: the ranks; by default all of them, or only this process without an initialized group.
        parameters_as_bucket_view: accepted; the parameters always are views.
        overlap_with_ddp: must be False: a step that begins before backward has ended can neither clip by the
            norm of all gradients nor be skipped for an inf in one of them, and saves no memory.
        defaults: options of `optimizer_class`.

    Attributes:
        optim: the optimizer of this rank's shard.

    Raises:
        NotImplementedError: `overlap_with_ddp`.
    """

    def __init__(
        self, params: Params, optimizer_class: type[Optimizer], process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = True, overlap_with_ddp: bool = False, **defaults: Any,
    ):
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True: steps begin after backward here; use False"
            )
        self.process_group = process_group if process_group is not None else default_group.WORLD
        is_alone = not is_initialized()
        self.world_size = 1 if is_alone else get_world_size(process_group)
        self.rank = 0 if is_alone else get_rank(process_group)
        self._class, self._options = optimizer_class, defaults
        self.optim: Optimizer | None = None
        super().__init__(params, {})
        self._full_state: dict[str, Any] | None = None
        self._make()

    def _make(self) -> None:
        """Shards the parameters, and makes the optimizer of this rank's shard."""
        self._shards = partition(self.param_groups, self.world_size)
        mine = [
            _with_params(group, params)
            for group, params in zip(self.param_groups, self._shards[self.rank], strict=True)
        ]
        self.optim = self._class(mine, **self._options)
        self.defaults = self.optim.defaults
        self._take_options()
        self.state = self.optim.state
        self._others: dict[int, list[FlatGroup]] = {}
        self.flat_buffers()  # before the first gradients: all ranks reduce them in the same buckets

    def _take_options(self) -> None:
        """Adopts the options that a group doesn't set from the optimizer of this rank's shard."""
        for group, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in local.items():
                group.setdefault(name, value)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Adds a group, on all ranks; the other groups' parameters stay with their ranks.

        Raises:
            TypeError, ValueError: see `Optimizer`.
        """
        optim, self.optim = self.optim, None  # the whole group first
        try:
            super().add_param_group(param_group)
        finally:
            self.optim = optim
        if optim is not None:
            self._shards = partition(self.param_groups, self.world_size)
            optim.add_param_group(_with_params(self.param_groups[-1], self._shards[self.rank][-1]))
            self._take_options()
            self._full_state = None
            self.flat_buffers()

    def exchange_parameters(self) -> None:
        """Rebuilds the shards after the groups' parameters were replaced, as by float32 masters."""
        state = self.state
        self._make()
        mine = {p for params in self._shards[self.rank] for p in params}
        self.optim.state.update({p: entry for p, entry in state.items() if p in mine})
        self.optim.flat_buffers()

    def flat_buffers(self) -> list[FlatBuffer]:
        """Returns the vectors of all ranks' shards, laid out alike on all ranks."""
        return [buffer for rank in range(self.world_size) for buffer in self._buffers_of(rank)]

    def _flat_states(self) -> list[tuple[ParamGroup, FlatState]]:
        return []  # `optim` has them

    def _buffers_of(self, rank: int) -> list[FlatBuffer]:
        if rank == self.rank:
            return self.optim.flat_buffers()
        groups, shard = self._others.setdefault(rank, []), self._shards[rank]
        if len(groups) != len(shard) or not all(
            [group.is_current(params) for group, params in zip(groups, shard, strict=True)]
        ):
            groups[:] = [FlatGroup(params) for params in shard]
        return [buffer for group in groups for buffer in group.buffers]

    def step(self, closure: Callable[[], object] | None = None) -> Any:
        """Updates this rank's shard, and receives the others'."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        Join.notify_join_context(self)
        self._full_state = None
        self._pass_options()
        self.optim.grad_scale = getattr(self, "grad_scale", None)
        self.optim.found_inf = getattr(self, "found_inf", None)
        self.optim.step()
        if self.world_size > 1:
            self._broadcast_shards()
        return loss

    def _broadcast_shards(self) -> None:
        works = []
        for rank in range(self.world_size):
            source = get_global_rank(self.process_group, rank)
            for buffer in self._buffers_of(rank):
                works.append(broadcast(buffer.data, source, self.process_group, async_op=True))
                if rank != self.rank:
                    buffer.increment_versions()
        for work in works:
            work.wait()

    def _pass_options(self) -> None:
        for group, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            local.update({name: group[name] for name in group if name not in ("params", "param_names")})

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.optim._step_supports_amp_scaling

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Updates the shard of a rank without data by the gradients that DistributedDataParallel averaged.

        They aren't clipped: the rank doesn't see the others' calls of `clip_grad_norm`.
        """
        return _JoinedOptimizer(self)

    @property
    def join_process_group(self) -> ProcessGroup | None:
        return self.process_group

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clips as `Optimizer.clip_grad_norm`; the gradients must have been averaged over the ranks."""
        params = [p for group in self.param_groups for p in group["params"]]
        total = clip_grad.norm_of_grads(params, norm_type, error_if_nonfinite)
        self.optim.pending_clip = Clip(float(max_norm), total)
        scale = getattr(self, "grad_scale", None)
        return total if scale is None else total / scale

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients of all parameters, on this rank."""
        self.optim.pending_clip = None
        for p in self._all():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                with on(p.device):
                    p.grad.zero_()

    # The state.

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the whole state on rank `to`, for its `state_dict()`; all ranks call this.

        Raises:
            ValueError: no such rank.
        """
        if not 0 <= to < self.world_size:
            raise ValueError(f"consolidate_state_dict(): no rank {to} among {self.world_size}")
        index = {p: i for i, p in enumerate(self._all())}
        mine = {
            index[p]: {name: _to_numpy(value) for name, value in entry.items()}
            for p, entry in self.optim.state.items()
        }
        found: list | None = [mine] * self.world_size if self.rank == to else None
        if self.world_size > 1:
            gather_object(mine, found, group=self.process_group, group_dst=to)
        if found is not None:
            state = {i: entry for shard in found for i, entry in shard.items()}
            self._full_state = {i: _to_tensors(state[i]) for i in sorted(state)}

    def state_dict(self) -> dict[str, Any]:
        """Returns the whole state in the format of `optimizer_class`, for any number of ranks.

        Raises:
            RuntimeError: `consolidate_state_dict()` wasn't called since the last step, or to another rank.
        """
        self._run_hooks("before saving")
        if self._full_state is None:
            raise RuntimeError(
                f"state_dict(): rank {self.rank} doesn't have the whole state; call "
                f"consolidate_state_dict(to={self.rank}) on all ranks before"
            )
        index = {p: i for i, p in enumerate(self._all())}
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        state = {i: dict(entry) for i, entry in self._full_state.items()}
        return self._run_hooks("after saving", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads this rank's shard of a whole state, which any number of ranks may have saved.

        Raises:
            ValueError: other groups or parameters; see `Optimizer.load_state_dict`.
        """
        state_dict = self._run_hooks("before loading", dict(state_dict))
        saved = state_dict["param_groups"]
        check_sizes(self.param_groups, saved)
        keys = [key for group in saved for key in group["params"]]
        key_of = dict(zip(self._all(), keys, strict=True))
        mine = [p for params in self._shards[self.rank] for p in params]
        state = {
            i: state_dict["state"][key_of[p]] for i, p in enumerate(mine) if key_of[p] in state_dict["state"]
        }
        local, start = [], 0
        for group, params in zip(saved, self._shards[self.rank], strict=True):
            options = {name: value for name, value in group.items() if name != "param_names"}
            local.append({**options, "params": list(range(start, start + len(params)))})
            start += len(params)
        self.optim.load_state_dict({"state": state, "param_groups": local})
        self.state = self.optim.state
        for group, other in zip(self.param_groups, saved, strict=True):
            group.update(copied({name: value for name, value in other.items() if name != "params"}))
        self._full_state = None
        self._run_hooks("after loading")

    def __getstate__(self) -> dict[str, Any]:
        raise RuntimeError(
            "ZeroRedundancyOptimizer can't be copied or pickled: this rank has a shard of the state; call "
            "consolidate_state_dict() and state_dict()"
        )

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


class _JoinedOptimizer(JoinHook):
    def __init__(self, optimizer: ZeroRedundancyOptimizer):
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()


def partition(groups: list[ParamGroup], ranks: int) -> list[list[list[Tensor]]]:
    """Returns the parameters by rank and group: largest first, each to the rank with the fewest elements."""
    owner, loads = {}, [0] * ranks
    for group in groups:
        for p in sorted(group["params"], key=lambda p: -p.data.size):  # stable: alike on all ranks
            owner[p] = loads.index(min(loads))
            loads[owner[p]] += p.data.size
    return [[[p for p in group["params"] if owner[p] == rank] for group in groups] for rank in range(ranks)]


def _with_params(group: ParamGroup, params: list[Tensor]) -> ParamGroup:
    """Returns the group with some of its parameters, and their names."""
    shard = {**group, "params": params}
    if "param_names" in group:
        name_of = dict(zip(group["params"], group["param_names"], strict=True))
        shard["param_names"] = [name_of[p] for p in params]
    return shard


def _to_numpy(value: object) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _to_tensors(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: Tensor(Array(v)) if hasattr(v, "dtype") else v for name, v in entry.items()}
