"""Optimizer: parameter groups, their state in flat buffers, and the step that every update formula shares."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from typing import Any

from ..backends.device import CPU, RawArray, on
from ..backends.door import in_force
from ..backends.float_errors import IGNORE, errors
from ..backends.kinds import refuse_capture
from ..core.array import Array
from ..core.flat_buffer import FlatBuffer
from ..core.grad_mode import _state, enable_grad
from ..core.tensor import Tensor
from ..nn.functional.composite import Unsupported
from ..nn.utils import clip_grad
from .flat_state import FlatState, GroupState
from .param_groups import ParamGroup, Params, check_param, params_of
from .state_dict import SavedState
from .update import Chunk, Clip, Scaling, as_numbers, find_kernel


def _with_hooks(step: Callable) -> Callable:
    """Returns `step` with the calls of its hooks; it is applied to that of every subclass, too."""

    @functools.wraps(step)
    def call(self: SavedState, *args, **kwargs):
        self._stepped = True
        run = step if (stream := _state.stream) is None else stream.recorded_step(self, step)
        if not self._hooks:
            return run(self, *args, **kwargs)
        args = (self, *args)
        for hook in list(self._hooks.get("before step", {}).values()):
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"a step pre hook must return None or a tuple (args, kwargs), got {changed!r}"
                    )
                args, kwargs = changed
        result = run(*args, **kwargs)
        for hook in list(self._hooks.get("after step", {}).values()):
            hook(self, args, kwargs)
        return result

    return call


class Optimizer(SavedState):
    """Parameters in groups, with options for each group and state for each parameter.

    A subclass defines `state_names` (the tensors it keeps) and `update` (its formula, on raw arrays). Some
    have a `kernel`, too, which does the same in one pass over memory, for float32 and half precision. A
    subclass that overrides `step` instead and fills `self.state[p]` itself, as PyTorch's do, works as well.

    The values of the parameters move into flat vectors (see `FlatBuffer`): an Array or a detached tensor that
    was taken from a parameter before the optimizer was made keeps the old memory, so take it afterwards.

    Args:
        params: Tensors, or (name, Tensor) pairs, or a dict `{"params": [...], "lr": ...}` for each group.
        defaults: the options of a group that doesn't set its own.

    Attributes:
        param_groups: the groups, dicts of options and "params"; they may be changed between two steps.
        state: a dict of tensors, among them scalars, for each parameter that has been updated.

    Raises:
        TypeError: something in `params` is no Tensor, or they are in a set, which has no order.
        ValueError: there are no parameters, one is in two groups, or one is the result of an operation.

    >>> layer = nn.Linear(2, 1)
    >>> optimizer = optim.SGD([{"params": [layer.weight], "lr": 0.1}, {"params": [layer.bias]}])
    >>> [group["lr"] for group in optimizer.param_groups]
    [0.1, 0.001]
    """

    by_parameter = False  # update() gets each parameter in its shape, rather than chunks of one long vector
    kernel: str | None = None  # the file in `nn.fused_ops` whose update() does the same in one pass

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)
        if {"update", "prepare"} & {*cls.__dict__} and "kernel" not in cls.__dict__:
            cls.kernel = None  # the kernel computes another formula

    def __init__(self, params: Params, defaults: ParamGroup):
        if isinstance(params, (Tensor, Array)):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got one {type(params).__name__}"
            )
        uncalled = isinstance(params, type) or inspect.isroutine(params)  # `Model`, `model.parameters`
        if uncalled or callable(getattr(params, "parameters", None)):
            why = "whose parentheses are missing" if uncalled else "which is a module"
            raise TypeError(
                f"params argument given to the optimizer is a {type(params).__name__}, {why}; "
                f"pass its parameters: {type(self).__name__}(model.parameters(), …)"
            )
        if defaults.get("differentiable"):
            raise ValueError(
                "differentiable=True: an update can't be differentiated; use differentiable=False"
            )
        if defaults.get("fused") and defaults.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[ParamGroup] = []
        self._group_states: list[GroupState] = []
        self.pending_clip: Clip | None = None
        self._forget_hooks()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Adds a group `{"params": [...], option: value}`, for parameters that are trained from now on.

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
        for its_group, flat in self._flat_states():
            if its_group is group:
                self._fused_update(group, flat)  # raises if fused=True and there is no kernel

    # What a subclass defines.

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        """Returns the tensors in a parameter's state, each shaped as the parameter and initially zero."""
        return ()

    def state_scalars(self, group: ParamGroup) -> dict[str, float]:
        """Returns the scalars in a parameter's state with their initial values; "step" counts the updates."""
        return {"step": 0.0}

    def prepare(self, scalars: dict[str, RawArray], step: int, group: ParamGroup) -> ParamGroup:
        """Returns the `group` that `update` gets, with what is the same for all elements computed once.

        Args:
            scalars: those of the parameters that are updated together, by name: float32 vectors of equal
                elements, to be written in place (except for "step", which is counted already).
        """
        return group

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        """Updates `x.data` and `x.state` in place by the gradient `x.grad`, which is left as it is.

        Args:
            x: a section of the flat parameters, or one parameter if `by_parameter`.
            step: 1 for the first update of these parameters, then 2, 3, … (without a "step": then > 1).
            group: the options, as Python numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither update() nor step()")

    # What all optimizers share.

    @_with_hooks
    def step(self, closure: Callable[[], object] | None = None) -> Any:
        """Updates every parameter that has a gradient.

        A gradient scaler may set two attributes before, numbers or tensors of one element: gradients are
        divided by `grad_scale`, in place, and nothing is updated if `found_inf` isn't 0. A fused update on a
        GPU doesn't wait for it, and with a third, `discards_grads`, doesn't write the gradients.

        Args:
            closure: computes the loss and its gradients; called first, and its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        clip, self.pending_clip = self.pending_clip, None
        scales = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        scaling = Scaling(*scales, clip, not getattr(self, "discards_grads", False))
        token = errors.set(IGNORE)  # inf and NaN are values
        try:
            for group, flat in self._flat_states():
                with on(flat.device):
                    self._step_flat(group, flat, scaling)
        finally:
            errors.reset(token)
        return loss

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether step() divides by `grad_scale` and heeds `found_inf`; the name is PyTorch's."""
        return type(self).step is Optimizer.step

    def _step_flat(self, group: ParamGroup, flat: FlatState, scaling: Scaling) -> None:
        update = self._fused_update(group, flat)
        runs_ahead = (  # Python needn't know the step, nor whether it is skipped
            update is not None and flat.device is not CPU and (flat.counts_on_device or flat.is_initialized())
        )
        if not runs_ahead:
            refuse_capture("optimizer.step(), whose steps Python counts,")
            if scaling.found_inf is not None and float(scaling.found_inf) != 0:  # may wait for a GPU
                return
        options = as_numbers(group, keep_lr=runs_ahead)
        as_floats = update is None or flat.device is CPU
        factors = scaling.factors() if as_floats else scaling.factors_on(flat.device)
        count = scaling.count_on(flat.device) if runs_ahead else 1
        flat.buffer.collect_grads()
        for first, last in flat.uniform_ranges():
            step, scalars = flat.begin_update(first, last, self.state, count)
            if update is None:
                step = step if isinstance(step, int) else int(step[0])
                prepared = self.prepare(scalars, step, options)
                for chunk in flat.chunks(first, last, *factors):
                    self.update(chunk, step, prepared)
            else:
                update(*flat.vectors(first, last), step, options, factors)
        if scaling.grad_scale is not None and scaling.stores:
            flat.buffer.return_grads()

    def _fused_update(self, group: ParamGroup, flat: FlatState) -> Callable | None:
        try:
            return find_kernel(self.kernel, flat.buffer.dtype, flat.device, group.get("fused"))
        except Unsupported as reason:
            raise RuntimeError(f"{type(self).__name__}: fused=True, but {reason}") from None

    def is_capturable(self) -> bool:
        """Returns whether a CUDA graph can repeat a step: a kernel on the GPU counts the steps, the learning
        rates are tensors there, and there are no hooks."""
        on_gpu = [isinstance(group["lr"], Tensor) and group["lr"].is_cuda for group in self.param_groups]
        states = [flat.counts_on_device for _, flat in self._flat_states()]
        return self._step_supports_amp_scaling and not self._hooks and all(on_gpu + states)

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clips as `nn.utils.clip_grad_norm_`, but in the next step, whose update multiplies the gradients:

            g min(1, max_norm / (total + 1e-6)),  total = (sum |g|^p)^(1/p)

        The gradients themselves aren't written. Call it when they are complete: the factor holds for one
        step, and `zero_grad()` discards it.

        Args:
            norm_type: p, or inf for the largest |g|.
            error_if_nonfinite: raise if the norm is inf or NaN.

        Returns:
            The norm of all gradients before clipping; divided by `grad_scale`, if that is set.

        Raises:
            RuntimeError: see `error_if_nonfinite`.
            NotImplementedError: this optimizer has its own `step()`, which would ignore the factor.
        """
        if not self._step_supports_amp_scaling:
            raise NotImplementedError(
                f"{type(self).__name__} defines step() itself; use nn.utils.clip_grad_norm_"
            )
        params = [p for group in self.param_groups for p in group["params"]]
        taken = in_force().norm(self.clip_grad_norm, params, max_norm, norm_type, error_if_nonfinite)
        if taken is not None:
            return taken
        self._flat_states()
        total = clip_grad.norm_of_grads(params, norm_type, error_if_nonfinite)
        self.pending_clip = Clip(float(max_norm), total)
        scale = getattr(self, "grad_scale", None)
        return total if scale is None else total / scale

    def flat_buffers(self) -> list[FlatBuffer]:
        """Returns the vectors of parameters, gradients and moments, by group, dtype and device.

        Where another tensor was assigned since the last call, the buffer is a new one.
        """
        return [flat.buffer for _, flat in self._flat_states()]

    def _flat_states(self) -> list[tuple[ParamGroup, FlatState]]:
        states, found = self._group_states, []
        del states[len(self.param_groups) :]
        for i, group in enumerate(self.param_groups):
            if not self._is_current(i, group):
                params, names = group["params"], self.state_names(group)
                kernel = None if group.get("fused") is False else self.kernel
                scalars = self.state_scalars(group) if names else {}
                states[i : i + 1] = [
                    GroupState(params, self.state, names, scalars, self.by_parameter, kernel)
                ]
            for flat in states[i].flats:
                found.append((group, flat))
        return found

    def _is_current(self, i: int, group: ParamGroup) -> bool:
        if i >= len(self._group_states):
            return False
        names, kernel = self.state_names(group), None if group.get("fused") is False else self.kernel
        return self._group_states[i].is_current(group["params"], self.state, names, kernel)

    def is_settled(self) -> bool:
        """Returns whether the next step moves nothing: parameters, gradients and state lie where it has them,
        and it has no hooks."""
        groups = enumerate(self.param_groups)
        return not self._hooks and all([self._is_current(i, group) for i, group in groups])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients.

        Args:
            set_to_none: sets each `.grad` to None; else fills it with zeros, and a parameter that gets no new
                gradient is still updated (by momentum, by weight decay).
        """
        self.pending_clip = None
        if set_to_none:
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad = None
        elif not in_force().zeroes_grads(self, [p for group in self.param_groups for p in group["params"]]):
            for buffer in self.flat_buffers():
                with on(buffer.device):
                    buffer.zero_grad()

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params")
        return f"{text})"
