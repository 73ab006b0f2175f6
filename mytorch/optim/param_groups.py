"""Parameter groups: their parameters and names, and checks that they can be optimized."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ..backends.dtypes import is_inexact
from ..core.tensor import Tensor

ParamGroup: TypeAlias = dict[str, Any]  # "params" and options
Params: TypeAlias = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[ParamGroup]


def names_of(group: ParamGroup) -> ParamGroup:
    """Returns the "param_names" of a group, if it has any."""
    return {name: group[name] for name in ("param_names",) if name in group}


def params_of(params: Tensor | Params) -> ParamGroup:
    """Returns "params" as a list, and "param_names" if they are (name, Tensor) pairs."""
    if isinstance(params, set):
        raise TypeError("parameters in a set have no order that is the same in the next run; use a list")
    params = [params] if isinstance(params, Tensor) else list(params)
    named = [p for p in params if isinstance(p, tuple)]
    if not named:
        return {"params": params}
    if len(named) != len(params):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing: "
            f"{len(params) - len(named)} of {len(params)}"
        )
    return {"params": [p for _, p in named], "param_names": [name for name, _ in named]}


def check_param(p: object) -> None:
    """Raises unless `p` is a leaf tensor of a floating-point or complex dtype."""
    if not isinstance(p, Tensor):
        raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
    if not p.is_leaf:
        raise ValueError(f"can't optimize a non-leaf Tensor (shape {p.data.shape}, made by {p.grad_fn.name})")
    if p.requires_grad and not is_inexact(p.dtype):
        raise ValueError(f"can't optimize a Tensor of dtype {p.dtype}; only floating-point and complex ones")


def check_sizes(groups: list[ParamGroup], saved: list[ParamGroup]) -> None:
    """Raises ValueError unless a state dict has as many groups, with as many parameters, as an optimizer."""
    ours, theirs = ([len(group["params"]) for group in some] for some in (groups, saved))
    if len(ours) != len(theirs):
        raise ValueError(
            f"the loaded state dict has {len(theirs)} parameter groups, the optimizer {len(ours)}"
        )
    if ours != theirs:
        raise ValueError(
            f"the groups of the loaded state dict have {theirs} parameters, the optimizer's {ours}"
        )
