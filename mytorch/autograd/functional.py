"""Derivatives of functions: vjp, jvp, Jacobian and Hessian of `func` at `inputs`.

    vjp(func, x, v)      v^T J         one walk back
    jvp(func, x, v)      J v           the derivative of v^T J with respect to v, which is linear in v
    jacobian(func, x)    J             a walk for each element of the output
    hessian(func, x)     H             the Jacobian of the gradient
    vhp, hvp             v^T H, H v    the gradient of the product of gradient and v

J[i, j] = d func_i / d x_j. Inputs, outputs and vectors are tensors or tuples of tensors, and so are results.

Source: Baydin et al., "Automatic Differentiation in Machine Learning: a Survey", JMLR 18 (2018), section 3;
the double walk of jvp: J. Townsend, "A new trick for calculating Jacobian vector products", 2017,
https://j-towns.github.io/2017/06/12/A-new-trick.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor, from_raw
from .gradients import grad
from .higher import entrance

Tensors = Tensor | tuple[Tensor, ...]


def vjp(
    func: Callable,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """(func(inputs), v^T J).

    Args:
        v: in the outputs' shapes; None for a scalar output, where it is 1.
        create_graph: let the results be differentiated.
        strict: raise if an output doesn't depend on an input, instead of giving zeros.

    Raises:
        RuntimeError: v has other shapes than the outputs; strict, and something is independent.
    """
    xs, outs, form = _run(func, inputs, "vjp")
    vs = _vectors(v, outs, "outputs")
    return _finish(form(outs), create_graph), _finish(
        _like(inputs, pull(outs, xs, vs, True, strict)), create_graph
    )


def jvp(
    func: Callable,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """(func(inputs), J v); the arguments are those of `vjp`, but `v` has the inputs' shapes."""
    xs, outs, form = _run(func, inputs, "jvp")
    vs = _vectors(v, xs, "inputs")
    return _finish(form(outs), create_graph), _finish(form(push(outs, xs, vs, strict)), create_graph)


def jacobian(
    func: Callable,
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """J[i, j], of shape (*output, *input): for tuples of outputs or inputs, a tuple (of tuples) of them.

    Args:
        create_graph, strict: see `vjp`.
        vectorize, strategy: for code written for PyTorch; the result is the same.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian(): strategy is 'reverse-mode' or 'forward-mode', got {strategy!r}")
    xs, outs, form = _run(func, inputs, "jacobian")
    blocks = tuple(_like(inputs, rows(out, xs, strict)) for out in outs)
    return _finish(form(blocks), create_graph)


def hessian(
    func: Callable,
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one element, H[i, j] = d^2 func / d x_i d x_j, of shape
    (*input, *input); for a tuple of inputs a tuple of tuples."""
    several = isinstance(inputs, tuple)

    def gradient(*xs: Tensor) -> Tensors:
        out = _scalar(func(*xs), "hessian")
        grads = pull([out], list(xs), [None], True, strict)
        return grads if several else grads[0]

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(
    func: Callable,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensors]:
    """(func(inputs), v^T H) for a function with one element; see `vjp`."""
    xs, outs, form = _run(func, inputs, "vhp")
    _scalar(form(outs), "vhp")
    vs = _vectors(v, xs, "inputs")
    first = pull(outs, xs, [None], True, strict)
    return _finish(form(outs), create_graph), _finish(
        _like(inputs, pull(first, xs, vs, True, strict)), create_graph
    )


def hvp(
    func: Callable,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensors]:
    """(func(inputs), H v): H is symmetric, so it is `vhp`."""
    return vhp(func, inputs, v, create_graph, strict)


# The walks, for `mytorch.func` as well.


def pull(
    outs: Sequence[Tensor], xs: Sequence[Tensor], vs: Sequence, create_graph: bool, strict: bool = False
):
    """v^T J as a tuple, zeros where nothing depends on an input."""
    pairs = [(out, v) for out, v in zip(outs, vs, strict=True) if out.requires_grad]
    if strict and len(pairs) < len(outs):
        raise RuntimeError("an output is independent of the inputs; this is not allowed when strict=True")
    if not pairs:
        return tuple(from_raw(np.zeros_like(x.data._array)) for x in xs)
    with enable_grad():
        grads = grad(
            [out for out, _ in pairs], xs, [v for _, v in pairs], True, create_graph, allow_unused=True
        )
    if strict and any(g is None for g in grads):
        raise RuntimeError("an output is independent of an input; this is not allowed when strict=True")
    pairs = zip(grads, xs, strict=True)
    return tuple(from_raw(np.zeros_like(x.data._array)) if g is None else g for g, x in pairs)


def push(outs: Sequence[Tensor], xs: Sequence[Tensor], vs: Sequence[Tensor], strict: bool = False) -> tuple:
    """J v as a tuple: u^T J is linear in u, and its derivative with respect to u, times v, is J v."""
    us = [from_raw(np.zeros_like(out.data._array)).requires_grad_() for out in outs]
    return pull(pull(outs, xs, us, True, strict), us, vs, True)


def rows(out: Tensor, xs: Sequence[Tensor], strict: bool = False) -> tuple[Tensor, ...]:
    """The Jacobian of one output with respect to each input, (*out, *x), a walk for each element of `out`."""
    from ..ops import reshape, stack

    found = []
    for i in range(out.numel()):
        one = np.zeros_like(out.data._array)
        one.reshape(-1)[i] = 1
        found.append(pull([out], xs, [from_raw(one)], True, strict))
    if not found:
        return tuple(from_raw(np.zeros_like(out.data._array, shape=(*out.shape, *x.shape))) for x in xs)
    columns = zip(*found, strict=True)
    return tuple(
        reshape(stack(column), (*out.shape, *x.shape)) for column, x in zip(columns, xs, strict=True)
    )


def _run(func: Callable, inputs: Any, name: str) -> tuple[list, list, Callable]:
    """The inputs as entrances, the outputs, and what gives a sequence the form of the outputs."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    for x in given:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): inputs are a Tensor or a tuple of them, got {type(x).__name__}")
    with enable_grad():
        xs = [entrance(x) for x in given]
        result = func(*xs)
    outs = list(result) if isinstance(result, tuple) else [result]
    for out in outs:
        if not isinstance(out, Tensor):
            raise TypeError(f"{name}(): func returns a Tensor or a tuple of them, got {type(out).__name__}")
    return xs, outs, (tuple if isinstance(result, tuple) else lambda some: some[0])


def _like(inputs: Any, results: tuple) -> Any:
    return results if isinstance(inputs, tuple) else results[0]


def _vectors(v: Any, like: Sequence[Tensor], what: str) -> list:
    vs = [None] if v is None else [v] if isinstance(v, Tensor) else list(v)
    if v is None and (len(like) != 1 or like[0].numel() != 1):
        raise RuntimeError(f"the vector v can only be None if the {what} have one element")
    if v is None:
        return [from_raw(np.ones_like(like[0].data._array))]
    shapes, wanted = [tuple(x.shape) for x in vs], [tuple(x.shape) for x in like]
    if shapes != wanted:
        raise RuntimeError(f"v has shapes {shapes}, the {what} have {wanted}")
    return vs


def _scalar(out: Any, name: str) -> Tensor:
    if not isinstance(out, Tensor) or out.numel() != 1:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise RuntimeError(f"{name}(): func must return a Tensor with one element, got {shape}")
    return out


def _finish(result: Any, create_graph: bool) -> Any:
    if create_graph:
        return result
    return tuple(_finish(r, False) for r in result) if isinstance(result, tuple) else result.detach()
