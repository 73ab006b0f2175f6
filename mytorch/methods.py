"""Every operator and method of a Tensor in one place: `x.exp()` is `ops.exp(x)`, `x.exp_()` writes to `x`.

An Array gets the methods too (see `ops/array_methods.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from .autograd.gradients import tensor_backward
from .autograd.manual import _add_parents
from .backends import dtypes
from .backends.device import is_raw
from .core.array import Array
from .core.grad_mode import is_grad_enabled
from .core.op import NUMBERS, require_tensor
from .core.overriding import overriding
from .core.tensor import Tensor
from .ops import (
    added_product,
    aliases,
    broadcast,
    cast,
    categorical,
    compare,
    complex_numbers,
    create,
    diagonals,
    elementwise,
    factors,
    gamma,
    gather_along,
    index,
    index_along,
    linalg,
    mask,
    matrix_chain,
    matrix_exponential,
    minmax,
    norms,
    order_statistics,
    properties,
    pseudoinverse,
    random,
    rearrange,
    reduce,
    scan,
    scatter_along,
    search,
    shape,
    solve,
    special,
    subclasses,
    variance,
)
from .ops.array_methods import attach_to_array
from .ops.einsum import inner
from .ops.inplace import inplace, write
from .ops.inplace_views import inplace_view
from .ops.sort import argsort, msort, sort, topk
from .ops.split import chunk, dsplit, hsplit, split, split_with_sizes, tensor_split, unbind, vsplit
from .ops.svd import torch_svd
from .ops.torch_function import operate
from .ops.unique import unique, unique_consecutive

_OPERANDS = (Tensor, Array, *NUMBERS)


def as_operator(op, function=None):
    """The op as an operator: it returns NotImplemented for an operand of another class.

    `__torch_function__` gets `function`, by default the operator.
    """

    def operation(x, y):
        is_known = isinstance(y, _OPERANDS) or is_raw(y)
        if overriding or not is_known:
            return operate(op, function or operation, x, y, is_known)
        return op(x, y)

    return operation


def swapped(op):
    """The op with its two operands exchanged, for the reflected operators."""

    def reflected(x, y):
        require_tensor(x, op.__name__)
        return op(y, x)

    return reflected


OPERATORS = {
    "add": elementwise.add, "sub": elementwise.sub, "mul": elementwise.mul, "truediv": elementwise.div,
    "floordiv": elementwise.floor_divide, "mod": elementwise.remainder, "pow": elementwise.pow,
    "and": compare.bitwise_and, "or": compare.bitwise_or, "xor": compare.bitwise_xor,
    "lshift": compare.bitwise_left_shift, "rshift": compare.bitwise_right_shift,
}

# Their `__torch_function__` gets the operator, as `Tensor.__pow__`; that of the others gets `Tensor.add`, …
NAMED = {"floordiv", "pow", "and", "or", "xor", "lshift", "rshift"}

COMPARISONS = {
    "eq": compare.eq, "ne": compare.ne, "lt": compare.lt, "le": compare.le,
    "gt": compare.gt, "ge": compare.ge,
}

UNARY = {
    "neg": elementwise.neg, "pos": elementwise.positive, "abs": elementwise.abs,
    "invert": compare.invert,
}

METHODS = [
    *(getattr(elementwise, name) for name in elementwise.__all__ if name not in ("zero", "fill", "rsub")),
    *(getattr(compare, name) for name in compare.__all__),
    *(getattr(cast, name) for name in cast.__all__),
    cast.astype, cast.type, cast.cpu, cast.cuda,
    special.erf, special.erfc, special.erfinv, gamma.lgamma, gamma.digamma,
    *(getattr(family, name) for family in (shape, rearrange) for name in family.__all__), shape.unfold,
    *(getattr(complex_numbers, name) for name in ("angle", "conj", "conj_physical", "resolve_conj")),
    chunk, dsplit, hsplit, split, split_with_sizes, tensor_split, unbind, vsplit, unique, unique_consecutive,
    *(getattr(index, name) for name in index.__all__),
    *(getattr(f, name) for f in (gather_along, scatter_along, index_along) for name in f.__all__),
    broadcast.expand, broadcast.expand_as, broadcast.broadcast_to,
    *(getattr(diagonals, name) for name in diagonals.__all__ if not name.endswith("indices")),
    mask.masked_fill, mask.masked_select, mask.masked_scatter, mask.nonzero, mask.argwhere,
    *(getattr(family, name) for family in (linalg, added_product) for name in family.__all__),
    *(getattr(f, n) for f in (solve, factors, matrix_chain, pseudoinverse) for n in f.__all__), torch_svd,
    matrix_exponential.matrix_exp,
    *(getattr(family, name) for family in (reduce, variance, norms, scan, minmax) for name in family.__all__),
    *(getattr(order_statistics, name) for name in order_statistics.__all__),
    sort, argsort, msort, topk, search.bincount, search.histc, search.histogram, inner,
    random.bernoulli, categorical.multinomial, random.uniform_, random.normal_, random.bernoulli_,
    random.exponential_, random.random_,
    *(getattr(properties, name) for name in (
        "size", "stride", "dim", "numel", "element_size", "data_ptr", "is_contiguous", "is_floating_point",
        "is_complex", "is_nonzero", "is_same_size", "is_signed",
    )),
    create.new_zeros, create.new_ones, create.new_empty, create.new_full, create.new_tensor,
]

NEVER_IN_PLACE = {
    "positive", "signbit", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "rsub",
    "float_power",
}

# These write the result into the tensor itself, under their name with an underscore.
INPLACE = [
    *(getattr(elementwise, name) for name in elementwise.__all__ if name not in NEVER_IN_PLACE),
    *(getattr(compare, name) for name in compare.__all__ if not name.startswith(("is", "all", "equal"))),
    complex_numbers.conj_physical, diagonals.tril, diagonals.triu, scan.cumsum, scan.cumprod,
    *(getattr(scatter_along, name) for name in scatter_along.__all__),
    index_along.index_add, index_along.index_copy, index_along.index_fill, index_along.put,
    mask.masked_fill, mask.masked_scatter,
    special.erf, special.erfc, special.erfinv, gamma.lgamma, gamma.digamma,
    *(getattr(added_product, name) for name in added_product.__all__),
]

# These make the tensor a view of itself.
INPLACE_VIEWS = [shape.squeeze, shape.unsqueeze, shape.transpose, shape.t]

CASTS = {
    "half": dtypes.float16, "float": dtypes.float32, "double": dtypes.float64, "bool": dtypes.bool,
    "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32,
    "long": dtypes.int64, "bfloat16": "bfloat16",  # by name: its package is imported when it is used
}

ALIASES = {
    "nelement": "numel", "ndimension": "dim",
    "argwhere": "nonzero", "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
}


def copy_(x: Tensor, source, non_blocking: bool = False) -> Tensor:
    """Overwrites `x` with `source`, broadcast and cast.

    Raises:
        RuntimeError: `source` doesn't broadcast to x's shape; see `ops.inplace`.

    >>> mytorch.zeros(2).copy_(mytorch.tensor([1, 2]))
    tensor([1.00000 2.00000])
    """
    if getattr(source, "ndim", 0) > x.ndim:  # x[...] = source drops leading dims of size 1
        raise RuntimeError(
            f"copy_(): output with shape {list(x.shape)} doesn't match the broadcast shape "
            f"{list(source.shape)}"
        )
    return write(x, source)


def float_power_(x: Tensor, exponent) -> Tensor:
    """`float_power` in place, for float64 only: that is the dtype of its result."""
    if x.dtype != dtypes.float64:
        raise RuntimeError(f"float_power_(): the result has dtype float64, the tensor {x.dtype}")
    return inplace(elementwise.float_power)(x, exponent)


def where(x: Tensor, condition, other) -> Tensor:
    """Returns `x` where the condition is true, and `other` elsewhere."""
    return mask.where(condition, x, other)


def _iterate(x: Tensor) -> Iterator[Tensor]:
    if x.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(x))


def attach(name: str, function) -> None:
    """Makes `function` a method (or operator) of Tensor; and of Array, if it needs no graph."""
    if getattr(function, "__name__", None) == "operation":
        function.__name__ = function.__qualname__ = name
    setattr(Tensor, name, function)
    attach_to_array(name, function)


def _attach_all() -> None:
    for name, op in OPERATORS.items():
        attach(f"__{name}__", as_operator(op, None if name in NAMED else op))
        attach(f"__r{name}__", as_operator(swapped(op), op if name in ("add", "mul") else None))
        attach(f"__i{name}__", inplace(op, f"__i{name}__"))
    attach("__rdiv__", Tensor.__rtruediv__)
    matmul = linalg.matmul  # x @= y makes a new tensor: the shape may change
    attach("__matmul__", as_operator(matmul, matmul))
    attach("__rmatmul__", as_operator(swapped(linalg.matmul)))
    for name, op in COMPARISONS.items():
        attach(f"__{name}__", as_operator(op, op))
    for name, op in UNARY.items():
        attach(f"__{name}__", op)
    for op in METHODS:
        attach(op.__name__, op)
    for op in INPLACE:
        attach(f"{op.__name__}_", inplace(op))
    for op in INPLACE_VIEWS:
        attach(f"{op.__name__}_", inplace_view(op))
    for name, dtype in CASTS.items():
        attach(name, cast.caster(dtype))
    for alias, name in {**ALIASES, **aliases.ALIASES}.items():
        attach(alias, getattr(Tensor, name))
        if hasattr(Tensor, f"{name}_"):
            attach(f"{alias}_", getattr(Tensor, f"{name}_"))
    attach("backward", tensor_backward)
    attach("_add_parents", _add_parents)
    attach("build_graph_enabled", staticmethod(is_grad_enabled))
    attach("copy_", copy_)
    attach("index_put_", index.index_put_)
    attach("float_power_", float_power_)
    attach("where", where)
    attach("__getitem__", index.getitem)
    attach("__setitem__", index.setitem)
    attach("__iter__", _iterate)
    attach("real", property(complex_numbers.real))
    attach("imag", property(complex_numbers.imag))
    attach("T", property(shape.reverse_dims))
    attach("mT", property(shape.matrix_transpose))
    attach("H", property(complex_numbers.conjugate_of_matrix))
    attach("mH", property(complex_numbers.conjugate_transpose))
    Tensor.as_subclass = subclasses.as_subclass
    Tensor._make_subclass = staticmethod(subclasses.make_subclass)
    Tensor.__torch_function__ = classmethod(subclasses.torch_function)
    Tensor.__init_subclass__ = classmethod(subclasses.prepare_subclass)


_attach_all()
