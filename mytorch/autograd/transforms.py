"""Transformations of functions: gradients, vector products and Jacobians of `func(*primals)`.

Arguments and results are tensors, or tuples, lists and dicts of them. `mytorch.func` exports these functions,
`mytorch.autograd.functional` calls them.

Source: the transformations of JAX, https://docs.jax.dev/en/latest/automatic-differentiation.html, with the
names that torch.func has; Baydin et al., "Automatic Differentiation in Machine Learning: a Survey", JMLR 18
(2018), section 3; jvp by two backward passes: J. Townsend, "A new trick for calculating Jacobian vector
products", 2017, https://j-towns.github.io/2017/06/12/A-new-trick.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.grad_mode import _state, enable_grad
from ..core.graph import Node
from ..core.tensor import Tensor, from_raw, raw_of
from ..ops import stack
from .gradients import grad as gradients_of
from .higher import entrance

Argnums = int | tuple[int, ...]


def grad(func: Callable, argnums: Argnums = 0, has_aux: bool = False) -> Callable:
    """Returns the function that computes the gradient of `func`, whose result is a tensor of one element.

    Args:
        argnums: the positional arguments to differentiate with respect to.
        has_aux: `func` returns (value, aux), and the result is (gradient, aux).

    Raises (when called):
        RuntimeError: the result of `func` is not a tensor with one element.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def call(*args, **kwargs):
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return call


def grad_and_value(
    func: Callable, argnums: Argnums = 0, has_aux: bool = False, *, strict: bool = False
) -> Callable:
    """Returns the function that computes (gradient, value), or (gradient, (value, aux)): see `grad`."""

    @functools.wraps(func)
    def call(*args, **kwargs):
        args, wanted, inputs = _enter(args, argnums)
        value, aux = _split_aux(_run(func, args, kwargs), has_aux)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise RuntimeError(f"grad(): the function must return a tensor with one element, got {got}")
        gradient = _rebuild(wanted, iter(_vector_jacobian([value], inputs, [None], strict)))
        result = (gradient, (value, aux) if has_aux else value)
        return _leave(result, inputs)

    return call


def vjp(func: Callable, *primals: object, has_aux: bool = False, strict: bool = False) -> tuple:
    """Returns (func(*primals), vjp_fn), where vjp_fn(v) is v^T J, a tuple with one element per primal.

    Args:
        has_aux: `func` returns (output, aux), and the result is (output, vjp_fn, aux).
        strict: raise if an output is independent of an input, instead of returning zeros.
    """
    args, wanted, inputs = _enter(primals, tuple(range(len(primals))))
    out, aux = _split_aux(_run(func, args, {}), has_aux)
    outs = list(_leaves(out))

    def vjp_fn(cotangents: object) -> tuple:
        vs = list(_leaves(cotangents))
        shapes, expected = [tuple(v.shape) for v in vs], [tuple(o.shape) for o in outs]
        if shapes != expected:
            raise RuntimeError(f"vjp(): the cotangents have shapes {shapes}, the outputs {expected}")
        return _leave(_rebuild(wanted, iter(_vector_jacobian(outs, inputs, vs, strict))), inputs)

    out = _leave(out, inputs)
    return (out, vjp_fn, aux) if has_aux else (out, vjp_fn)


