"""Conversion of modules: to another dtype or device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..autograd import no_grad
from ..backends import dtypes, tune
from ..backends.device import META, as_device
from ..core.tensor import Tensor, from_raw
from ..ops.cast import read_target
from ..ops.create import empty_like
from .functional.types import DeviceLike, DTypeLike
from .parameter import replace_data
from .uninitialized import is_lazy

if TYPE_CHECKING:
    from typing_extensions import Self

NO_DATA = (
    "Cannot copy out of meta tensor; no data! Please use Module.to_empty() instead of Module.to() when "
    "moving a module from meta to a different device."
)


class Convertible:
    """The part of `Module` that casts and moves parameters and buffers."""

    parameters: Callable[..., Iterator[Tensor]]
    buffers: Callable[..., Iterator[Tensor]]

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replaces the memory of each parameter, buffer and gradient by that of `function(tensor)`."""
        replaced = 0
        with no_grad():
            for tensor in (*self.parameters(recurse), *self.buffers(recurse)):
                if is_lazy(tensor):
                    tensor.convert(function)
                    continue
                grad = tensor._grad
                replaced += tensor.nbytes
                replace_data(tensor, function(tensor).data)
                if grad is not None:
                    tensor._grad = function(from_raw(grad._array)).data
        grad = None  # the last one's memory, too
        tune.release_freed_memory(replaced)
        return self

    def to(
        self, *args: Any, dtype: DTypeLike = None, device: DeviceLike = None, non_blocking: bool = False,
        memory_format: object = None,
    ) -> Self:
        """Moves parameters and buffers to a device and casts floating-point ones to a dtype, in place.

        Args:
            args: a dtype, a device or a tensor, for its dtype and device.

        Raises:
            TypeError: a dtype that is not floating-point.
            NotImplementedError: from the device "meta" to another: use `to_empty`.

        >>> nn.Linear(2, 3).to(mytorch.float64).bias.dtype
        dtype('float64')
        """
        dtype, device = read_target(args, dtype, device)
        if dtype is not None and not dtypes.is_inexact(dtypes.as_dtype(dtype)):
            raise TypeError(f"Module.to only accepts floating-point dtypes, got {dtypes.as_dtype(dtype)}")

        def convert(t: Tensor) -> Tensor:
            if t.is_meta and device is not None and as_device(device) is not META:
                raise NotImplementedError(NO_DATA)
            return t.to(device=device, dtype=dtype if dtypes.is_inexact(t.dtype) else None)

        return self._apply(convert)

    def to_empty(self, *, device: DeviceLike, recurse: bool = True) -> Self:
        """Gives parameters and buffers uninitialized memory on a device, in place; returns the module.

        That is how a module leaves the device "meta", whose tensors have no values to copy.

        Args:
            recurse: the modules inside as well.

        >>> nn.Linear(2, 3, device="meta").to_empty(device="cpu").weight.device
        device('cpu')
        """
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def float(self) -> Self:
        """Casts floating-point parameters and buffers to float32, in place; returns the module.

        """
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Casts floating-point parameters and buffers to float64, in place; returns the module.

        >>> nn.Linear(2, 3).double().weight.dtype
        dtype('float64')
        """
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Casts floating-point parameters and buffers to float16, in place; returns the module."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Casts floating-point parameters and buffers to bfloat16, in place; returns the module."""
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Self:
        """Moves parameters and buffers to the CPU, in place; returns the module."""
        return self.to(device="cpu")

    def cuda(self, device: int | None = None) -> Self:
        """Moves parameters and buffers to a GPU, in place; returns the module."""
        return self.to(device="cuda" if device is None else device)
