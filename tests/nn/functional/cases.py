"""Calls that mean the same in `mytorch.nn.functional` and in PyTorch's, for every variant of every composite.

CASES[name] is a list of (positional arguments, keyword arguments). NumPy arrays become tensors; float32 ones
are cast to the dtype that is tested, and those among the positional arguments get gradients.
"""

import itertools

import numpy as np

from mytorch.nn import LinearCrossEntropyOptions
from mytorch.nn.functional.quantization import FORMATS, quantized

rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def positive(*shape):
    return np.asarray(rng.uniform(0.1, 1, shape), "float32")


def integers(high, *shape):
    return rng.integers(0, high, shape)


def slopes(*shape):
    return np.asarray(rng.uniform(-0.5, 1, shape), "float32")


def mask(*shape):
    return rng.random(shape) < 0.6


def case(*args, **kwargs):
    return args, kwargs


def activation(**kwargs):
    shapes = [(4, 7), (), (0, 3), (2, 1, 5)]
    special = np.array([-np.inf, -1e4, -20, -3.5, -0.4, -0.0, 0, 1e-3, 0.3, 2, 6, 30, 1e4, np.nan], "float32")
    return [*(case(np.asarray(3 * normal(*s)), **kwargs) for s in shapes), case(special[1:-1], **kwargs)]


def gated(**kwargs):
    yield case(3 * normal(4, 6), **kwargs)
    yield case(3 * normal(4, 6, 3), dim=1, **kwargs)
    yield case(normal(2), dim=0, **kwargs)
    yield case(normal(0, 4), **kwargs)
    yield case(normal(2, 0), **kwargs)


def rotary():
    for interleaved in (False, True):
        yield case(normal(2, 3, 5, 8), normal(5, 4), normal(5, 4), interleaved)
        yield case(normal(5, 6), normal(5, 3), normal(5, 3), interleaved)
        yield case(normal(2, 3, 5, 6), normal(2, 1, 5, 3), normal(3), interleaved)
        yield case(normal(2, 2, 3, 4, 2), normal(4, 1), normal(2, 1, 4, 1), interleaved)
        yield case(normal(0, 5, 8), normal(5, 4), normal(5, 4), interleaved)
        # heads as a model makes them: strided views of one projection
        yield case(normal(2, 5, 9, 4).transpose(0, 2, 1, 3)[:, 3:6], normal(5, 2), normal(5, 2), interleaved)


def attention():
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 7, 4), normal(2, 3, 7, 6)
    yield case(q, k, v)
    yield case(q, k, v, scale=0.3)
    yield case(q, k, v, normal(5, 7))
    yield case(q, k, v, normal(2, 1, 1, 7))
    yield case(q, k, v, mask(5, 7))
    yield case(q, k, v, mask(2, 1, 5, 7))
    yield case(q, k, v, np.arange(7) < np.array([[0], [7], [1], [0], [3]]))  # two queries see nothing
    yield case(q, k, v, np.where(mask(5, 7), 0, -np.inf).astype("float32"))
    yield case(q, k, v, is_causal=True)
    yield case(k, q, normal(2, 3, 5, 6), is_causal=True)
    yield case(q[0, 0], k[0, 0], v[0, 0])
    yield case(q[0], k[0], v[0], is_causal=True)
    yield case(normal(2, 6, 5, 4), k, v, enable_gqa=True)
    yield case(normal(6, 5, 4), k[0], v[0], enable_gqa=True, is_causal=True)
    yield case(normal(2, 1, 3, 4), normal(1, 3, 5, 4), normal(1, 3, 5, 6))
    yield case(normal(2, 3, 5, 4), normal(7, 4), normal(7, 6))
    for keys in (200, 150, 230):  # several tiles of queries
        yield case(normal(1, 2, 200, 8), normal(1, 2, keys, 8), normal(1, 2, keys, 8), is_causal=True)
    for keys, window in ((7, 3), (3, 2), (9, 1), (9, 50)):
        yield case(
            normal(2, 9, 4), normal(2, keys, 4), normal(2, keys, 6), is_causal=True, sliding_window=window
        )
    for keys, window in ((200, 50), (150, 70), (230, 65), (60, 64)):
        q, k, v = normal(1, 2, 200, 8), normal(1, 2, keys, 8), normal(1, 2, keys, 8)
        yield case(q, k, v, is_causal=True, sliding_window=window)
    yield case(normal(3, 4), normal(0, 4), normal(0, 6))
    yield case(normal(0, 4), normal(3, 4), normal(3, 6))
    yield case(normal(0, 2, 3, 4), normal(0, 2, 5, 4), normal(0, 2, 5, 4))
    # heads as a model makes them: strided views of one projection
    yield case(*(a.transpose(0, 2, 1, 3) for a in np.split(normal(2, 5, 9, 4), 3, axis=2)), is_causal=True)


