"""Labels of dims: two dims of a call with one label are cut together, as the k of "...ik,...kj->...ij"."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

Shape = tuple[int, ...]
Label = int | str | tuple | None  # None: the function needs the dim as a whole, or makes it
Dims = tuple[Label, ...]
Origin = tuple[int, int]  # (argument, dim)


class Shaped(Protocol):
    """An array of any kind, or what stands for one in a program."""

    shape: Shape
    dtype: np.dtype


class Labels(NamedTuple):
    """The labels of the dims of a call's arrays.

    Where an argument is cut along a dim, all dims with its label are cut: each is of g blocks, for a divisor
    g of their sizes. The results of such parts are the parts of the results that have the label; those of the
    results that don't have it are put together by `combine`.

    Attributes:
        inputs: of each array among the arguments, in order.
        outputs: of each result.
        combine: the ufunc that puts together the results for parts of a dim that is reduced, "add"; None if
            none does.
    """

    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]
    combine: str | None = None

    def origins(self) -> tuple[tuple[tuple[Origin, ...], ...], ...]:
        """Returns for each dim of each result those that it comes from, as (argument, dim); () for none."""
        return tuple([tuple([self.places(label) for label in dims]) for dims in self.outputs])

    def places(self, label: Label) -> tuple[Origin, ...]:
        """Returns the dims of the arguments that have a label, as (argument, dim)."""
        found = [(k, d) for k, dims in enumerate(self.inputs) for d, own in enumerate(dims) if own == label]
        return () if label is None else tuple(found)

    def results_of_parts(self, label: Label) -> tuple[int | str, ...] | None:
        """Returns for each result the dim that has a label, else `combine`; None if it can't be cut so."""
        found = [dims.index(label) if label in dims else self.combine for dims in self.outputs]
        return None if label is None or None in found else tuple(found)


def arrays_in(*nested: object) -> Iterator[Shaped]:
    """Yields the arrays, all that has a shape, in nested arguments; without that in `out`."""
    for x in nested:
        if isinstance(x, np.dtype):  # which has a shape
            continue
        if isinstance(getattr(x, "shape", None), tuple):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from arrays_in(*x)
        elif isinstance(x, dict):
            yield from arrays_in(*[value for name, value in x.items() if name != "out"])
        elif isinstance(x, slice):
            yield from arrays_in(x.start, x.stop, x.step)


def broadcast(*shapes: Shape, name: str = "") -> tuple[tuple[Dims, ...], Dims]:
    """Returns the labels of arrays that are broadcast, and of the result; a dim of size 1 has none if it is
    repeated.

    Args:
        name: of the labels (name, 0), …; else they are 0, …
    """
    whole = np.broadcast_shapes(*shapes)
    labels = tuple([(name, d) if name else d for d in range(len(whole))])
    inputs = []
    for shape in shapes:
        first = len(whole) - len(shape)
        dims = zip(labels[first:], whole[first:], shape, strict=True)
        inputs.append(tuple([label if n == size else None for label, size, n in dims]))
    return tuple(inputs), labels


def of_text(text: str, shapes: Sequence[Shape | None], combine: str | None = None) -> Labels:
    """Returns the labels of a text like "...ik,...kj->...ij": letters are dims, "..." is any dims, which are
    broadcast. A letter on one side of the arrow alone is a dim as a whole, or one that is reduced.

    Args:
        shapes: for each term, None if the argument isn't given; further arrays are taken as a whole.
    """
    left, _, right = text.partition("->")
    terms = left.split(",")
    given = [(term, shape) for term, shape in zip(terms, shapes, strict=False) if shape is not None]
    heads = [shape[: len(shape) - len(term) + 3] if "..." in term else () for term, shape in given]
    outer, kept = broadcast(*heads, name="...")
    inputs = []
    for (term, shape), head in zip(given, outer, strict=True):
        letters = tuple(term.removeprefix("..."))
        if len(head) + len(letters) != len(shape):
            raise NotImplementedError(f"{term!r} of {text!r} for an array of shape {shape}")
        inputs.append(head + letters)
    inputs += [(None,) * len(shape) for shape in shapes[len(terms) :] if shape is not None]
    outputs = [(kept if "..." in term else ()) + tuple(term.removeprefix("...")) for term in right.split(",")]
    return without_lonely(Labels(tuple(inputs), tuple(outputs), combine))


def without_lonely(labels: Labels) -> Labels:
    """Returns the labels with None for those that aren't an argument's, or aren't in all results though
    nothing is reduced."""
    known = {label for dims in labels.inputs for label in dims}
    for dims in labels.outputs if labels.combine is None else ():
        known &= {*dims}
    inputs, outputs = ([_only(dims, known) for dims in given] for given in labels[:2])
    return labels._replace(inputs=tuple(inputs), outputs=tuple(outputs))


def _only(dims: Dims, known: set[Label]) -> Dims:
    return tuple([label if label in known else None for label in dims])


@functools.lru_cache(maxsize=4096)
def sizes_of(text: str, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...] = ()) -> dict[str, int]:
    """Returns the size that each letter of a text has in the arguments or results, and for "..." the number
    of elements of its dims; where they can't be broadcast, as heads that share keys, of the first array."""
    terms = re.split(",|->", text)
    shapes = [*inputs[: text.partition("->")[0].count(",") + 1], *outputs]
    sizes: dict[str, int] = {}
    heads = []
    for term, shape in zip(terms, shapes, strict=False):
        letters = term.removeprefix("...")
        head = len(shape) - len(letters)
        sizes = {**dict(zip(letters, shape[head:], strict=True)), **sizes}
        heads += [shape[:head]] if "..." in term else []
    try:
        whole = np.broadcast_shapes(*heads)
    except ValueError:
        whole = heads[0]
    return {**sizes, "...": math.prod(whole)}
