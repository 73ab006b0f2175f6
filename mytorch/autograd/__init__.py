"""Automatic differentiation: the engine, grad modes, custom functions and checks.

The engine and the grad modes lie below Tensor; the rest is built on Tensor and comes in by `load`.
"""

from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Function", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "is_anomaly_enabled", "is_grad_enabled", "no_grad",
    "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def load() -> None:
    """Import what is built on Tensor; `mytorch/__init__.py` calls this once Tensor is there."""
    global Function, backward, functional, grad, gradcheck, gradgradcheck
    from . import functional
    from .function import Function
    from .gradcheck import gradcheck, gradgradcheck
    from .gradients import backward, grad
