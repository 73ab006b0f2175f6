"""Functions of functions: `grad(f)` is the gradient of f, and `grad(grad(f))` its second derivative.

    grad(f)(x)           the gradient of a scalar function     vjp(f, x)            f(x), and v -> v^T J
    hessian(f)(x)        its second derivatives                jvp(f, (x,), (v,))   f(x), and J v
    jacobian(f)(x)       J[i, j] = d f_i / d x_j               functional_call(module, parameters, args)
    vmap(f)(xs)          f of each sample of a batch

Arguments and results may be tensors, or tuples, lists and dicts of them, for instance a model's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .autograd.transforms import grad, grad_and_value, hessian, jacfwd, jacobian, jacrev, jvp, vjp
from .autograd.vmap import vmap
from .core.tensor import Tensor
from .nn.module import Module

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "vjp",
    "vmap",
]

Tensors = Mapping[str, Tensor]


def functional_call(
    module: Module, parameter_and_buffer_dicts: Tensors | Sequence[Tensors], args: object = None,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Returns `module(*args, **kwargs)` with other parameters and buffers for this call.

    Args:
        parameter_and_buffer_dicts: {name in the state_dict: tensor}, or several such dicts.
        args: a tuple, or the only argument.

    Raises:
        KeyError: the module has no parameter or buffer of this name.
    """
    dicts = parameter_and_buffer_dicts
    given = {k: v for d in (dicts if isinstance(dicts, (tuple, list)) else (dicts,)) for k, v in d.items()}
    entries = [_entry(module, name) for name in given]
    before = [table[key] for table, key in entries]
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for (table, key), tensor in zip(entries, given.values(), strict=True):
            table[key] = tensor
        return module(*args, **(kwargs or {}))
    finally:
        for (table, key), tensor in zip(entries, before, strict=True):
            table[key] = tensor


def _entry(module: Module, name: str) -> tuple[dict, str]:
    """Returns the table of the (sub)module that holds this parameter or buffer, and its key there."""
    *path, key = name.split(".")
    for part in path:
        module = module._modules.get(part) if module is not None else None
    for table in () if module is None else (module._parameters, module._buffers):
        if key in table:
            return table, key
    raise KeyError(f"functional_call(): the module has no parameter or buffer {name!r}")
