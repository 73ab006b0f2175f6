"""What the kernels are timed on, on CPU and GPU: the shapes of a GPT-2, and what each pass costs at least.

    GB/s    = bytes / time        with each array read or written once; what stays on the chip costs nothing
    TFLOP/s = operations / time   of the products; a multiplication and an addition are two

Left out are the parameters of norms, statistics, indices and masks: some thousandths of the rest. So a kernel
that reads something twice gets a lower figure, and none can honestly have one above the measured ceiling.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpt import Config
from benchmarks.harness import Task

PERIOD = 1_000_003  # of the numbers, a prime: no two rows are equal
WARM_UP = 0.1  # seconds: threads that slept may find themselves on one core at first


class Cost(NamedTuple):
    """Numbers that are read or written, and operations, of a forward and of a backward pass."""

    forward: int
    backward: int = 0
    forward_flops: int = 0
    backward_flops: int = 0


@dataclass(frozen=True)
class Job:
    """A call whose forward and backward passes are timed.

    Attributes:
        sizes: shapes of its arrays, all of which get gradients.
        call: `(F, constants, *arrays)`; F is a library's functional module.
        constants: arrays without gradient.
        no_grad: only the forward pass exists.
    """

    name: str
    sizes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    cost: Cost = Cost(0)
    constants: tuple[np.ndarray, ...] = ()
    no_grad: bool = False

    @property
    def size(self) -> str:
        return " × ".join(map(str, self.sizes[0]))


def jobs(config: Config, images: tuple[int, int, int, int]) -> list[Job]:
    """Returns all jobs, of a GPT-2 and of a batch of square images (N, C, H, H)."""
    return [*_pointwise(config), *_rows(config), *_images(images), *_products(config), *_attention(config)]


def _pointwise(config: Config) -> list[Job]:
    """What works on each number of the hidden layer by itself, or on pairs of them."""
    wide = ((config.tokens, 4 * config.n_embd),)
    n = math.prod(wide[0])
    names = ("gelu", "silu", "relu", "leaky_relu", "squared_relu", "sigmoid", "tanh")
    found = [Job(name, wide, _plain(name), Cost(2 * n, 3 * n)) for name in names]
    found += [Job(name, wide, _plain(name), Cost(3 * n // 2, 5 * n // 2)) for name in ("swiglu", "geglu")]
    return [*found, Job("dropout", wide, lambda F, _, x: F.dropout(x, 0.1), Cost(2 * n, 2 * n))]


def _rows(config: Config) -> list[Job]:
    """What works along the features of a token, or along a row of scores or of logits; and the embedding."""
    N, C, V, T = config.tokens, config.n_embd, config.vocab_size, config.context_length
    n, scores, rows = N * C, (N, max(T, 1024)), min(N // 4, 8192)  # of logits
    heads = (config.batch_size, config.n_head, T, C // config.n_head)
    stays = Cost(2 * n, 3 * n)  # in backward x and the gradient are read, the other gradient is written
    return [
        Job("layer_norm", ((N, C), (C,), (C,)), lambda F, _, x, *p: F.layer_norm(x, (C,), *p), stays),
        Job("rms_norm", ((N, C), (C,)), lambda F, _, x, w: F.rms_norm(x, (C,), w), stays),
        Job("add_layer_norm", ((N, C), (N, C), (C,), (C,)),
            lambda F, _, x, r, *p: F.add_layer_norm(x, r, (C,), *p), Cost(4 * n, 4 * n)),
        *(Job(name, (scores,), _along_rows(name), Cost(2 * math.prod(scores), 3 * math.prod(scores)))
          for name in ("softmax", "log_softmax")),
        Job("cross_entropy", ((rows, V),), lambda F, constants, x: F.cross_entropy(x, *constants),
            Cost(rows * V, 2 * rows * V), (_tokens(rows, V),)),
        Job("embedding", ((V, C),), lambda F, constants, w: F.embedding(*constants, w),
            Cost(2 * n, n + V * C), (_tokens(N, V),)),
        Job("rotary_embedding", (heads,), lambda F, constants, x: F.rotary_embedding(x, *constants),
            Cost(2 * n, 2 * n), _angles(T, heads[-1] // 2)),
    ]  # fmt: skip


def _images(x: tuple[int, int, int, int]) -> list[Job]:
    """Norms and convolutions. A channel doesn't stay on the chip: batch norm reads it twice."""
    images, C, H, _ = x
    n, w = math.prod(x), (C,)
    return [
        Job("group_norm", (x, w, w), lambda F, _, x, *p: F.group_norm(x, 32, *p), Cost(2 * n, 3 * n)),
        Job("batch_norm", (x, w, w), lambda F, _, x, *p: F.batch_norm(x, None, None, *p, True),
            Cost(3 * n, 5 * n)),
        Job("conv2d", (x, (C, C, 3, 3), w), lambda F, _, *a: F.conv2d(*a, 1, 1),
            Cost(2 * n, 3 * n, 18 * n * C, 36 * n * C)),
        Job("conv1d", ((images, C, H * H), (C, C, 3), w), lambda F, _, *a: F.conv1d(*a, 1, 1),
            Cost(2 * n, 3 * n, 6 * n * C, 12 * n * C)),
    ]  # fmt: skip


