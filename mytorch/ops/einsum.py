"""einsum: products and sums of tensors, told by the names of their dims."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..backends.blas import product
from ..tensor import Tensor
from .linalg import check_dtypes
from .op import as_raw, op
from .reduce import total

__all__ = ["einsum"]

Labels = tuple  # the name of each dim: a letter; in the ellipsis -1 for the last, -2 for the one before, …


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum of products that `equation` tells: "bik,bkj->bij" is a batch of matrix products.

    Dims of one name are multiplied elementwise; names that are missing after "->" are summed over. "..." is
    any dims. Without "->" the result has the dims of the ellipsis, then in alphabetical order the names that
    occur once. A name twice in one operand is its diagonal. Dims of size 1 broadcast.

    Raises:
        RuntimeError: the equation is wrong, or does not fit the operands; their dtypes differ.
        ValueError: no operands.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise ValueError("einsum(): expected an equation and at least one operand")
    return _einsum(*operands, equation=equation)


@op
def _einsum(*operands, equation):
    if len(operands) > 1:
        check_dtypes("einsum", *operands)
    terms, out = parse(equation, [x.ndim for x in operands])
    sizes = _sizes(terms, operands)

    def giver(i):
        """The gradient of operand i: the same kind of sum, of `g` and the other operands."""
        term, rest = terms[i], (*terms[:i], *terms[i + 1 :])
        others = (*operands[:i], *operands[i + 1 :])
        names = tuple(dict.fromkeys(term))

        def give(g):
            return _on_diagonal(_contract((g, *others), (out, *rest), names, sizes), names, term)

        return give

    return _contract(operands, terms, out, sizes), tuple([giver(i) for i in range(len(operands))])


# Reading the equation.


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
        if name not in string.ascii_letters:
            raise RuntimeError(f"einsum(): invalid subscript {name!r} for {where}: not a letter or one '...'")
    named = len(before) + len(after)
    if named > ndim or (named < ndim and not dots):
        raise RuntimeError(f"einsum(): {named} subscripts do not match the {ndim} dimensions of {where}")
    return (*before, *range(named - ndim, 0), *after)


def _sizes(terms: Sequence[Labels], operands: Sequence[Any]) -> dict[Any, int]:
    """The size of each label; 1 gives way to any other."""
    sizes: dict[Any, int] = {}
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        own: dict[Any, int] = {}
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


def _contract(arrays: Sequence[Any], terms: Sequence[Labels], out: Labels, sizes: dict[Any, int]) -> Any:
    """The sum over all labels that are not in `out`, two arrays at a time, the cheapest pair first."""
    parts = [_plain(x, term, sizes) for x, term in zip(arrays, terms, strict=True)]

    def cost(pair):
        return math.prod(sizes[name] for name in {*parts[pair[0]][1], *parts[pair[1]][1]})

    while len(parts) > 1:
        i, j = min(combinations(range(len(parts)), 2), key=cost)
        rest = [part for k, part in enumerate(parts) if k not in (i, j)]
        parts = [_pair(parts[i], parts[j], {*out, *(name for _, names in rest for name in names)}), *rest]
    x, names = _summed(*parts[0], set(out))
    x = np.transpose(x, [names.index(name) for name in out if name in names])
    if len(names) < len(out):  # a label of one operand alone: its gradient is the same all along the dim
        x = np.broadcast_to(
            x[tuple(slice(None) if name in names else None for name in out)], [sizes[name] for name in out]
        )
    return x


def _plain(x: Any, names: Labels, sizes: dict[Any, int]) -> tuple[Any, Labels]:
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


def _summed(x: Any, names: Labels, keep: set) -> tuple[Any, Labels]:
    """The sum over the labels that are not in `keep`."""
    axes = tuple(axis for axis, name in enumerate(names) if name not in keep)
    if not axes:
        return x, names
    y = as_raw(total(x, axes if len(axes) < len(names) else None))
    if x.dtype == np.float16:
        y = y.astype(x.dtype)
    return y, tuple(name for name in names if name in keep)


def _pair(left: tuple[Any, Labels], right: tuple[Any, Labels], keep: set) -> tuple[Any, Labels]:
    """The product of two arrays, summed over the labels not needed later: a batch of matrix products."""
    x, xs = _summed(*left, keep | set(right[1]))
    y, ys = _summed(*right, keep | set(xs))
    batch = [n for n in xs if n in ys and n in keep]
    inner = [n for n in xs if n in ys and n not in keep]
    rows, columns = [n for n in xs if n not in ys], [n for n in ys if n not in xs]
    names = (*batch, *rows, *columns)
    if not inner:
        return _arranged(x, xs, names) * _arranged(y, ys, names), names
    z = product(_grouped(x, xs, batch, rows, inner), _grouped(y, ys, batch, inner, columns))
    size = {**dict(zip(xs, x.shape, strict=True)), **dict(zip(ys, y.shape, strict=True))}
    return np.reshape(z, [size[n] for n in names]), names


def _arranged(x: Any, names: Labels, wanted: Labels) -> Any:
    """The array with its dims in the wanted order, and one of size 1 for each label that it lacks."""
    x = np.transpose(x, [names.index(n) for n in wanted if n in names])
    return x[tuple(slice(None) if n in names else None for n in wanted)]


def _grouped(x: Any, names: Labels, *groups: list) -> Any:
    """The array as (dims of the first group…, size of the second, size of the third): a batch of matrices."""
    x = np.transpose(x, [names.index(n) for group in groups for n in group])
    batch, first = len(groups[0]), len(groups[0]) + len(groups[1])
    shape = (*x.shape[:batch], math.prod(x.shape[batch:first]), math.prod(x.shape[first:]))
    return np.reshape(x, shape)


def _on_diagonal(x: Any, names: Labels, term: Labels) -> Any:
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