def self_attention():
    for B, T, H, E in ((2, 5, 3, 4), (1, 200, 2, 8), (3, 1, 1, 6), (0, 5, 2, 4), (2, 0, 2, 4)):
        qkv = normal(B, T, 3 * H * E)
        yield case(qkv, H)
        yield case(qkv, H, is_causal=True)
        yield case(qkv, H, scale=0.3, is_causal=True, sliding_window=3)
    qkv = normal(2, 5, 3 * 12)
    yield case(qkv, 3, normal(5, 5))
    yield case(qkv, 3, mask(2, 1, 5, 5))
    yield case(normal(5, 2, 3 * 12).transpose(1, 0, 2), 3, is_causal=True)


def conv2d():
    x, w = normal(2, 4, 7, 9), normal(6, 4, 3, 2)
    yield case(x, w, normal(6))
    yield case(x, w, None, 2, 1)
    yield case(x, w, normal(6), (2, 3), (2, 1), (1, 2))
    yield case(x, w, normal(6), 2, 2, 2)
    yield case(x, normal(6, 4, 2, 2), normal(6), 3)  # pixels that no window meets
    yield case(x, w, normal(6), padding="same", dilation=(2, 1))
    yield case(x, normal(6, 2, 3, 3), normal(6), 1, 1, 1, 2)
    yield case(x, normal(8, 1, 3, 3), normal(8), 2, 1, 1, 4)
    yield case(x, normal(5, 4, 1, 1), normal(5))
    yield case(x, normal(5, 4, 1, 1), None, 2)
    yield case(x[0], w, normal(6))
    yield case(normal(0, 4, 7, 9), w, normal(6))
    # Several tiles. Small numbers, no bias: gradients are sums of hundreds of products, which PyTorch, too,
    # rounds differently on another processor.
    x, w, _ = normal(2, 3, 16, 17), normal(70, 3, 3, 3), normal(70)
    yield case(0.1 * x, 0.03 * w, None, 1, 1)


def conv1d():
    x = normal(2, 4, 9)
    yield case(x, normal(6, 4, 3), normal(6))
    yield case(x, normal(6, 2, 3), None, 2, 1, 2, 2)
    yield case(x[0], normal(4, 1, 4), normal(4), 1, "same", 1, 4)
    yield case(normal(0, 4, 9), normal(6, 4, 3), normal(6))


def cached_attention():
    """All arguments by name: tensors without gradient."""

    def cached(queries, heads, kv_heads, size, position, features=(4, 6), **kwargs):
        shapes = {"query": (heads, queries, features[0])}
        for i, name in enumerate(("key", "value")):
            shapes[name] = (kv_heads, queries, features[i])
            shapes[f"{name}_cache"] = (kv_heads, size, features[i])
        return case(**{n: normal(2, *s) for n, s in shapes.items()}, position=position, **kwargs)

    for queries, position in ((1, 0), (1, 6), (1, 7), (3, 0), (3, 2), (8, 0)):
        yield cached(queries, 3, 3, 8, position)
    yield cached(1, 6, 2, 300, 290, features=(33, 17), enable_gqa=True)  # several chunks of keys
    yield cached(1, 6, 2, 300, 255, scale=0.2, enable_gqa=True)
    yield cached(70, 4, 2, 300, 100, enable_gqa=True)
    yield cached(1, 0, 0, 4, 2)