def _products(config: Config) -> list[Job]:
    """Linear maps; without their result, which stays on the chip, where the loss is computed with them."""
    N, C, V, rows = config.tokens, config.n_embd, config.vocab_size, min(config.tokens // 4, 8192)
    x, w, y, flops = N * C, 4 * C * C, 4 * N * C, 8 * N * C * C
    logits = 2 * rows * C * V
    return [
        Job("linear", ((N, C), (4 * C, C)), lambda F, _, *a: F.linear(*a),
            Cost(x + w + y, 2 * x + 2 * w + y, flops, 2 * flops)),
        Job("linear_activation", ((N, C), (4 * C, C), (4 * C,)), lambda F, _, *a: F.linear_activation(*a),
            Cost(x + w + y, 2 * x + 2 * w + 2 * y, flops, 2 * flops)),
        Job("linear_cross_entropy", ((rows, C), (V, C)),
            lambda F, constants, x, w: F.linear_cross_entropy(x, w, *constants),
            Cost((rows + V) * C, 2 * (rows + V) * C, logits, 2 * logits), (_tokens(rows, V),)),
    ]  # fmt: skip


def _attention(config: Config) -> list[Job]:
    """Two products forward and five backward, of which causal ones need half.

    Source: Dao, "FlashAttention-2", 2023, section 4.1. https://arxiv.org/abs/2307.08691
    """
    T, C, H, B = config.context_length, config.n_embd, config.n_head, min(config.batch_size, 16)
    x, one, n = (B, H, T, C // H), (B, H, 1, C // H), B * T * C
    causal = Cost(4 * n, 8 * n, 2 * n * T, 5 * n * T)
    return [
        Job("scaled_dot_product_attention", (x,) * 3,
            lambda F, _, *a: F.scaled_dot_product_attention(*a, is_causal=True), causal),
        Job("self_attention", ((B, T, 3 * C),), lambda F, _, x: F.self_attention(x, H, is_causal=True),
            causal),
        Job("cached_attention", (one, one, one, x, x), lambda F, _, *a: F.cached_attention(*a, T - 1),
            Cost(2 * n, 0, 4 * n), no_grad=True),
    ]  # fmt: skip


def _plain(name: str) -> Callable:
    return lambda F, _, x: getattr(F, name)(x)


def _along_rows(name: str) -> Callable:
    return lambda F, _, x: getattr(F, name)(x, -1)


def _tokens(count: int, classes: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, classes, count)


def _angles(positions: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    phase = np.outer(np.arange(positions), 1e4 ** -np.linspace(0, 1, pairs, endpoint=False))
    return np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)


def normal(size: tuple[int, ...], seed: int) -> np.ndarray:
    """Returns normal numbers that come again and again: a billion different ones would take minutes."""
    block = np.random.default_rng(seed).standard_normal(PERIOD, dtype=np.float32)
    return np.resize(block, size)


class Passes:
    """The passes of a job in mytorch or PyTorch.

    Args:
        compiled: applied to the function that is timed, such as torch.compile.
    """

    def __init__(
        self, library: Any, job: Job, device: str = "cpu", dtype: str = "float32",
        compiled: Callable = lambda call: call,
    ):  # fmt: skip
        is_torch = library.__name__ == "torch"
        F = importlib.import_module("benchmarks.peers") if is_torch else library.nn.functional
        constants = [library.from_numpy(a).to(device) for a in job.constants]
        arrays = [normal(size, 7) / np.float32(size[-1] ** 0.5) for size in job.sizes]
        xs = [library.from_numpy(a).to(device).to(getattr(library, dtype)) for a in arrays]
        self.library, self.job = library, job
        self.xs = xs if job.no_grad else [x.requires_grad_() for x in xs]
        self.call = compiled(lambda *xs: job.call(F, constants, *xs))
        self.gradients = [] if job.no_grad else [self._gradient(y) for y in self.forward()]

    def _gradient(self, y: Any) -> Any:
        g = normal(tuple(y.shape), 9) if y.ndim else np.ones((), np.float32)  # 1 of a loss, as usual
        return self.library.from_numpy(g).to(y.device).to(y.dtype)

    def forward(self) -> list:
        """Returns the results."""
        with self.library.no_grad() if self.job.no_grad else contextlib.nullcontext():
            result = self.call(*self.xs)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def both(self) -> list:
        """Returns the results; the arrays have their gradients."""
        for x in self.xs:
            x.grad = None
        results = self.forward()
        self.library.autograd.backward(results, self.gradients)
        return results


def task(library: Any, job: Job) -> Task:
    """Returns the job as a task on the CPU: both passes, or the forward pass where there is no other."""
    passes = Passes(library, job)
    run = passes.forward if job.no_grad else passes.both

    def check() -> float:
        end = time.perf_counter() + WARM_UP
        results = run()
        while time.perf_counter() < end:
            results = run()
        found = [y.detach().reshape(-1)[0] for y in results]
        found += [] if job.no_grad else [x.grad.reshape(-1)[-1] for x in passes.xs]
        return sum(number.item() for number in found)

    def step() -> float:
        run()
        return 0.0  # to read results takes time; those of the check are compared

    return Task(step, check)
