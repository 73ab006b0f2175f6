"""Functions of functions: `grad(f)` is the gradient of f, and `grad(grad(f))` its second derivative.

    grad(f)(x)           the gradient of a scalar function     vjp(f, x)         f(x), and v -> v^T J
    hessian(f)(x)        its second derivatives                jvp(f, (x,), (v,))   f(x), and J v
    jacobian(f)(x)       J[i, j] = d f_i / d x_j               functional_call(module, parameters, args)

Arguments and results may be tensors, or tuples, lists and dicts of them: a model's parameters, for instance.

Source: the transformations of JAX, https://docs.jax.dev/en/latest/automatic-differentiation.html, with the
names that torch.func gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from .autograd.functional import pull, push, rows
from .autograd.higher import entrance
from .core.grad_mode import enable_grad
from .core.graph import Node
from .core.tensor import Tensor
from .nn.module import Module

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "vjp",
]  # fmt: skip


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """The function that computes the gradient of `func`, which returns a tensor of one element.

    Args:
        argnums: with respect to which positional argument(s).
        has_aux: `func` returns (value, anything else), and the result is (gradient, anything else).

    Raises (when called):
        RuntimeError: `func` returns something else than a tensor with one element.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return call


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """As `grad`, but the function returns (gradient, value), or (gradient, (value, anything else))."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, wanted, entrances = _enter(args, argnums)
        value, aux = _apart(_run(func, args, kwargs), has_aux)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise RuntimeError(f"grad(): the function must return a tensor with one element, got {got}")
        gradient = _rebuild(wanted, iter(pull([value], entrances, [None], True)))
        result = (gradient, (value, aux) if has_aux else value)
        return _leave(result, entrances)

    return call


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(func(*primals), pull), where pull(v) is v^T J: one cotangent for each primal.

    Args:
        has_aux: `func` returns (output, anything else), and the result is (output, pull, anything else).
    """
    args, wanted, entrances = _enter(primals, tuple(range(len(primals))))
    out, aux = _apart(_run(func, args, {}), has_aux)
    outs = list(_leaves(out))

    def pull_back(cotangents: Any) -> tuple:
        vs = list(_leaves(cotangents))
        shapes, expected = [tuple(v.shape) for v in vs], [tuple(o.shape) for o in outs]
        if shapes != expected:
            raise RuntimeError(f"vjp(): the cotangents have shapes {shapes}, the outputs {expected}")
        return _leave(_rebuild(wanted, iter(pull(outs, entrances, vs, True))), entrances)

    out = _leave(out, entrances)
    return (out, pull_back, aux) if has_aux else (out, pull_back)


