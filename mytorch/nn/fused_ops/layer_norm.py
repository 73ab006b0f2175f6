"""Layer norm, layer norm after an addition, and RMS norm: one function computes them on a kind of device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...backends.device import RawArray
from ..functional.normalization import add_layer_norm, layer_norm, rms_norm


def register(kind: str, normalize: Callable) -> None:
    """Registers the three kernels for a kind of device.

    Args:
        normalize: `(x, residual, normalized_shape, weight, bias, eps, centred) -> (y, total, vjp)`, where
            total is x + residual, or x without a residual (None). `vjp(dy, dtotal)` returns the gradients of
            total, normalized_shape (None), weight and bias; dtotal may be None.
    """

    @layer_norm.fused(kind)
    def _layer_norm(
        x: RawArray, shape: Sequence[int], weight: RawArray | None, bias: RawArray | None, eps: float
    ) -> tuple:
        y, _, vjp = normalize(x, None, shape, weight, bias, eps, True)
        return y, lambda dy: vjp(dy, None)

    @rms_norm.fused(kind)
    def _rms_norm(x: RawArray, shape: Sequence[int], weight: RawArray | None, eps: float) -> tuple:
        y, _, vjp = normalize(x, None, shape, weight, None, eps, False)
        return y, lambda dy: vjp(dy, None)

    @add_layer_norm.fused(kind)
    def _add_layer_norm(
        x: RawArray, residual: RawArray, shape: Sequence[int], weight: RawArray | None,
        bias: RawArray | None, eps: float,
    ) -> tuple:
        y, total, total_vjp = normalize(x, residual, shape, weight, bias, eps, True)

        def vjp(gradients: Sequence[RawArray | None]) -> tuple:
            dy, dtotal = gradients
            dx, *others = (dtotal,) if dy is None else total_vjp(dy, dtotal)
            return dx, dx, *others

        return (y, total), vjp
