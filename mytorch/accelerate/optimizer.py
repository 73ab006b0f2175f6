"""AcceleratedOptimizer: an optimizer that steps only when the gradients of a window are complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..backends.device import RawArray, device_of, on
from ..core.tensor import Tensor
from ..nn.fused_ops import norm
from ..nn.utils import clip_grad
from ..optim.optimizer import Optimizer
from .gradient_state import GradientState
from .shared_grad_scaler import SharedScaler
from .stateful import StateDict


class AcceleratedOptimizer(Optimizer):
    """Wraps an optimizer: while gradients accumulate, `step()` and `zero_grad()` do nothing.

    Args:
        optimizer: the wrapped optimizer.
        state: knows when a window is complete.
        scaler: of the losses, for float16; else None.

    Attributes:
        optimizer: the wrapped optimizer, or a MixedPrecisionOptimizer around it.
        step_was_skipped: the last step was skipped, since a gradient was inf or NaN; reading it
            synchronizes with a GPU.
    """

    def __init__(
        self, optimizer: Optimizer | MixedPrecisionOptimizer, state: GradientState,
        scaler: SharedScaler | None = None,
    ):
        self.optimizer, self.gradient_state, self.scaler = optimizer, state, scaler
        self._found_inf: RawArray | None = None
        self._window = 0  # the last window whose gradients were corrected
        self._forget_hooks()
        if scaler is not None:
            scaler.optimizers.append(optimizer)

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)
    _step_supports_amp_scaling = property(lambda self: self.optimizer._step_supports_amp_scaling)

    @property
    def step_was_skipped(self) -> bool:
        return self._found_inf is not None and bool(self._found_inf.item())

    def add_param_group(self, param_group: StateDict) -> None:
        """Adds a group to the optimizer; with mixed precision, of parameters of a prepared model."""
        self.optimizer.add_param_group(param_group)

    def model_parameters(self) -> list[Tensor]:
        """Returns the parameters of the models, not the float32 copies of them that are updated."""
        if isinstance(self.optimizer, MixedPrecisionOptimizer):
            return self.optimizer.parameters()
        return [p for group in self.param_groups for p in group["params"]]

    def finish_window(self) -> None:
        """Divides the gradients of this window by `GradientState.correction`, so that they are means."""
        if self._window == self.gradient_state.windows:
            return
        self._window = self.gradient_state.windows
        correction = self.gradient_state.correction()
        if correction == 1:
            return
        for raw in clip_grad.grad_vectors(self.model_parameters()):
            with on(device_of(raw)), np.errstate(all="ignore"):
                norm.scale(raw, 1 / correction)

    def unscale(self) -> None:
        """Divides the gradients by the loss scale, once; without a scale, casts them to float32."""
        self.finish_window()
        if self.scaler is None:
            if isinstance(self.optimizer, MixedPrecisionOptimizer) and not self.optimizer.is_collected:
                self.optimizer.collect_grads()
        elif not self.scaler.is_unscaled(self.optimizer):
            self.scaler.unscale_(self.optimizer)

    def step(self, closure: Callable[[], Tensor | float] | None = None) -> Tensor | float | None:
        """Updates the parameters, if this micro-batch ends a window."""
        if not self.gradient_state.sync_gradients:
            return None
        if self.scaler is None:
            self.finish_window()
            return self.optimizer.step(closure)
        if closure is not None:
            raise RuntimeError("step(): with mixed precision a closure can't be used")
        self.unscale()
        self._found_inf = self.scaler.flag_of(self.optimizer)
        self.scaler.step(self.optimizer)
        return None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients, if this micro-batch ends a window."""
        if self.gradient_state.sync_gradients:
            self.optimizer.zero_grad(set_to_none)
            if self.scaler is not None:
                self.scaler.discard(self.optimizer)

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clips the unscaled gradients: see `Optimizer.clip_grad_norm`."""
        self.unscale()
        return self.optimizer.clip_grad_norm(max_norm, norm_type, error_if_nonfinite)

    def state_dict(self) -> StateDict:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        self.optimizer.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"
