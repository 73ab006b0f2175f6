"""Automatic differentiation for users: what is built on the ops and on the engine in `core`."""

from ..aliases import lazily as _lazily
from ..core.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from . import functional
from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .drawing import draw
from .function import Function
from .gradcheck import gradcheck, gradgradcheck
from .gradients import backward, grad
from .stepping import step_through

__all__ = [
    "Function", "backward", "detect_anomaly", "draw", "enable_grad", "functional", "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "is_anomaly_enabled", "is_grad_enabled", "no_grad",
    "set_detect_anomaly", "set_grad_enabled", "step_through",
]

__getattr__, __dir__ = _lazily(globals())
