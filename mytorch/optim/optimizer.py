"""Optimizer: parameter groups, state, and the walk over flat parameters that every update formula shares."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from .._array import Array
from ..autograd.grad_mode import enable_grad
from ..device import on
from ..tensor import Tensor
from .chunk import Chunk
from .flat import Flat, FlatGroup
from .hooks import Hooked
from .options import as_number


class Optimizer(Hooked):
    """Parameters in groups, with options for each group and state for each parameter.

    An optimizer is `state_names` (what it keeps) and `update` (its formula, on raw arrays). One that
    overrides `step` instead and fills `self.state[p]` itself, as PyTorch's do, works as well.

    The values of the parameters move into flat vectors (see `flat`): an Array or a detached tensor that was
    taken from a parameter before the optimizer was made keeps the old memory, so take it after.

    Args:
        params: Tensors, or (name, Tensor) pairs, or dicts `{"params": [...], "lr": ...}`, one for each group.
        defaults: the options of a group that doesn't set its own.

    Attributes:
        param_groups: the groups, dicts of options and "params"; they may be changed between two steps.
        state: a dict of tensors (and numbers) for each parameter that has been updated.

    Raises:
        TypeError: something in `params` is no Tensor, or they are in a set, which has no order.
        ValueError: there are no parameters, one is in two groups, or one is the result of an operation.
    """

    by_parameter = False  # update() gets each parameter in its shape, rather than pieces of one long vector

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        if isinstance(params, (Tensor, Array)):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got one {type(params).__name__}"
            )
        if defaults.get("differentiable"):
            raise ValueError(
                "differentiable=True: an update can't be differentiated; use differentiable=False"
            )
        if defaults.get("fused") and defaults.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._layout: list[FlatGroup] = []
        self._forget_hooks()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group `{"params": [...], option: value}`, for parameters that begin to be trained later.

        Raises:
            TypeError, ValueError: see the class.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = param_group
        group.update(_params_of(group["params"]))
        for name, default in self.defaults.items():
            group.setdefault(name, default)
        params = group["params"]
        for p in params:
            _check_param(p)
        if len(params) != len(set(params)):
            warnings.warn(
                "a parameter group with duplicate parameters: each is updated once a step", stacklevel=3
            )
        others = set(chain.from_iterable(g["params"] for g in self.param_groups))
        if not others.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        if any(("param_names" in g) != ("param_names" in group) for g in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if 'param_names' in group else 'without'} names to the optimizer"
            )
        self.param_groups.append(group)
        self._lay_out()

    # What an optimizer defines.

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The tensors in a parameter's state, each shaped as the parameter; they begin as zeros."""
        return ()

    def state_numbers(self, group: dict[str, Any]) -> dict[str, float]:
        """The numbers beside them, with what they begin with; "step" counts the updates."""
        return {"step": 0.0}

    def prepare(self, numbers: dict[str, Any], step: int, group: dict[str, Any]) -> dict[str, Any]:
        """What is the same for all elements of an update; the result is the `group` that `update` gets.

        Args:
            numbers: those of the parameters that are updated together, by name: float32 vectors of equal
                numbers, to be written in place (except for "step", which is counted already).
        """
        return group

    def update(self, x: Chunk, step: int, group: dict[str, Any]) -> None:
        """Change `x.data` and `x.state` in place by the gradient `x.grad`, which is left as it is.

        Args:
            x: a piece of the flat parameters, or one parameter if `by_parameter`.
            step: 1 for the first update of these parameters, then 2, 3, … (without a "step": then > 1).
            group: the options, as Python numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither update() nor step()")

    # What is the same for all.

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: computes the loss and its gradients again; called first, and its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group, flat in self._lay_out():
            options = {name: as_number(value) for name, value in group.items()}
            with on(flat.device), np.errstate(all="ignore"):
                flat.collect_grads()
                for first, last in flat.runs():
                    step, numbers = flat.begin_update(first, last, self.state)
                    prepared = self.prepare(numbers, step, options)
                    for chunk in flat.chunks(first, last):
                        self.update(chunk, step, prepared)
        return loss

    def _lay_out(self) -> list[tuple[dict[str, Any], Flat]]:
        """Each group with its flat parameters, which are laid out again where anything was exchanged."""
        del self._layout[len(self.param_groups) :]
        for i, group in enumerate(self.param_groups):
            params, names = group["params"], self.state_names(group)
            if i == len(self._layout) or not self._layout[i].is_current(params, self.state, names):
                numbers = self.state_numbers(group) if names else {}
                self._layout[i : i + 1] = [FlatGroup(params, self.state, names, numbers, self.by_parameter)]
        return [
            (group, flat)
            for group, laid in zip(self.param_groups, self._layout, strict=True)
            for flat in laid.flats
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients.

        Args:
            set_to_none: make each `.grad` None; else fill it with zeros, and a parameter that gets no further
                gradient is still updated (by momentum, by weight decay).
        """
        if set_to_none:
            for group in self.param_groups:
                for p in group["params"]:
                    p._grad = None
        else:
            for _, flat in self._lay_out():
                with on(flat.device):
                    flat.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Options and state, with a number for each parameter: what a checkpoint needs, in PyTorch's format.

            {"state": {0: {"step": …, "exp_avg": …}, …}, "param_groups": [{"lr": …, "params": [0, …]}, …]}

        The tensors are the optimizer's own: save or copy them before the next step.
        """
        self._run_hooks("before saving")
        number: dict[Tensor, int] = {}
        groups = []
        for group in self.param_groups:
            indices = [number.setdefault(p, len(number)) for p in group["params"]]
            groups.append({**group, "params": indices})
        state = {number[k] if isinstance(k, Tensor) else k: dict(v) for k, v in self.state.items()}
        return self._run_hooks("after saving", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a copy of the options and the state that `state_dict()` returned.

        Parameters are known by their place in the groups, not by name. An option that isn't in it gets its
        default.

        Raises:
            ValueError: there are other numbers of groups or of parameters, or a tensor doesn't have the shape
                of its parameter. The optimizer is then as it was.
        """
        state_dict = self._run_hooks("before loading", dict(state_dict))
        saved = state_dict["param_groups"]
        ours, theirs = ([len(g["params"]) for g in groups] for groups in (self.param_groups, saved))
        if len(ours) != len(theirs):
            raise ValueError(
                f"the loaded state dict has {len(theirs)} parameter groups, the optimizer {len(ours)}"
            )
        if ours != theirs:
            raise ValueError(
                f"the groups of the loaded state dict have {theirs} parameters, the optimizer's {ours}"
            )
        params = {}
        for group, other in zip(self.param_groups, saved, strict=True):
            params.update(zip(other["params"], group["params"], strict=True))
        before = self.state, self.param_groups
        self.state = defaultdict(dict)
        for key, entry in state_dict["state"].items():
            p = params.get(key)
            self.state[key if p is None else p] = _copied(entry, None if p is None else p.device)
        self.param_groups = [
            {**self.defaults, **_names_of(group), **_copied(other), "params": group["params"]}
            for group, other in zip(self.param_groups, saved, strict=True)
        ]
        try:
            self._lay_out()
        except ValueError:
            self.state, self.param_groups = before
            raise
        self._run_hooks("after loading")

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": dict(self.state), "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state = defaultdict(dict, self.state)
        self._layout = []
        self._forget_hooks()

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params")
        return f"{text})"


