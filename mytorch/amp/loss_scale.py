"""
LossScale: the number S by which a loss is multiplied, and how it changes from step to step.

The largest float16 is 65504, the smallest above 0 is 6e-8; many gradients are smaller. So the loss is
multiplied by S before `backward()`, which multiplies every gradient by S; the gradients are divided by S in
float32 before they are used. S is adapted: an inf or NaN halves it, and the step is skipped.

    S <- S * backoff_factor    if a gradient is inf or NaN
    S <- S * growth_factor     after growth_interval steps in a row without one

Source: Micikevicius et al., "Mixed Precision Training", 2018, https://arxiv.org/abs/1710.03740, section 3.2
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.device import RawArray, device, device_of, is_on_host, move, on
from ..optim.options import check_kind

MAX_STUCK = 20  # steps skipped in a row at the smallest scale, after which `check_stuck` raises
LOOK_EVERY = 100  # updates between two checks on a GPU, each of which synchronizes
REASON = "the loss itself, or a weight, is probably not finite"


class LossScale:
    """The scale and its counters, arrays of one element on the device of the loss: see `GradScaler`.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, init_scale: float, growth_factor: float, backoff_factor: float, growth_interval: int,
        min_scale: float, max_scale: float,
    ):
        if not growth_factor > 1:
            raise ValueError(f"growth_factor must be above 1, got {growth_factor}")
        if not 0 < backoff_factor < 1:
            raise ValueError(f"backoff_factor must be between 0 and 1, got {backoff_factor}")
        if growth_interval < 1:
            raise ValueError(f"growth_interval must be at least 1, got {growth_interval}")
        if not 0 < min_scale <= init_scale <= max_scale < math.inf:
            raise ValueError(
                "expected 0 < min_scale <= init_scale <= max_scale, "
                f"got {min_scale}, {init_scale}, {max_scale}"
            )
        self.growth_factor, self.backoff_factor = float(growth_factor), float(backoff_factor)
        self.growth_interval = growth_interval
        self.min_scale, self.max_scale = float(min_scale), float(max_scale)
        self._scale: RawArray = np.full(1, init_scale, np.float32)
        self._good_steps: RawArray = np.zeros(1, np.int64)  # finite steps in a row
        self._stuck: RawArray = np.zeros(1, np.int64)  # steps skipped in a row at the smallest scale
        self._updates = 0

    def raw_on(self, target: device) -> RawArray:
        """Returns the scale as a raw array on a device, to which it moves."""
        if device_of(self._scale) is not target:
            self._scale, self._good_steps = move(self._scale, target), move(self._good_steps, target)
        return self._scale

    def get(self) -> float:
        """Returns the scale; synchronizes with a GPU."""
        return float(self._scale.item())

    def set(self, scale: float) -> None:
        """Sets the scale.

        Raises:
            ValueError: it is outside the bounds.
        """
        if not self.min_scale <= scale <= self.max_scale:
            raise ValueError(f"the scale must be in [{self.min_scale}, {self.max_scale}], got {scale}")
        self._scale = np.full(1, scale, np.float32)

    def update(self, found_inf: RawArray) -> None:
        """Makes the scale smaller after an inf or NaN, and larger after many steps without one.

        Args:
            found_inf: one float32; not 0 if a gradient was inf or NaN.
        """
        target = device_of(found_inf)
        scale = self.raw_on(target)
        self._warn_at_min_scale(found_inf, scale)
        with on(target):
            bad = found_inf != 0
            is_stuck = bad & (scale <= self.min_scale)
            self._stuck = np.where(is_stuck, move(self._stuck, target) + 1, 0)
            good_steps = np.where(bad, 0, move(self._good_steps, target) + 1)
            grows = good_steps == self.growth_interval
            factor = np.where(bad, self.backoff_factor, np.where(grows, self.growth_factor, 1.0))
            scale = np.clip(scale * factor, self.min_scale, self.max_scale)
            self._scale = scale.astype(np.float32)
            self._good_steps = np.where(grows, 0, good_steps)

    def _warn_at_min_scale(self, found_inf: RawArray, scale: RawArray) -> None:
        """Warns that the scale can't become smaller; not on a GPU, which this would synchronize with."""
        if is_on_host(found_inf) and found_inf[0] and scale[0] <= self.min_scale:
            warnings.warn(
                f"gradients are inf or NaN although the loss scale is at its smallest, {self.min_scale:g}: "
                f"{REASON}",
                stacklevel=4,
            )

    def check_stuck(self, reason: Callable[[], str]) -> None:
        """Raises FloatingPointError after 20 skipped steps in a row at the smallest scale.

        Args:
            reason: returns why the gradients are probably not finite.
        """
        self._updates += 1
        if not is_on_host(self._stuck) and self._updates % LOOK_EVERY:
            return
        stuck = int(self._stuck.item())
        if stuck >= MAX_STUCK:
            raise FloatingPointError(
                f"the last {stuck} steps were skipped, since gradients are inf or NaN although the loss "
                f"scale is at its smallest, {self.min_scale:g}; {reason()}"
            )

    def state_dict(self) -> dict[str, Any]:
        """Returns scale, factors and the steps since the last change, in PyTorch's format."""
        return {
            "scale": self.get(), "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor, "growth_interval": self.growth_interval,
            "_growth_tracker": int(self._good_steps.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a `state_dict()`.

        Raises:
            ValueError: a value isn't a number, or outside its range.
        """
        for name, value in self.state_dict().items():
            check_kind(name, value, state_dict[name])
        if state_dict["_growth_tracker"] < 0:
            raise ValueError(f"_growth_tracker must be at least 0, got {state_dict['_growth_tracker']}")
        self.set(state_dict["scale"])
        self.growth_factor = state_dict["growth_factor"]
        self.backoff_factor = state_dict["backoff_factor"]
        self.growth_interval = state_dict["growth_interval"]
        self._good_steps = np.full(1, state_dict["_growth_tracker"], np.int64)
