"""Derivatives of `func` at `inputs`, PyTorch's older interface to the functions of `mytorch.func`.

    vjp(func, x, v)      v^T J         jacobian(func, x)    J         vhp(func, x, v)      v^T H
    jvp(func, x, v)      J v           hessian(func, x)     H         hvp(func, x, v)      H v

J[i, j] = d func_i / d x_j. Inputs, outputs and vectors are tensors or tuples of tensors, and so are results.
Arguments of all functions:

    create_graph: the results can be differentiated.
    strict: raise if an output is independent of an input, instead of returning zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops import ones_like
from . import transforms

Tensors = Tensor | tuple[Tensor, ...]


def vjp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """Returns (func(inputs), v^T J).

    Args:
        v: in the outputs' shapes; None for an output with one element, where it is 1.

    Raises:
        RuntimeError: v has other shapes than the outputs; strict, and an output is independent of an input.
    """
    out, vjp_fn = transforms.vjp(_checked(func, "vjp"), *_tuple(inputs, "vjp"), strict=strict)
    return _results(out, _like(inputs, vjp_fn(_vector(v, out, "outputs"))), create_graph)


def jvp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """Returns (func(inputs), J v); `v` has the inputs' shapes."""
    primals = _tuple(inputs, "jvp")
    tangents = _vector(v, inputs, "inputs")
    return _results(
        *transforms.jvp(
            _checked(func, "jvp"), primals, tangents if isinstance(tangents, tuple) else (tangents,),
            strict=strict,
        ), create_graph,
    )


def jacobian(
    func: Callable, inputs: Tensors, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:
    """Returns J, of shape (*output, *input): for tuples of outputs or inputs, a tuple (of tuples) of them.

    Args:
        vectorize, strategy: without effect.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian(): strategy is 'reverse-mode' or 'forward-mode', got {strategy!r}")
    primals = _tuple(inputs, "jacobian")
    jacrev = transforms.jacrev(_checked(func, "jacobian"), _argnums(inputs), strict=strict)
    return _detached(jacrev(*primals), create_graph)


def hessian(
    func: Callable, inputs: Tensors, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Returns H[i, j] = d^2 func / d x_i d x_j of a function with one element, of shape (*input, *input);
    for a tuple of inputs a tuple of tuples."""
    both = transforms.grad_and_value(func, _argnums(inputs), strict=strict)
    return jacobian(
        lambda *xs: both(*xs)[0], inputs, create_graph, strict, vectorize, outer_jacobian_strategy
    )


def vhp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensors]:
    """Returns (func(inputs), v^T H) for a function with one element; `v` has the inputs' shapes."""
    primals = _tuple(inputs, "vhp")
    both = transforms.grad_and_value(func, _argnums(inputs), strict=strict)
    _, vjp_fn, value = transforms.vjp(both, *primals, has_aux=True, strict=strict)
    return _results(value, _like(inputs, vjp_fn(_vector(v, inputs, "inputs"))), create_graph)


def hvp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensors]:
    """Returns (func(inputs), H v): H is symmetric, so it is `vhp`."""
    return vhp(func, inputs, v, create_graph, strict)


def _tuple(inputs: object, name: str) -> tuple[Tensor, ...]:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    for x in inputs:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): inputs are a Tensor or a tuple of them, got {type(x).__name__}")
    return inputs


def _argnums(inputs: Tensors) -> transforms.Argnums:
    return tuple(range(len(inputs))) if isinstance(inputs, tuple) else 0


def _checked(func: Callable, name: str) -> Callable:
    """Returns `func` with a check that its result is a Tensor or a tuple of Tensors."""

    def call(*args: Tensor) -> Tensors:
        out = func(*args)
        for x in out if isinstance(out, tuple) else (out,):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name}(): func returns a Tensor or a tuple of them, got {type(x).__name__}")
        return out

    return call


def _vector(v: Tensors | None, like: Tensors, what: str) -> Tensors:
    """Returns v, or 1 for one tensor with one element; raises unless the shapes are those of `like`."""
    tensors = like if isinstance(like, tuple) else (like,)
    if v is None:
        if len(tensors) != 1 or tensors[0].numel() != 1:
            raise RuntimeError(f"the vector v can only be None if the {what} have one element")
        return ones_like(tensors[0])
    v = v if isinstance(v, (Tensor, tuple)) else tuple(v)
    shapes = [tuple(x.shape) for x in (v if isinstance(v, tuple) else (v,))]
    expected = [tuple(x.shape) for x in tensors]
    if shapes != expected:
        raise RuntimeError(f"v has shapes {shapes}, the {what} have {expected}")
    return v


def _like(inputs: Tensors, results: tuple) -> Tensors:
    return results if isinstance(inputs, tuple) else results[0]


def _results(out: Tensors, result: Tensors, create_graph: bool) -> tuple[Tensors, Tensors]:
    return _detached(out, create_graph), _detached(result, create_graph)


def _detached(result: object, create_graph: bool) -> Any:
    if create_graph:
        return result
    return tuple(_detached(r, False) for r in result) if isinstance(result, tuple) else result.detach()
