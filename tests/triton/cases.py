"""
The calls that every Triton kernel is tested with. To test a kernel, add rows here; there is no more to do.

- `CASES[name]`: small calls of a composite. The interpreter compares results and gradients with the
  float64 reference: of the rows in `CHOSEN` (else the first four) in float32, of the first of these in
  float16, of the second in bfloat16. Row 0 also runs in other layouts of memory, and the first case that the
  kernel supports of tests/nn/functional/cases.py runs, too. At most 64 programs, each of whose operations
  takes 0.1 ms; several blocks along every axis, a partial block, each option, NaN, inf, masked rows, and
  empty arrays.
- `COMPILED[name]`: calls of real size, made with `empty`, compiled in one dtype for sm_90 in each tuned
  configuration; the first row of a few also for those of `OTHER_GPUS`. A kernel may use 255
  registers, no stack, and no more shared memory than the GPU has. Each row adds a kernel, or the variant that
  needs most.
- MYTORCH_TEST_ALL=1 runs every row in every dtype, and compiles it for every GPU.
- A row is `case(*arguments, **keywords)` of the public function. Float32 arrays are cast to the dtype that is
  tested; other arrays stay. `normal`, `positive`, `integers` and `mask` make arrays.
- `CONSTANT[name]`: arguments that have no gradient though they are float. `TOLERANCE[name]`: a factor on the
  usual error; say why.
- In half precision our errors may be twice PyTorch's, no more (`peers.py`). A function that PyTorch has under
  another name, or not at all, is composed of others in `PEERS` there, or in tests/nn/functional/oracles.py.
- A kernel that belongs to no composite (an optimizer's step) is a row of `FUNCTIONS`: where its function is,
  and the same in NumPy. Both get the arguments of the cases, NumPy in float64; what they return, and all
  arrays afterwards, must be equal.

The tests look at more than values. A kernel touches nothing outside its arrays (an error says where), reads
nothing that it hasn't written (fresh arrays are full of NaN), and changes neither its inputs nor the incoming
gradient; a second backward gives the same; no two gradients share memory; a tuned kernel that can't be run
twice on the same arrays has named those in `inplace=`; float64 raises `Unsupported`.

    TRITON_INTERPRET=1 python -m pytest tests/triton/interpreted.py -k softmax       # values
    python -m pytest tests/triton/compiled.py -k softmax -rP                         # registers and memory
"""

import itertools
import os
from collections.abc import Callable

import numpy as np

from mytorch.nn import LinearCrossEntropyOptions
from mytorch.nn.functional.quantization import FORMATS, quantized
from tests.nn.functional.cases import case, integers, mask, normal, positive

DTYPES = ("float32", "float16", "bfloat16")
EVERYTHING = os.environ.get("MYTORCH_TEST_ALL") == "1"


def empty(*shape):
    """An array of real size, for what is compiled: its values don't matter."""
    return np.zeros(shape, "float32")


def softmax():
    yield case(normal(3, 7, 50), -1)
    yield case(normal(3, 1), -1)
    yield case(normal(600), 0)
    yield case(normal(9, 1025), 1)
    yield case(normal(2, 20000), -1)  # longer than one block
    yield case(1e4 * normal(4, 33), -1)
    special = np.zeros((4, 10), "float32")
    special[0], special[1, 7], special[2, 7], special[3, :5] = -np.inf, np.nan, np.inf, -np.inf
    yield case(special, -1)
    yield case(np.repeat(special, 2000, axis=1), -1)
    yield case(normal(0, 5), -1)
    yield case(normal(5, 0), -1)


def elements(**kwargs):
    special = np.array(
        [-np.inf, -1e4, -88, -3.5, -0.4, -0.1, -0.0, 0, 1e-3, 0.3, 2, 6, 90, np.inf, np.nan], "float32"
    )
    yield case(3 * normal(50, 41), **kwargs)  # two programs
    yield case(normal(), **kwargs)
    yield case(special, **kwargs)
    yield case(normal(0, 3), **kwargs)


