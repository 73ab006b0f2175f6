"""Arrays and calls of which meta arrays must keep what NumPy does, whatever else was called before."""

import functools

import numpy as np

from mytorch.backends.meta import MetaArray, new

ARRAYS = {
    "C": np.zeros((3, 4, 5)), "F": np.zeros((3, 4, 5), order="F"), "step": np.zeros((3, 8, 5))[:, ::2],
    "T": np.zeros((4, 3, 5)).transpose(1, 0, 2), "back": np.zeros((3, 4, 5))[::-1], "one": np.zeros((1, 1)),
    "stretched": np.zeros((3, 1, 5)), "broadcast": np.broadcast_to(np.zeros((3, 1, 5)), (3, 4, 5)),
    "empty": np.zeros((3, 0, 5)), "square": np.zeros((3, 3)), "row": np.zeros(5), "number": np.zeros(()),
}
DTYPES = ["?", "i1", "u1", "l", "q", "f2", "f4", "f8", ">f4", "c8"]
# Several are equal, and several are beyond the bounds of some dtypes.
NUMBERS = [
    1, True, 1.0, 1 + 0j, np.int8(1), np.int64(1), np.longlong(1), np.uint8(1), np.float32(1), np.float64(1),
    np.True_, np.complex64(1), 0, False, 0.0, -0.0, np.nan, np.inf, -1, 300, 1 << 40, 1 << 70, 1e300,
    np.float16(3), -1.5, "1", None, float, np.dtype("f4"), np.float32, (1,), [1], (1.0,), (True,), [[1]],
]
AXES = [None, 0, 1, -1, True, 1.0, (0, 1), [0, 1], (), (0,), (True,), 5, "0"]
INDICES = [
    0, -1, True, False, None, ..., slice(None), slice(1, None), slice(None, None, -2), slice(0, 1), 7, 1.0,
    [0, 1], [True, False, True], (0, 1), ((0, 1),), ([0, 1], [1, 2]), (slice(None), None), (None, 0),
    (..., 0), (0, slice(1)), (slice(1), 0), [], range(2), np.int64(1), np.True_, np.array([0, 1]),
    np.array([True, False, True]), np.array(1),
]
SHAPES = [-1, (-1,), [-1], (3, -1), (-1, 5), (60,), 60, 60.0, (3.0, -1), (True, -1), (), (5, 4, 3), "3"]
KINDS = ["f4", np.float32, np.dtype("f4"), float, int, "l", "q", np.dtype("l"), np.dtype("q"), bool, None]

