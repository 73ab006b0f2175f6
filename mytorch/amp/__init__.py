"""Mixed precision: `autocast`, `GradScaler`, and an optimizer with float32 weights of a half-precision model.

    with autocast("cuda", dtype=mytorch.float16):   # products in half precision, losses in float32
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

The parameters stay float32 and are cast at each use. A half-precision model whose weights an optimizer keeps
in float32, `Accelerator(mixed_precision="bf16")`, casts them once a step: it is faster.
"""

from .autocast_mode import (
    autocast,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
from .grad_scaler import GradScaler

__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_available",
    "is_autocast_enabled",
]