def cached_self_attention():
    """All arguments by name, as above."""

    def cached(batches, length, heads, kv_heads, size, position, features=4, angles=None, **kwargs):
        caches = {name: normal(batches, kv_heads, size, features) for name in ("key_cache", "value_cache")}
        qkv = normal(batches, length, (heads + 2 * kv_heads) * features)
        for name, function in () if angles is None else (("cos", np.cos), ("sin", np.sin)):
            caches[name] = np.asarray(function(np.arange(np.prod(angles)).reshape(angles)), "float32")
        return case(qkv=qkv, num_heads=heads, **caches, position=position, **kwargs)

    yield cached(2, 1, 3, 3, 8, 0)
    yield cached(2, 1, 6, 2, 8, 7, angles=(1, 1, 1, 2))
    yield cached(3, 1, 4, 1, 8, 5, angles=(3, 1, 1, 2), scale=0.3)
    yield cached(1, 1, 2, 1, 300, 290, 34, angles=(1, 17))
    yield cached(2, 5, 6, 2, 8, 2, angles=(1, 5, 2))
    yield cached(2, 3, 4, 4, 8, 0)


def quantized_linear():
    """A row of the input, as in decoding; several; rows of the weight that fill no tile of a kernel."""
    for format in FORMATS:
        for shape, features in (((64,), 70), ((1, 1, 32), 4), ((5, 64), 100), ((0, 32), 3)):
            yield case(normal(*shape), *quantized(normal(features, shape[-1]), format), normal(features))
        yield case(normal(2, 3, 96), *quantized(normal(5, 96), format))


OPTIONS = [
    {"reduction": reduction, **weight}
    for reduction in ("mean", "sum", "none")
    for weight in ({}, {"weight": positive(4)})
]


def shapes_of_targets(**kwargs):
    yield case(normal(5, 4), integers(4, 5), **kwargs)
    yield case(normal(5, 4), np.array([1, 2, 3, 2, 0]), ignore_index=2, **kwargs)
    yield case(normal(4), np.array(2), **kwargs)
    yield case(normal(2, 4, 3), integers(4, 2, 3), **kwargs)
    yield case(normal(2, 4, 3, 2), integers(4, 2, 3, 2), **kwargs)


def nll_loss():
    for options in OPTIONS:
        yield case(normal(5, 4), np.array([1, -100, 3, -100, 0]), **options)
    yield from shapes_of_targets()
    yield from shapes_of_targets(reduction="none", weight=positive(4))
    yield case(normal(5, 4), integers(4, 5).astype("uint8"))


def cross_entropy():
    for options in OPTIONS:
        for smoothing in (0.0, 0.2):
            yield case(normal(5, 4), np.array([1, -100, 3, -100, 0]), label_smoothing=smoothing, **options)
            yield case(normal(5, 4), positive(5, 4), label_smoothing=smoothing, **options)
    for options in ({}, {"reduction": "none", "weight": positive(4), "label_smoothing": 0.2}):
        yield from shapes_of_targets(**options)
        yield case(normal(4), positive(4), **options)
        yield case(normal(2, 4, 3), positive(2, 4, 3), **options)
    yield case(1e4 * normal(5, 4), integers(4, 5))
    yield case(normal(5, 4), integers(4, 5).astype("uint8"))
    yield case(normal(3, 4), np.full(3, -100), reduction="sum")
    yield case(normal(3, 4), np.full(3, -100))
    yield case(normal(0, 4), integers(4, 0))
    yield case(normal(3, 1), np.zeros(3, "int64"))
    yield case(normal(40, 131), integers(131, 40), label_smoothing=0.1)
    special = np.zeros((6, 4), "float32")
    special[:3, 1], special[3], special[4] = (np.nan, np.inf, -np.inf), -np.inf, 1e4
    for classes in ([1] * 6, [2] * 6, [-100, 1, -100, 2, 1, 0]):
        for smoothing in (0.0, 0.1):
            yield case(special, np.array(classes), reduction="none", label_smoothing=smoothing)


