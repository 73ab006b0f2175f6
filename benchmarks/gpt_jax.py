"""The same GPT-2 in JAX: a function of its weights, which are a dict under nanoGPT's names."""

import jax
import jax.numpy as jnp

from benchmarks.gpt import EMBEDDING, HEAD, Config, initial_weights

Params = dict[str, jax.Array]


def make_params(config: Config) -> Params:
    """Returns the weights that the other libraries' models get; the head's are the embedding's."""
    return {name: jnp.array(a) for name, a in initial_weights(config).items() if name != HEAD}


def layer_norm(x: jax.Array, w: jax.Array, b: jax.Array | float = 0.0) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b


def cross_entropy(x: jax.Array, target: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), target[:, None], 1).mean()


def attention(params: Params, layer: str, x: jax.Array, heads: tuple[int, int, int]) -> jax.Array:
    """Causal self-attention of tokens (B T, C), where `heads` are T, their number and their width."""
    qkv = jnp.split(x @ params[f"{layer}.c_attn.weight"].T, 3, -1)
    q, k, v = (part.reshape(-1, *heads) for part in qkv)
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)  # (B, T, heads, C / heads)
    return y.reshape(x.shape) @ params[f"{layer}.c_proj.weight"].T


def mlp(params: Params, layer: str, x: jax.Array) -> jax.Array:
    hidden = jax.nn.gelu(x @ params[f"{layer}.c_fc.weight"].T, approximate=False)
    return hidden @ params[f"{layer}.c_proj.weight"].T


def loss(config: Config, params: Params, idx: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the mean cross entropy of the tokens that follow `idx` (B, T).

    The tokens of all sequences are the rows of one matrix: XLA's steps on (B, T, C) take longer on a CPU.
    """
    T, C = idx.shape[1], config.n_embd
    x = (params[EMBEDDING][idx] + params["transformer.wpe.weight"][:T]).reshape(-1, C)
    for i in range(config.n_layer):
        block, heads = f"transformer.h.{i}", (T, config.n_head, C // config.n_head)
        x += attention(params, f"{block}.attn", layer_norm(x, params[f"{block}.ln_1.weight"]), heads)
        x += mlp(params, f"{block}.mlp", layer_norm(x, params[f"{block}.ln_2.weight"]))
    logits = layer_norm(x, params["transformer.ln_f.weight"]) @ params[EMBEDDING].T
    return cross_entropy(logits, targets.reshape(-1))
