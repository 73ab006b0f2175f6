"""Automatic differentiation: the engine, grad modes, custom functions and checks.

The engine and the grad modes lie below Tensor; the rest is built on Tensor and comes in by `load`.
"""

from .grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Function", "backward", "enable_grad", "grad", "gradcheck", "inference_mode", "is_grad_enabled",
    "no_grad", "set_grad_enabled",
]  # fmt: skip


def load() -> None:
    """Import what is built on Tensor; `mytorch/__init__.py` calls this once Tensor is there."""
    global Function, backward, grad, gradcheck
    from .function import Function
    from .gradcheck import gradcheck
    from .gradients import backward, grad
