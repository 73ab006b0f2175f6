"""Random calls for the rows of the table of functions: by name, what draws the arguments."""

import numpy as np
from hypothesis import strategies as st

SIZES = st.sampled_from([1, 2, 3, 4, 6])


class Source:
    """Draws shapes, arrays and axes."""

    def __init__(self, draw):
        self.draw = draw
        self.values = np.random.default_rng(draw(st.integers(0, 99)))

    def shape(self, least=0, most=4):
        return tuple(self.draw(st.lists(SIZES, min_size=least, max_size=most)))

    def array(self, least=0, most=4, shape=None):
        return self.values.normal(size=self.shape(least, most) if shape is None else shape)

    def ints(self, high, shape=None, low=0):
        return self.values.integers(low, high, self.shape(0, 2) if shape is None else shape)

    def number(self, low, high):
        return self.draw(st.integers(low, high))

    def choice(self, *options):
        return self.draw(st.sampled_from(options))

    def axis(self, x, ndim=None):
        ndim = x.ndim if ndim is None else ndim
        return self.number(-ndim, ndim - 1)

    def axes(self, x):
        """None, one axis or several."""
        several = tuple(self.draw(st.permutations(range(x.ndim)))[: self.number(0, x.ndim)])
        return self.choice(None, several, *range(-x.ndim, x.ndim))

    def together(self, count=2):
        """Arrays that broadcast."""
        whole, arrays = self.shape(0, 4), []
        for _ in range(count):
            shape = tuple([self.choice(n, n, 1) for n in whole])
            arrays.append(self.array(shape=shape[self.number(0, len(shape)) :]))
        return arrays

    def matrices(self, square=True):
        batch, m, n = self.shape(0, 2), self.number(1, 4), self.number(1, 4)
        if not square:
            return self.array(shape=(*batch, m, n))
        x = self.array(shape=(*batch, n, n))
        return x @ x.swapaxes(-1, -2) + 3 * np.eye(n)


def unary(s):
    return (s.array(),), {}


def reduction(s):
    x = s.array()
    return (x,), {"axis": s.axes(x), "keepdims": s.choice(False, True)}


def of_one_axis(s):
    x = s.array()
    keep = {"keepdims": s.choice(False, True)}
    return (x,), {"axis": s.choice(None, *range(-x.ndim, x.ndim)), **keep}


def scan(s):
    x = s.array(1)
    return (x,), {"axis": s.choice(None, s.axis(x))}


def partition(s):
    x = s.array(1)
    return (x, 0), {"axis": s.choice(None, s.axis(x))}


def transform(s):
    x = s.array(1)
    return (x, s.choice(2, 3, 5), s.axis(x)), {}


def shift(s):
    x = s.array(1)
    return (x,), {"axes": s.choice(None, s.axis(x))}


def view_by_axis(*, dims=1, name="axis"):
    return lambda s: ((x := s.array(dims),), {name: s.axis(x)})


def of_axes(s):
    x = s.array(2)
    return (x, s.axis(x), s.axis(x)), {}


def transposed(s):
    x = s.array()
    return (x, *s.choice((), (tuple(s.draw(st.permutations(range(x.ndim)))),))), {}


def expanded(s):
    x = s.array(0, 3)
    return (x, s.axis(x, x.ndim + 1)), {}


def squeezed(s):
    x = s.array(0, 2)
    return (np.expand_dims(x, 0), 0), {}


def broadcast_to(s):
    x = s.array(0, 3)
    return (x, (*s.shape(0, 1), *[n if n > 1 else s.choice(1, 3) for n in x.shape])), {}


def diagonal(s):
    x = s.array(2)
    first = s.number(0, x.ndim - 1)
    return (x, s.number(-1, 1), first, (first + s.number(1, x.ndim - 1)) % x.ndim), {}


def flipped(s):
    x = s.array()
    return (x, s.axes(x)), {}


def splits(s):
    x = s.array(1)
    return (x, [1, 2]), {"axis": s.axis(x)}


def windows(s):
    x = s.array(1)
    axis = s.axis(x)
    return (x, s.number(1, x.shape[axis]), axis), {}


def reshaped(s):
    x, rest, shape = s.array(), None, []
    rest = x.size
    while rest > 1:
        n = s.choice(*[n for n in range(1, rest + 1) if rest % n == 0])
        shape, rest = [*shape, n], rest // n
    return (x, (*shape, *s.choice((), (1,), (-1,)))), {}


