"""
Which file holds the kernels of which composite. Such a file is imported at the first call that wants it, as
Numba and Triton take their time; on import it registers its kernels, with `@gelu.fused("cpu")`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from ...backends import threads
from ...backends.device import device_of
from ..functional.composite import REGISTRY, Unsupported, use_fused

FOLDERS = {"cpu": "numba", "cuda": "triton"}

# composite: file. The same name in both folders is the same kernel.
KERNELS: dict[str, dict[str, str]] = {
    "cpu": {
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
        "add_batch_norm": "batch_norm",
        "group_norm": "group_norm",
        "add_group_norm": "group_norm",
        "layer_norm": "layer_norm",
        "rms_norm": "layer_norm",
        "add_layer_norm": "layer_norm",
        "add_rms_norm": "layer_norm",
        "linear": "linear",
        "linear_activation": "linear",
        "conv1d": "convolution",
        "conv2d": "convolution",
        "cached_attention": "cached_attention",
        "scaled_dot_product_attention": "attention",
        "self_attention": "attention",
        "softmax": "softmax",
        "log_softmax": "softmax",
        "masked_softmax": "softmax",
        "masked_log_softmax": "softmax",
        "cross_entropy": "cross_entropy",
        "linear_cross_entropy": "linear_cross_entropy",
    },
    "cuda": {
        "group_norm": "group_norm",
        "add_group_norm": "group_norm",
        "batch_norm": "batch_norm",
        "add_batch_norm": "batch_norm",
        "layer_norm": "layer_norm",
        "rms_norm": "layer_norm",
        "add_layer_norm": "layer_norm",
        "add_rms_norm": "layer_norm",
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
        "linear": "linear",
        "linear_activation": "linear",
        "conv1d": "convolution",
        "conv2d": "convolution",
        "scaled_dot_product_attention": "attention",
        "self_attention": "attention",
        "cached_attention": "cached_attention",
        "softmax": "softmax",
        "log_softmax": "softmax",
        "masked_softmax": "softmax",
        "masked_log_softmax": "softmax",
        "cross_entropy": "cross_entropy",
        "linear_cross_entropy": "linear_cross_entropy",
    },
}


def register() -> None:
    """Tell the composites where their kernels are."""
    for kind, files in KERNELS.items():
        for name, file in files.items():
            REGISTRY[name].suppliers[kind] = _supplier(kind, file)


def _supplier(kind: str, file: str) -> Callable[[], None]:
    return lambda: load(kind, file)


def load(kind: str, file: str) -> Any:
    """A file of kernels for a kind of device, as a module; raises `Unsupported` if there can be none."""
    reason = why_not(kind)
    if reason:
        raise Unsupported(reason)
    return importlib.import_module(f"{__package__}.{FOLDERS[kind]}.{file}")


def find(file: str, *arrays: Any) -> Any | None:
    """The file of kernels for raw arrays, for functions that are no composites; None where NumPy has to do.

    The kernels compute in float32. Nothing is converted for them: an array of another dtype has none.
    """
    if not use_fused.default:
        return None
    try:
        module = load(device_of(arrays[0]).type, file)
        module.require_dtypes(*arrays)
    except Unsupported:
        return None
    return module


@functools.cache
def why_not(kind: str) -> str:
    """Why there can be no kernels for this kind of device, and what to do about it; "" if there can."""
    if kind == "cpu":
        return "" if threads.installed() else "Numba is not installed: pip install 'mytorch[cpu]'"
    from . import triton

    return triton.why_not()
