"""`amp` for the GPU, as older programs call it: `cuda.amp.autocast()`, `cuda.amp.GradScaler()`."""

from __future__ import annotations

import functools
from typing import Any

from mytorch import amp
from mytorch.backends.dtypes import DTypeLike

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):  # noqa: N801 - PyTorch's name
    """`amp.autocast("cuda", …)`."""

    def __init__(self, enabled: bool = True, dtype: DTypeLike = None, cache_enabled: bool = True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cuda", …)`."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__("cuda", *args, **kwargs)


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
