"""What the kernels are timed on: sizes of GPT-2 and ResNets, arrays made from a seed by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

REPEATS = 15  # steps in a row that a worker does of one kernel; a third of them isn't timed
N, C, V = 1024, 384, 50304  # tokens, features, vocabulary


@dataclass(frozen=True)
class Job:
    """A call whose forward and backward passes are timed.

    Attributes:
        sizes: shapes of its float32 arrays, all of which get gradients.
        call: `(F, tensor, *arrays)` in mytorch, with `tensor` for what needs no gradient; a tuple of results
            gets a gradient each.
        peer: the same in PyTorch, where it has no such function.
        backward: time the backward pass, too.
    """

    name: str
    sizes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    peer: Callable[..., Any] | None = None
    backward: bool = True

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(7)
        return [rng.standard_normal(size, dtype=np.float32) / size[-1] ** 0.5 for size in self.sizes]

    def __str__(self) -> str:
        return " × ".join(map(str, self.sizes[0]))


def targets(count: int, classes: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, classes, count)


def halves(x: Any) -> Any:
    return x.chunk(2, -1)


def rotate(F: Any, tensor: Any, x: Any) -> Any:
    cos, sin = map(tensor, angles())
    a, b = halves(x)
    import torch

    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def angles() -> tuple[np.ndarray, np.ndarray]:
    phase = np.outer(np.arange(256), 1e4 ** -np.linspace(0, 1, 32, endpoint=False))
    return np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)


def norm(name: str, shape: tuple[int, ...]) -> Callable:
    return lambda F, tensor, x, w, *b: getattr(F, name)(x, shape, w, *b)


def added(F: Any, tensor: Any, x: Any, r: Any, w: Any, b: Any) -> Any:
    total = x + r
    return F.layer_norm(total, (C,), w, b), total


ATTENTION = (4, 6, 256, 64)
JOBS = [
    Job("linear", ((N, C), (4 * C, C), (4 * C,)), lambda F, tensor, *a: F.linear(*a)),
    Job(
        "linear_activation", ((N, C), (4 * C, C), (4 * C,)),
        lambda F, tensor, *a: F.linear_activation(*a), lambda F, tensor, *a: F.gelu(F.linear(*a)),
    ),
    Job("layer_norm", ((N, C), (C,), (C,)), norm("layer_norm", (C,))),
    Job(
        "add_layer_norm", ((N, C), (N, C), (C,), (C,)),
        lambda F, tensor, x, r, *p: F.add_layer_norm(x, r, (C,), *p), added,
    ),
    Job("rms_norm", ((N, C), (C,)), norm("rms_norm", (C,))),
    Job("group_norm", ((8, 64, 32, 32), (64,), (64,)), lambda F, tensor, x, w, b: F.group_norm(x, 8, w, b)),
    Job(
        "batch_norm", ((16, 64, 32, 32), (64,), (64,)),
        lambda F, tensor, x, w, b: F.batch_norm(x, None, None, w, b, True),
    ),
    Job("softmax", ((N, N),), lambda F, tensor, x: F.softmax(x, -1)),
    Job(
        "cross_entropy", ((256, V),),
        lambda F, tensor, x: F.cross_entropy(x, tensor(targets(256, V))),
    ),
    Job(
        "linear_cross_entropy", ((256, C), (V, C)),
        lambda F, tensor, x, w: F.linear_cross_entropy(x, w, tensor(targets(256, V))),
        lambda F, tensor, x, w: F.cross_entropy(F.linear(x, w), tensor(targets(256, V))),
    ),
    Job(
        "attention, causal", (ATTENTION,) * 3,
        lambda F, tensor, *a: F.scaled_dot_product_attention(*a, is_causal=True),
    ),
    Job("attention", (ATTENTION,) * 3, lambda F, tensor, *a: F.scaled_dot_product_attention(*a)),
    Job("gelu", ((N, 4 * C),), lambda F, tensor, x: F.gelu(x)),
    Job("silu", ((N, 4 * C),), lambda F, tensor, x: F.silu(x)),
    Job("relu", ((N, 4 * C),), lambda F, tensor, x: F.relu(x)),
    Job("sigmoid", ((N, 4 * C),), lambda F, tensor, x: F.sigmoid(x)),
    Job("tanh", ((N, 4 * C),), lambda F, tensor, x: F.tanh(x)),
    Job(
        "swiglu", ((N, 4 * C),), lambda F, tensor, x: F.swiglu(x),
        lambda F, tensor, x: F.silu(halves(x)[0]) * halves(x)[1],
    ),
    Job(
        "rotary_embedding", (ATTENTION,),
        lambda F, tensor, x: F.rotary_embedding(x, *map(tensor, angles())), rotate,
    ),
    Job("embedding", ((V, C),), lambda F, tensor, w: F.embedding(tensor(targets(N, V)), w)),
]  # fmt: skip