def gated(**kwargs):
    yield case(3 * normal(5, 3, 14), **kwargs)
    yield case(3 * normal(2, 2100), **kwargs)  # parts of a row
    yield case(3 * normal(600, 6), **kwargs)  # several rows
    yield case(normal(4, 3, 2), dim=0, **kwargs)
    yield case(normal(0, 4), **kwargs)
    yield case(normal(4, 0), **kwargs)


def rotary():
    for interleaved in (False, True):
        yield case(normal(2, 3, 5, 8), normal(5, 4), normal(5, 4), interleaved)
        yield case(normal(70, 90), normal(70, 45), normal(45), interleaved)
        yield case(normal(2, 3, 5, 6), normal(2, 1, 5, 3), normal(2, 1, 1, 3), interleaved)
        yield case(normal(2, 2, 3, 4, 2), normal(4, 1), normal(2, 1, 4, 1), interleaved)
        yield case(normal(3, 2100), normal(3, 1050), normal(3, 1050), interleaved)
        yield case(normal(0, 5, 8), normal(5, 4), normal(5, 4), interleaved)


def spoiled(*shape):
    """With NaN and inf, far apart."""
    x = normal(*shape)
    x.reshape(-1)[0], x.reshape(-1)[-1] = np.nan, np.inf
    return x


def layer_norm(parameters):
    def rows(*shape, dims=1, count=parameters, **kwargs):
        normalized = shape[len(shape) - dims :]
        return case(normal(*shape), normalized, *(normal(*normalized) for _ in range(count)), **kwargs)

    yield rows(5, 3, 50)
    yield rows(7, 1500, count=1)  # several programs, a row at a time
    yield rows(40, 3, eps=0.1)
    yield rows(3, 4, 5, dims=2, count=0)
    yield rows(2, 1, count=0) if parameters > 1 else rows(2, 2)
    for length in (9000, 20000):  # too long for backward, for forward
        yield rows(18 if length == 9000 else 3, length)
        yield rows(2, length, count=0)
    yield case(spoiled(4, 10), (10,), normal(10))
    yield case(spoiled(3, 20000), (20000,))
    yield rows(0, 5)
    yield rows(5, 0)


def group_norm():
    yield case(normal(3, 6, 7), 2, normal(6), normal(6))
    yield case(normal(2, 6, 3, 400), 2, normal(6), normal(6))  # several blocks of a channel
    yield case(normal(40, 70), 1, normal(70))  # several blocks of channels
    yield case(normal(40, 6, 11), 6, normal(6), normal(6), eps=0.1)
    yield case(normal(2, 4, 9000), 2, normal(4), normal(4))  # too long for one program
    yield case(normal(3, 4, 5), 2)
    yield case(spoiled(2, 6, 5), 3, normal(6), normal(6))
    yield case(normal(0, 4, 5), 2, normal(4), normal(4))
    yield case(normal(2, 4, 0), 2, normal(4), normal(4))


def batch_norm():
    running = {"running_mean": normal(6), "running_var": positive(6)}
    for shape in ((3, 6, 7), (2, 6, 3, 400), (70, 6), (40, 6, 3)):
        yield case(normal(*shape), None, None, normal(6), normal(6), training=True)
        yield case(normal(*shape), **running, weight=normal(6), bias=normal(6))
    yield case(normal(9, 70), None, None, normal(70), training=True, eps=0.1)
    yield case(normal(9, 6, 5), **running)
    yield case(normal(9, 6, 5), None, None, training=True)
    yield case(spoiled(9, 6, 5), None, None, normal(6), normal(6), training=True)
    yield case(spoiled(9, 6, 5), **running, weight=normal(6))
    yield case(normal(0, 4, 5), None, None, normal(4), normal(4), training=True)


def after_addition(rows):
    for (x, *rest), kwargs in rows:
        yield case(x, normal(*x.shape), *rest, **kwargs)


_ELEMENTS = ("relu", "sigmoid", "silu", "squared_relu", "tanh")


