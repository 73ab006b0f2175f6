"""The table: what is known of each NumPy function that ops use.

A row has names, as a program has them: `add`, `add.reduce`, `linalg.norm`; methods begin with a dot, and
share the row of their function where the arguments are the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import dims as rules
from . import indexing
from .dims import along, by_text, elementwise, made, reduced, view, whole
from .labels import Label, Labels, Origin, Shape, arrays_in

ELEMENTWISE = "elementwise"  # each element of the result from those in the same place
REDUCTION = "reduction"  # over axes; scans, sorting and searching along them
CONTRACTION = "contraction"  # sums of products; linear algebra and Fourier transforms, which are made of them
VIEW = "view"  # other dims of the same memory, where that can be
COPY = "copy"  # elements in another order, or several arrays in one
INDEXING = "indexing"  # elements at places that are data
CREATION = "creation"
RANDOM = "random"
WRITING = "writing"  # changes its first argument
FACT = "fact"  # returns no array, but what is known of its arguments
CLASSES = ELEMENTWISE, REDUCTION, CONTRACTION, VIEW, COPY, INDEXING, CREATION, RANDOM, WRITING, FACT

# In what a function is linear: in all arrays together, in each alone (multilinear), or in the first.
TOGETHER, EACH, FIRST = "together", "each", "first"


class Row(NamedTuple):
    """What is known of a function.

    Attributes:
        name: its first.
        kind: its class, one of CLASSES.
        dims: the rule that returns the labels of a call; None where nothing is kept or known.
        linear: TOGETHER, EACH, FIRST, or None for what is linear in none of its arguments; a number beside
            the arrays counts as one, except for an axis, a shape and the like.
        flops: for each element of the result; those of products follow from the labels.
        is_new: whether the result is always a new array, which shares no memory with an argument.
    """

    name: str
    kind: str
    dims: Callable[..., Labels] | None
    linear: str | None
    flops: int
    is_new: bool


TABLE: dict[str, Row] = {}


def _rows(
    names: str, kind: str, dims: Callable[..., Labels] | None, linear: str | None = None, flops: int = 0,
    is_new: bool | None = None,
) -> None:
    """Adds a row for each word; names in one word, with a comma between, share a row."""
    makes_new = kind in (ELEMENTWISE, REDUCTION, CONTRACTION, COPY, CREATION, RANDOM)
    for word in names.split():
        first, *others = word.split(",")
        row = Row(first, kind, dims, linear, flops, makes_new if is_new is None else is_new)
        for name in (first, *others):
            assert name not in TABLE, name
            TABLE[name] = row


# Elementwise. Every other ufunc has a row of this class, too: see `row_of`.
_rows("add subtract,sub", ELEMENTWISE, elementwise, TOGETHER, flops=1)
_rows("multiply,mul", ELEMENTWISE, elementwise, EACH, flops=1)
_rows("divide,true_divide", ELEMENTWISE, elementwise, FIRST, flops=1)
_rows("negative positive conjugate,conj deg2rad rad2deg degrees radians", ELEMENTWISE, elementwise, TOGETHER)
_rows("real imag .real .imag .conj", VIEW, elementwise, TOGETHER)
_rows("where", ELEMENTWISE, rules.chosen)
_rows("isclose clip angle iscomplex isreal sinc", ELEMENTWISE, elementwise)
_rows("nan_to_num", ELEMENTWISE, elementwise, is_new=False)
_rows("round,around", ELEMENTWISE, rules.same)
_rows(".astype", COPY, rules.same, TOGETHER, is_new=False)
_rows("copy .copy", COPY, rules.same, TOGETHER)
_rows("frexp modf divmod", ELEMENTWISE, functools.partial(elementwise, results=2))

# Reductions: the ufunc that puts together the results of parts, if one does.
_rows("sum nansum", REDUCTION, reduced("add"), TOGETHER)
_rows("prod nanprod", REDUCTION, reduced("multiply"))
_rows("max,amax", REDUCTION, reduced("maximum"))
_rows("min,amin", REDUCTION, reduced("minimum"))
_rows("nanmax", REDUCTION, reduced("fmax"))
_rows("nanmin", REDUCTION, reduced("fmin"))
_rows("any", REDUCTION, reduced("logical_or"))
_rows("all", REDUCTION, reduced("logical_and"))
_rows("count_nonzero", REDUCTION, reduced("add"))
_rows("mean nanmean", REDUCTION, reduced(), TOGETHER)
_rows("argmax argmin nanargmax nanargmin median var std nanvar nanstd ptp", REDUCTION, reduced())
_rows("linalg.norm", REDUCTION, rules.norm)
_rows("trace", REDUCTION, rules.traced, TOGETHER)
_rows("bincount", REDUCTION, rules.counted)
_rows("histogram", REDUCTION, None)
_rows("digitize", REDUCTION, indexing.contained)
_rows("array_equal allclose", REDUCTION, None)

# Along an axis, which they need as a whole.
_rows("cumsum nancumsum", REDUCTION, along(None), TOGETHER)
_rows("cumprod nancumprod", REDUCTION, along(None))
_rows("sort argsort", REDUCTION, along(-1))
_rows("partition argpartition", REDUCTION, along(-1, 2))
_rows("lexsort", REDUCTION, rules.along_keys)
_rows("searchsorted", REDUCTION, indexing.searched)
_rows("isin", REDUCTION, indexing.contained)
_rows(
    "nonzero flatnonzero argwhere unique extract compress intersect1d union1d setdiff1d setxor1d",
    REDUCTION, None,
)
_rows("trim_zeros", REDUCTION, None, is_new=False)
_rows("diff", ELEMENTWISE, rules.differences, TOGETHER, is_new=False)
_rows("roll", COPY, along(None, 2, flattens=False), TOGETHER)
_rows("fft.fftshift fft.ifftshift", COPY, along(None, 1, flattens=False), TOGETHER)
_rows("fft.fft fft.ifft fft.rfft fft.irfft", CONTRACTION, along(-1, 2), TOGETHER)
_rows("tril triu", ELEMENTWISE, rules.triangle, TOGETHER)

# Products and linear algebra.
_rows("matmul", CONTRACTION, rules.product, EACH)
_rows("dot", CONTRACTION, rules.dot, EACH)
_rows("einsum", CONTRACTION, rules.einsum, EACH, is_new=False)
_rows("vdot", CONTRACTION, by_text("n,n->", "add"), EACH)
_rows("vecdot", CONTRACTION, by_text("...n,...n->...", "add"), EACH)
_rows("matvec", CONTRACTION, by_text("...mn,...n->...m", "add"), EACH)
_rows("vecmat", CONTRACTION, by_text("...n,...nm->...m", "add"), EACH)
_rows("outer", CONTRACTION, by_text("i,j->ij"), EACH, flops=1)
_rows("linalg.inv linalg.cholesky", CONTRACTION, by_text("...mn->...ab"))
_rows("linalg.det", CONTRACTION, by_text("...mn->..."))
_rows("linalg.slogdet", CONTRACTION, by_text("...mn->...,..."))
_rows("linalg.eigh linalg.eig", CONTRACTION, by_text("...mn->...a,...bc"))
_rows("linalg.eigvalsh", CONTRACTION, by_text("...mn->...a"))
_rows("linalg.solve", CONTRACTION, rules.solved)
_rows("linalg.qr", CONTRACTION, rules.qr)
_rows("linalg.svd", CONTRACTION, rules.svd)

# Views. `reshape` and its kin return a copy where there is none.
for _name in (
    "transpose", "swapaxes", "moveaxis", "rollaxis", "matrix_transpose", "squeeze", "broadcast_to",
    "diagonal", "flip", "fliplr", "flipud", "rot90", "atleast_1d", "atleast_2d", "atleast_3d", "split",
    "array_split", "hsplit", "vsplit", "dsplit",
):
    _rows(_name, VIEW, view(getattr(np, _name)), TOGETHER)
_rows("expand_dims", VIEW, rules.expanded, TOGETHER)
_rows("lib.stride_tricks.sliding_window_view", VIEW, rules.windows, TOGETHER)
_rows(".transpose", VIEW, view(np.ndarray.transpose), TOGETHER)
_rows(".T", VIEW, view(np.transpose), TOGETHER)
_rows(".mT", VIEW, view(np.matrix_transpose), TOGETHER)
_rows("reshape .reshape", VIEW, rules.reshaped, TOGETHER)
_rows("ravel", VIEW, rules.flattened, TOGETHER)
_rows(".view", VIEW, rules.viewed)
_rows("broadcast_arrays", VIEW, rules.broadcast_together)

# Copies.
_rows(".flatten", COPY, rules.flattened, TOGETHER)
_rows("concatenate", COPY, rules.joined, TOGETHER)
_rows("stack", COPY, rules.stacked, TOGETHER)
_rows("repeat", COPY, rules.repeated, FIRST)
_rows("tile", COPY, rules.tiled, TOGETHER)
_rows("pad", COPY, rules.padded)

# Indexing.
_rows(".getitem", INDEXING, indexing.getitem, FIRST)
_rows("take", INDEXING, indexing.taken, FIRST, is_new=True)
_rows("take_along_axis", INDEXING, indexing.taken_along, FIRST, is_new=True)

# Creation, random numbers.
_rows("zeros ones empty full", CREATION, made)
_rows("arange frombuffer from_dlpack", CREATION, whole(1), is_new=False)
_rows("eye tri", CREATION, whole(2))
_rows("zeros_like ones_like empty_like full_like", CREATION, rules.like)
_rows("array asarray asanyarray ascontiguousarray", COPY, rules.same, is_new=False)
_rows("random.integers random.permutation random.random random.standard_normal", RANDOM, None)
_rows("random.standard_exponential random.standard_gamma random.poisson random.binomial", RANDOM, None)

# Writes, and facts.
_rows("copyto put place putmask put_along_axis fill_diagonal .setitem .fill .sort .partition", WRITING, None)
_rows("shape ndim size result_type can_cast promote_types iscomplexobj isrealobj", FACT, None)
_rows("shares_memory may_share_memory broadcast_shapes array2string", FACT, None)

_OF_PARTS = (  # ufuncs whose reductions of parts they put together themselves
    "add", "multiply", "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "logaddexp2",
)


@functools.lru_cache(maxsize=4096)
def row_of(name: str) -> Row | None:
    """Returns the row of a function; None if it has none.

    Ufuncs and their methods have rows by rule, other methods of arrays that of their function.
    """
    if name in TABLE:
        return TABLE[name]
    if name.startswith("."):
        return row_of(name[1:]) if hasattr(np.ndarray, name[1:]) else None
    head, _, method = name.partition(".")
    ufunc = getattr(np, head, None)
    if not isinstance(ufunc, np.ufunc) or ufunc.signature is not None:
        return None
    linear = TOGETHER if head == "add" else None
    match method:
        case "":
            return Row(name, ELEMENTWISE, elementwise, None, 0, True)
        case "reduce":
            return Row(name, REDUCTION, reduced(head if head in _OF_PARTS else None, 0), linear, 0, True)
        case "accumulate":
            return Row(name, REDUCTION, along(0), linear, 0, True)
        case "reduceat":
            return Row(name, REDUCTION, along(0, 2), linear, 0, True)
        case "outer":
            row = row_of(head)
            kind = CONTRACTION if head == "multiply" else ELEMENTWISE
            return Row(name, kind, rules.outer, row.linear, row.flops, True)
        case "at":
            return Row(name, WRITING, None, None, 0, False)
    return None


def functions_of(kind: str, without_dims: bool = False) -> set[Callable]:
    """Returns NumPy's functions of a class, without methods.

    Args:
        without_dims: only those of whose dims nothing is known, as it depends on the elements.
    """
    rows = {name: row for name, row in TABLE.items() if row.kind == kind and name[0] != "."}
    names = [name for name, row in rows.items() if row.dims is None or not without_dims]
    return {functools.reduce(getattr, name.split("."), np) for name in names}


def writes(name: str) -> bool:
    """Returns whether a function changes elements of its first argument, as `add.at` does."""
    row = row_of(name)
    return row is not None and row.kind == WRITING


def labels_of(name: str, *args: object, **kwargs: object) -> Labels | None:
    """Returns the labels of a call; None where they aren't known.

    Args:
        name: of the function.
        args, kwargs: as the function takes them; of arrays nothing but shape and dtype is read.

    >>> from mytorch.backends.functions import labels_of
    >>> labels_of("sum", np.ones((2, 3)), axis=1)
    Labels(inputs=((0, 1),), outputs=((0,),), combine='add')
    """
    row = row_of(name)
    if row is None or row.dims is None:
        return None
    try:
        return row.dims(*args, **kwargs)
    except NotImplementedError:
        return None


def kept_dims(
    name: str, *args: object, **kwargs: object
) -> tuple[tuple[tuple[Origin, ...], ...], ...] | None:
    """Returns for each dim of each result the dims that it comes from, as (argument, dim); () for none.

    Arguments are counted among the arrays. None is returned where nothing is known.

    >>> from mytorch.backends.functions import kept_dims
    >>> kept_dims("matmul", np.ones((5, 2, 3)), np.ones((3, 4)))
    ((((0, 0),), ((0, 1),), ((1, 1),)),)
    """
    labels = labels_of(name, *args, **kwargs)
    return None if labels is None else labels.origins()


def flops_of(name: str, *args: object, result: Shape = (), **kwargs: object) -> int:
    """Returns the floating-point operations of a call.

    Two for each product of elements that is added up: 2 M N K for a product of (M, K) and (K, N); one for
    each element of a sum, difference, product or quotient; 0 for all others, which are bound by memory.

    Args:
        result: the shape of the result.

    >>> from mytorch.backends.functions import flops_of
    >>> flops_of("matmul", np.ones((2, 3)), np.ones((3, 5)))
    60
    """
    row = row_of(name)
    if row is None or row.flops or row.kind != CONTRACTION:
        return 0 if row is None else row.flops * math.prod(result)
    if args and not kwargs and all([hasattr(x, "shape") for x in args]):
        return _flops_of_shapes(name, tuple([x.shape for x in args]))
    return _products(labels_of(name, *args, **kwargs), [x.shape for x in arrays_in(args)])


class _Shaped(NamedTuple):
    shape: Shape


@functools.lru_cache(maxsize=4096)
def _flops_of_shapes(name: str, shapes: tuple[Shape, ...]) -> int:
    return _products(labels_of(name, *map(_Shaped, shapes)), shapes)


def _products(labels: Labels | None, shapes: Sequence[Shape]) -> int:
    """Two operations for each place of all labels, if products of these are added up."""
    if labels is None or labels.combine is None:
        return 0
    sizes: dict[Label, int] = {}
    for dims, shape in zip(labels.inputs, shapes, strict=True):
        sizes |= dict(zip(dims, shape, strict=True))
    sizes.pop(None, None)
    return 2 * math.prod(sizes.values())
