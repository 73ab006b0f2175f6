"""Optimizer: parameter groups, state, and the walk over flat parameters that every update formula shares."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from ..backends.device import CPU, on, refuse_capture
from ..core.array import Array
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..nn.functional.composite import Unsupported
from ..nn.utils import clip_grad
from . import fused
from .chunk import Chunk
from .flat import Flat, FlatGroup
from .fused import Clip, Scaling
from .hooks import Hooked
from .options import as_numbers
from .param_groups import check_param, names_of, params_of


class Optimizer(Hooked):
    """Parameters in groups, with options for each group and state for each parameter.

    An optimizer is `state_names` (what it keeps) and `update` (its formula, on raw arrays). Some have a
    `kernel` beside it, which does the same in one pass over memory, for float32 and half precision. One that
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
    kernel: str | None = None  # the file in `nn.fused_ops` whose update() does the same in one pass

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if {"update", "prepare"} & {*cls.__dict__} and "kernel" not in cls.__dict__:
            cls.kernel = None  # another formula than the one that the kernel knows

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
        self._clip: Clip | None = None
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
        group.update(params_of(group["params"]))
        for name, default in self.defaults.items():
            group.setdefault(name, default)
        params = group["params"]
        for p in params:
            check_param(p)
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
        for laid_out, flat in self._lay_out():
            if laid_out is group:
                self._fused_update(group, flat)  # which says so if it can't be had

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

        A gradient scaler may set two attributes before, numbers or tensors of one: gradients are divided by
        `grad_scale`, in place, and nothing is updated if `found_inf` isn't 0. A fused update on a GPU doesn't
        wait to see it.

        Args:
            closure: computes the loss and its gradients again; called first, and its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        scaling = Scaling(getattr(self, "grad_scale", None), getattr(self, "found_inf", None), self._clip)
        self._clip = None
        for group, flat in self._lay_out():
            with on(flat.device), np.errstate(all="ignore"):
                self._step_flat(group, flat, scaling)
        return loss

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether step() does that; the name is PyTorch's."""
        return type(self).step is Optimizer.step

    def _step_flat(self, group: dict[str, Any], flat: Flat, scaling: Scaling) -> None:
        update = self._fused_update(group, flat)
        there = update is not None and flat.device is not CPU and (flat.counts_there or flat.has_begun())
        if not there:
            refuse_capture("optimizer.step(), whose steps Python counts,")
            if scaling.skips():
                return
        options = as_numbers(group, lr_stays=there)
        as_floats = update is None or flat.device is CPU
        factors = scaling.factors() if as_floats else scaling.there(flat.device)
        count = scaling.count(flat.device) if there else 1
        flat.collect_grads()
        for first, last in flat.runs():
            step, numbers = flat.begin_update(first, last, self.state, count)
            if update is None:
                step = step if isinstance(step, int) else int(step[0])
                prepared = self.prepare(numbers, step, options)
                for chunk in flat.chunks(first, last, *factors):
                    self.update(chunk, step, prepared)
            else:
                update(*flat.whole(first, last), step, options, factors)
        if scaling.grad_scale is not None:
            flat.return_grads()

    def _fused_update(self, group: dict[str, Any], flat: Flat) -> Callable | None:
        try:
            return fused.find(self.kernel, flat.dtype, flat.device, group.get("fused"))
        except Unsupported as reason:
            raise RuntimeError(f"{type(self).__name__}: fused=True, but {reason}") from None

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """`nn.utils.clip_grad_norm_` for the next step: its update multiplies the gradients as it reads them.

            g min(1, max_norm / (total + 1e-6)),  total = (sum |g|^p)^(1/p)

        So the gradients aren't written, and stay as they are. Call it when they are complete: the factor is
        forgotten with the step, and by `zero_grad()`.

        Args:
            norm_type: p, or inf for the largest |g|.
            error_if_nonfinite: raise if the norm is inf or NaN.

        Returns:
            The norm of all gradients before clipping; divided by `grad_scale`, if that is set.

        Raises:
            RuntimeError: see `error_if_nonfinite`.
            NotImplementedError: this optimizer has its own `step()`, which wouldn't know of it.
        """
        if not self._step_supports_amp_scaling:
            raise NotImplementedError(
                f"{type(self).__name__} defines step() itself; use nn.utils.clip_grad_norm_"
            )
        self._lay_out()
        params = [p for group in self.param_groups for p in group["params"]]
        total = clip_grad.norm_of_grads(params, norm_type, error_if_nonfinite)
        self._clip = Clip(float(max_norm), total)
        scale = getattr(self, "grad_scale", None)
        return total if scale is None else total / scale

    def _lay_out(self) -> list[tuple[dict[str, Any], Flat]]:
        """Each group with its flat parameters, which are laid out again where anything was exchanged."""
        del self._layout[len(self.param_groups) :]
        for i, group in enumerate(self.param_groups):
            params, names = group["params"], self.state_names(group)
            kernel = None if group.get("fused") is False else self.kernel
            if i == len(self._layout) or not self._layout[i].is_current(params, self.state, names, kernel):
                numbers = self.state_numbers(group) if names else {}
                self._layout[i : i + 1] = [
                    FlatGroup(params, self.state, names, numbers, self.by_parameter, kernel)
                ]
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
        self._clip = None
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
            {**self.defaults, **names_of(group), **_copied(other), "params": group["params"]}
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
        self._layout, self._clip = [], None
        self._forget_hooks()

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params")
        return f"{text})"


def _copied(value: Any, where: Any = None) -> Any:
    """A copy of nested containers, with copies of the tensors, on device `where` except for "step"."""
    if isinstance(value, (Tensor, Array)):
        return value.clone() if where is None else value.clone().to(where)
    if isinstance(value, dict):
        return {k: _copied(v, None if k == "step" else where) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(v, where) for v in value)
    return value