def linear_cross_entropy():
    numbers = np.array([1, -100, 3, -100, 0])
    chunks = LinearCrossEntropyOptions(batch_chunk_size=2)
    for options in OPTIONS:
        for smoothing in (0.0, 0.2):
            more = {"label_smoothing": smoothing, **options}
            yield case(normal(5, 3), normal(4, 3), numbers, normal(4), options=chunks, **more)
            yield case(normal(5, 3), normal(4, 3), positive(5, 4), normal(4), **more)
    for more in ({}, {"reduction": "none", "weight": positive(4), "label_smoothing": 0.2}):
        yield case(normal(3), normal(4, 3), np.array(2), **more)
        yield case(normal(5, 3), normal(4, 2, 3), integers(4, 5, 2), normal(4, 2), options=chunks, **more)
        yield case(normal(5, 3), normal(4, 2, 2, 3), integers(4, 5, 2, 2), ignore_index=1, **more)
        yield case(normal(5, 3), normal(4, 2, 3), positive(5, 4, 2), **more)
    yield case(1e4 * normal(5, 3), normal(4, 3), integers(4, 5))
    yield case(normal(5, 3), normal(1, 3), np.zeros(5, "int64"))
    yield case(normal(3, 3), normal(4, 3), np.full(3, -100), reduction="sum")
    yield case(normal(3, 3), normal(4, 3), np.full(3, -100))
    yield case(normal(0, 3), normal(4, 3), integers(4, 0), normal(4))
    yield case(normal(2, 0), normal(4, 0), integers(4, 2), normal(4))


def steps(parts, *more):
    """Of 1, 5 and no sequences: of one length, of several, from the end; `more` are (weight's shape, …)."""
    for sizes in ((5, 5, 5), (5, 3, 1, 1), (1,), (0, 0)):
        for reverse in (False, True):
            arguments = [normal(*shape) if isinstance(shape, tuple) else shape for shape in more]
            yield sizes, reverse, normal(sum(sizes), parts * 4), arguments


def rnn_steps():
    for sizes, reverse, gates, (w,) in steps(1, (4, 4)):
        for nonlinearity in ("tanh", "relu"):
            yield case(gates, normal(sizes[0], 4), w, nonlinearity, sizes, reverse)


def lstm_steps():
    for sizes, reverse, gates, (w, p, r) in steps(4, (16, 4), (16, 3), (3, 4)):
        h, c = normal(sizes[0], 4), normal(sizes[0], 4)
        yield case(gates, h, c, w, None, sizes, reverse)
        yield case(gates, h[:, :3], c, p, r, sizes, reverse)
    yield case(100 * normal(4, 16), normal(2, 4), normal(2, 4), normal(16, 4), None, (2, 2))


def gru_steps():
    for sizes, reverse, gates, (w, b) in steps(3, (12, 4), (12,)):
        for bias in (b, None):
            yield case(gates, normal(sizes[0], 4), w, bias, sizes, reverse)


REDUCTIONS = ("mean", "sum", "none")


def regression(**kwargs):
    for reduction in REDUCTIONS:
        yield case(normal(3, 4), normal(3, 4), reduction=reduction, **kwargs)
    yield case(normal(3, 4), np.where(mask(3, 4), 9, 0).astype("float32") + normal(3, 4), **kwargs)
    yield case(normal(), normal(), **kwargs)
    yield case(normal(0), normal(0), reduction="sum", **kwargs)


def batch_norm():
    running = {"running_mean": normal(4), "running_var": positive(4)}
    for shape in ((6, 4), (3, 4, 5), (2, 4, 3, 2), (2, 4, 2, 1, 3), (1, 4, 6)):
        yield case(normal(*shape), None, None, normal(4), normal(4), training=True)
        yield case(normal(*shape), **running)
    yield case(normal(3, 4, 5), **running, training=True, momentum=0.3)
    yield case(normal(3, 4, 5), **running, weight=normal(4), bias=normal(4))
    yield case(normal(3, 4, 5), None, None, normal(4), training=True, eps=0.1)
    yield case(normal(3, 4, 5), None, None, None, normal(4), training=True)
    yield case(5 + normal(9, 4, 5), None, None, training=True)
    yield case(normal(0, 4, 5), None, None, normal(4), normal(4), training=True)
    yield case(normal(0, 4), None, None, normal(4), normal(4), training=True)
    yield case(normal(9, 150), None, None, normal(150), normal(150), training=True)
    yield case(normal(9, 150), running_mean=normal(150), running_var=positive(150), weight=normal(150))
    yield case(normal(3, 2, 70, 60), None, None, training=True)


