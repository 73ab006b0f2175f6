"""The least that a pass of a kernel has to move and to compute: a table of formulas.

    GB/s    = bytes / time        with each array read or written once; what stays on the chip costs nothing
    TFLOP/s = operations / time   of the products; a multiplication and an addition are two

Left out are the parameters of norms, statistics, indices and masks: some thousandths of the rest. So a kernel
that reads something twice gets a lower figure, and none can honestly have one above the measured ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Bytes and operations of a forward and of a backward pass."""

    forward_bytes: int
    backward_bytes: int = 0
    forward_flops: int = 0
    backward_flops: int = 0

    @property
    def bytes(self) -> int:
        """Of both passes."""
        return self.forward_bytes + self.backward_bytes

    @property
    def flops(self) -> int:
        """Of both passes."""
        return self.forward_flops + self.backward_flops


def elementwise(n: int, itemsize: int) -> Cost:
    """y = f(x); dx from g and from x or y. Also norms and softmax, whose rows stay on the chip."""
    return Cost(2 * n * itemsize, 3 * n * itemsize)


def linear_map(n: int, itemsize: int) -> Cost:
    """y = A x, elementwise or in pairs, with an A that is made anew: dx from g alone. Dropout, rotary."""
    return Cost(2 * n * itemsize, 2 * n * itemsize)


def gated(n: int, itemsize: int) -> Cost:
    """n results of 2 n inputs, each of which gets a gradient."""
    return Cost(3 * n * itemsize, 5 * n * itemsize)


def norm_of_channels(n: int, itemsize: int) -> Cost:
    """Batch norm: a channel doesn't stay on the chip, so x is read twice, and in backward g and x are."""
    return Cost(3 * n * itemsize, 5 * n * itemsize)


def after_addition(cost: Cost, n: int, itemsize: int) -> Cost:
    """x + r is normalized: r is read, the sum is written; in backward the gradient of the sum comes in."""
    return Cost(cost.forward_bytes + 2 * n * itemsize, cost.backward_bytes + n * itemsize)


def cross_entropy(rows: int, classes: int, itemsize: int) -> Cost:
    """Logits are read; in backward once more, and their gradient is written."""
    return Cost(rows * classes * itemsize, 2 * rows * classes * itemsize)


def linear(rows: int, inputs: int, outputs: int, itemsize: int, written: bool = True) -> Cost:
    """x (rows, inputs) @ w.T: a product forward, two backward. Without `written`, y stays on the chip."""
    x, w, y = rows * inputs, inputs * outputs, rows * outputs if written else 0
    flops = 2 * rows * inputs * outputs
    return Cost((x + w + y) * itemsize, (2 * x + 2 * w + y) * itemsize, flops, 2 * flops)


def linear_activation(rows: int, inputs: int, outputs: int, itemsize: int) -> Cost:
    """f(x @ w.T + b): in backward what f was given is read as well, and its gradient is made on the way."""
    cost, y = linear(rows, inputs, outputs, itemsize), rows * outputs * itemsize
    return Cost(cost.forward_bytes, cost.backward_bytes + y, cost.forward_flops, cost.backward_flops)


def convolution(n: int, channels: int, taps: int, itemsize: int) -> Cost:
    """n numbers to as many, each the product of `taps` places of all `channels` with a kernel."""
    flops = 2 * n * taps * channels
    return Cost(2 * n * itemsize, 3 * n * itemsize, flops, 2 * flops)


def attention(batch: int, heads: int, T: int, D: int, itemsize: int, causal: bool = True) -> Cost:
    """Two products forward and five backward, of which causal ones need half. Q, K, V, O and their gradients.

    Source: Dao, "FlashAttention-2", 2023, section 4.1. https://arxiv.org/abs/2307.08691
    """
    n = batch * heads * T * D
    product = 2 * n * T // (2 if causal else 1)
    return Cost(4 * n * itemsize, 8 * n * itemsize, 2 * product, 5 * product)


def cached_attention(batch: int, heads: int, past: int, D: int, itemsize: int) -> Cost:
    """One new token to `past` keys and values: both caches are read."""
    n = batch * heads * past * D
    return Cost(2 * n * itemsize, 0, 4 * n)


def embedding(tokens: int, rows: int, features: int, itemsize: int) -> Cost:
    """Rows are copied; in backward their gradients are added up in a table of zeros."""
    return Cost(2 * tokens * features * itemsize, (tokens + rows) * features * itemsize)


def adamw(n: int) -> Cost:
    """Of float32: parameters and two means are read and written, gradients are read."""
    return Cost(7 * n * 4)
