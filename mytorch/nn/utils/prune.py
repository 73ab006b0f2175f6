"""Pruning: weights that are set to 0 by a mask, before each call of their module.

    l1_unstructured(layer, "weight", amount=0.3)   # 30 % of the weights, the smallest ones
    layer.weight                                   # weight_orig * weight_mask
    remove(layer, "weight")                        # makes the pruned weight a parameter

A parameter that is pruned again loses the wanted amount of what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.tensor import Tensor
from ...ops import ones_like
from ..module import Module
from .convert_parameters import parameters_to_vector
from .pruning_methods import (
    BasePruningMethod,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    PruningContainer,
    RandomStructured,
    RandomUnstructured,
    find_hook,
)

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity",
    "is_pruned", "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]


def identity(module: Module, name: str) -> Module:
    """Gives a parameter a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prunes random entries of a parameter; returns the module. See `l1_unstructured`."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None
) -> Module:
    """Prunes the entries of a parameter that have the smallest absolute values; returns the module.

    Args:
        name: the parameter, which becomes `name_orig`; the mask is the buffer `name_mask`.
        amount: how many entries, an int, or which share of them, a float in [0, 1].
        importance_scores: their absolute values count instead.

    Raises:
        TypeError, ValueError: `amount` is no such number.

    >>> layer = nn.Linear(4, 1, bias=False)
    >>> _ = layer.weight.data.copy_(mytorch.tensor([[0.5, -0.1, 0.2, -2.0]]))
    >>> nn.utils.prune.l1_unstructured(layer, "weight", amount=0.5).weight
    tensor([[ 0.50000 -0.00000  0.00000 -2.00000]], grad_fn=<mul>)
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prunes random slices of a parameter along `dim`; returns the module. See `ln_structured`."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: int | float, n: float, dim: int,
    importance_scores: Tensor | None = None,
) -> Module:
    """Prunes the slices of a parameter along `dim` that have the smallest norms; returns the module.

    Args:
        amount: how many slices, an int, or which share of them, a float in [0, 1].
        n: the order of the norm; also inf, -inf.
        name, importance_scores: see `l1_unstructured`.

    Raises:
        TypeError, ValueError: `amount` is no such number; the parameter has one dim.
        IndexError: it doesn't have this dim.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes a parameter where `mask` is 0; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:
    """Prunes parameters together, as one vector: the smallest of all, and not of each.

    Args:
        parameters: pairs of a module and a name.
        pruning_method: a class of the type "unstructured"; kwargs are its arguments, such as `amount`.
        importance_scores: by these pairs, instead of the parameters.

    Raises:
        TypeError: another type of method.
    """
    pairs, scores = list(parameters), importance_scores or {}
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {pruning_method.PRUNING_TYPE}"
        )
    tensors = [getattr(module, name).detach() for module, name in pairs]
    masks = [
        getattr(module, f"{name}_mask", ones_like(t))
        for (module, name), t in zip(pairs, tensors, strict=True)
    ]
    method = pruning_method(**kwargs)
    method._tensor_name = ""
    wanted = [scores.get(pair, t).detach() for pair, t in zip(pairs, tensors, strict=True)]
    mask = PruningContainer(method).compute_mask(parameters_to_vector(wanted), parameters_to_vector(masks))
    start = 0
    for (module, name), t in zip(pairs, tensors, strict=True):
        custom_from_mask(module, name, mask[start : start + t.numel()].reshape(t.shape))
        start += t.numel()


def remove(module: Module, name: str) -> Module:
    """Makes a pruned tensor a parameter, with its value; returns the module.

    Raises:
        ValueError: it isn't pruned.
    """
    key = find_hook(module, name)
    if key is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    module._hooks.before.pop(key)[0].remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Returns whether a parameter of the module, or of one below it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for each in module.modules()
        if each._hooks is not None
        for hook, _ in each._hooks.before.values()
    )