def avg_pool(dims):
    shape = (7, 5, 6)[:dims]
    yield case(normal(2, 3, *shape), 2)
    yield case(normal(3, *shape), 3, 2, 1)
    yield case(normal(3, *shape), (3, 2, 4)[:dims], (1, 2, 3)[:dims], (1, 0, 2)[:dims], ceil_mode=True)
    yield case(normal(2, 3, *shape), 3, 2, 1, ceil_mode=True, count_include_pad=False)
    yield case(normal(0, 3, *shape), 2)
    yield case(normal(1, 2, *shape), 1)
    if dims > 1:
        yield case(normal(2, 3, *shape), 3, 2, 1, divisor_override=-5)


def adaptive_avg_pool(dims):
    shape = (7, 6, 5)[:dims]
    for size in (1, 3, 7, 10, (7, 2, 4)[:dims]):
        yield case(normal(2, 3, *shape), size)
    yield case(normal(3, *shape), 2)
    yield case(normal(0, 3, *shape), 2)
    if dims > 1:
        yield case(normal(2, 3, *shape), (None, 4, 2)[:dims])


def interpolate():
    for dims, mode in enumerate(("linear", "bilinear", "trilinear"), 1):
        shape = (4, 5, 3)[:dims]
        for kind in ("nearest", "nearest-exact", "area", mode):
            yield case(normal(2, 3, *shape), 7, mode=kind)
            yield case(normal(1, 2, *shape), scale_factor=(0.6, 1.7, 2)[:dims], mode=kind)
        yield case(normal(2, 3, *shape), (7, 3, 1)[:dims], mode=mode, align_corners=True)
        yield case(normal(2, 3, *shape), scale_factor=1.7, mode=mode, recompute_scale_factor=True)
    for options in ({}, {"align_corners": True}, {"antialias": True}):
        yield case(normal(2, 3, 5, 6), (7, 4), mode="bicubic", **options)
        yield case(normal(2, 3, 5, 6), scale_factor=(0.4, 1.3), mode="bicubic", **options)
    yield case(normal(2, 3, 7, 6), (3, 8), mode="bilinear", antialias=True)
    yield case(normal(0, 3, 4), 2)


def grid_sample():
    paddings = "zeros", "border", "reflection"
    for mode, padding in itertools.product(("bilinear", "nearest", "bicubic"), paddings):
        for align in (False, True):
            how = {"mode": mode, "padding_mode": padding, "align_corners": align}
            far = 0.4 if mode == "bicubic" else 1.1  # far outside, the weights' derivatives sum to 0
            yield case(normal(2, 3, 4, 5), np.float32(far) * normal(2, 3, 2, 2), **how)
            if mode != "bicubic":
                yield case(normal(2, 2, 3, 4, 5), 1.1 * normal(2, 2, 3, 2, 3), **how)
    yield case(normal(2, 3, 1, 1), normal(2, 3, 2, 2), padding_mode="reflection", align_corners=True)
    yield case(normal(2, 3, 1, 4), normal(2, 3, 2, 2), padding_mode="border", align_corners=False)
    for shape in ((0, 3, 4, 5), (2, 0, 4, 5)):
        yield case(normal(*shape), normal(shape[0], 3, 2, 2), align_corners=False)
    yield case(normal(2, 3, 4, 5), normal(2, 0, 2, 2), align_corners=False)


