"""What happens to all gradients and parameters between two steps: float32 vectors of the model's size."""

from collections.abc import Callable
from typing import Any

# bytes that a number costs at least; gradients are cast from float16
BYTES = {"sum_of_squares": 4, "scale": 8, "cast_and_check": 6, "unscale_and_check": 8, "AdamW": 28}


def calls(library: Any, n: int) -> dict[str, Callable]:
    """Returns a function for each name, in mytorch or PyTorch."""
    return (_torch if library.__name__ == "torch" else _mytorch)(n)


def _mytorch(n: int) -> dict[str, Callable]:
    import mytorch
    from mytorch.core.tensor import raw_of
    from mytorch.nn.fused_ops.cast import cast_and_check, unscale_and_check
    from mytorch.nn.fused_ops.norm import euclidean_norm, scale

    x, p = (mytorch.randn(n, device="cuda") for _ in range(2))
    p.requires_grad_().grad = mytorch.ones(n, device="cuda")
    one, found = mytorch.ones(1, device="cuda"), mytorch.zeros(1, device="cuda")
    half, out = x.to(mytorch.float16), mytorch.empty_like(x)
    raw, source, out, one, found = map(raw_of, (x, half, out, one, found))
    return {
        "sum_of_squares": lambda: euclidean_norm(raw),
        "scale": lambda: scale(raw, one),
        "cast_and_check": lambda: cast_and_check(source, out, found),
        "unscale_and_check": lambda: unscale_and_check(raw, one, found),
        "AdamW": mytorch.optim.AdamW([p], lr=1e-4).step,
    }


def _torch(n: int) -> dict[str, Callable]:
    import torch

    x, p = (torch.randn(n, device="cuda") for _ in range(2))
    p.requires_grad_().grad = torch.ones(n, device="cuda")
    source, out = x.to(torch.float16), torch.empty_like(x)
    one, found = torch.ones(1, device="cuda"), torch.zeros(1, device="cuda")
    unscale = torch._amp_foreach_non_finite_check_and_unscale_  # what its GradScaler calls

    def cast_and_check() -> None:
        out.copy_(source)  # in two passes: PyTorch has none that does both
        unscale([out], found, one)

    return {
        "sum_of_squares": lambda: torch.linalg.vector_norm(x),
        "scale": lambda: x.mul_(one),
        "cast_and_check": cast_and_check,
        "unscale_and_check": lambda: unscale([x], found, one),
        "AdamW": torch.optim.AdamW([p], lr=1e-4, fused=True).step,
    }
