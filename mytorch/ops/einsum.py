"""Products and sums of tensors by the labels of their dims: einsum and its special cases."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from ..backends.blas import product
from ..backends.device import RawArray
from ..backends.dtypes import int64
from ..core.grad_mode import _state
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .autocast import in_half, in_widest
from .cast import to
from .dims import dims_in_order
from .elementwise import mul
from .linalg import check_dtypes
from .reduce import cast, total

__all__ = ["einsum", "tensordot", "inner"]

LETTERS = string.ascii_uppercase + string.ascii_lowercase  # in the order of the result's dims
Labels = tuple  # the name of each dim: a letter; in the ellipsis -1 for the last, -2 for the one before, …


def einsum(*args: str | Tensor | Sequence) -> Tensor:
    """einsum(equation, *operands): the sum of products that the equation describes.

    "bik,bkj->bij" is a batch of matrix products. The labels may also be lists of numbers, one after each
    operand and, instead of "->", a last one: einsum(x, [0, 1, 2], y, [0, 2, 3], [0, 1, 3]).

    Dims of one name are multiplied elementwise; names that are missing after "->" are summed over. "..." is
    any dims. Without "->" the result has the dims of the ellipsis, then in alphabetical order the names that
    occur once. A name twice in one operand is its diagonal. Dims of size 1 broadcast.

    Raises:
        RuntimeError: the equation is wrong, or does not fit the operands; their dtypes differ.
        ValueError: no operands; a number that isn't in 0 … 51.

    >>> mytorch.einsum("ij,jk->ik", mytorch.ones(2, 3), mytorch.ones(3, 4)).shape
    Size([2, 4])
    """
    if len(args) < 2:
        raise ValueError("einsum(): expected an equation, or lists of subscripts, and at least one operand")
    equation, *operands = args if isinstance(args[0], str) else _by_letters(args)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    if not operands:
        raise ValueError("einsum(): expected at least one operand")
    if _state.autocast is not None:
        operands = in_half(operands)
    return _einsum(*operands, equation=equation)


def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] | Tensor = 2, *,
    axes: int | Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """The sum of products over dims of `a` and as many of `b`: the result has the others of `a`, then of `b`.

    Args:
        dims: how many of a's last and b's first dims; or two lists, of the dims of `a` and of `b`.
        axes: NumPy's name for `dims`.

    Raises:
        RuntimeError: the sizes of the dims differ (1 broadcasts), or their numbers; dtypes that differ.
        IndexError: the dim is out of range.

    >>> mytorch.tensordot(mytorch.ones(2, 3), mytorch.ones(3, 4), dims=1).shape
    Size([2, 4])
    """
    require_tensor(a, "tensordot")
    require_tensor(b, "tensordot")
    if _state.autocast is not None:
        a, b = in_widest(in_half((a, b), ("cpu",)))
    of_a, of_b = _contracted(a, b, dims if axes is None else axes)
    names_a, names_b = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(of_a, of_b, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise RuntimeError(
                "tensordot(): contracted dimensions need to match, but first has size "
                f"{a.shape[i]} in dim {i} and second has size {b.shape[j]} in dim {j}"
            )
        names_b[j] = names_a[i]
    out = [n for i, n in enumerate(names_a) if i not in of_a] + [n for n in names_b if n not in names_a]
    equation, *operands = _by_letters((a, names_a, b, names_b, out))
    return to(_einsum(*operands, equation=equation), a.dtype)  # a sum of small integers may be int64


def _contracted(
    a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] | Tensor
) -> tuple[list[int], list[int]]:
    dims = dims.tolist() if isinstance(dims, Tensor) else dims
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise RuntimeError(
                f"tensordot(): dims={dims} is negative or more than the {a.ndim} and {b.ndim} dims there are"
            )
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    if not isinstance(dims, (list, tuple)):
        raise RuntimeError(f"tensordot(): dims is an int or two lists of ints, got {dims!r}")
    of_a, of_b = dims
    if not (isinstance(of_a, (list, tuple)) and isinstance(of_b, (list, tuple))):
        raise TypeError(f"tensordot(): dims is an int or two lists of ints, got {dims!r}")
    if len(of_a) != len(of_b):
        raise RuntimeError(f"tensordot(): both lists of dims should have the same length, got {dims!r}")
    return dims_in_order(of_a, a.ndim, "tensordot"), dims_in_order(of_b, b.ndim, "tensordot")


def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sum of products over the last dims of both; a 0-d tensor multiplies all of the other.

    Raises:
        RuntimeError: the last dims have other sizes; the dtypes differ.

    >>> mytorch.tensor([1, 2]).inner(mytorch.tensor([3, 4]))
    tensor(11)
    """
    require_tensor(input, "inner")
    require_tensor(other, "inner")
    if not (input.ndim and other.ndim):
        return mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner(): the last dims must match, got shapes {tuple(input.shape)} and {tuple(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


@op(half="float16")
def _einsum(*operands, equation):
    if len(operands) > 1:
        check_dtypes("einsum", *operands)
    terms, out = parse(equation, [x.ndim for x in operands])
    sizes = sizes_of(terms, operands)

    def vjp_of(i):
        """The gradient of operand i: the same kind of sum, of `g` and the other operands."""
        term, rest = terms[i], (*terms[:i], *terms[i + 1 :])
        others = (*operands[:i], *operands[i + 1 :])
        names = tuple(dict.fromkeys(term))

        def vjp(g):
            return _on_diagonal(_contract((g, *others), (out, *rest), names, sizes), names, term)

        return vjp

    return _contract(operands, terms, out, sizes), tuple([vjp_of(i) for i in range(len(operands))])


# Reading the equation.


def _by_letters(args: Sequence) -> tuple:
    """The equation of operands that alternate with lists of numbers, and the operands."""
    count = len(args) // 2
    texts = [_subscripts(names) for names in args[1 : 2 * count : 2]]
    output = f"->{_subscripts(args[-1])}" if len(args) % 2 else ""
    return ",".join(texts) + output, *args[: 2 * count : 2]


def _subscripts(names: object) -> str:
    if not isinstance(names, (list, tuple)):
        raise TypeError(f"einsum(): expected a list of subscripts after an operand, got {names!r}")
    for n in names:
        if n is not ... and not (isinstance(n, int) and 0 <= n < len(LETTERS)):
            raise ValueError(f"einsum(): a subscript in a list is a number in [0, 52) or ..., got {n!r}")
    return "".join("..." if n is ... else LETTERS[n] for n in names)


def parse(equation: str, ndims: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand's dims and those of the result's.

    Args:
        ndims: how many dims each operand has.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    texts = inputs.split(",")
    if len(texts) != len(ndims):
        raise RuntimeError(f"einsum(): {equation!r} has {len(texts)} operands, {len(ndims)} were given")
    terms = [_labels(text, ndims[i], f"operand {i} in {equation!r}") for i, text in enumerate(texts)]
    hidden = max(sum(isinstance(name, int) for name in term) for term in terms)
    if arrow:
        ndim = len(output.replace("...", "")) + hidden * ("..." in output)
        out = _labels(output, ndim, f"the output in {equation!r}")
    else:
        names = [name for term in terms for name in term]
        once = sorted(name for name in names if isinstance(name, str) and names.count(name) == 1)
        out = (*range(-hidden, 0), *once)
    known = {name for term in terms for name in term}
    for name in out:
        if name not in known:
            raise RuntimeError(f"einsum(): output subscript {name} in {equation!r} appears in no input")
        if out.count(name) > 1:
            raise RuntimeError(f"einsum(): output subscript {name} in {equation!r} appears more than once")
    return terms, out


def _labels(text: str, ndim: int, where: str) -> Labels:
    """One label a dim; the dims of the ellipsis count back from -1."""
    before, dots, after = text.partition("...")
    for name in before + after:
        if name not in LETTERS:
            raise RuntimeError(f"einsum(): invalid subscript {name!r} for {where}: not a letter or one '...'")
    named = len(before) + len(after)
    if named > ndim or (named < ndim and not dots):
        raise RuntimeError(f"einsum(): {named} subscripts do not match the {ndim} dimensions of {where}")
    return (*before, *range(named - ndim, 0), *after)


def sizes_of(terms: Sequence[Labels], operands: Sequence[RawArray]) -> dict[str | int, int]:
    """Returns the size of each label; 1 broadcasts."""
    sizes: dict[str | int, int] = {}
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        own: dict[str | int, int] = {}
        for name, n in zip(term, x.shape, strict=True):
            if own.setdefault(name, n) != n:
                raise RuntimeError(f"einsum(): subscript {name} has two sizes in operand {i} of {x.shape}")
            seen = sizes.get(name, 1)
            if n != seen and 1 not in (n, seen):
                raise RuntimeError(
                    f"einsum(): subscript {name} has size {n} in operand {i} of shape {x.shape}, "
                    f"which does not broadcast with {seen} before"
                )
            sizes[name] = n if seen == 1 else seen
    return sizes


# Carrying it out.


def _contract(
    arrays: Sequence[RawArray], terms: Sequence[Labels], out: Labels, sizes: dict[str | int, int]
) -> RawArray:
    """The sum over all labels that are not in `out`, two arrays at a time, the cheapest pair first."""
    parts = [_simplified(x, term, sizes) for x, term in zip(arrays, terms, strict=True)]
    while len(parts) > 1:
        i, j = cheapest([names for _, names in parts], sizes)
        rest = [part for k, part in enumerate(parts) if k not in (i, j)]
        parts = [_pair(parts[i], parts[j], {*out, *(name for _, names in rest for name in names)}), *rest]
    x, names = _sum_over(*parts[0], set(out))
    x = np.transpose(x, [names.index(name) for name in out if name in names])
    if len(names) < len(out):  # a label of one operand alone: its gradient is the same all along the dim
        x = np.broadcast_to(
            x[tuple(slice(None) if name in names else None for name in out)], [sizes[name] for name in out]
        )
    return x


def cheapest(terms: Sequence[Iterable], sizes: dict[str | int, int]) -> tuple[int, int]:
    """The two operands whose product has the fewest multiplications."""

    def cost(pair):
        return math.prod([sizes[name] for name in {*terms[pair[0]], *terms[pair[1]]}])

    return min(combinations(range(len(terms)), 2), key=cost)


def _simplified(x: RawArray, names: Labels, sizes: dict[str | int, int]) -> tuple[RawArray, Labels]:
    """The array with each label once, diagonals taken, and without the dims of size 1 that get stretched."""
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            x = np.diagonal(x, 0, first, second)  # the diagonal becomes the last dim
            names = (*(n for axis, n in enumerate(names) if axis not in (first, second)), name)
    stretched = [n == 1 and sizes[name] != 1 for name, n in zip(names, x.shape, strict=True)]
    if any(stretched):
        x = x[tuple(0 if s else slice(None) for s in stretched)]
        names = tuple(name for name, s in zip(names, stretched, strict=True) if not s)
    return x, names


def _sum_over(x: RawArray, names: Labels, keep: set) -> tuple[RawArray, Labels]:
    """The sum over the labels that are not in `keep`."""
    axes = tuple(axis for axis, name in enumerate(names) if name not in keep)
    if not axes:
        return x, names
    dtype = int64 if x.dtype.kind in "biu" else x.dtype
    y = cast(total(x, axes, True, None if dtype == x.dtype else dtype), dtype)
    kept = [axis for axis in range(len(names)) if axis not in axes]
    return np.reshape(y, [x.shape[axis] for axis in kept]), tuple([names[axis] for axis in kept])


def _pair(
    left: tuple[RawArray, Labels], right: tuple[RawArray, Labels], keep: set
) -> tuple[RawArray, Labels]:
    """The product of two arrays, summed over the labels not needed later: a batch of matrix products."""
    x, xs = _sum_over(*left, keep | set(right[1]))
    y, ys = _sum_over(*right, keep | set(xs))
    batch = [n for n in xs if n in ys and n in keep]
    inner = [n for n in xs if n in ys and n not in keep]
    rows, columns = [n for n in xs if n not in ys], [n for n in ys if n not in xs]
    names = (*batch, *rows, *columns)
    if not inner:
        return _aligned(x, xs, names) * _aligned(y, ys, names), names
    z = product(_as_matrices(x, xs, batch, rows, inner), _as_matrices(y, ys, batch, inner, columns))
    size = {**dict(zip(xs, x.shape, strict=True)), **dict(zip(ys, y.shape, strict=True))}
    return np.reshape(z, [size[n] for n in names]), names


def _aligned(x: RawArray, names: Labels, wanted: Labels) -> RawArray:
    """The array with its dims in the wanted order, and one of size 1 for each label that it lacks."""
    x = np.transpose(x, [names.index(n) for n in wanted if n in names])
    return x[tuple(slice(None) if n in names else None for n in wanted)]


def _as_matrices(x: RawArray, names: Labels, *groups: list) -> RawArray:
    """The array as (dims of the first group…, size of the second, size of the third): a batch of matrices."""
    x = np.transpose(x, [names.index(n) for group in groups for n in group])
    batch, first = len(groups[0]), len(groups[0]) + len(groups[1])
    shape = (*x.shape[:batch], math.prod(x.shape[batch:first]), math.prod(x.shape[first:]))
    return np.reshape(x, shape)


def _on_diagonal(x: RawArray, names: Labels, term: Labels) -> RawArray:
    """The reverse of taking diagonals: a dim for each label of `term`, 0 off the diagonals."""
    if len(names) == len(term):
        return x
    x = x[tuple(slice(None) if term.index(name) == axis else None for axis, name in enumerate(term))]
    for axis, name in enumerate(term):
        first = term.index(name)
        if first < axis:
            places = np.arange(x.shape[first], like=x)
            at = [np.reshape(places, (1,) * a + (-1,) + (1,) * (len(term) - 1 - a)) for a in (first, axis)]
            x = np.where(np.equal(*at), x, 0)
    return x
