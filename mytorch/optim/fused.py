"""Fused updates: kernels that take an update through the flat vectors in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..backends.device import device
from ..backends.dtypes import is_half
from ..core.tensor import Tensor, raw_of
from ..nn.functional.composite import Unsupported, use_fused
from ..nn.fused_ops import registry


def why_not(kernel: str | None, dtype: np.dtype, where: device) -> str:
    """Why no kernel can update such parameters; "" if one can.

    Args:
        kernel: the file that holds it in the folders of `nn.fused_ops`, if there is one.
    """
    if kernel is None:
        return "it has no kernel"
    if dtype != np.float32 and not is_half(dtype):
        return f"its kernel computes in float32, and there are {dtype} parameters"
    return registry.why_not(where.type)


def find(kernel: str | None, dtype: np.dtype, where: device, fused: bool | None) -> Callable | None:
    """The function that updates in one pass; None if it isn't wanted, or can't be had.

    Args:
        fused: True demands it, False forbids it, None follows `use_fused`.

    Raises:
        Unsupported: it is demanded, and can't be had.
    """
    if fused is False or not (fused or use_fused.default):
        return None
    try:
        if reason := why_not(kernel, dtype, where):
            raise Unsupported(reason)
        module = registry.load(where.type, kernel)
        module.require_dtypes(np.empty(0, dtype))
    except Unsupported:
        if fused:
            raise
        return None
    return module.update


class Clip(NamedTuple):
    """What `Optimizer.clip_grad_norm` asks of the next step."""

    max_norm: float
    total_norm: Tensor  # of the gradients as they lie, so of scaled ones if there is a grad_scale


class Scaling:
    """What happens to gradients on their way into an update.

        g <- g / grad_scale                                             stays so in `.grad`, as in PyTorch
        g <- g min(1, max_norm / (total_norm / grad_scale + 1e-6))      for this update only

    Nothing at all is updated if `found_inf` isn't 0.

    Args:
        grad_scale, found_inf: numbers, or tensors of one; None for 1 and 0.
    """

    def __init__(self, grad_scale: Any = None, found_inf: Any = None, clip: Clip | None = None):
        self.grad_scale, self.found_inf, self.clip = grad_scale, found_inf, clip

    def skips(self) -> bool:
        """Is nothing to be updated? If only a GPU knows, this waits for it."""
        return self.found_inf is not None and float(self.found_inf) != 0

    def factors(self) -> tuple[float, float]:
        """What gradients are multiplied by for good, and then for the update; may wait for a GPU, too."""
        scale = 1.0 if self.grad_scale is None else float(self.grad_scale)
        if scale == 0:
            raise ValueError("grad_scale is 0: gradients can't be divided by it")
        unscale = 1 / scale
        if self.clip is None:
            return unscale, 1.0
        factor = self.clip.max_norm / (float(self.clip.total_norm) * unscale + 1e-6)
        return unscale, 1.0 if factor >= 1 else factor

    def there(self, where: device) -> tuple[Any, Any, Any, float]:
        """The same for a kernel on a GPU, without waiting.

        Returns:
            grad_scale, found_inf and total_norm, each an array of one float32 there or None; max_norm.
        """
        norm, max_norm = (None, 1.0) if self.clip is None else (self.clip.total_norm, self.clip.max_norm)
        return (*[_single(x, where) for x in (self.grad_scale, self.found_inf, norm)], max_norm)

    def count(self, where: device) -> Any:
        """By how much an update is counted, 0 if nothing is updated: what only a GPU may know."""
        return 1 if self.found_inf is None else _single(self.found_inf, where) == 0


def _single(x: Any, where: device) -> Any:
    """A number as an array of one float32."""
    return None if x is None else raw_of(x, where).astype(np.float32, copy=False).reshape(1)
