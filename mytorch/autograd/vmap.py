"""`vmap`: a function of one sample, called for each sample of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops import movedim, stack

Dims = Any  # an int, None, or tuples, lists and dicts of them


def vmap(
    func: Callable, in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", *,
    chunk_size: int | None = None,
) -> Callable:
    """Returns the function of batches: `func` for each sample, in a loop, and the results stacked.

    It gives what PyTorch's gives, not its speed: write the batch into the function where that counts.

    Args:
        in_dims: for each argument the dim of the batch, or None where all samples get the same; one for all
            arguments, or for all tensors in an argument.
        out_dims: the dim of the batch in each result.
        randomness: ignored: each sample draws its own random numbers.
        chunk_size: ignored.

    Raises:
        ValueError: no argument has a batch, or sizes differ; `in_dims` does not fit.
    """

    @functools.wraps(func)
    def call(*args, **kwargs):
        dims = in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ValueError(f"vmap: in_dims has {len(dims)} entries for {len(args)} arguments")
        sizes: set[int] = set()
        _look(args, tuple(dims), sizes)
        _look(kwargs, 0, sizes)
        if len(sizes) != 1:
            problem = f"got sizes {sorted(sizes)}" if sizes else "no argument has a dim to map over"
            raise ValueError(f"vmap: expected batches of one size; {problem}")
        (size,) = sizes
        results = [func(*_at(args, tuple(dims), i), **_at(kwargs, 0, i)) for i in range(size)]
        return _stacked(results, out_dims)

    return call


def _children(x: object, dims: Dims) -> list[tuple[object, object, Dims]]:
    """Returns (key, item, its dims) of a container."""
    items = list(x.items()) if isinstance(x, dict) else list(enumerate(x))
    if dims is None or isinstance(dims, int):
        return [(key, item, dims) for key, item in items]
    if len(dims) != len(items):
        raise ValueError(f"vmap: in_dims {dims} does not fit {len(items)} values")
    return [(key, item, dims[key]) for key, item in items]


def _look(x: object, dims: Dims, sizes: set[int]) -> None:
    """Collects the sizes of the batches."""
    if isinstance(x, (tuple, list, dict)):
        for _, item, inner in _children(x, dims):
            _look(item, inner, sizes)
    elif dims is not None:
        if not isinstance(x, Tensor):
            raise ValueError(f"vmap: in_dims is {dims} for {type(x).__name__}, which has no dims: give None")
        sizes.add(x.shape[dims])


def _at(x: object, dims: Dims, i: int) -> Any:
    """Returns sample i of the arguments."""
    if isinstance(x, dict):
        return {key: _at(item, inner, i) for key, item, inner in _children(x, dims)}
    if isinstance(x, (tuple, list)):
        return type(x)(_at(item, inner, i) for _, item, inner in _children(x, dims))
    return x if dims is None else x.select(dims, i)


def _stacked(results: list, dims: Dims) -> Any:
    """Returns the results of all samples in one: tensors stacked, containers item by item."""
    first = results[0]
    if isinstance(first, dict):
        return {key: _stacked([r[key] for r in results], dims) for key in first}
    if isinstance(first, (tuple, list)):
        inner = dims if isinstance(dims, (tuple, list)) else (dims,) * len(first)
        return type(first)(_stacked([r[i] for r in results], inner[i]) for i in range(len(first)))
    if not isinstance(first, Tensor):
        raise ValueError(f"vmap: the function must return Tensors, got {type(first).__name__}")
    return first if dims is None else movedim(stack(results), 0, dims)