def embedding_bag():
    rows, bags, index = normal(7, 5), np.array([0, 2, 2, 5]), np.array([3, 1, 6, 1, 1, 0])
    for mode in ("sum", "mean", "max"):
        yield case(integers(7, 3, 4), rows, mode=mode)
        yield case(index, rows, bags, mode=mode)
        yield case(index, rows, np.array([0, 0, 6]), mode=mode)
        yield case(index, rows, np.append(bags, 6), mode=mode, include_last_offset=True)
        yield case(index, rows, bags, mode=mode, padding_idx=1)
        yield case(index.astype("int32"), rows, bags.astype("int32"), mode=mode, padding_idx=-1)
        yield case(index[:0], rows, bags[:0], mode=mode)
        yield case(index[:0], rows, bags[:1], mode=mode)
    last = np.array([0, 1, 6, 6, 6, 3])  # PyTorch takes the frequencies of other rows unless it is the last
    for mode in ("sum", "mean"):
        yield case(last, rows, bags, mode=mode, scale_grad_by_freq=True)
    factors = None, 2, False, "sum", False
    yield case(index, rows, bags, *factors, normal(6))
    yield case(index, rows, bags, *factors, normal(6), False, 1)
    yield case(integers(7, 3, 4), rows, None, *factors, normal(3, 4))


def log_probs(*shape):
    x = normal(*shape)
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype("float32")


def ctc_loss():
    targets = np.array([[1, 2, 2], [3, 1, 4], [4, 4, 1]])
    for how in ({}, {"reduction": "sum"}, {"reduction": "none"}):
        yield case(log_probs(8, 3, 5), targets, np.array([8, 8, 8]), np.array([3, 3, 3]), **how)
        yield case(log_probs(8, 3, 5), targets, (8, 6, 7), (3, 1, 2), **how)
        yield case(log_probs(8, 5), np.array([1, 2, 2]), np.array([7]), np.array([3]), **how)
    yield case(log_probs(8, 3, 5), np.array([1, 3, 1, 4, 2, 4]), (8, 6, 7), (1, 3, 2))
    yield case(log_probs(8, 2, 5), np.array([[0, 1], [3, 3]]), (8, 5), (2, 2), blank=2)
    yield case(log_probs(4, 3, 5), targets, (4, 3, 4), (0, 0, 2), reduction="none")
    for zero in (False, True):  # 1, 2, 2 needs four steps
        yield case(log_probs(4, 3, 5), targets, (3, 4, 4), (3, 3, 3), reduction="none", zero_infinity=zero)
    yield case(log_probs(4, 2, 5), targets[:2], (0, 3), (0, 2), reduction="none")
    yield case(log_probs(3, 1, 2), np.array([[1]]), (1,), (1,))


