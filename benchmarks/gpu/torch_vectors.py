"""The jobs on long vectors in PyTorch: what its GradScaler, clipping and optimizer call."""

from __future__ import annotations

from collections.abc import Callable

import torch


def norm(where: str, n: int) -> Callable:
    x = torch.randn(n, device=where)
    return lambda: torch.linalg.vector_norm(x)


def scale(where: str, n: int) -> Callable:
    x, one = torch.randn(n, device=where), torch.ones((), device=where)
    return lambda: x.mul_(one)


def cast(where: str, n: int, itemsize: int) -> Callable:
    """In two passes: PyTorch has none that does both."""
    x = torch.randn(n, device=where).to({2: torch.float16, 4: torch.float32}[itemsize])
    out, found_inf, one = torch.empty(n, device=where), *_numbers(where)

    def call() -> None:
        out.copy_(x)
        torch._amp_foreach_non_finite_check_and_unscale_([out], found_inf, one)

    return call


def unscale(where: str, n: int) -> Callable:
    x, (found_inf, one) = torch.randn(n, device=where), _numbers(where)
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_([x], found_inf, one)


def adamw(where: str, n: int) -> Callable:
    p = torch.zeros(n, device=where, requires_grad=True)
    p.grad = torch.ones(n, device=where)
    return torch.optim.AdamW([p], lr=1e-4, fused=True).step


def _numbers(where: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(1, device=where), torch.ones(1, device=where)