def attention():
    yield case(normal(2, 2, 9, 24), normal(2, 1, 11, 24), normal(2, 1, 11, 16), enable_gqa=True)
    q, k, v = normal(1, 2, 40, 40), normal(1, 1, 50, 40), normal(1, 1, 50, 24)
    yield case(q, k, v, is_causal=True, enable_gqa=True)
    yield case(q, k, v, is_causal=True, enable_gqa=True, sliding_window=20)
    yield case(q, k, v, enable_gqa=True, dropout_p=0.3)
    yield case(q, k, v, enable_gqa=True)
    yield case(q, k, v, is_causal=True, enable_gqa=True, dropout_p=0.3)
    yield case(normal(1, 1, 5, 256), normal(1, 1, 7, 256), normal(1, 1, 7, 256), normal(5, 7))
    q, k, v = normal(1, 1, 40, 80), normal(1, 1, 50, 80), normal(1, 1, 50, 80)
    seen = mask(40, 50)
    seen[3] = seen[39] = False
    low = np.where(seen, normal(40, 50), np.finfo("float32").min)
    low[5], low[6] = -np.inf, np.finfo("float32").min  # the one sees nothing, the other everything
    yield case(q, k, v, seen)
    yield case(q, k, v, low.astype("float32"))
    yield case(4 * q, 4 * k, v, is_causal=True)  # scores of hundreds
    for a in range(3):
        special = [normal(1, 1, 40, 16) for _ in range(3)]
        special[a][0, 0, 30, 3], special[a][0, 0, 36, 4] = np.nan, np.inf
        yield case(*special)  # not causal: a product with all keys has NaN where skipped tiles have none
    yield case(normal(2, 1, 2, 7, 24), normal(1, 2, 2, 9, 24), normal(2, 2, 2, 9, 24))
    yield case(normal(0, 2, 3, 8), normal(0, 2, 5, 8), normal(0, 2, 5, 8))
    yield case(normal(2, 3, 8), normal(2, 0, 8), normal(2, 0, 8))


def cached():
    def new(tokens, heads, kv_heads, size, position, features=(16, 24), **kwargs):
        q, k = normal(1, heads, tokens, features[0]), normal(1, kv_heads, tokens, features[0])
        v = normal(1, kv_heads, tokens, features[1])
        caches = (normal(1, kv_heads, size, e) for e in features)
        return case(q, k, v, *caches, position, **kwargs)

    yield new(1, 4, 2, 200, 150, enable_gqa=True)
    yield new(1, 2, 2, 70, 0)
    yield new(1, 1, 1, 300, 299, (80, 80))
    yield new(5, 2, 2, 40, 0)
    yield new(40, 4, 2, 150, 100, enable_gqa=True)
    special = new(1, 2, 2, 200, 180)
    special[0][3][0, 0, 100, 3], special[0][3][0, 1, 5] = np.nan, np.inf
    yield special


def attention_of_real_size():
    """A kernel takes seconds to compile; so all sizes and options only where MYTORCH_TEST_ALL=1."""
    yield case(*[empty(8, 12, 1024, 64)] * 3, is_causal=True)
    for features in (64, 128) if EVERYTHING else (64,):  # what needs most registers
        q, k, v = (empty(8, heads, 1024, features) for heads in (12, 4, 4))
        yield case(q, k, v, is_causal=True, enable_gqa=True, sliding_window=256, dropout_p=0.1)
    if not EVERYTHING:
        return
    for features in (128, 256):
        yield case(*[empty(8, 12, 1024, features)] * 3, is_causal=True)
    q = empty(8, 12, 1024, 64)
    yield case(q, q, q, empty(12, 1024, 1024), dropout_p=0.1)


def embedding():
    table = normal(9, 300)  # two blocks of columns
    yield case(integers(9, 3, 7), table)
    yield case(integers(9, 20).astype("int32"), table, padding_idx=4)
    yield case(np.repeat([3, 0, 8], [40, 1, 17]), normal(9, 5), padding_idx=-1)  # more than a block of rows
    yield case(integers(2, 50), normal(9, 1), scale_grad_by_freq=True)
    yield case(np.zeros((0, 2), "int64"), table)
    yield case(integers(9, 4), normal(9, 0))
    yield case(np.array(2), np.array([[1], [2], [np.inf]], "float32"))


