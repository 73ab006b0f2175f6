"""Every operator and method of a Tensor in one place: `x.exp()` is `ops.exp(x)`, `x.exp_()` writes to `x`."""

from __future__ import annotations

from . import dtypes
from ._array import Array
from .device import is_raw
from .ops import (
    arrange,
    cast,
    categorical,
    compare,
    create,
    elementwise,
    extremes,
    gather_scatter,
    index,
    info,
    join,
    linalg,
    mask,
    random,
    reduce,
    shape,
    special,
)
from .ops.inplace import inplace, write
from .ops.op import NUMBERS
from .ops.sort import argsort, sort, topk
from .tensor import Tensor


def swapped(op):
    """The op with its two operands exchanged, for the reflected operators."""
    return lambda x, y: op(y, x)


OPERATORS = {
    "add": elementwise.add, "sub": elementwise.sub, "mul": elementwise.mul, "truediv": elementwise.div,
    "floordiv": elementwise.floor_divide, "mod": elementwise.remainder, "pow": elementwise.pow,
    "and": compare.bitwise_and, "or": compare.bitwise_or, "xor": compare.bitwise_xor,
}  # fmt: skip

COMPARISONS = {
    "eq": compare.eq, "ne": compare.ne, "lt": compare.lt, "le": compare.le,
    "gt": compare.gt, "ge": compare.ge,
}  # fmt: skip

UNARY = {
    "neg": elementwise.neg, "pos": elementwise.positive, "abs": elementwise.abs,
    "invert": compare.bitwise_not,
}  # fmt: skip

METHODS = [
    *(getattr(elementwise, name) for name in elementwise.__all__ if name not in ("zero", "fill")),
    *(getattr(compare, name) for name in compare.__all__),
    *(getattr(cast, name) for name in cast.__all__),
    cast.cpu, cast.cuda,
    special.erf, special.erfc, special.erfinv,
    *(getattr(family, name) for family in (shape, arrange, index, gather_scatter) for name in family.__all__),
    mask.masked_fill, mask.masked_select, mask.nonzero,
    join.split, join.chunk, join.tensor_split, join.unbind,
    *(getattr(family, name) for family in (reduce, extremes, linalg) for name in family.__all__),
    sort, argsort, topk,
    random.bernoulli, categorical.multinomial, random.uniform_, random.normal_, random.bernoulli_,
    random.exponential_, random.random_,
    info.size, info.stride, info.dim, info.numel, info.element_size, info.data_ptr, info.is_contiguous,
    info.is_floating_point, info.is_complex,
    create.new_zeros, create.new_ones, create.new_empty, create.new_full, create.new_tensor,
]  # fmt: skip

# These write the result into the tensor itself, under their name with an underscore.
INPLACE = [
    *(getattr(elementwise, name) for name in elementwise.__all__ if name != "positive"),
    *(getattr(compare, name) for name in compare.__all__ if not name.startswith("is")),
    arrange.tril, arrange.triu,
    gather_scatter.scatter, gather_scatter.scatter_add, gather_scatter.index_add, mask.masked_fill,
    special.erf, special.erfc, special.erfinv,
]  # fmt: skip

CASTS = {
    "half": dtypes.float16, "float": dtypes.float32, "double": dtypes.float64, "bool": dtypes.bool,
    "short": dtypes.int16, "int": dtypes.int32, "long": dtypes.int64,
}  # fmt: skip

ALIASES = {
    "nelement": "numel", "ndimension": "dim",
    "argwhere": "nonzero", "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
    "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div",
    "negative": "neg", "absolute": "abs", "clip": "clamp",
    "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip


def copy_(x: Tensor, source, non_blocking: bool = False) -> Tensor:
    """Overwrite `x` with `source`, broadcast and cast."""
    return write(x, source)


def _operator(op):
    """The op as an operator: another class's operand gets its turn instead of an error."""

    def operator(x, y):
        if isinstance(y, (Tensor, Array, *NUMBERS)) or is_raw(y):
            return op(x, y)
        return NotImplemented

    return operator


def _iterate(x: Tensor):
    if x.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(join.unbind(x))


def attach(name: str, function) -> None:
    """Make `function` a method (or operator) of Tensor."""
    setattr(Tensor, name, function)


def _attach_all() -> None:
    for name, op in OPERATORS.items():
        attach(f"__{name}__", _operator(op))
        attach(f"__r{name}__", _operator(swapped(op)))
        attach(f"__i{name}__", inplace(op, f"__i{name}__"))
    attach("__matmul__", _operator(linalg.matmul))  # x @= y makes a new tensor: the shape may change
    attach("__rmatmul__", _operator(swapped(linalg.matmul)))
    for name, op in COMPARISONS.items():
        attach(f"__{name}__", _operator(op))
    for name, op in UNARY.items():
        attach(f"__{name}__", op)
    for op in METHODS:
        attach(op.__name__, op)
    for op in INPLACE:
        attach(f"{op.__name__}_", inplace(op))
    for name, dtype in CASTS.items():
        attach(name, cast.caster(dtype))
    for alias, name in ALIASES.items():
        attach(alias, getattr(Tensor, name))
    attach("copy_", copy_)
    attach("where", lambda x, condition, other: mask.where(condition, x, other))
    attach("__getitem__", index.getitem)
    attach("__setitem__", index.setitem)
    attach("__iter__", _iterate)
    attach("T", property(shape.reverse_dims))
    attach("mT", property(shape.matrix_transpose))


_attach_all()
