"""What the kernels are timed on, on CPU and GPU: the shapes of a GPT-2, and what each pass costs at least.

    GB/s    = bytes / time        with each array read or written once; what stays on the chip costs nothing
    TFLOP/s = operations / time   of the products; a multiplication and an addition are two

Left out are the parameters of norms, statistics, indices and masks: some thousandths of the rest. So a kernel
that reads something twice gets a lower figure, and none can honestly have one above the measured ceiling.
"""

import contextlib
import importlib
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpt import Config
from benchmarks.harness import Task

PERIOD = 1_000_003  # of the numbers, a prime: no two rows are equal
CONVOLUTIONS = [  # channels, height and width, channels out, kernel, stride, groups: a ResNet's, then others
    (64, 56, 64, 3), (128, 28, 128, 3), (256, 14, 256, 3), (512, 7, 512, 3),
    (64, 56, 128, 3, 2), (128, 28, 256, 3, 2), (256, 14, 512, 3, 2),
    (64, 56, 256, 1), (256, 56, 64, 1), (64, 56, 128, 1, 2), (3, 224, 64, 7, 2),
    (64, 56, 64, 3, 1, 64), (128, 28, 128, 3, 1, 32),
]
WARM_UP = 0.1  # seconds: threads that slept may find themselves on one core at first


class Job(NamedTuple):
    """A call whose forward and backward passes are timed: `F.name(*arrays, *constants, *options)`.

    Attributes:
        sizes: shapes of its arrays, all of which get gradients.
        cost: numbers that are read or written forward and backward, and operations forward and backward.
        constants: arrays without gradient.
        call: `(F, constants, *arrays)`, where the arguments have another order.
        no_grad: only the forward pass exists.
        detail: what its size says beside the first shape.
    """

    name: str
    sizes: tuple[tuple[int, ...], ...]
    cost: tuple[int, int, int, int] = (0, 0, 0, 0)
    constants: tuple[np.ndarray, ...] = ()
    options: tuple = ()
    call: Callable[..., Any] | None = None
    no_grad: bool = False
    detail: str = ""

    @property
    def size(self) -> str:
        return " × ".join(map(str, self.sizes[0])) + self.detail

    def run(self, F: Any, constants: list, *arrays: Any) -> Any:
        if self.call is not None:
            return self.call(F, constants, *arrays)
        return getattr(F, self.name)(*arrays, *constants, *self.options)


def jobs(config: Config, images: tuple[int, int, int, int]) -> list[Job]:
    """Returns all jobs, of a GPT-2 and of a batch of square images (N, C, H, H)."""
    return [*_hidden(config), *_rows(config), *_images(images), *_products(config), *_attention(config)]