def add_rows():
    yield case(integers(9, 3, 7), normal(3, 7, 300), normal(9, 300))
    yield case(np.array([2, 2, 7, 2]), normal(4, 6), normal(9, 6), 7, True)
    yield case(np.array([2, 2, 7, 2]), normal(4, 6), np.full((9, 6), np.nan, "float32"), None, False, 0)
    yield case(integers(9, 5), normal(5, 6), normal(6, 9).T)  # other strides
    yield case(np.zeros(0, "int64"), normal(0, 3), normal(4, 3), None, False, 0)


def add_rows_in_numpy(index, g, out, padding_idx=None, scale_grad_by_freq=False, beta=1):
    if not beta:
        out[...] = 0
    for i in np.ndindex(index.shape):
        uses = (index == index[i]).sum() if scale_grad_by_freq else 1
        if index[i] != padding_idx:
            out[index[i]] += g[i] / uses


def conv2d():
    x, w = normal(2, 4, 9, 11), normal(6, 4, 3, 2)
    yield case(x, w, normal(6), 1, 1)
    yield case(x, w, None, (2, 3), (2, 1), (1, 2))
    yield case(x, normal(6, 4, 2, 2), None, 3, 1)  # pixels that no window meets
    yield case(x, normal(6, 4, 3, 3), normal(6), 2, 2, 2)  # stride and dilation have a common divisor
    yield case(x, normal(6, 2, 3, 2), normal(6), 2, "valid", 1, 2)
    yield case(x, normal(8, 1, 3, 3), normal(8), 1, "same", 1, 4)
    yield case(normal(3, 5, 6), normal(7, 3, 1, 1), None)
    yield case(normal(1, 6, 10, 10), normal(40, 6, 3, 3), normal(40), 1, 1)  # several blocks along each axis
    yield case(normal(4, 1, 17, 19), normal(2, 1, 3, 3), None, 1, 1)  # several parts of the weight's gradient
    yield case(spoiled(2, 3, 5, 5), normal(4, 3, 2, 2), normal(4))
    yield case(normal(0, 3, 5, 5), normal(4, 3, 2, 2), normal(4))


def conv1d():
    yield case(normal(2, 5, 40), normal(7, 5, 3), normal(7), 2, 1, 2)
    yield case(normal(6, 30), normal(6, 1, 4), None, 1, "same", 1, 6)
    yield case(normal(0, 5, 9), normal(7, 5, 3), normal(7))


def linear():
    yield case(normal(5, 14, 9), normal(300, 9), normal(300))  # several blocks of columns, parts of the rows
    yield case(normal(3, 6), normal(2100, 6), normal(2100))  # parts of a row
    yield case(normal(4, 3, 5), normal(6, 5))
    yield case(normal(7), normal(5, 7), normal(5))
    yield case(spoiled(6, 5), normal(9, 5), normal(9))
    for m, n, k in ((0, 6, 5), (2, 6, 0), (2, 0, 5)):
        yield case(normal(m, k), normal(n, k), normal(n))


def quantized_linear():
    for format in FORMATS:
        for shape, n in (((3, 96), 6), ((7, 544), 9), ((2, 0, 32), 3)):  # few rows, many, none
            yield case(normal(*shape), *quantized(normal(n, shape[-1]), format), normal(n))
        yield case(spoiled(6, 64), *quantized(normal(5, 64), format))
        yield case(spoiled(2, 544), *quantized(normal(5, 544), format))


def linear_activation():
    """In half precision rounding could take z to the other side of relu's 0: its z are exact, quarters."""
    for (args, _), activation in itertools.product(linear(), ("gelu", "relu", "silu", "gelu_tanh")):
        exact = [np.round(2 * a) / 2 if activation == "relu" else a for a in args]
        yield case(*exact, activation=activation)


