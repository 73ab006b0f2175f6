"""Fused updates: kernels that update flat vectors in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..backends.device import RawArray, device
from ..backends.dtypes import is_half
from ..core.tensor import Tensor, raw_of
from ..nn.functional.composite import Unsupported, use_fused
from ..nn.fused_ops import registry


def why_not(kernel: str | None, dtype: np.dtype, target: device) -> str:
    """Returns why no kernel can update such parameters; "" if one can.

    Args:
        kernel: the file of the kernel in the folders of `nn.fused_ops`, or None.
    """
    if kernel is None:
        return "it has no kernel"
    if dtype != np.float32 and not is_half(dtype):
        return f"its kernel computes in float32, and there are {dtype} parameters"
    return registry.why_not(target.type)


def find(kernel: str | None, dtype: np.dtype, target: device, fused: bool | None) -> Callable | None:
    """Returns the function that updates in one pass; None if it isn't wanted or isn't available.

    Args:
        fused: True demands it, False forbids it, None follows `use_fused`.

    Raises:
        Unsupported: it is demanded, and isn't available.
    """
    if fused is False or not (fused or use_fused.default):
        return None
    try:
        if reason := why_not(kernel, dtype, target):
            raise Unsupported(reason)
        module = registry.load(target.type, kernel)
        module.require_dtypes(np.empty(0, dtype))
    except Unsupported:
        if fused:
            raise
        return None
    return module.update


class Clip(NamedTuple):
    """What `Optimizer.clip_grad_norm` leaves to the next step."""

    max_norm: float
    total_norm: Tensor  # of the gradients as they are stored: of scaled ones if there is a grad_scale


class Scaling:
    """The factors by which an update multiplies the gradients.

        g <- g / grad_scale                                             stays so in `.grad`, as in PyTorch
        g <- g min(1, max_norm / (total_norm / grad_scale + 1e-6))      for this update only

    Nothing is updated if `found_inf` isn't 0.

    Args:
        grad_scale, found_inf: numbers, or tensors of one element; None for 1 and 0.
    """

    def __init__(
        self, grad_scale: float | Tensor | None = None, found_inf: float | Tensor | None = None,
        clip: Clip | None = None,
    ):  # fmt: skip
        self.grad_scale, self.found_inf, self.clip = grad_scale, found_inf, clip

    def skips(self) -> bool:
        """Returns whether nothing is to be updated; waits if only a GPU knows."""
        return self.found_inf is not None and float(self.found_inf) != 0

    def factors(self) -> tuple[float, float]:
        """Returns the factor that stays in the gradients and the one for this update; may wait for a GPU."""
        scale = 1.0 if self.grad_scale is None else float(self.grad_scale)
        if scale == 0:
            raise ValueError("grad_scale is 0: gradients can't be divided by it")
        unscale = 1 / scale
        if self.clip is None:
            return unscale, 1.0
        factor = self.clip.max_norm / (float(self.clip.total_norm) * unscale + 1e-6)
        return unscale, 1.0 if factor >= 1 else factor

    def factors_on(self, target: device) -> tuple[RawArray | None, RawArray | None, RawArray | None, float]:
        """Returns what a kernel on a GPU computes them from, without waiting.

        Returns:
            grad_scale, found_inf and total_norm, each an array of one float32 on the GPU or None; max_norm.
        """
        norm, max_norm = (None, 1.0) if self.clip is None else (self.clip.total_norm, self.clip.max_norm)
        return (*[_one_float32(x, target) for x in (self.grad_scale, self.found_inf, norm)], max_norm)

    def count_on(self, target: device) -> int | RawArray:
        """Returns by how much an update is counted: 0 if nothing is updated, which only a GPU may know."""
        return 1 if self.found_inf is None else _one_float32(self.found_inf, target) == 0


def _one_float32(x: float | Tensor | None, target: device) -> RawArray | None:
    return None if x is None else raw_of(x, target).astype(np.float32, copy=False).reshape(1)
