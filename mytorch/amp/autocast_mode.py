"""autocast: products in half precision, losses in float32; the parameters are cast at each use."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..backends import dtypes
from ..backends.device import META, device
from ..backends.door import in_force
from ..backends.dtypes import DTypeLike
from ..core.grad_mode import _state
from ..core.tensor import Tensor
from ..nn.functional.composite import REGISTRY
from ..ops.autocast import in_float32, in_half, in_widest, loss_in_float32, sum_in_widest

# What PyTorch computes in half precision, besides `matmul`, `einsum` and what calls them; and in float32.
HALF = (
    "conv1d conv2d conv3d gru_steps linear linear_activation lstm_steps rnn_steps "
    "scaled_dot_product_attention self_attention"
)
FLOAT32 = "ctc_loss grid_sample huber_loss l1_loss mse_loss nll_loss smooth_l1_loss"
CASTS = (
    (HALF, in_half), (FLOAT32, in_float32), ("cross_entropy", loss_in_float32), ("bilinear", in_widest),
    ("add_layer_norm", sum_in_widest),
)
for _names, _casts in CASTS:
    for _name in _names.split():
        REGISTRY[_name].autocast = _casts

_DEFAULTS = {"cpu": "bfloat16", "cuda": "float16"}


class autocast:  # noqa: N801 - PyTorch's name
    """Computes products in half precision and losses in float32: a context, or a decorator.

    Args:
        device_type: "cpu" or "cuda": tensors on others stay as they are.
        dtype: "bfloat16" or "float16"; by default bfloat16 on the CPU, float16 on a GPU.
        enabled: False for a block without casts, within one that has them, too.
        cache_enabled: ignored.

    Raises:
        RuntimeError: another device or dtype.
    """

    def __init__(
        self, device_type: str, dtype: DTypeLike = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        self.device, self.enabled = device(device_type).type, bool(enabled)
        if self.device == "meta":
            self.device = in_force().place(META).type
        if self.device not in _DEFAULTS:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{self.device}'")
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtypes.as_dtype(dtype)
        if not dtypes.is_half(self.fast_dtype):
            raise RuntimeError(f"autocast: expected float16 or bfloat16, got {self.fast_dtype}")
        self._before: list[dict[str, np.dtype] | None] = []

    def __enter__(self) -> autocast:
        self._before.append(_state.autocast)
        rest = {kind: dtype for kind, dtype in (_state.autocast or {}).items() if kind != self.device}
        _state.autocast = (rest | {self.device: self.fast_dtype} if self.enabled else rest) or None
        return self

    def __exit__(self, *exception: object) -> None:
        _state.autocast = self._before.pop()

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return call


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Returns whether autocast is enabled for this kind of device, in this thread."""
    return device_type in (_state.autocast or ())


def is_autocast_available(device_type: str) -> bool:
    """Returns whether there is autocast for this kind of device."""
    return device_type in _DEFAULTS


def get_autocast_dtype(device_type: str) -> np.dtype:
    """Returns the dtype of the enabled autocast, or else the default one."""
    found = (_state.autocast or {}).get(device_type)
    return dtypes.as_dtype(_DEFAULTS[device_type]) if found is None else found


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: DTypeLike = None) -> Callable:
    """The decorator of a Function's `forward`: with `cast_inputs` it runs without autocast, on this dtype."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    if cast_inputs is None:
        return fwd

    @functools.wraps(fwd)
    def call(*args):
        if not is_autocast_enabled(device_type):
            return fwd(*args)
        floats = (isinstance(x, Tensor) and x.is_floating_point() for x in args)
        args = [x.to(cast_inputs) if is_float else x for x, is_float in zip(args, floats, strict=True)]
        with autocast(device_type, enabled=False):
            return fwd(*args)

    return call


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """The decorator of a Function's `backward`: returns it, since it runs without autocast."""
    return functools.partial(custom_bwd, device_type=device_type) if bwd is None else bwd