def vectors(*arguments):
    """Calls with vectors in front, in which inf and NaN come last and at all."""
    for x in (normal(9000), normal(1), normal(0), np.array([1, np.nan], "float32"), normal(4100)):
        if x.size == 4100:
            x[-1] = -np.inf
        yield case(x, *(a.copy() if isinstance(a, np.ndarray) else a for a in arguments))


def one(number=0.0):
    return np.array([number], "float32")


def scale_in_numpy(x, factor):
    x *= factor


def cast_in_numpy(source, out, found_inf):
    with np.errstate(over="ignore"):
        out[...] = source.astype("float16")
    found_inf[...] = max(found_inf[0], not np.isfinite(out).all())


def unscale_in_numpy(grad, inv_scale, found_inf):
    grad *= inv_scale
    found_inf[...] = max(found_inf[0], not np.isfinite(grad).all())


def losses():
    """Logits for rows of all kinds, their classes, and options."""
    for columns in (1, 7, 33, 5000):
        yield normal(6, columns), integers(columns, 6), {}
    for reduction in ("mean", "sum", "none"):
        classes = np.array([0, -100, 65, 7, -100])
        yield normal(5, 66), classes, {"reduction": reduction}
        yield normal(5, 66), classes, {"reduction": reduction, "label_smoothing": 0.2}
        yield normal(5, 66), classes, {"reduction": reduction, "label_smoothing": 0.2, "weight": positive(66)}
    yield normal(5, 66), integers(66, 5), {"weight": positive(66), "ignore_index": 7}
    yield 1e4 * normal(5, 66), integers(66, 5), {}
    yield normal(5, 66), np.full(5, -100), {}
    yield normal(0, 66), integers(66, 0), {}


def cross_entropy():
    for logits, classes, options in losses():
        yield case(logits, classes, **options)
    special = np.zeros((6, 5000), "float32")
    special[:3, 1], special[3], special[4, 1:] = (np.nan, np.inf, -np.inf), -np.inf, -np.inf
    yield case(special, np.ones(6, "int64"), reduction="none")
    yield case(special, np.full(6, 4000), reduction="none")
    yield case(special, np.full(6, 4000), reduction="none", label_smoothing=0.1)
    yield case(normal(2, 9, 3), integers(9, 2, 3))


def linear_cross_entropy():
    chunks = LinearCrossEntropyOptions(batch_chunk_size=4)
    for logits, classes, options in losses():
        x, w = normal(len(logits), 10), normal(logits.shape[1], 10)
        if np.abs(logits).max(initial=0) > 1e3:
            w *= 1e3
        yield case(x, w, classes, **options)
        yield case(x, w, classes, normal(logits.shape[1]), options=chunks, **options)
    yield case(normal(6, 10), normal(9, 2, 10), integers(9, 6, 2), normal(9, 2), options=chunks)


CASES: dict[str, list] = {
    **{name: [*elements()] for name in _ELEMENTS},
    "leaky_relu": [*elements(), *elements(negative_slope=-0.3)],
    "gelu": [*elements(), *elements(approximate="tanh")],
    "swiglu": [*gated()],
    "geglu": [*gated(), *gated(approximate="tanh")],
    "dropout": [*elements(p=0.3), case(normal(9), p=1.0)],
    "rotary_embedding": [*rotary()],
    "scaled_dot_product_attention": [*attention()],
    "self_attention": [
        case(normal(2, 9, 3 * 2 * 12), 2, is_causal=True),
        case(normal(1, 9, 3 * 3 * 5), 3, normal(9, 9)),
        case(normal(2, 9, 3 * 8), 1, mask(9, 9)),
        case(normal(0, 9, 3 * 8), 2),
    ],
    "cached_attention": [*cached()],
    "layer_norm": [*layer_norm(2), *(case(30 + normal(3, n), (n,)) for n in (50, 20000))],
    "rms_norm": [*layer_norm(1)],
    "add_layer_norm": [*after_addition(layer_norm(2))],
    "group_norm": [*group_norm(), case(30 + normal(2, 4, 9000), 2)],
    "batch_norm": [*batch_norm(), case(30 + normal(40, 6, 70), None, None, training=True)],
    "conv1d": [*conv1d()],
    "conv2d": [*conv2d()],
    "linear": [*linear()],
    "linear_activation": [*linear_activation()],
    "quantized_linear": [*quantized_linear()],
    "softmax": [*softmax()],
    "log_softmax": [*softmax()],
    "cross_entropy": [*cross_entropy()],
    "linear_cross_entropy": [*linear_cross_entropy()],
    "embedding": [*embedding()],
    "add_rows": [*add_rows()],
    "sum_of_squares": [*vectors()],
    "scale": [*vectors(0.25), *vectors(one(-3.0)), *vectors(one(1.0))],
    "cast_and_check": [
        *(case(x, np.zeros(x.size, "float16"), one(before)) for (x,), _ in vectors() for before in (0, 1)),
        case(np.array([1, -7e4], "float32"), np.zeros(2, "float16"), one()),
    ],
    "unscale_and_check": [*vectors(one(0.25), one()), *vectors(one(1e-3), one(1))],
}


