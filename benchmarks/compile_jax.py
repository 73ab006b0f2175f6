"""The jobs of `benchmarks.compile_jobs` in JAX, with `jax.jit`: the same sizes, weights and numbers."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import gpt_jax
from benchmarks.compile_jobs import LENGTH, ROWS
from benchmarks.gpt import BETAS, CONFIGS, chain

EPS = 1e-8


def normal(*shape: int, seed: int = 5) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def weights(*shapes: tuple[int, ...]) -> list[jax.Array]:
    return [normal(*shape, seed=k) * 0.1 for k, shape in enumerate(shapes)]


def training(
    loss_of: Callable, params: Any, *batch: jax.Array,
    lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.999), decay: float = 0.0,
) -> Callable[[], jax.Array]:
    """Returns steps of AdamW, or without decay of Adam, which return the loss; `params` is a tree."""
    (beta1, beta2), tree_map = betas, jax.tree.map

    @partial(jax.jit, donate_argnums=0)
    def step(state: tuple, *batch: jax.Array) -> tuple:
        params, means, squares, count = state
        loss, grads = jax.value_and_grad(loss_of)(params, *batch)
        count += 1
        means = tree_map(lambda m, g: beta1 * m + (1 - beta1) * g, means, grads)
        squares = tree_map(lambda v, g: beta2 * v + (1 - beta2) * g * g, squares, grads)
        size, root = lr / (1 - beta1**count), jnp.sqrt(1 - beta2**count)

        def update(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            return (1 - lr * decay) * p - size * m / (jnp.sqrt(v) / root + EPS)

        return (tree_map(update, params, means, squares), means, squares, count), loss

    zeros = [tree_map(jnp.zeros_like, params) for _ in range(2)]
    state = params, *zeros, jnp.float32(0)

    def run() -> jax.Array:
        nonlocal state
        state, loss = step(state, *batch)
        return loss.block_until_ready()

    return run


def function(call: Callable, *args: jax.Array) -> Callable[[], jax.Array]:
    compiled = jax.jit(call)
    return lambda: compiled(*args).block_until_ready()


def perceptron(params: list[jax.Array], x: jax.Array) -> jax.Array:
    w1, b1, w2, b2 = params
    return jax.nn.relu(x @ w1.T + b1) @ w2.T + b2


def mlp() -> Callable:
    params = weights((64, 64), (64,), (64, 64), (64,))
    x, y = (normal(32, 64, seed=seed) for seed in (8, 9))
    return training(lambda params, x, y: jnp.mean((perceptron(params, x) - y) ** 2), params, x, y)


def policy() -> Callable:
    params = weights((128, 4), (128,), (2, 128), (2,))
    return function(lambda x: perceptron(params, x), normal(1, 4))


def lstm_layer(params: list[jax.Array], x: jax.Array) -> jax.Array:
    """Source: Hochreiter & Schmidhuber, 1997; gates in PyTorch's order: input, forget, cell, output."""
    w_x, w_h, b_x, b_h = params
    zeros = jnp.zeros((x.shape[1], w_h.shape[1]), x.dtype)

    def step(state: tuple, gates: jax.Array) -> tuple:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ w_h.T, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.lax.scan(step, (zeros, zeros), x @ w_x.T + (b_x + b_h))[1]


def lstm() -> Callable:
    params = weights(*[(512, 128), (512, 128), (512,), (512,)] * 2)
    x, y = (normal(32, 16, 128, seed=seed) for seed in (8, 9))

    def loss_of(params: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((lstm_layer(params[4:], lstm_layer(params[:4], x)) - y) ** 2)

    return training(loss_of, params, x, y)


def gpt(name: str) -> Callable:
    config = CONFIGS[name]
    batch = [jnp.asarray(a[0]) for a in chain(config, 1)]
    loss_of, params = partial(gpt_jax.loss, config), gpt_jax.make_params(config)
    return training(loss_of, params, *batch, lr=6e-4, betas=BETAS, decay=0.1)


def sums_and_products(x: jax.Array) -> jax.Array:
    y = jnp.abs((jnp.maximum(x * 2 + 1, x) - 0.5) * x) + x
    return jnp.minimum(y, x) * 0.5 - 1


def transcendental(x: jax.Array) -> jax.Array:
    y = jnp.exp(jnp.tanh(x * 2) + 1)
    return jnp.sqrt(jnp.abs(y * x)) * 0.1 - 0.5 + x


def adamw() -> Callable:
    g, count = normal(LENGTH, seed=6), 0

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(p: jax.Array, m: jax.Array, v: jax.Array, g: jax.Array, size: float, eps: float) -> tuple:
        m, v = m + 0.1 * (g - m), 0.999 * v + 0.001 * g * g
        return (1 - 1e-5) * p - size * m / (jnp.sqrt(v) + eps), m, v

    state = normal(LENGTH), jnp.zeros(LENGTH), jnp.zeros(LENGTH)

    def run() -> jax.Array:
        nonlocal state, count
        count += 1
        root = math.sqrt(1 - 0.999**count)
        state = update(*state, g, 1e-3 * root / (1 - 0.9**count), 1e-8 * root)
        return state[0].block_until_ready()

    return run


MAKE = {
    "MLP": mlp,
    "policy": policy,
    "LSTM": lstm,
    **{name: partial(gpt, name) for name in ("nano", "small", "gpt2")},
    "sums": lambda: function(sums_and_products, normal(LENGTH)),
    "exp": lambda: function(transcendental, normal(LENGTH)),
    "softmax": lambda: function(jax.nn.softmax, normal(*ROWS)),
    "layer_norm": lambda: function(gpt_jax.layer_norm, normal(*ROWS), normal(ROWS[1]), normal(ROWS[1])),
    "gelu": lambda: function(partial(jax.nn.gelu, approximate=False), normal(*ROWS)),
    "cross_entropy": lambda: function(
        gpt_jax.cross_entropy, normal(512, 50304),
        jnp.asarray(np.random.default_rng(8).integers(0, 50304, 512)),
    ),
    "AdamW": adamw,
}


def make(name: str) -> Callable:
    """Returns the calls of a job.

    Raises:
        ValueError: it isn't written in JAX.
    """
    if name not in MAKE:
        raise ValueError(f"the job {name} is not written in JAX; those that are: {', '.join(MAKE)}")
    return MAKE[name]()
