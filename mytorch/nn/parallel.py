"""`DataParallel`, a module on one device; and PyTorch's place of `DistributedDataParallel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..aliases import lazily as _lazily
from .functional.types import DeviceLike
from .module import Module


class DataParallel(Module):
    """Runs the module, as PyTorch's does on the CPU or with a single GPU.

    Several GPUs need a process each: `distributed.DistributedDataParallel`.

    Args:
        module: found as `.module`, so that names in the state_dict begin with it.
        device_ids, output_device: at most one device, to which the module is moved.
        dim: of the batch; without effect.

    Raises:
        NotImplementedError: several devices.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[int | DeviceLike] | None = None,
        output_device: int | DeviceLike | None = None, dim: int = 0,
    ):
        super().__init__()
        self.device_ids = list(device_ids or [])
        if len(self.device_ids) > 1:
            raise NotImplementedError(
                f"DataParallel has one device, got device_ids={self.device_ids}; for several use "
                "distributed.DistributedDataParallel"
            )
        self.module, self.dim = module, dim
        self.output_device = self.device_ids[0] if output_device is None and device_ids else output_device
        if self.device_ids:
            self.module.to(device=self.device_ids[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


__getattr__, __dir__ = _lazily(globals())  # what needs several processes lies above
__path__: list[str] = []  # a package: `nn.parallel.distributed` is one of `aliases.FORWARDS`