OF_NUMBERS = {
    "add": np.add, "power": np.power, "shift": np.left_shift, "equal": np.equal, "maximum": np.maximum,
    "where": lambda x, y: np.where(x == x, x, y), "clip": lambda x, y: np.clip(x, y, None), "roll": np.roll,
    "before": lambda x, y: np.subtract(y, x), "full": np.full_like, "fill": lambda x, y: x.fill(y),
    "item": lambda x, y: x.__setitem__(..., y), "repeat": np.repeat, "tile": np.tile, "copyto": np.copyto,
    "initial": lambda x, y: np.add.reduce(x, initial=y), "result_type": np.result_type, "round": np.round,
    "into": lambda x, y: np.add(x, y, out=x), "in place": lambda x, y: x.__iadd__(y), "isclose": np.isclose,
    "add dtype": lambda x, y: np.add(x, x, dtype=y), "sum dtype": lambda x, y: np.sum(x, dtype=y),
    "at": lambda x, y: np.add.at(x, 0, y), "unsafe": lambda x, y: np.add(x, y, out=x, casting="unsafe"),
    "signature": lambda x, y: np.add(x, y, signature="ll->l", casting="unsafe"),
}
OF_AXES = {
    "sum": np.sum, "max": np.max, "mean": lambda x, axis: np.mean(x, axis, keepdims=True), "var": np.var,
    "cumsum": np.cumsum, "sort": np.sort, "argmax": np.argmax, "squeeze": np.squeeze, "flip": np.flip,
    "expand": np.expand_dims, "transpose": np.transpose, "trace": np.trace, "reduce": np.add.reduce,
    "concatenate": lambda x, axis: np.concatenate([x, x], axis), "size": np.size,
    "stack": lambda x, axis: np.stack((x, x), axis), "take": lambda x, axis: np.take(x, [0, 0], axis),
    "split": lambda x, axis: np.split(x, [1], axis),
}
OF_SHAPES = {
    "reshape": np.reshape, "F": lambda x, shape: np.reshape(x, shape, order="F"), "expand": np.broadcast_to,
    "copied": lambda x, shape: np.reshape(x, shape, copy=True),
}
OF_DTYPES = {
    "astype": MetaArray.astype, "no copy": lambda x, dtype: x.astype(dtype, copy=False), "can": np.can_cast,
    "view": MetaArray.view, "like": np.empty_like, "add": lambda x, dtype: np.add(x, 1, dtype=dtype),
    "array": lambda x, dtype: np.asarray(x, dtype, like=x),
}
OTHERS = {
    "itself": lambda x: np.add(x, x), "positional out": lambda x: np.exp(x, x), "T": lambda x: x.T,
    "mT": lambda x: x.mT, "real": lambda x: x.real, "imag": lambda x: x.imag, "conj": lambda x: x.conj(),
    "copy": lambda x: x.copy(), "flatten": lambda x: x.flatten(), "ravel": np.ravel,
    "matmul": lambda x: x @ x, "dot": lambda x: np.dot(x, x), "both": lambda x: np.divmod(x, x),
    "frexp": np.frexp, "svd": np.linalg.svd, "two outs": lambda x: np.divmod(x, x, out=(x, None)),
    "outer": lambda x: np.multiply.outer(x, x), "where=": lambda x: np.add(x, x, where=x[..., :1] == 1),
    "qr": np.linalg.qr, "eigh": np.linalg.eigh,
    "arrays": lambda x: np.broadcast_arrays(x, x[..., None]), "einsum": lambda x: np.einsum("...i->...", x),
    "einsum of two": lambda x: np.einsum("ij,jk->ki", x, x), "slogdet": np.linalg.slogdet,
    "rfft": np.fft.rfft, "gather": lambda x: x[np.zeros((2, 2), int)], "a mask": lambda x: x[x == x],
    "a meta index": lambda x: x[new((4,), np.int64)], "diff": lambda x: np.diff(x, 2), "shape": np.shape,
    "along": lambda x: np.take_along_axis(x, np.argsort(x), -1), "pad": lambda x: np.pad(x, 1), "int": int,
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, -1), "unique": np.unique,
    "numpy's -1": lambda x: np.power(x, np.array([-1])), "numpy's 1": lambda x: np.power(x, np.array([1])),
    "shares": lambda x: np.shares_memory(x, x[..., :1]),
    "not shared": lambda x: np.shares_memory(x, x.copy()),
    "sorted": lambda x: x.sort(), "put": lambda x: np.put(x, [0], 1), "unwrap": np.unwrap, "bool": bool,
    "diagonal": lambda x: np.fill_diagonal(x, 1), "written part": lambda x: x.__setitem__(0, x[-1]),
}


def second(function, y, x):
    return function(x, y)


CALLS = dict(OTHERS)
for functions, others in [(OF_NUMBERS, NUMBERS), (OF_AXES, AXES), (OF_SHAPES, SHAPES), (OF_DTYPES, KINDS)]:
    for name, function in functions.items():
        CALLS |= {f"{name} {y!r} {k}": functools.partial(second, function, y)
                  for k, y in enumerate(others)}
CALLS |= {f"[{i!r}]": lambda x, i=i: x[i] for i in INDICES}
CALLS |= {f"[{i!r}] =": lambda x, i=i: x.__setitem__(i, x[0]) for i in INDICES}
