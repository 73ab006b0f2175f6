"""GradScaler: scales losses, unscales gradients, and skips the steps whose gradients aren't finite.

How the scale changes is in `loss_scale.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ..backends.device import RawArray, device, device_of, move, on
from ..backends.door import in_force, processes
from ..core.tensor import Tensor, from_raw
from ..nn.fused_ops.cast import unscale_and_check
from ..nn.utils.clip_grad import grad_vectors
from ..optim.optimizer import Optimizer
from .loss_scale import REASON, LossScale

if TYPE_CHECKING:
    from .mixed_precision import MixedPrecisionOptimizer

AnyOptimizer: TypeAlias = "Optimizer | MixedPrecisionOptimizer"
Losses = TypeVar("Losses")  # a Tensor, or nested lists and tuples of Tensors

READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


class GradScaler:
    """Scales losses, unscales gradients, and skips steps whose gradients aren't finite.

        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)      # only to clip or read the gradients; else step() does it
        scaler.step(optimizer)
        scaler.update()

    Only `get_scale()`, `state_dict()`, every hundredth `update()`, and optimizers that can't skip a step by
    themselves synchronize with a GPU. A step is skipped on all ranks if one of them found an inf or NaN.
    `update` raises after 20 such steps in a row at the smallest scale.

    Args:
        device: ignored, for PyTorch's signature; the scale is on the device of the first loss.
        init_scale: the first scale.
        growth_factor: above 1.
        backoff_factor: below 1.
        growth_interval: steps without inf or NaN after which the scale grows.
        enabled: if False, only `optimizer.step()` has an effect.
        min_scale, max_scale: bounds of the scale.
        group: the processes that skip together; all if None.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, device: str | device | None = None, init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True, *,
        min_scale: float = 1.0, max_scale: float = 2.0**24, group: object = None,
    ):
        self.loss_scale = LossScale(
            init_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale
        )
        self._enabled, self._group = enabled, group
        self._stages: dict[int, str] = {}
        self._found: dict[int, dict[device, RawArray]] = {}  # by optimizer and device: one float32, 1 for inf

    def scale(self, outputs: Losses) -> Losses:
        """Returns the loss, or nested lists and tuples of losses, times the scale, in float32 at least."""
        if not self._enabled:
            return outputs
        in_force().once("the scale of a GradScaler, which changes: compile the model")
        if isinstance(outputs, Tensor):
            return outputs * from_raw(self.loss_scale.raw_on(outputs.device).reshape(()))
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        raise TypeError(f"scale(): expected a Tensor or a list of Tensors, got {type(outputs).__name__}")

    def unscale_(self, optimizer: AnyOptimizer) -> None:
        """Divides the optimizer's gradients by the scale, in place, and checks for inf and NaN.

        Raises:
            RuntimeError: it was called already since the last `update()`.
            ValueError: float16 gradients, which can't hold the result: use a `MixedPrecisionOptimizer`.
        """
        if not self._enabled:
            return
        in_force().once("unscales of a GradScaler: compile the model")
        stage = self._stages.get(id(optimizer), READY)
        if stage == UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if stage == STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._stages[id(optimizer)] = UNSCALED
        found = self._found[id(optimizer)] = {}
        if hasattr(optimizer, "collect_grads"):  # it divides in float32, with the update
            optimizer.collect_grads(self._found_on(found, optimizer.device))
            optimizer.grad_scale = from_raw(self.loss_scale.raw_on(optimizer.device).reshape(()))
        else:
            for raw in grads_of(optimizer):
                target = device_of(raw)
                with on(target):
                    inverse = np.divide(1, self.loss_scale.raw_on(target), dtype=np.float32)
                    _unscale(raw, inverse, self._found_on(found, target))
        for flag in found.values():
            self._reduce(flag)

    def _reduce(self, flag: RawArray) -> None:
        """Sets the flag on all processes of the group if it is set on one; without processes that is it."""
        group = processes.group if self._group is None else self._group
        if processes.group is not None and hasattr(group, "share_flag"):  # else this process isn't in it
            group.share_flag(flag)

    def step(self, optimizer: AnyOptimizer, *args: Any, **kwargs: Any) -> Any:
        """Calls `optimizer.step(*args, **kwargs)` with unscaled gradients, unless one is inf or NaN.

        Returns:
            The result of the optimizer's step; None if it was skipped.

        Raises:
            RuntimeError: it was called already since the last `update()`, or with a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        in_force().once("steps of a GradScaler: compile the model")
        if args or "closure" in kwargs:
            raise RuntimeError("step(): a closure can't be used, since it would run with another scale")
        if self._stages.get(id(optimizer)) == STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if self._stages.get(id(optimizer), READY) == READY:
            self.unscale_(optimizer)
        self._stages[id(optimizer)] = STEPPED
        found = self._any(self._found[id(optimizer)])
        if found is None:
            raise RuntimeError("step(): no parameter of this optimizer has a gradient")
        if not getattr(optimizer, "_step_supports_amp_scaling", False):
            return None if found.item() else optimizer.step(**kwargs)
        optimizer.found_inf = from_raw(found.reshape(()))
        try:
            return optimizer.step(**kwargs)
        finally:
            optimizer.found_inf = None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Updates the scale: smaller after an inf or NaN since the last update, larger after many good steps.

        Args:
            new_scale: the new scale, whatever was found.

        Raises:
            RuntimeError: no step or `unscale_` since the last `update()`.
            FloatingPointError: 20 steps in a row were skipped at the smallest scale.
        """
        if not self._enabled:
            return
        in_force().once("updates of a GradScaler: compile the model")
        if new_scale is not None:
            self.loss_scale.set(float(new_scale))
        else:
            flags = [flag for found in self._found.values() for flag in found.values()]
            if not flags:
                raise RuntimeError("update(): no inf checks were recorded prior to update")
            self.loss_scale.update(self._any(dict(enumerate(flags))))
        self._stages.clear()
        self._found.clear()
        self.loss_scale.check_stuck(self._reason)

    def _reason(self) -> str:
        return REASON

    def found_inf(self, optimizer: AnyOptimizer) -> bool:
        """Returns whether the last `unscale_` or `step` before `update()` found inf or NaN; synchronizes."""
        found = self.flag_of(optimizer)
        return found is not None and bool(found.item())

    def flag_of(self, optimizer: AnyOptimizer) -> RawArray | None:
        """Returns the same as an array of one float32, without synchronizing; None before any check."""
        return self._any(self._found.get(id(optimizer), {}))

    def get_scale(self) -> float:
        """Returns the scale; 1 if the scaler isn't enabled."""
        return self.loss_scale.get() if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        return self.loss_scale.growth_factor

    def get_backoff_factor(self) -> float:
        return self.loss_scale.backoff_factor

    def get_growth_interval(self) -> int:
        return self.loss_scale.growth_interval

    def set_growth_factor(self, new_factor: float) -> None:
        self.loss_scale.growth_factor = float(new_factor)

    def set_backoff_factor(self, new_factor: float) -> None:
        self.loss_scale.backoff_factor = float(new_factor)

    def set_growth_interval(self, new_interval: int) -> None:
        self.loss_scale.growth_interval = new_interval

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Returns scale, factors and the steps since the last change, in PyTorch's format."""
        return self.loss_scale.state_dict() if self._enabled else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a `state_dict()`.

        Raises:
            RuntimeError: the state is empty, that of a scaler that isn't enabled.
            ValueError: a value isn't a number, or outside its range.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("load_state_dict(): the state is empty, of a GradScaler that was not enabled")
        self.loss_scale.load_state_dict(state_dict)

    def _found_on(self, found: dict[device, RawArray], target: device) -> RawArray:
        if target not in found:
            with on(target):
                found[target] = np.zeros_like(self.loss_scale.raw_on(target))
        return found[target]

    def _any(self, found: Mapping[Hashable, RawArray]) -> RawArray | None:
        """Returns one flag, set if any of these is set; None without flags."""
        flags = list(found.values())
        for flag in flags[1:]:
            target = device_of(flags[0])
            with on(target):
                flags[0] = np.maximum(flags[0], move(flag, target))
        return flags[0] if flags else None


def grads_of(optimizer: Optimizer) -> list[RawArray]:
    """Returns the gradients as raw arrays, in few long vectors where they lie in flat buffers."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p in params:
        if p.grad is not None and p.dtype == np.float16:
            raise ValueError("Attempting to unscale FP16 gradients: wrap it in a MixedPrecisionOptimizer.")
    return grad_vectors(dict.fromkeys(params))


def _unscale(raw: RawArray, inverse: RawArray, found: RawArray) -> None:
    if raw.dtype == np.float32 and raw.flags.c_contiguous:
        unscale_and_check(raw.reshape(-1), inverse, found)
        return
    with np.errstate(all="ignore"):
        np.multiply(raw, inverse.reshape(()), out=raw, casting="same_kind")
        np.maximum(found, (~np.isfinite(raw)).any(), out=found)