def jvp(
    func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False
) -> tuple:
    """Returns (func(*primals), J v), with v = `tangents`, in the shapes of the primals.

    Args:
        has_aux, strict: see `vjp`.

    Raises:
        TypeError, RuntimeError: primals and tangents are not tuples, or do not match.
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise TypeError("jvp(): primals and tangents are tuples")
    args, _, inputs = _enter(primals, tuple(range(len(primals))))
    vs = list(_leaves(tangents))
    shapes, expected = [tuple(v.shape) for v in vs], [tuple(x.shape) for x in inputs]
    if shapes != expected:
        raise RuntimeError(f"jvp(): the tangents have shapes {shapes}, the primals {expected}")
    out, aux = _split_aux(_run(func, args, {}), has_aux)
    tangent = _rebuild(out, iter(_jacobian_vector(list(_leaves(out)), inputs, vs, strict)))
    result = _leave((out, tangent), inputs)
    return (*result, aux) if has_aux else result


def jacrev(
    func: Callable, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    strict: bool = False,
) -> Callable:
    """Returns the function that computes the Jacobian of `func`, J[i, j] = d func_i / d x_j, of shape
    (*output, *input), with one backward pass per element of the output.

    Args:
        argnums, has_aux: see `grad`.
        chunk_size: without effect.
        strict: see `vjp`.
    """

    @functools.wraps(func)
    def call(*args, **kwargs):
        args, wanted, inputs = _enter(args, argnums)
        out, aux = _split_aux(_run(func, args, kwargs), has_aux)
        blocks = (_rebuild(wanted, iter(_jacobian_rows(o, inputs, strict))) for o in _leaves(out))
        result = _leave(_rebuild(out, blocks), inputs)
        return (result, aux) if has_aux else result

    return call


jacobian = jacfwd = jacrev  # no forward mode: reverse mode has the same result


def hessian(func: Callable, argnums: Argnums = 0) -> Callable:
    """Returns the function that computes the second derivatives of `func`: the Jacobian of its Jacobian."""
    return jacobian(jacobian(func, argnums), argnums)


# Products with the Jacobian, on lists of tensors.


def _vector_jacobian(
    outs: Sequence[Tensor], xs: Sequence[Tensor], vs: Sequence[Tensor | None], strict: bool
) -> tuple[Tensor, ...]:
    """Returns v^T J, zeros for inputs on which no output depends."""
    pairs = [(out, v) for out, v in zip(outs, vs, strict=True) if out.requires_grad]
    if strict and len(pairs) < len(outs):
        raise RuntimeError("an output is independent of the inputs; this is not allowed when strict=True")
    if not pairs:
        return tuple(from_raw(np.zeros_like(raw_of(x))) for x in xs)
    with enable_grad():
        grads = gradients_of([o for o, _ in pairs], xs, [v for _, v in pairs], True, True, allow_unused=True)
    if strict and any(g is None for g in grads):
        raise RuntimeError("an output is independent of an input; this is not allowed when strict=True")
    pairs = zip(grads, xs, strict=True)
    return tuple(from_raw(np.zeros_like(raw_of(x))) if g is None else g for g, x in pairs)


def _jacobian_vector(
    outs: Sequence[Tensor], xs: Sequence[Tensor], vs: Sequence[Tensor], strict: bool
) -> tuple[Tensor, ...]:
    """Returns J v: u^T J is linear in u, and its derivative with respect to u, times v, is J v."""
    us = [from_raw(np.zeros_like(raw_of(out))).requires_grad_() for out in outs]
    return _vector_jacobian(_vector_jacobian(outs, xs, us, strict), us, vs, False)


def _jacobian_rows(out: Tensor, xs: Sequence[Tensor], strict: bool) -> tuple[Tensor, ...]:
    """Returns the Jacobian of one output with respect to each input, (*out, *x)."""
    rows = []
    for i in range(out.numel()):
        one_hot = np.zeros_like(raw_of(out))
        one_hot.reshape(-1)[i] = 1
        rows.append(_vector_jacobian([out], xs, [from_raw(one_hot)], strict))
    if not rows:
        return tuple(from_raw(np.zeros_like(raw_of(out), shape=(*out.shape, *x.shape))) for x in xs)
    columns = zip(*rows, strict=True)
    return tuple(stack(column).reshape(*out.shape, *x.shape) for column, x in zip(columns, xs, strict=True))


# Trees of tensors, and inputs of a transformation.


def _leaves(tree: object) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for branch in tree:
            yield from _leaves(branch)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        raise TypeError(f"expected tensors, or tuples, lists and dicts of them, got {type(tree).__name__}")


def _rebuild(tree: object, leaves: Iterator) -> Any:
    """Returns a tree of the same structure with other leaves."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([_rebuild(branch, leaves) for branch in tree])
    if isinstance(tree, dict):
        return {key: _rebuild(branch, leaves) for key, branch in tree.items()}
    return next(leaves)


def _enter(args: tuple, argnums: Argnums) -> tuple[list, object, list[Tensor]]:
    """Returns the arguments with new inputs at `argnums`, the trees of these inputs, and the inputs."""
    indices = argnums if isinstance(argnums, tuple) else (argnums,)
    if any(not -len(args) <= i < len(args) for i in indices):
        raise RuntimeError(f"argnums={argnums}, but the function is called with {len(args)} arguments")
    args, inputs = list(args), []
    for i in indices:
        new = [entrance(x) for x in _leaves(args[i])]
        args[i] = _rebuild(args[i], iter(new))
        inputs += new
    wanted = tuple(args[i] for i in indices) if isinstance(argnums, tuple) else args[argnums]
    return args, wanted, inputs


def _run(func: Callable, args: list, kwargs: dict) -> Any:
    """Calls the function; what is compiled runs eagerly, as programs have no second derivatives."""
    outer, _state.transforming = _state.transforming, True
    try:
        with enable_grad():
            return func(*args, **kwargs)
    finally:
        _state.transforming = outer


def _split_aux(result: object, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(
            f"has_aux=True: the function must return (output, aux), got {type(result).__name__}"
        )
    return result


def _leave(tree: object, inputs: list[Tensor]) -> Any:
    """Returns the results, detached where they depend on no leaf but the inputs of the transformation."""
    nodes = {x._node for x in inputs}
    if isinstance(tree, Tensor):
        return tree if tree.node is None or _has_other_leaf(tree.node, nodes) else tree.detach()
    if isinstance(tree, (tuple, list)):
        return type(tree)([_leave(branch, inputs) for branch in tree])
    return {k: _leave(v, inputs) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _has_other_leaf(node: Node, nodes: set[Node]) -> bool:
    stack, seen = [node], {node}
    while stack:
        node = stack.pop()
        parents = [p for p in node.parents if p is not None]
        if not parents and node not in nodes and node.name == "leaf":
            return True
        for parent in parents:
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return False
