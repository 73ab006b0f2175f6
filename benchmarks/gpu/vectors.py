"""What happens to all gradients and parameters between two steps: float32 vectors of the model's size."""

from collections.abc import Callable
from typing import Any

# bytes that a number costs at least; gradients are cast from float16
BYTES = {"sum_of_squares": 4, "scale": 8, "cast_and_check": 6, "unscale_and_check": 8, "AdamW": 28}


def calls(library: Any, n: int) -> dict[str, Callable]:
    """Returns a function for each name, in mytorch or PyTorch."""
    x, p = (library.randn(n, device="cuda") for _ in range(2))
    p.requires_grad_().grad = library.ones(n, device="cuda")
    one, found = library.ones(1, device="cuda"), library.zeros(1, device="cuda")
    vectors = x, x.to(library.float16), library.empty_like(x), one, found
    others = _torch(*vectors) if library.__name__ == "torch" else _mytorch(*vectors)
    return {**others, "AdamW": library.optim.AdamW([p], lr=1e-4, fused=True).step}


def _mytorch(*vectors: Any) -> dict[str, Callable]:
    from mytorch.core.tensor import raw_of
    from mytorch.nn.fused_ops.cast import cast_and_check, unscale_and_check
    from mytorch.nn.fused_ops.norm import euclidean_norm, scale

    x, half, out, one, found = map(raw_of, vectors)
    return {
        "sum_of_squares": lambda: euclidean_norm(x),
        "scale": lambda: scale(x, one),
        "cast_and_check": lambda: cast_and_check(half, out, found),
        "unscale_and_check": lambda: unscale_and_check(x, one, found),
    }


def _torch(x: Any, half: Any, out: Any, one: Any, found: Any) -> dict[str, Callable]:
    import torch

    unscale = torch._amp_foreach_non_finite_check_and_unscale_  # what its GradScaler calls
    return {
        "sum_of_squares": lambda: torch.linalg.vector_norm(x),
        "scale": lambda: x.mul_(one),
        "cast_and_check": lambda: unscale([out.copy_(half)], found, one),  # PyTorch has none that does both
        "unscale_and_check": lambda: unscale([x], found, one),
    }