def repeated(s):
    x = s.array()
    axis = s.choice(None, *range(-x.ndim, x.ndim))
    n = x.size if axis is None else x.shape[axis]
    return (x, s.choice(2, 3, s.ints(3, (n,)))), {"axis": axis}


def tiled(s):
    return (s.array(0, 3), tuple([s.choice(1, 2) for _ in range(s.number(0, 4))])), {}


def padded(s):
    x = s.array(1)
    return (x, [(s.choice(0, 0, 1), s.choice(0, 0, 2)) for _ in x.shape]), {}


def joined(s):
    x = s.array(1)
    axis = s.axis(x)
    shape = list(x.shape)
    shape[axis] = s.number(1, 3)
    return ([x, s.array(shape=shape)],), {"axis": s.choice(axis, axis, None)}


def stacked(s):
    x = s.array(0, 3)
    return ([x, s.array(shape=x.shape)],), {"axis": s.axis(x, x.ndim + 1)}


def products(s):
    (m, k, n), (x, y) = [s.number(1, 4) for _ in range(3)], s.together()
    x, y = x[..., None, None] + s.array(shape=(m, k)), y[..., None, None] + s.array(shape=(k, n))
    return (s.choice(x, x.reshape(-1, k)[0]), s.choice(y, y.reshape(-1, k, n)[0, :, 0])), {}


def dots(s):
    (x, y), _ = products(s)
    return s.choice((x, y.reshape(x.shape[-1], -1)), (x[..., 0], 2.0), (np.float64(3), x)), {}


def vectors(s):
    x, y = s.together()
    n = s.number(1, 4)
    return (x[..., None] + s.array(shape=(n,)), y[..., None] + s.array(shape=(n,))), {}


def matrix_and_vector(s):
    (x, y), _ = vectors(s)
    return (x[..., None, :] + s.array(shape=(3, 1)), y), {}


def einsum(s):
    b, i, j, k = [s.number(1, 4) for _ in range(4)]
    texts = "bik,bkj->bij", "...ik,...kj->...ij", "bii->bi", "bij->b", "bik,kj->jb", "bij,bij->", "bii->b"
    text = s.choice(*texts)
    sizes = {"b": b, "i": i, "j": j, "k": k}
    terms = text.split("->")[0].split(",")
    return (text, *[s.array(shape=[sizes[c] for c in t.replace("...", "b")]) for t in terms]), {}


def indexed(s):
    x, items = s.array(0, 4), []
    for n in x.shape[: s.number(0, x.ndim)]:
        slices = [slice(None), slice(None), slice(0, n), slice(1, None), slice(None, None, -1)]
        ints = s.ints(n, s.choice((), (2,), (3, 2), (1, 2)))
        items.append(s.choice(*slices, s.number(0, n - 1), s.choice(ints, [0, n - 1]), ints))
    shapes = [np.shape(i) for i in items if not isinstance(i, slice)]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        items = [slice(None) if np.ndim(i) else i for i in items]
    for new in s.choice((), (None,), (Ellipsis,), (None, Ellipsis)):
        items.insert(s.number(0, len(items)), new)
    if not items and x.ndim and s.choice(False, True):
        return (x, s.values.random(x.shape[: s.number(1, x.ndim)]) < 0.5), {}
    return (x, tuple(items)), {}


def taken(s):
    x = s.array(1)
    axis = s.axis(x)
    return (x, s.choice(0, s.ints(x.shape[axis]))), {"axis": s.choice(None, axis)}


def taken_along(s):
    x = s.array(1)
    axis = s.axis(x)
    shape = [s.choice(n, 1) for n in x.shape]
    shape[axis] = s.number(1, 3)
    return (x, s.ints(x.shape[axis], shape)), {"axis": axis}


def searched(s):
    return (np.sort(s.array(1, 1)), s.array()), {}


def counted(s):
    x = s.ints(5, s.shape(1, 1))
    return (x, s.choice(None, s.array(shape=x.shape))), {"minlength": s.choice(0, 6)}


def solves(s):
    a = s.matrices()
    b = s.array(shape=s.choice((a.shape[-1],), (*a.shape[:-1], 3), (a.shape[-1], 2)))
    return (a, b), {}


def rolled(s):
    x = s.array()
    return (x, 1), {"axis": s.choice(None, *range(-x.ndim, x.ndim))}


def norms(s):
    x = s.array(1)
    return (x, None), {"axis": s.choice(None, s.axis(x)), "keepdims": s.choice(False, True)}


def like(s):
    return (s.array(),), {"shape": s.choice(None, None, (2, 3))}