CASES = {
    "rnn_steps": rnn_steps(),
    "lstm_steps": lstm_steps(),
    "gru_steps": gru_steps(),
    **{
        name: activation()
        for name in (
            "hardsigmoid", "hardswish", "logsigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
            "softsign", "squared_relu", "tanh", "tanhshrink",
        )
    },
    "celu": [*activation(), *activation(alpha=0.3), *activation(alpha=-2.0)],
    "elu": [*activation(), *activation(alpha=0.3), *activation(alpha=-2.0)],
    "glu": gated(),
    "swiglu": gated(),
    "geglu": [*gated(), *gated(approximate="tanh")],
    "rotary_embedding": rotary(),
    "hardshrink": [*activation(), *activation(lambd=0.3), *activation(lambd=-1.0)],
    "hardtanh": [*activation(), *activation(min_val=-0.4, max_val=2.0), *activation(min_val=2, max_val=2)],
    "leaky_relu": [*activation(), *activation(negative_slope=-0.3)],
    "prelu": [
        *(case(x, slopes(1)) for (x,), _ in activation()), case(normal(4, 3), slopes(3)),
        case(normal(2, 3, 4, 5), slopes(3)), case(normal(0, 3), slopes(3)), case(normal(4), slopes()),
        case(normal(), slopes(1)), case(normal(2, 0, 4), slopes(0)),
    ],
    "rrelu": [
        *activation(), *activation(lower=-0.5, upper=1.5), *activation(lower=0.3, upper=0.3, training=True),
    ],
    "softplus": [*activation(), *activation(beta=2.5, threshold=3), *activation(beta=-0.5, threshold=1e3)],
    "soft_cap": [*activation(cap=30.0), *activation(cap=0.7)],
    "softshrink": [*activation(), *activation(lambd=0), *activation(lambd=2.0)],
    "threshold": [*activation(threshold=0.3, value=-2.0), *activation(threshold=-3.5, value=1e3)],
    "gelu": [*activation(), *activation(approximate="tanh"), case(3 * normal(300, 257))],
    "linear_cross_entropy": linear_cross_entropy(),
    "softmax": [
        *(case(normal(4, 5, 3), dim=dim) for dim in (0, 1, -1)),
        *(case(normal(3, 150, 200), dim=dim) for dim in (0, 1, -1)),
        case(np.array([[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]], "float32"), dim=1),
        case(np.array([[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]], "float32").T, dim=0),
        case(normal(), dim=0), case(normal(2, 0), dim=1), case(normal(0, 2), dim=1),
        case(1e4 * normal(3, 4), dim=1),
        case(np.array([[-np.inf, 1, 2], [-np.inf, -np.inf, 0]], "float32"), dim=1),
    ],
    "layer_norm": [
        case(normal(4, 3, 7), (7,), normal(7), normal(7)), case(normal(4, 3, 7), (7,), normal(7)),
        case(normal(4, 3, 7), (7,), None, normal(7)), case(normal(4, 3, 7), (7,)),
        case(normal(4, 3, 7), (3, 7), normal(3, 7), normal(3, 7)), case(normal(5), (5,), normal(5), eps=0.1),
        case(normal(0, 4), (4,), normal(4), normal(4)), case(normal(3, 0), (0,), normal(0)),
        case(np.ones((2, 4), "float32"), (4,), normal(4)), case(5 + normal(3, 50), (50,)),
        case(normal(70, 33), (33,), normal(33), normal(33)), case(normal(2, 4200), (4200,)),
    ],
    "conv1d": [*conv1d()],
    "conv2d": [*conv2d()],
    "conv3d": [
        case(normal(2, 4, 4, 5, 3), normal(6, 2, 2, 3, 1), normal(6), 1, (1, 0, 0), 1, 2),
        case(normal(4, 5, 4, 6), normal(3, 4, 2, 2, 2), None, (2, 1, 3), "valid", (1, 2, 1)),
        case(normal(0, 3, 4, 4, 4), normal(2, 3, 3, 3, 3), normal(2)),
    ],
    "linear": [
        case(normal(3, 4, 5), normal(6, 5), normal(6)), case(normal(3, 4, 5), normal(6, 5)),
        case(normal(5), normal(6, 5), normal(6)), case(normal(2, 5), normal(5)),
        case(normal(2, 5), normal(6, 5), normal(1)), case(normal(2, 5), normal(6, 5), normal(2, 6)),
        case(normal(2, 5), normal(6, 5), normal(2, 1)),
        case(normal(0, 5), normal(6, 5), normal(6)), case(normal(2, 0), normal(6, 0), normal(6)),
        case(normal(2, 5), normal(0, 5), normal(0)),
    ],
    "linear_activation": [
        case(*arguments, activation=activation)
        for activation in ("gelu", "gelu_tanh", "relu", "silu")
        for arguments in (
            (normal(3, 4, 5), normal(6, 5), normal(6)), (slopes(70, 30), slopes(90, 30) / 10),
            (normal(5), normal(6, 5), normal(6)), (normal(0, 5), normal(6, 5), normal(6)),
            (normal(2, 0), normal(6, 0), normal(6)), (slopes(9, 40), slopes(130, 40) / 10, normal(130)),
        )
    ],
    "embedding": [
        case(integers(6, 3, 4), normal(6, 5)), case(integers(6, 3).astype("int32"), normal(6, 5)),
        case(np.array(2), normal(6, 5)), case(np.zeros(0, "int64"), normal(6, 5)),
        case(integers(6, 3, 4), normal(6, 5), padding_idx=2),
        case(integers(6, 9), normal(6, 1), padding_idx=-1),
        case(integers(3, 9), normal(6, 5), scale_grad_by_freq=True),
    ],
    "dropout": [
        case(normal(3, 4), p=0.3, training=False), case(normal(3, 4), p=0.0), case(normal(3, 4), p=1.0),
    ],
    "mse_loss": [
        *(case(normal(3, 4), normal(3, 4), reduction=r) for r in ("mean", "sum", "none")),
        *(case(normal(3, 4), normal(3, 4), reduction=r, weight=positive(3, 4))
          for r in ("mean", "sum", "none")),
        case(normal(), normal()), case(normal(0), normal(0), reduction="sum"),
        case(normal(3), np.array([1, 2, 3])), case(np.array([1, 2, 3]), normal(3)),
    ],
    "l1_loss": [
        *regression(),
        *(case(normal(3, 4), normal(3, 4), reduction=r, weight=positive(3, 4)) for r in REDUCTIONS),
    ],
    "smooth_l1_loss": [
        *regression(), *regression(beta=0.3), *regression(beta=0.0), case(normal(3), np.array([1, 2, 3])),
    ],
    "huber_loss": [
        *regression(), *regression(delta=0.3),
        *(case(normal(3, 4), normal(3, 4), reduction=r, weight=positive(3, 4)) for r in REDUCTIONS),
    ],
    "batch_norm": batch_norm(),
    "group_norm": [
        case(normal(3, 4, 5), 2, normal(4), normal(4)), case(normal(3, 4, 2, 3), 4, normal(4)),
        case(normal(3, 6), 2, normal(6), normal(6)), case(5 + normal(2, 4, 9), 1, eps=0.1),
        case(normal(0, 4, 5), 2, normal(4), normal(4)), case(normal(2, 6, 5, 300), 2),
        case(normal(3, 6, 17), 6, normal(6), normal(6)),
    ],
    "rms_norm": [
        case(normal(4, 3, 7), (7,), normal(7)), case(normal(4, 3, 7), (7,)), case(normal(5), (5,), normal(5)),
        case(normal(4, 3, 7), (3, 7), normal(3, 7), eps=0.1), case(normal(0, 4), (4,), normal(4)),
        case(normal(3, 0), (0,), normal(0)), case(10 + normal(3, 50), (50,)),
        case(normal(70, 33), (33,), normal(33)), case(normal(2, 4200), (4200,)),
    ],
    "bilinear": [
        case(normal(5, 3), normal(5, 4), normal(2, 3, 4), normal(2)),
        case(normal(3), normal(4), normal(2, 3, 4)), case(normal(2, 5, 3), normal(2, 5, 4), normal(6, 3, 4)),
        case(normal(0, 3), normal(0, 4), normal(2, 3, 4)),
    ],
    **{f"avg_pool{d}d": avg_pool(d) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": adaptive_avg_pool(d) for d in (1, 2, 3)},
    "interpolate": interpolate(),
    "nll_loss": nll_loss(),
    "cross_entropy": cross_entropy(),
    "scaled_dot_product_attention": attention(), "cached_attention": cached_attention(),
    "cached_self_attention": cached_self_attention(),
    "self_attention": self_attention(), "quantized_linear": quantized_linear(),
    "grid_sample": grid_sample(), "embedding_bag": embedding_bag(), "ctc_loss": ctc_loss(),
}
CASES["log_softmax"] = CASES["softmax"]
CASES = {name: list(cases) for name, cases in CASES.items()}
CASES["add_layer_norm"] = [
    case(x, normal(*x.shape), *rest, **kwargs) for (x, *rest), kwargs in CASES["layer_norm"]
]


def declined(name, args):
    """What the kernel for the CPU says to a case that it doesn't do; None if it does it."""
    if name in ("cross_entropy", "linear_cross_entropy"):
        target = args[1 if name == "cross_entropy" else 2]
        return "for class indices" if target.dtype.kind == "f" else None
    if name == "linear":
        weight, bias = args[1], args[2] if len(args) > 2 else None
        fits = weight.ndim == 2 and (bias is None or bias.shape == weight.shape[:1])
        return None if fits else "takes a weight"
    if name == "lstm_steps":
        return None if args[4] is None else "without a projection"
    return None