def _hidden(config: Config) -> list[Job]:
    """What works on each number of the hidden layer by itself, or on pairs of them."""
    wide = ((config.tokens, 4 * config.n_embd),)
    n = math.prod(wide[0])
    names = ("gelu", "silu", "relu", "leaky_relu", "squared_relu", "sigmoid", "tanh")
    found = [Job(name, wide, (2 * n, 3 * n, 0, 0)) for name in names]
    found += [Job(name, wide, (3 * n // 2, 5 * n // 2, 0, 0)) for name in ("swiglu", "geglu")]
    return [*found, Job("dropout", wide, (2 * n, 2 * n, 0, 0), options=(0.1,))]


def _rows(config: Config) -> list[Job]:
    """What works along the features of a token, or along a row of scores; embeddings."""
    N, C, V, T = config.tokens, config.n_embd, config.vocab_size, config.context_length
    x, w, scores, n = (N, C), (C,), (N, max(T, 1024)), N * C
    heads = (config.batch_size, config.n_head, T, C // config.n_head)
    stays = (2 * n, 3 * n, 0, 0)  # in backward x and the gradient are read, the other gradient is written
    softmax = (2 * math.prod(scores), 3 * math.prod(scores), 0, 0)
    phase = np.outer(np.arange(T), 1e4 ** -np.linspace(0, 1, heads[-1] // 2, endpoint=False))
    angles = np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)
    return [
        Job("layer_norm", (x, w, w), stays, call=lambda F, _, x, *p: F.layer_norm(x, (C,), *p)),
        Job("rms_norm", (x, w), stays, call=lambda F, _, x, w: F.rms_norm(x, (C,), w)),
        Job("add_layer_norm", (x, x, w, w), (4 * n, 4 * n, 0, 0),
            call=lambda F, _, x, r, *p: F.add_layer_norm(x, r, (C,), *p)),
        Job("softmax", (scores,), softmax, options=(-1,)),
        Job("log_softmax", (scores,), softmax, options=(-1,)),
        Job("embedding", ((V, C),), (2 * n, n + V * C, 0, 0), (tokens(N, V),),
            call=lambda F, constants, w: F.embedding(*constants, w)),
        Job("rotary_embedding", (heads,), (2 * n, 2 * n, 0, 0), angles),
    ]


def _images(x: tuple[int, int, int, int]) -> list[Job]:
    """Norms and convolutions. A channel doesn't stay on the chip: batch norm reads it twice."""
    images, C, H, _ = x
    n, w, flat = math.prod(x), (C,), (images, C, H * H)
    return [
        Job("group_norm", (x, w, w), (2 * n, 3 * n, 0, 0), call=lambda F, _, x, *p: F.group_norm(x, 32, *p)),
        Job("batch_norm", (x, w, w), (3 * n, 5 * n, 0, 0),
            call=lambda F, _, x, *p: F.batch_norm(x, None, None, *p, True)),
        Job("conv2d", (x, (C, C, 3, 3), w), (2 * n, 3 * n, 18 * n * C, 36 * n * C), options=(1, 1)),
        Job("conv1d", (flat, (C, C, 3), w), (2 * n, 3 * n, 6 * n * C, 12 * n * C), options=(1, 1)),
    ]


def convolutions() -> list[Job]:
    """Returns the convolutions of CONVOLUTIONS, of batches of 8."""

    def job(channels: int, H: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Job:
        detail = f", {kernel}x{kernel} / {stride} to {out}" + f", {groups} groups" * (groups > 1)
        sizes = (8, channels, H, H), (out, channels // groups, kernel, kernel)
        return Job("conv2d", sizes, options=(None, stride, kernel // 2, 1, groups), detail=detail)

    return [job(*each) for each in CONVOLUTIONS]


def _products(config: Config) -> list[Job]:
    """Linear maps and losses; with both in one the logits stay on the chip."""
    N, C, V, rows = config.tokens, config.n_embd, config.vocab_size, min(config.tokens // 4, 8192)
    x, w, y, flops = N * C, 4 * C * C, 4 * N * C, 8 * N * C * C
    both, logits, targets = (rows + V) * C, 2 * rows * C * V, (tokens(rows, V),)
    map_, bias = ((N, C), (4 * C, C)), (4 * C,)
    return [
        Job("linear", map_, (x + w + y, 2 * x + 2 * w + y, flops, 2 * flops)),
        Job("linear_activation", (*map_, bias), (x + w + y, 2 * x + 2 * w + 2 * y, flops, 2 * flops)),
        Job("cross_entropy", ((rows, V),), (rows * V, 2 * rows * V, 0, 0), targets),
        Job("linear_cross_entropy", ((rows, C), (V, C)), (both, 2 * both, logits, 2 * logits), targets),
    ]


def _attention(config: Config) -> list[Job]:
    T, C, H, B = config.context_length, config.n_embd, config.n_head, min(config.batch_size, 16)
    x, one, joint = (B, H, T, C // H), (B, H, 1, C // H), self_attention(config, B)
    return [
        Job("scaled_dot_product_attention", (x,) * 3, joint.cost,
            call=lambda F, _, *a: F.scaled_dot_product_attention(*a, is_causal=True)),
        joint,
        Job("cached_attention", (one, one, one, x, x), (2 * B * T * C, 0, 4 * B * T * C, 0), options=(T - 1,),
            no_grad=True),
    ]


def self_attention(config: Config, batch_size: int) -> Job:
    """Returns causal self-attention: two products forward and five backward, of which it needs half.

    Source: Dao, "FlashAttention-2", 2023, section 4.1. https://arxiv.org/abs/2307.08691
    """
    T, C, H = config.context_length, config.n_embd, config.n_head
    n = batch_size * T * C
    return Job("self_attention", ((batch_size, T, 3 * C),), (4 * n, 8 * n, 2 * n * T, 5 * n * T),
               call=lambda F, _, x: F.self_attention(x, H, is_causal=True))


def tokens(count: int, classes: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, classes, count)


def normal(size: tuple[int, ...], seed: int) -> np.ndarray:
    """Returns normal numbers that come again and again: a billion different ones would take minutes."""
    if not size:  # the gradient of a loss, which is 1, as usual
        return np.ones((), np.float32)
    block = np.random.default_rng(seed).standard_normal(PERIOD, dtype=np.float32)
    return np.resize(block, size)


class Passes:
    """The passes of a job in mytorch or PyTorch, "eager" or "compiled" by torch.compile."""

    def __init__(self, library, job: Job, device: str = "cpu", dtype: str = "float32", mode: str = "eager"):
        is_torch = library.__name__ == "torch"
        F = importlib.import_module("benchmarks.peers") if is_torch else library.nn.functional
        constants = [library.from_numpy(a).to(device) for a in job.constants]
        arrays = [normal(size, 7) / np.float32(size[-1] ** 0.5) for size in job.sizes]
        xs = [library.from_numpy(a).to(device).to(getattr(library, dtype)) for a in arrays]
        self.library, self.job = library, job
        self.xs = xs if job.no_grad else [x.requires_grad_() for x in xs]

        def call(*xs: Any) -> Any:
            return job.run(F, constants, *xs)

        self.call = library.compile(call, dynamic=False) if mode == "compiled" else call
        results = [] if job.no_grad else self.forward()
        gradients = [library.from_numpy(normal(tuple(y.shape), 9)) for y in results]
        self.gradients = [g.to(device).to(y.dtype) for g, y in zip(gradients, results, strict=True)]

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