CASES = {
    "add subtract multiply divide isclose copysign maximum logaddexp less": lambda s: (s.together(), {}),
    "where": lambda s: (((a := s.together(3))[0] > 0, *a[1:]), {}),
    "clip": lambda s: (s.together(3), {}),
    "negative positive conjugate deg2rad rad2deg degrees radians nan_to_num exp real imag .real .imag .conj "
    "angle iscomplex isreal sinc round copy .copy frexp modf ravel .flatten .T atleast_1d atleast_2d "
    "atleast_3d": unary,
    ".mT matrix_transpose fliplr flipud rot90 tril triu": lambda s: ((s.array(2),), {}),
    ".astype": lambda s: ((s.array(), np.float32), {}),
    "divmod": lambda s: (s.together(), {}),
    "sum nansum prod nanprod max min nanmax nanmin any all count_nonzero mean nanmean median var std nanvar "
    "nanstd ptp add.reduce maximum.reduce logaddexp.reduce": reduction,
    "argmax argmin nanargmax nanargmin": of_one_axis,
    "trace diagonal": diagonal,
    "linalg.norm": norms,
    "bincount": counted,
    "cumsum nancumsum cumprod nancumprod sort argsort": scan,
    "add.accumulate multiply.accumulate": lambda s: ((x := s.array(1), s.axis(x)), {}),
    "add.reduceat": lambda s: ((x := s.array(1), [0], s.axis(x)), {}),
    "partition argpartition": partition,
    "lexsort": lambda s: (([x := s.array(1), s.array(shape=x.shape)],), {"axis": s.axis(x)}),
    "diff": lambda s: ((x := s.array(1), s.number(1, 2), s.axis(x)), {}),
    "roll": rolled, "fft.fftshift fft.ifftshift": shift,
    "fft.fft fft.ifft fft.rfft fft.irfft": transform,
    "matmul": products, "dot": dots, "einsum": einsum,
    "vdot": lambda s: ((x := s.array(1, 1), s.array(shape=x.shape)), {}),
    "vecdot": vectors, "matvec": matrix_and_vector,
    "vecmat": lambda s: ((a := matrix_and_vector(s)[0]) and (a[1], a[0].swapaxes(-1, -2)), {}),
    "outer": lambda s: ((s.array(1, 1), s.array(1, 1)), {}),
    "multiply.outer add.outer": lambda s: ((s.array(0, 3), s.array(0, 3)), {}),
    "linalg.inv linalg.cholesky linalg.det linalg.slogdet linalg.eigh linalg.eig linalg.eigvalsh":
        lambda s: ((s.matrices(),), {}),
    "linalg.solve": solves,
    "linalg.qr": lambda s: ((s.matrices(False),), {"mode": s.choice("reduced", "complete", "r")}),
    "linalg.svd": lambda s: ((s.matrices(False), s.choice(False, True), s.choice(False, True)), {}),
    "transpose": transposed, ".transpose": transposed, "swapaxes moveaxis": of_axes,
    "rollaxis": view_by_axis(), "expand_dims": expanded, "squeeze": squeezed, "broadcast_to": broadcast_to,
    "flip": flipped, "split array_split": splits, "hsplit": lambda s: ((s.array(2), [1]), {}),
    "vsplit": lambda s: ((s.array(2), [1]), {}), "dsplit": lambda s: ((s.array(3), [1]), {}),
    "lib.stride_tricks.sliding_window_view": windows, "reshape .reshape": reshaped,
    ".view": lambda s: ((s.array(1), s.choice(None, np.int64, np.int32)), {}),
    "broadcast_arrays": lambda s: (s.together(), {}),
    "concatenate": joined, "stack": stacked, "repeat": repeated, "tile": tiled, "pad": padded,
    ".getitem": indexed, "take": taken, "take_along_axis": taken_along, "searchsorted": searched,
    "digitize": lambda s: ((s.array(), np.sort(s.array(1, 1))), {}),
    "isin": lambda s: ((s.ints(3), s.ints(3)), {}),
    "zeros ones full": lambda s: ((s.shape(), 1)[: 2], {}),
    "empty": lambda s: ((s.shape(),), {}),
    "arange": lambda s: ((5,), {}), "eye tri": lambda s: ((3,), {}),
    "zeros_like ones_like empty_like": like,
    "full_like": lambda s: ((x := s.array(1), s.choice(3, s.array(shape=x.shape[-1:]))), {}),
    "array asarray asanyarray ascontiguousarray": lambda s: ((s.array(1),), {}),
}
CASES = {name: case for names, case in CASES.items() for name in names.split()}
CASES |= dict.fromkeys(("zeros", "ones"), CASES["empty"])