def _names_of(group: dict[str, Any]) -> dict[str, list]:
    return {name: group[name] for name in ("param_names",) if name in group}


def _params_of(params: Any) -> dict[str, list]:
    """The "params" of a group as a list, and the "param_names" if they came as (name, Tensor) pairs."""
    if isinstance(params, set):
        raise TypeError("parameters in a set have no order that is the same in the next run; use a list")
    params = [params] if isinstance(params, Tensor) else list(params)
    named = [p for p in params if isinstance(p, tuple)]
    if not named:
        return {"params": params}
    if len(named) != len(params):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing: "
            f"{len(params) - len(named)} of {len(params)}"
        )
    return {"params": [p for _, p in named], "param_names": [name for name, _ in named]}


def _check_param(p: Any) -> None:
    if not isinstance(p, Tensor):
        raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
    if not p.is_leaf:
        raise ValueError(f"can't optimize a non-leaf Tensor (shape {p.data.shape}, made by {p.grad_fn.name})")
    if p.requires_grad and p.dtype.kind != "f":
        raise ValueError(f"can't optimize a Tensor of dtype {p.dtype}; only real floating-point ones")


def _copied(value: Any, where: Any = None) -> Any:
    """A copy of nested containers, with copies of the tensors, on device `where` except for "step"."""
    if isinstance(value, (Tensor, Array)):
        return value.clone() if where is None else value.clone().to(where)
    if isinstance(value, dict):
        return {k: _copied(v, None if k == "step" else where) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(v, where) for v in value)
    return value