COMPILED: dict[str, list] = {
    "cross_entropy": [
        case(empty(64, 50257), integers(65, 64), reduction="none", label_smoothing=0.1),
        case(empty(64, 65), integers(65, 64)),
    ],
    "linear_cross_entropy": [
        case(empty(16, 64), empty(50257, 64), integers(65, 16), label_smoothing=0.1),
    ],
    **{name: [case(empty(64, 1024))] for name in _ELEMENTS},
    "leaky_relu": [case(empty(64, 1024))],
    "gelu": [case(empty(64, 1024)), case(empty(64, 1024), "tanh")],
    "swiglu": [case(empty(64, 2048))],
    "geglu": [case(empty(64, 2048)), case(empty(64, 2048), -1, "tanh")],
    "dropout": [case(empty(64, 1024))],
    "rotary_embedding": [
        case(empty(8, 12, 1024, 64), empty(1024, 32), empty(1024, 32), interleaved)
        for interleaved in (False, True)
    ],
    "scaled_dot_product_attention": [*attention_of_real_size()],
    "cached_attention": [
        case(*[empty(1, 12, 1, 64)] * 3, *[empty(1, 12, 1024, 64)] * 2, 1000),
        case(
            empty(1, 32, 1, 128),
            *[empty(1, 8, 1, 128)] * 2,
            *[empty(1, 8, 8192, 128)] * 2,
            8000,
            enable_gqa=True,
        ),
    ],
    "layer_norm": [
        case(empty(64, n), (n,), empty(n), empty(n)) for n in (768, 8192, 16384, 50000)
    ],
    "rms_norm": [case(empty(64, n), (n,), empty(n)) for n in (768, 50000)],
    "add_layer_norm": [
        case(empty(64, n), empty(64, n), (n,), empty(n), empty(n)) for n in (768, 50000)
    ],
    "group_norm": [
        case(empty(8, 64, *size), 32, empty(64), empty(64)) for size in ((7, 7), (224, 224))
    ],
    "batch_norm": [
        case(empty(8, 64, *size), None, None, empty(64), empty(64), True) for size in ((), (32, 32))
    ],
    "conv2d": [
        case(empty(1, 64, 56, 56), empty(64, 64, 3, 3), empty(64), 1, 1),
    ],
    "linear": [case(empty(64, 16), empty(3072, 16), empty(3072))],
    "linear_activation": [
        case(empty(64, 16), empty(3072, 16), bias, activation)
        for activation, bias in (("gelu", empty(3072)), ("relu", None))
    ],
    "quantized_linear": [
        case(empty(rows, 2048), *quantized(empty(64, 2048), format), empty(64))
        for rows, format in ((1, "q8_0"), (1, "q4_1"), (64, "q4_0"))
    ],
    "softmax": [case(empty(8, 16384), -1), case(empty(2, 50257), -1)],
    "log_softmax": [case(empty(8, 16384), -1), case(empty(2, 50257), -1)],
    "embedding": [case(np.zeros((8, 1024), "int64"), empty(1000, 768), scale_grad_by_freq=True)],
    "add_rows": [case(np.zeros((8, 1024), "int64"), empty(8, 1024, 768), empty(1000, 768))],
    "sum_of_squares": [case(empty(1 << 22))],
    "scale": [case(empty(1 << 22), 0.5)],
    "cast_and_check": [case(empty(1 << 22), np.zeros(1 << 22, "float16"), empty(1))],
    "unscale_and_check": [case(empty(1 << 22), empty(1), empty(1))],
}

