"""What the kernels are timed on: the shapes of a GPT-2, each with what it costs at least."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu import costs
from benchmarks.gpu.costs import Cost
from benchmarks.gpu.sizes import parameters
from benchmarks.kernel_problem import Job, norm, targets
from benchmarks.problem import Config

CHANNELS, GROUPS, SIDE = 64, 32, 56  # of images, as in the first stage of a ResNet
PERIOD = 1_000_003  # of the numbers, a prime: no two rows are equal


@dataclass(frozen=True)
class GpuJob(Job):
    """A `Job`, and what it costs at least.

    Attributes:
        cost: of both passes.
        constants: arrays without gradient, made with `angles` or `targets`; `call` gets a function that gives
            the tensor of their number in place of `tensor`.
        no_grad: only the forward pass exists.
        build: `(library, device) -> call` in place of `call`, for what is no function of tensors.
    """

    cost: Cost = Cost(0)
    constants: tuple[np.ndarray, ...] = ()
    no_grad: bool = False
    build: Callable[[Any, str], Callable] | None = None

    def arrays(self) -> list[np.ndarray]:
        """As of any `Job`, but the numbers come again and again: a billion of them would take minutes."""
        block = np.random.default_rng(7).standard_normal(PERIOD, dtype=np.float32)
        return [np.resize(block / size[-1] ** 0.5, size) for size in self.sizes]


def jobs(config: Config, itemsize: int) -> list[GpuJob]:
    """All jobs, for arrays of that item size."""
    found = [*_rows(config, itemsize), *_channels(config, itemsize), *_products(config, itemsize)]
    return [*found, *_vectors(parameters(config), itemsize)]


def _rows(config: Config, s: int) -> list[GpuJob]:
    """What works along the features of a token, or on each by itself."""
    N, C, V = config.tokens, config.n_embd, config.vocab_size
    x, wide, hidden = N * C, (N, 4 * C), 4 * N * C
    row, element = costs.elementwise(x, s), costs.elementwise(hidden, s)
    added = costs.after_addition(row, x, s)
    T, B = config.context_length, config.batch_size
    scores = N, T
    heads = (B, config.n_head, T, C // config.n_head)

    return [
        GpuJob("layer_norm", ((N, C), (C,), (C,)), norm("layer_norm", (C,)), cost=row),
        GpuJob("rms_norm", ((N, C), (C,)), norm("rms_norm", (C,)), cost=row),
        GpuJob("add_layer_norm", ((N, C), (N, C), (C,), (C,)), _added("add_layer_norm", (C,)), cost=added),
        *(GpuJob(name, (wide,), _plain(name), cost=element)
          for name in ("gelu", "silu", "relu", "leaky_relu", "squared_relu", "sigmoid", "tanh")),
        *(GpuJob(name, (wide,), _plain(name), cost=costs.gated(hidden // 2, s))
          for name in ("swiglu", "geglu")),
        GpuJob("dropout", (wide,), lambda F, constant, x: F.dropout(x, 0.1),
               cost=costs.linear_map(hidden, s)),
        GpuJob(
            "rotary_embedding", (heads,),
            lambda F, constant, x: F.rotary_embedding(x, constant(0), constant(1)),
            cost=costs.linear_map(x, s), constants=angles(T, heads[-1] // 2),
        ),
        *(GpuJob(name, (scores,), _along_rows(name), cost=costs.elementwise(N * T, s))
          for name in ("softmax", "log_softmax")),
        GpuJob(
            "embedding", ((V, C),), lambda F, constant, w: F.embedding(constant(0), w),
            cost=costs.embedding(N, V, C, s), constants=(targets(N, V),),
        ),
    ]  # fmt: skip


def _channels(config: Config, s: int) -> list[GpuJob]:
    """Norms and convolutions of images, as many numbers as the model's activations have."""
    numbers = config.tokens * config.n_embd
    side = min(SIDE, math.isqrt(numbers // CHANNELS // 2))
    images = numbers // (CHANNELS * side * side)
    x, w = (images, CHANNELS, side, side), (CHANNELS,)
    n = math.prod(x)
    group, batch = costs.elementwise(n, s), costs.norm_of_channels(n, s)
    return [
        GpuJob("group_norm", (x, w, w), lambda F, constant, x, *p: F.group_norm(x, GROUPS, *p),
               cost=group),
        GpuJob("batch_norm", (x, w, w),
               lambda F, constant, x, *p: F.batch_norm(x, None, None, *p, True), cost=batch),
        GpuJob("conv2d", (x, (CHANNELS, CHANNELS, 3, 3), w),
               lambda F, constant, *a: F.conv2d(*a, 1, 1), cost=costs.convolution(n, CHANNELS, 9, s)),
        GpuJob("conv1d", ((images, CHANNELS, side * side), (CHANNELS, CHANNELS, 3), w),
               lambda F, constant, *a: F.conv1d(*a, 1, 1), cost=costs.convolution(n, CHANNELS, 3, s)),
    ]  # fmt: skip


def _products(config: Config, s: int) -> list[GpuJob]:
    """What is made of products, and the losses."""
    N, C, V, T = config.tokens, config.n_embd, config.vocab_size, config.context_length
    H, rows = config.n_head, min(config.tokens, 8192)
    B, D = min(config.batch_size, 16), C // config.n_head
    x, one, cache = (B, H, T, D), (B, H, 1, D), (B, H, T, D)
    tokens = (targets(rows, V),)
    return [
        GpuJob("linear", ((N, C), (4 * C, C)), lambda F, constant, *a: F.linear(*a),
               cost=costs.linear(N, C, 4 * C, s)),
        GpuJob("linear_activation", ((N, C), (4 * C, C), (4 * C,)),
               lambda F, constant, *a: F.linear_activation(*a), cost=costs.linear_activation(N, C, 4 * C, s)),
        GpuJob(
            "scaled_dot_product_attention", (x,) * 3,
            lambda F, constant, *a: F.scaled_dot_product_attention(*a, is_causal=True),
            cost=costs.attention(B, H, T, D, s),
        ),
        GpuJob(
            "self_attention", ((B, T, 3 * C),),
            lambda F, constant, x: F.self_attention(x, H, is_causal=True),
            cost=costs.attention(B, H, T, D, s),
        ),
        GpuJob(
            "cached_attention", (one, one, one, cache, cache),
            lambda F, constant, *a: F.cached_attention(*a, T - 1), no_grad=True,
            cost=costs.cached_attention(B, H, T, D, s),
        ),
        GpuJob(
            "cross_entropy", ((rows, V),), lambda F, constant, x: F.cross_entropy(x, constant(0)),
            cost=costs.cross_entropy(rows, V, s), constants=tokens,
        ),
        GpuJob(
            "linear_cross_entropy", ((rows, C), (V, C)),
            lambda F, constant, x, w: F.linear_cross_entropy(x, w, constant(0)),
            cost=costs.linear(rows, C, V, s, written=False), constants=tokens,
        ),
    ]  # fmt: skip


def _vectors(n: int, s: int) -> list[GpuJob]:
    """What happens to all gradients and parameters between two steps, in float32."""
    both = {"sizes": ((n,),), "call": _no_call, "no_grad": True}
    widen = Cost(n * (s + 4))
    return [
        GpuJob("sum_of_squares", **both, cost=Cost(4 * n),
               build=lambda lib, where: _of(lib, where, "norm", n)),
        GpuJob("scale", **both, cost=Cost(8 * n), build=lambda lib, where: _of(lib, where, "scale", n)),
        GpuJob("cast_and_check", **both, cost=widen, build=lambda lib, where: _of(lib, where, "cast", n, s)),
        GpuJob("unscale_and_check", **both, cost=Cost(8 * n),
               build=lambda lib, where: _of(lib, where, "unscale", n)),
        GpuJob("AdamW", **both, cost=costs.adamw(n), build=lambda lib, where: _of(lib, where, "adamw", n)),
    ]  # fmt: skip


def _of(library: Any, where: str, what: str, *sizes: int) -> Callable:
    if library.__name__ == "torch":
        from benchmarks.gpu import torch_vectors as vectors
    else:
        from benchmarks.gpu import vectors
    return getattr(vectors, what)(where, *sizes)


def _no_call(*_: Any) -> None:
    raise NotImplementedError("this job is built, see GpuJob.build")


def _plain(name: str) -> Callable:
    return lambda F, constant, x: getattr(F, name)(x)


def _along_rows(name: str) -> Callable:
    return lambda F, constant, x: getattr(F, name)(x, -1)


def _added(name: str, what: Any) -> Callable:
    return lambda F, constant, x, r, *p: getattr(F, name)(x, r, what, *p)


def angles(positions: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of the rotary embedding, (positions, pairs)."""
    phase = np.outer(np.arange(positions), 1e4 ** -np.linspace(0, 1, pairs, endpoint=False))
    return np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)
