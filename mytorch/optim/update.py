"""What an update gets: chunks of the parameters, options as numbers, the gradients' factors, kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..backends.device import CPU, RawArray, device, has_values
from ..backends.dtypes import is_half
from ..core.array import Array
from ..core.tensor import Tensor, raw_of
from ..nn.functional.composite import Unsupported
from ..nn.functional.variant import uses_kernels
from ..nn.fused_ops import registry
from .param_groups import ParamGroup

CHUNK = 1 << 16  # elements: with gradient, state and scratch they stay in the cache
CHUNK_CUDA = 1 << 24  # a GPU wants long vectors; this only bounds the scratch memory


@dataclass(slots=True)
class Chunk:
    """A section of a FlatBuffer, for an update to work on in place.

    Attributes:
        data, grad: parameters and gradients, raw arrays: 1-D, or in a parameter's shape for an optimizer that
            works `by_parameter`; float32 for half-precision parameters. Of complex ones the real and
            imaginary parts, side by side (in a last dim of 2 after a parameter's shape).
        state: the optimizer's vectors by name.
        scratch, spare: as large as `data`, with arbitrary content; `penalized_grad` may use the spare one.
    """

    data: RawArray
    grad: RawArray
    state: dict[str, RawArray]
    scratch: RawArray
    spare: RawArray

    def penalized_grad(self, group: ParamGroup) -> RawArray:
        """Returns grad (-grad if maximize) + weight_decay data, which is not to be written.

        That is the gradient of an L2-penalized loss. If the decay is decoupled, the data shrink by themselves
        instead: data <- (1 - lr weight_decay) data.
        """
        g, maximize, weight_decay = self.spare, group.get("maximize"), group["weight_decay"]
        if weight_decay != 0 and group.get("decoupled_weight_decay"):
            self.data *= 1 - group["lr"] * weight_decay
            weight_decay = 0
        if weight_decay != 0:
            np.multiply(self.data, weight_decay, out=g)
            return np.subtract(g, self.grad, out=g) if maximize else np.add(g, self.grad, out=g)
        return np.negative(self.grad, out=g) if maximize else self.grad

    def average(self, mean: RawArray, g: RawArray, beta: float) -> None:
        """mean <- beta mean + (1 - beta) g, in place; uses the scratch."""
        np.subtract(g, mean, out=self.scratch)  # mean + (1 - beta) (g - mean) is the same
        self.scratch *= 1 - beta
        mean += self.scratch

    def average_square(self, mean: RawArray, g: RawArray, beta: float) -> None:
        """mean <- beta mean + (1 - beta) g^2, in place; uses the scratch."""
        np.multiply(g, g, out=self.scratch)
        self.scratch *= 1 - beta
        mean *= beta
        mean += self.scratch


_NUMBERS = (float, bool, int, type(None))


def as_number(value: object) -> Any:
    """Returns an option as a Python number, which can't change an update's dtype; also inside a tuple."""
    if isinstance(value, tuple):
        return tuple(map(as_number, value))
    return value.item() if isinstance(value, (Tensor, Array, np.generic)) else value


def as_numbers(group: ParamGroup, keep_lr: bool = False) -> ParamGroup:
    """Returns the options of a group as Python numbers.

    Args:
        keep_lr: a learning rate on a GPU stays on it, as a vector of one float32.
    """
    options = {}
    for name, value in group.items():
        if keep_lr and name == "lr" and isinstance(value, Tensor) and value.device is not CPU:
            options[name] = raw_of(value).astype(np.float32, copy=False).reshape(1)
        elif name != "params":
            options[name] = value if type(value) in _NUMBERS else as_number(value)
    return options


class Clip(NamedTuple):
    """What `Optimizer.clip_grad_norm` leaves to the next step."""

    max_norm: float
    total_norm: Tensor  # of the gradients as they are stored: of scaled ones if there is a grad_scale


class Scaling(NamedTuple):
    """The factors by which an update multiplies the gradients.

        g <- g / grad_scale                                             stays so in `.grad`, as in PyTorch,
                                                                        if `stores`
        g <- g min(1, max_norm / (total_norm / grad_scale + 1e-6))      for this update only

    Nothing is updated if `found_inf` isn't 0.

    Attributes:
        grad_scale, found_inf: numbers, or tensors of one element; None for 1 and 0.
        stores: False where the gradients aren't read after the update: a kernel on a GPU then doesn't write
            them.
    """

    grad_scale: float | Tensor | None = None
    found_inf: float | Tensor | None = None
    clip: Clip | None = None
    stores: bool = True

    def factors(self) -> tuple[float, float]:
        """Returns the factor that stays in the gradients and the one for this update; may wait for a GPU."""
        scale = 1.0 if self.grad_scale is None else _as_float(self.grad_scale)
        if scale == 0:
            raise ValueError("grad_scale is 0: gradients can't be divided by it")
        unscale = 1 / scale
        if self.clip is None:
            return unscale, 1.0
        factor = self.clip.max_norm / (_as_float(self.clip.total_norm) * unscale + 1e-6)
        return unscale, 1.0 if factor >= 1 else factor

    def factors_on(self, target: device) -> tuple:
        """Returns what a kernel on a GPU computes them from, without waiting.

        Returns:
            grad_scale, found_inf and total_norm, each an array of one float32 on the GPU or None; max_norm;
            whether gradients are stored divided by grad_scale.
        """
        norm, max_norm = (None, 1.0) if self.clip is None else (self.clip.total_norm, self.clip.max_norm)
        scalars = [_one_float32(x, target) for x in (self.grad_scale, self.found_inf, norm)]
        return (*scalars, max_norm, self.stores)

    def count_on(self, target: device) -> int | RawArray:
        """Returns by how much an update is counted: 0 if nothing is updated, which only a GPU may know."""
        return 1 if self.found_inf is None else _one_float32(self.found_inf, target) == 0


def _as_float(x: float | Tensor) -> float:
    """Returns the number; on the device "meta", where there is none, 1."""
    return float(x) if not isinstance(x, Tensor) or has_values(raw_of(x)) else 1.0


def _one_float32(x: float | Tensor | None, target: device) -> RawArray | None:
    return None if x is None else raw_of(x, target).astype(np.float32, copy=False).reshape(1)


def why_no_kernel(kernel: str | None, dtype: np.dtype, target: device) -> str:
    """Returns why no kernel can update such parameters; "" if one can.

    Args:
        kernel: the file of the kernel in the folders of `nn.fused_ops`, or None.
    """
    if kernel is None:
        return "it has no kernel"
    if dtype != np.float32 and not is_half(dtype):
        return f"its kernel computes in float32, and there are {dtype} parameters"
    return registry.why_not(target.kind.kernels)


_loaded: dict[tuple[str | None, np.dtype], Callable] = {}  # kernels for the CPU, by name and dtype


def find_kernel(kernel: str | None, dtype: np.dtype, target: device, fused: bool | None) -> Callable | None:
    """Returns the function that updates in one pass; None if it isn't wanted or isn't available.

    Args:
        fused: True demands it, False forbids it, None follows `use_fused`.

    Raises:
        Unsupported: it is demanded, and isn't available.
    """
    if fused is False or not (fused or uses_kernels()):
        return None
    try:
        if reason := why_no_kernel(kernel, dtype, target):
            raise Unsupported(reason)
        if target is CPU and (found := _loaded.get((kernel, dtype))) is not None:
            return found
        module = registry.load(target.kind.kernels, kernel, bool(fused))
        module.require_dtypes(np.empty(0, dtype))
    except Unsupported:
        if fused:
            raise
        return None
    if target is CPU:
        _loaded[kernel, dtype] = module.update
    return module.update
