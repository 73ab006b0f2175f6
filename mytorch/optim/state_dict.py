"""Saving and loading the state of an optimizer, in PyTorch's format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container
from typing import Any

from ..backends.device import device
from ..core.array import Array
from ..core.tensor import Tensor
from .hooks import Hooked
from .options import check_kind
from .param_groups import ParamGroup, check_sizes, names_of


class SavedState(Hooked):
    """The part of `Optimizer` that saves and loads; hooks are called before and after."""

    defaults: ParamGroup
    state: dict[Tensor, dict[str, Any]]
    param_groups: list[ParamGroup]
    state_scalars: Callable[[ParamGroup], dict[str, float]]

    def state_dict(self) -> dict[str, Any]:
        """Returns options and state, with an index for each parameter, in PyTorch's format.

            {"state": {0: {"step": …, "exp_avg": …}, …}, "param_groups": [{"lr": …, "params": [0, …]}, …]}

        The tensors are the optimizer's own: save or copy them before the next step.
        """
        self._run_hooks("before saving")
        index: dict[Tensor, int] = {}
        groups = []
        for group in self.param_groups:
            indices = [index.setdefault(p, len(index)) for p in group["params"]]
            groups.append({**group, "params": indices})
        state = {index[k] if isinstance(k, Tensor) else k: dict(v) for k, v in self.state.items()}
        return self._run_hooks("after saving", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a copy of the options and the state that `state_dict()` returned.

        Parameters are identified by their position in the groups, not by name. A missing option gets its
        default.

        Raises:
            ValueError: the number of groups or of parameters differs, an option isn't a number, or a tensor
                is missing or doesn't have the shape of its parameter. The optimizer is then unchanged.
        """
        state_dict = self._run_hooks("before loading", dict(state_dict))
        saved = state_dict["param_groups"]
        check_sizes(self.param_groups, saved)
        params = {}
        for group, other in zip(self.param_groups, saved, strict=True):
            params.update(zip(other["params"], group["params"], strict=True))
            for name, value in group.items():
                if name != "params":
                    check_kind(name, value, other.get(name, value))
        scalars = {"step"}.union(*map(self.state_scalars, self.param_groups))
        state: dict[Any, dict[str, Any]] = defaultdict(dict)
        for key, entry in state_dict["state"].items():
            p = params.get(key)
            state[key if p is None else p] = copied(entry, None if p is None else p.device, scalars)
        groups = [
            {**self.defaults, **names_of(group), **copied(other), "params": group["params"]}
            for group, other in zip(self.param_groups, saved, strict=True)
        ]
        before = self.state, self.param_groups
        self.state, self.param_groups = state, groups
        try:
            self._flat_states()
        except Exception:
            self.state, self.param_groups = before
            raise
        self._run_hooks("after loading")

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": dict(self.state), "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state = defaultdict(dict, self.state)
        self._group_states, self.pending_clip = [], None
        self._forget_hooks()


def copied(value: object, target: device | None = None, scalars: Container[str] = ()) -> Any:
    """Returns a copy of nested containers and their tensors; all but `scalars` go to `target`.

    The scalars are numbers on the CPU: on the device "meta" they would be lost.
    """
    if isinstance(value, (Tensor, Array)):
        return value.clone() if target is None else value.clone().to(target)
    if isinstance(value, dict):
        return {k: copied(v, None if k in scalars else target, scalars) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(v, target, scalars) for v in value)
    return value
