"""Checks the attributes of schedules that come from a file: they are like those of a new schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import optim
from ...ops import zeros
from ...optim import Optimizer
from ...optim.lr_scheduler import ChainedScheduler, ConstantLR, LRScheduler, SequentialLR
from ...utils.reading import is_count

_REQUIRED: dict[str, tuple] = {
    "StepLR": (1,), "MultiStepLR": ([1],), "ExponentialLR": (0.5,), "CosineAnnealingLR": (1,),
    "CosineAnnealingWarmRestarts": (1,), "WarmupCosineLR": (1, 2), "CyclicLR": (0.1, 0.2),
    "OneCycleLR": (0.1, 9),
}
_COUNTS = ("last_epoch", "_step_count")
_OF_ANY_LENGTH = ("_milestones", "_schedule_phases")
_NAMES = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}  # of options, in phases


def check_attributes(cls: type, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Raises ValueError unless attributes, and the options that schedules add to groups, can be those of a
    schedule of an optimizer."""
    groups = [{"params": [zeros(1, 1)]} for _ in optimizer.param_groups]
    other = optim.Adam(groups) if "betas" in optimizer.defaults else optim.SGD(groups, momentum=0.9)
    made = _new(cls, other, state)
    example = {name: x for name, x in made.state_dict().items() if name not in cls._not_saved}
    _check(f"the {cls.__name__}", example, state)
    for ours, theirs in zip(optimizer.param_groups, other.param_groups, strict=True):
        added = {name: x for name, x in theirs.items() if name in _NAMES}
        _check("a group of its optimizer", added, {name: x for name, x in ours.items() if name in added})


def _new(cls: type, optimizer: Optimizer, state: dict[str, Any]) -> LRScheduler:
    """Returns a schedule of a class."""
    if cls in (ChainedScheduler, SequentialLR):
        inner = [ConstantLR(optimizer), ConstantLR(optimizer)]
        return SequentialLR(optimizer, inner, [1]) if cls is SequentialLR else ChainedScheduler(inner)
    options = {"cycle_momentum": state["cycle_momentum"]} if "cycle_momentum" in state else {}
    return cls(optimizer, *_REQUIRED.get(cls.__name__, ()), **options)


def _check(place: str, example: dict[str, Any], given: dict[str, Any]) -> None:
    if example.keys() != given.keys():
        raise ValueError(f"{place} has the attributes {[*given]}, not {[*example]}")
    for name, x in given.items():
        if not _is_like(name, example[name], x):
            raise ValueError(f"{name} of {place} is {x!r}; expected something like {example[name]!r}")


def _is_like(name: str, example: Any, x: Any) -> bool:
    """Returns whether an attribute has the type of another one, and as many items if it has one a group."""
    if name in _COUNTS:
        return is_count(x, -1)
    if name == "milestones":
        return isinstance(x, dict) and all(map(is_count, (*x.keys(), *x.values())))
    if name == "default_min_lr" and x is None:  # there are several
        return True
    like = next(rule for kinds, rule in _LIKE if isinstance(example, kinds))
    return like(name, example, x)


def _is_text_like(name: str, example: bool | str, x: Any) -> bool:
    return type(x) is type(example) and (example not in _NAMES or x in _NAMES)


def _is_dict_like(name: str, example: dict, x: Any) -> bool:
    if not isinstance(x, dict) or x.keys() != example.keys():
        return False
    return all([_is_like("", example[key], value) for key, value in x.items()])


def _is_list_like(name: str, example: list, x: Any) -> bool:
    fits = isinstance(x, (list, tuple)) and (name in _OF_ANY_LENGTH or len(x) == len(example))
    return fits and all([_is_like("", example[0], item) for item in x])


def _is_number(name: str, example: Any, x: Any) -> bool:
    return isinstance(x, (int, float, np.number)) and not isinstance(x, bool)


_LIKE = (
    ((bool, str), _is_text_like), (dict, _is_dict_like), (list, _is_list_like), (object, _is_number),
)