CHOSEN = {
    "softmax": (0, 4, 6, 8),
    "log_softmax": (0, 4, 6, 8),
    "layer_norm": (0, 1, 5, 7, 9, 11),
    "rms_norm": (0, 1, 7, 9, 11),
    "add_layer_norm": (0, 1, 7, 9, 11),
    "group_norm": (0, 1, 4, 6, 7),
    "batch_norm": (0, 1, 2, 4, 11, 13),
    "conv2d": (0, 1, 3, 4, 9, 10),
    "linear": (0, 1, 4, 5),
    "quantized_linear": (0, 1, 2, 3, 4, 5, 6, 10, 11),
    "cross_entropy": (3, 6, 0, 13, 15, 16, 18, 20),
    "linear_cross_entropy": (6, 13, 30, 32, 34),
    "scaled_dot_product_attention": (0, 1, 2, 3, 7, 10, 14),
    "self_attention": (0,),
    "cached_attention": (0, 3, 1, 5),
    "rotary_embedding": (0, 7, 2, 3, 5),
    "geglu": (0, 7, 2, 4),
    "gelu": (0, 4, 2, 6, 3),
    "leaky_relu": (0, 4, 2, 3),
    "dropout": (0, 4, 2, 3),
    "sum_of_squares": (0, 4, 2, 3),
    "unscale_and_check": (0, 4, 2, 3),
    "cast_and_check": (0, 10, 4, 7),
}
OTHER_GPUS = {
    "scaled_dot_product_attention": [80], "cached_attention": [100], "layer_norm": [80, 100],
    "cross_entropy": [80], "linear": [100], "gelu": [80, 100],
}


def rows_of(name: str, dtype: str) -> list[int]:
    """Returns the rows of CASES that are interpreted in a dtype."""
    count = len(CASES[name])
    if EVERYTHING:
        return [*range(count)]
    chosen = CHOSEN.get(name, range(min(4, count)))
    if dtype == "float32":
        return [*chosen]
    return [chosen[0] if dtype == "float16" else chosen[min(1, len(chosen) - 1)]]


CONSTANT: dict[str, set[str]] = {
    "cross_entropy": {"weight"},
    "linear_cross_entropy": {"weight"},
    "batch_norm": {"running_mean", "running_var"},
    "cached_attention": {"query", "key", "value", "key_cache", "value_cache"},
}

TOLERANCE: dict[str, float] = {
    "linear_cross_entropy": 4,  # the logits are rounded before the exponential, as PyTorch's are
    # delta is made from the rounded result, as in PyTorch's flash kernel: errors 0.4 to 1.2 times as large
    "scaled_dot_product_attention": 3, "self_attention": 3,
    "sigmoid": 2, "tanh": 2,  # the gradient is made from the result, rounded to bfloat16, as PyTorch's is
}

# name: ("file:function" in mytorch.nn.fused_ops.triton, the same in NumPy)
FUNCTIONS: dict[str, tuple[str, Callable]] = {
    "add_rows": ("embedding:add_rows", add_rows_in_numpy),
    "sum_of_squares": ("norm:sum_of_squares", lambda x: np.square(x).sum()),
    "scale": ("norm:scale", scale_in_numpy),
    "cast_and_check": ("cast:cast_and_check", cast_in_numpy),
    "unscale_and_check": ("cast:unscale_and_check", unscale_in_numpy),
}
