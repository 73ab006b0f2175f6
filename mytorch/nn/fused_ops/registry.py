"""
The table of kernels: which file holds those of which composite. A file is imported at the first call that
needs it, because importing Numba or Triton takes long; on import it registers its kernels, with
`@gelu.fused("cpu")`.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from ...backends import threads
from ...backends.device import RawArray, device_of
from ..functional.composite import REGISTRY, Unsupported, use_fused
from . import background

FOLDERS = {"cpu": "numba", "cuda": "triton"}  # by kind of device

# composite: the file of its kernels, which has one name in both folders.
KERNELS: dict[str, str] = {
    "sigmoid": "activations",
    "silu": "activations",
    "tanh": "activations",
    "leaky_relu": "rectifiers",
    "relu": "rectifiers",
    "squared_relu": "rectifiers",
    "gelu": "gelu",
    "geglu": "gated",
    "swiglu": "gated",
    "dropout": "dropout",
    "embedding": "embedding",
    "rotary_embedding": "rotary",
    "batch_norm": "batch_norm",
    "group_norm": "group_norm",
    "layer_norm": "layer_norm",
    "rms_norm": "layer_norm",
    "add_layer_norm": "layer_norm",
    "linear": "linear",
    "linear_activation": "linear",
    "quantized_linear": "quantized_linear",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "scaled_dot_product_attention": "attention",
    "self_attention": "attention",
    "cached_attention": "cached_attention",
    "softmax": "softmax",
    "log_softmax": "softmax",
    "cross_entropy": "cross_entropy",
    "linear_cross_entropy": "linear_cross_entropy",
}
CPU_KERNELS = {"cached_self_attention": "cached_attention", "lstm_steps": "lstm"}  # on a GPU their parts


def register() -> None:
    """Registers with each composite how its kernels are loaded."""
    for kind in FOLDERS:
        for name, file in KERNELS.items():
            REGISTRY[name].suppliers[kind] = functools.partial(load, kind, file)
    for name, file in CPU_KERNELS.items():
        REGISTRY[name].suppliers["cpu"] = functools.partial(load, "cpu", file)


def load(kind: str, file: str, demanded: bool = False) -> ModuleType:
    """Imports a file of kernels for a kind of device.

    Args:
        demanded: compile it now, if necessary, and not in the background.

    Raises:
        Unsupported: kernels can't run, or are being compiled.
    """
    reason = why_not(kind)
    if not reason and kind == "cpu" and not demanded and not background.is_compiled(file):
        reason = "its kernels are being compiled"
    if reason:
        raise Unsupported(reason)
    return importlib.import_module(f"{__package__}.{FOLDERS[kind]}.{file}")


def find(file: str, *arrays: RawArray) -> ModuleType | None:
    """Returns the module of kernels for raw arrays, for functions that are no composites, or None.

    The kernels compute in float32. Nothing is converted for them: None for arrays of another dtype.
    """
    if not use_fused.default:
        return None
    try:
        module = load(device_of(arrays[0]).kind.kernels, file)
        module.require_dtypes(*arrays)
    except Unsupported:
        return None
    return module


@functools.cache
def why_not(kind: str) -> str:
    """Returns why kernels can't run on this kind of device, and what to do about it; "" if they can."""
    if kind == "cpu":
        return "" if threads.installed() else "Numba is not installed: pip install 'mytorch[cpu]'"
    if kind not in FOLDERS:
        return f"there are no kernels for {kind} tensors"
    from . import triton

    return triton.why_not()