def jvp(
    func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False
) -> tuple:
    """(func(*primals), J v), with v = `tangents`, in the shapes of the primals.

    Raises:
        TypeError, RuntimeError: primals and tangents are no tuples, or don't fit.
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise TypeError("jvp(): primals and tangents are tuples")
    args, _, entrances = _enter(primals, tuple(range(len(primals))))
    vs = list(_leaves(tangents))
    shapes, expected = [tuple(v.shape) for v in vs], [tuple(x.shape) for x in entrances]
    if shapes != expected:
        raise RuntimeError(f"jvp(): the tangents have shapes {shapes}, the primals {expected}")
    out, aux = _apart(_run(func, args, {}), has_aux)
    tangent = _rebuild(out, iter(push(list(_leaves(out)), entrances, vs, strict)))
    result = _leave((out, tangent), entrances)
    return (*result, aux) if has_aux else result


def jacrev(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable:
    """The function that computes the Jacobian of `func`, (*output, *input), a walk back for each element.

    Args:
        argnums, has_aux: see `grad`.
        chunk_size: for code written for PyTorch; the result is the same.
    """

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, wanted, entrances = _enter(args, argnums)
        out, aux = _apart(_run(func, args, kwargs), has_aux)
        blocks = (_rebuild(wanted, iter(rows(o, entrances))) for o in _leaves(out))
        result = _leave(_rebuild(out, blocks), entrances)
        return (result, aux) if has_aux else result

    return call


jacobian = jacfwd = jacrev  # there is no forward mode: the walk back gives the same numbers


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """The function that computes the second derivatives of `func`: the Jacobian of its Jacobian."""
    return jacobian(jacobian(func, argnums), argnums)


def functional_call(
    module: Module, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict | None = None
) -> Any:
    """`module(*args, **kwargs)` with these parameters and buffers in place of its own, for this call.

    Args:
        parameter_and_buffer_dicts: {name in the state_dict: tensor}, or several such dicts.
        args: a tuple, or the only argument.

    Raises:
        KeyError: the module has no parameter or buffer of this name.
    """
    dicts = parameter_and_buffer_dicts
    given = {k: v for d in (dicts if isinstance(dicts, (tuple, list)) else (dicts,)) for k, v in d.items()}
    places = [_place(module, name) for name in given]
    before = [table[key] for table, key in places]
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for (table, key), tensor in zip(places, given.values(), strict=True):
            table[key] = tensor
        return module(*args, **(kwargs or {}))
    finally:
        for (table, key), tensor in zip(places, before, strict=True):
            table[key] = tensor


def _place(module: Module, name: str) -> tuple[dict, str]:
    """The table of the (sub)module that holds this parameter or buffer, and its key there."""
    *path, key = name.split(".")
    for part in path:
        module = module._modules.get(part) if module is not None else None
    for table in () if module is None else (module._parameters, module._buffers):
        if key in table:
            return table, key
    raise KeyError(f"functional_call(): the module has no parameter or buffer {name!r}")


# Trees of tensors, and the borders of a transformation.


def _leaves(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for branch in tree:
            yield from _leaves(branch)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        raise TypeError(f"expected tensors, or tuples, lists and dicts of them, got {type(tree).__name__}")


def _rebuild(tree: Any, leaves: Iterator) -> Any:
    """A tree of this form with other leaves."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([_rebuild(branch, leaves) for branch in tree])
    if isinstance(tree, dict):
        return {key: _rebuild(branch, leaves) for key, branch in tree.items()}
    return next(leaves)


def _enter(args: tuple, argnums: int | tuple[int, ...]) -> tuple[list, Any, list[Tensor]]:
    """The arguments with entrances at `argnums`, these arguments as given, and the entrances."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if any(not -len(args) <= n < len(args) for n in numbers):
        raise RuntimeError(f"argnums={argnums}, but the function is called with {len(args)} arguments")
    args, entrances = list(args), []
    for n in numbers:
        here = [entrance(x) for x in _leaves(args[n])]
        args[n] = _rebuild(args[n], iter(here))
        entrances += here
    wanted = tuple(args[n] for n in numbers) if isinstance(argnums, tuple) else args[argnums]
    return args, wanted, entrances


def _run(func: Callable, args: list, kwargs: dict) -> Any:
    with enable_grad():
        return func(*args, **kwargs)


def _apart(result: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(
            f"has_aux=True: the function must return (output, aux), got {type(result).__name__}"
        )
    return result


def _leave(tree: Any, entrances: list[Tensor]) -> Any:
    """The results, detached where their history ends at our own entrances: nobody can ask for more."""
    own = {x._node for x in entrances}
    if isinstance(tree, Tensor):
        return tree if tree.node is None or _leads_elsewhere(tree.node, own) else tree.detach()
    if isinstance(tree, (tuple, list)):
        return type(tree)([_leave(branch, entrances) for branch in tree])
    return {k: _leave(v, entrances) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _leads_elsewhere(node: Node, own: set[Node]) -> bool:
    stack, seen = [node], {node}
    while stack:
        node = stack.pop()
        parents = [p for p in node.parents if p is not None]
        if not parents and node not in own and node.name == "leaf":
            return True
        for parent in parents:
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return False
