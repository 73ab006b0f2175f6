from __future__ import annotations

import math

import numpy as np

from ..backends.blas import product
from ..backends.device import RawArray
from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk

RATIOS = {  # factor of the learning rate by adjust_lr_fn, from the weight's shape
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(Optimizer):
    """Muon: momentum, orthogonalized so that a step changes a weight as much in every direction.

        b <- momentum b + (1 - momentum) g
        u  = momentum b + (1 - momentum) g  if nesterov, else  b
        p <- (1 - lr weight_decay) p - lr ratio orthogonal(u)

    It is for the 2-D weights of hidden layers; biases, gains and embeddings need another optimizer.

    Args:
        params: see `Optimizer`; all of shape (rows, columns).
        ns_coefficients, ns_steps, eps: see `orthogonal`.
        adjust_lr_fn: the ratio. "original" (or None): sqrt(max(1, rows / columns)); "match_rms_adamw":
            0.2 sqrt(max(rows, columns)), with which a learning rate for AdamW fits.

    State: `momentum_buffer` (b).

    Raises:
        ValueError: a negative option, an unknown adjust_lr_fn, or a parameter that isn't 2-D.

    Source: Jordan, 2024. https://kellerjordan.github.io/posts/muon/; match_rms_adamw: Liu et al., 2025.
    https://arxiv.org/abs/2502.16982

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> optimizer = optim.Muon(layer.parameters(), lr=0.1)
    >>> layer(mytorch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    """

    by_parameter = True

    def __init__(
        self, params: Params, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ):
        if adjust_lr_fn is not None and adjust_lr_fn not in RATIOS:
            raise ValueError(
                f"Adjust learning rate function {adjust_lr_fn} is not supported, only {', '.join(RATIOS)}"
            )
        if len(ns_coefficients) != 3:
            raise ValueError(f"ns_coefficients must be three numbers, got {ns_coefficients}")
        if ns_steps >= 100:
            raise ValueError(f"ns_steps must be less than 100, got {ns_steps}")
        super().__init__(params, checked_options(locals(), unchecked=("eps",)))

    def add_param_group(self, param_group: ParamGroup) -> None:
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.is_complex():
                self.param_groups.pop()
                raise RuntimeError(f"Muon does not support complex parameters, got one of dtype {p.dtype}")
            if p.ndim != 2:
                self.param_groups.pop()
                raise ValueError(f"Muon only supports 2D parameters, got one of shape {tuple(p.shape)}")

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def state_scalars(self, group: ParamGroup) -> dict[str, float]:
        return {}

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        b, t, lr, momentum = x.state["momentum_buffer"], x.scratch, group["lr"], group["momentum"]
        x.average(b, x.grad, momentum)
        u = b
        if group["nesterov"]:
            np.subtract(b, x.grad, out=t)
            t *= 1 - momentum
            u = np.subtract(b, t, out=t)
        direction = orthogonal(u, group["ns_coefficients"], group["ns_steps"], group["eps"])
        ratio = RATIOS[group["adjust_lr_fn"] or "original"](*x.data.shape)
        x.data *= 1 - lr * group["weight_decay"]
        x.data -= np.multiply(direction, lr * ratio, out=t)


def orthogonal(x: RawArray, coefficients: tuple[float, float, float], steps: int, eps: float) -> RawArray:
    """Returns about U V^T, where x = U S V^T: singular values near 1, and the same singular vectors.

        x <- x / max(|x|, eps), then in each step  x <- a x + (b (x x^T) + c (x x^T)^2) x

    That is the polynomial a s + b s^3 + c s^5 of every singular value s, by products only. As in PyTorch,
    each intermediate result is rounded to bfloat16.

    Args:
        x: raw, float32 or float64, of shape (rows, columns).
    """
    a, b, c = coefficients
    is_wide = x.shape[0] <= x.shape[1]
    x = bf16(x if is_wide else x.T)
    x = bf16(x / np.maximum(bf16(np.sqrt((x * x).sum(keepdims=True))), np.float32(eps)))
    for _ in range(steps):
        gram = bf16(product(x, x.T))
        x = bf16(a * x + product(bf16(b * gram + c * product(gram, gram)), x))
    return x if is_wide else x.T


def bf16(x: RawArray) -> RawArray:
    """Returns the nearest bfloat16 values (ties to even), as float32: the upper half of the bits."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)
