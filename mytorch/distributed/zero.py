"""
ZeroRedundancyOptimizer: every rank keeps the optimizer's state of a part of the parameters.

With N ranks the state (8 bytes a parameter for Adam) takes 1/N of the memory on each. A rank updates its part
of the parameters, and sends it to the others.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020,
https://arxiv.org/abs/1910.02054, section 5.1 (P_os)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..backends.device import on
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor, increment_version
from ..nn.utils import clip_grad
from ..optim.flat import Flat, FlatGroup
from ..optim.fused import Clip
from ..optim.optimizer import Optimizer, _copied
from .collectives import broadcast
from .join import Join, Joinable, JoinHook
from .objects import gather_object
from .world import get_global_rank, get_rank, get_world_size, is_initialized
from .world import group as default_group


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is shared out over the ranks; its updates are those of `optimizer_class`.

    Args:
        params: as for every optimizer, the same on all ranks.
        optimizer_class: the optimizer, AdamW for one.
        process_group: the ranks; all of them if None, or this process alone if there is no group.
        parameters_as_bucket_view: accepted; it is always so.
        overlap_with_ddp: must be False: a step that begins before backward has ended can neither clip by the
            norm of all gradients nor be skipped for an inf in one of them, and saves no memory.
        defaults: options of `optimizer_class`.

    Attributes:
        optim: the optimizer of this rank's part.

    Raises:
        NotImplementedError: `overlap_with_ddp`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = True,
        overlap_with_ddp: bool = False,
        **defaults: Any,
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
        """Share out the parameters, and make the optimizer of this rank's."""
        self._parts = partition(self.param_groups, self.world_size)
        mine = [
            _with_params(group, params)
            for group, params in zip(self.param_groups, self._parts[self.rank], strict=True)
        ]
        self.optim = self._class(mine, **self._options)
        self.defaults = self.optim.defaults
        self._take_options()
        self.state = self.optim.state
        self._others: dict[int, list[FlatGroup]] = {}
        for rank in range(self.world_size):  # before the first gradients: all ranks reduce them alike
            self._flats_of(rank)

    def _take_options(self) -> None:
        """Options that a group doesn't set are those of the optimizer of this rank's part."""
        for group, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in local.items():
                group.setdefault(name, value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, on all ranks; those that were there stay with their ranks.

        Raises:
            TypeError, ValueError: see `Optimizer`.
        """
        optim, self.optim = self.optim, None  # what follows is about the whole group
        try:
            super().add_param_group(param_group)
        finally:
            self.optim = optim
        if optim is not None:
            self._parts = partition(self.param_groups, self.world_size)
            optim.add_param_group(_with_params(self.param_groups[-1], self._parts[self.rank][-1]))
            self._take_options()
            self._full_state = None
            self._lay_out()

    def exchange_parameters(self) -> None:
        """Begin again with what is in the groups now: the float32 copies of mixed precision, for one."""
        state = self.state
        self._make()
        mine = {p for params in self._parts[self.rank] for p in params}
        self.optim.state.update({p: entry for p, entry in state.items() if p in mine})
        self.optim._lay_out()

    def _lay_out(self) -> list[tuple[dict[str, Any], Flat]]:
        if self.optim is None:
            return []
        return [(group, flat) for rank in range(self.world_size) for group, flat in self._flats_of(rank)]

    def _flats_of(self, rank: int) -> list[tuple[dict[str, Any], Flat]]:
        """The vectors of a rank's part with their groups, laid out alike on all ranks."""
        if rank == self.rank:
            return self.optim._lay_out()
        groups = self._others.setdefault(rank, [])
        parts = self._parts[rank]
        if len(groups) != len(parts) or not all(
            [laid.is_current(params, {}, (), None) for laid, params in zip(groups, parts, strict=True)]
        ):
            groups[:] = [FlatGroup(params, {}, (), {}) for params in parts]
        return [
            (group, flat)
            for group, laid in zip(self.param_groups, groups, strict=True)
            for flat in laid.flats
        ]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's part, and receive the others'."""
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
            self._send_parts()
        return loss

    def _send_parts(self) -> None:
        """Give every rank the new values of the others' parts."""
        works = [
            broadcast(flat.data, get_global_rank(self.process_group, rank), self.process_group, async_op=True)
            for rank in range(self.world_size)
            for _, flat in self._flats_of(rank)
        ]
        for work in works:
            work.wait()
        for rank, parts in enumerate(self._parts):
            if rank != self.rank:
                for p in [p for params in parts for p in params]:
                    increment_version(p)  # a graph that needs the old values must notice

    def _pass_options(self) -> None:
        for group, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            local.update({name: group[name] for name in group if name not in ("params", "param_names")})

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.optim._step_supports_amp_scaling

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """On a rank without data: update its part by the gradients that DistributedDataParallel brought.

        They aren't clipped: the others' calls of `clip_grad_norm` are nothing that it could see.
        """
        return _JoinedOptimizer(self)

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """As every optimizer's; the gradients must have been averaged, so that all ranks have them all."""
        params = [p for group in self.param_groups for p in group["params"]]
        total = clip_grad.norm_of_grads(params, norm_type, error_if_nonfinite)
        self.optim._clip = Clip(float(max_norm), total)
        scale = getattr(self, "grad_scale", None)
        return total if scale is None else total / scale

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, of all parameters."""
        self.optim._clip = None
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p._grad is None:
                    p._grad = None
                else:
                    with on(p.device):
                        p._grad.zero_()

    # The state.

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the whole state to rank `to`, for its `state_dict()`; all ranks call this.

        Raises:
            ValueError: there is no such rank.
        """
        if not 0 <= to < self.world_size:
            raise ValueError(f"consolidate_state_dict(): there is no rank {to} among {self.world_size}")
        number = {p: i for i, p in enumerate(self._all())}
        mine = {
            number[p]: {name: _to_numpy(value) for name, value in entry.items()}
            for p, entry in self.optim.state.items()
        }
        found: list | None = [mine] * self.world_size if self.rank == to else None
        if self.world_size > 1:
            gather_object(mine, found, group=self.process_group, group_dst=to)
        if found is not None:
            state = {i: entry for part in found for i, entry in part.items()}
            self._full_state = {i: _to_tensors(state[i]) for i in sorted(state)}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as `optimizer_class` alone would give it: for any number of ranks.

        Raises:
            RuntimeError: `consolidate_state_dict()` wasn't called since the last step, or to another rank.
        """
        self._run_hooks("before saving")
        if self._full_state is None:
            raise RuntimeError(
                f"state_dict(): rank {self.rank} doesn't have the whole state; call "
                f"consolidate_state_dict(to={self.rank}) on all ranks before"
            )
        number = {p: i for i, p in enumerate(self._all())}
        groups = [{**group, "params": [number[p] for p in group["params"]]} for group in self.param_groups]
        state = {i: dict(entry) for i, entry in self._full_state.items()}
        return self._run_hooks("after saving", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's part of a whole state, of any number of ranks.

        Raises:
            ValueError: other groups or parameters; see `Optimizer.load_state_dict`.
        """
        state_dict = self._run_hooks("before loading", dict(state_dict))
        saved = state_dict["param_groups"]
        ours, theirs = ([len(g["params"]) for g in groups] for groups in (self.param_groups, saved))
        if ours != theirs:
            raise ValueError(
                f"the groups of the loaded state dict have {theirs} parameters, the optimizer's {ours}"
            )
        keys = [key for group in saved for key in group["params"]]
        key_of = dict(zip(self._all(), keys, strict=True))
        mine = [p for params in self._parts[self.rank] for p in params]
        state = {
            i: state_dict["state"][key_of[p]] for i, p in enumerate(mine) if key_of[p] in state_dict["state"]
        }
        local, start = [], 0
        for group, params in zip(saved, self._parts[self.rank], strict=True):
            options = {name: value for name, value in group.items() if name != "param_names"}
            local.append({**options, "params": list(range(start, start + len(params)))})
            start += len(params)
        self.optim.load_state_dict({"state": state, "param_groups": local})
        self.state = self.optim.state
        for group, other in zip(self.param_groups, saved, strict=True):
            group.update(_copied({name: value for name, value in other.items() if name != "params"}))
        self._full_state = None
        self._run_hooks("after loading")

    def __getstate__(self) -> dict[str, Any]:
        raise RuntimeError(
            "ZeroRedundancyOptimizer can't be copied or pickled: this rank has a part of the state; call "
            "consolidate_state_dict() and state_dict()"
        )

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


class _JoinedOptimizer(JoinHook):
    def __init__(self, optimizer: ZeroRedundancyOptimizer):
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()


def partition(groups: list[dict[str, Any]], ranks: int) -> list[list[list[Tensor]]]:
    """Parameters by rank and group: group after group, the largest first, each to the rank with the least."""
    owner, loads = {}, [0] * ranks
    for group in groups:
        for p in sorted(group["params"], key=lambda p: -p.data.size):  # stable: alike on all ranks
            owner[p] = loads.index(min(loads))
            loads[owner[p]] += p.data.size
    return [[[p for p in group["params"] if owner[p] == rank] for group in groups] for rank in range(ranks)]


def _with_params(group: dict[str, Any], params: list[Tensor]) -> dict[str, Any]:
    """The group with some of its parameters only, under their names."""
    part = {**group, "params": params}
    if "param_names" in group:
        name_of = dict(zip(group["params"], group["param_names"], strict=True))
        part["param_names"] = [name_of[p] for p in params]
    return part


def _to_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _to_tensors(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: Tensor(value) if hasattr(value, "dtype") else value for name, value in entry.items()}
