"""Python objects of programs in files: tensors, optimizers, schedules of rates and random generators.

    {"class": "AdamW", "groups": [[0, 1], [4]], "defaults": {"lr": 0.001, …}, "state": its state_dict()}
    {"class": "SequentialLR", "optimizer": 0, "schedulers": [1, 2], "state": its attributes}
    {"class": "Generator", "state": its get_state()}

Parameters are numbers of values of the program's state. A reference in an instruction is one of these:

    {"tensor": 0}  {"object": 2}  {"method": [2, "step"]}  {"clip_grad_norm_": [0, 1, 4]}

Only the classes and methods in the tables below are known; a file has their names, no code.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from itertools import product, starmap
from types import MethodType
from typing import Any

import numpy as np

from ... import optim
from ...core.tensor import Tensor, raw_of
from ...nn.utils.clip_grad import clip_grad_norm_
from ...ops import zeros
from ...optim import LBFGS, Optimizer, lr_scheduler
from ...optim.lr_scheduler import LambdaLR, LRScheduler, MultiplicativeLR, ReduceLROnPlateau
from ...optim.update import as_number
from ...random import Generator
from ...utils.nested import leaves
from ...utils.reading import is_count
from ..program.program import Program
from .schedules import check_attributes

_NO = {Optimizer, LBFGS, LRScheduler, LambdaLR, MultiplicativeLR}  # closures and functions are code
_CLASSES = {
    x.__name__: x for module in (optim, lr_scheduler) for x in vars(module).values()
    if inspect.isclass(x) and issubclass(x, (Optimizer, LRScheduler)) and x not in _NO
} | {"Generator": Generator}
_METHODS = {Optimizer: ("zero_grad", "clip_grad_norm"), LRScheduler: ("step",)}


class ObjectWriter:
    """Encodes the objects that a program's instructions refer to.

    Attributes:
        objects: those so far, as they are saved; each comes after what it refers to.
        tensors: those so far, by the numbers of their values.

    Its methods raise NotImplementedError for what isn't in the tables.
    """

    def __init__(self, program: Program):
        owners = [(value, reference()) for value, reference in program.owners.items()]
        self._owners = {owner: value.number for value, owner in owners if owner is not None}
        self._numbers: dict[int, int] = {}  # by the id of the object
        self.objects: list[dict[str, object]] = []
        self.tensors: dict[int, Tensor] = {}

    def encode(self, x: object) -> dict[str, object]:
        """Returns a reference as it is saved."""
        if isinstance(x, Tensor):
            return {"tensor": self._tensor(x)}
        if isinstance(x, functools.partial) and x.func is clip_grad_norm_ and not x.keywords:
            return {"clip_grad_norm_": [self._tensor(p) for p in x.args[0]]}
        if isinstance(x, MethodType) and x.__name__ in _methods_of(x.__self__):
            return {"method": [self._object(x.__self__), x.__name__]}
        return {"object": self._object(x)}

    def _tensor(self, x: Tensor) -> int:
        if x not in self._owners:
            raise NotImplementedError(f"a tensor of shape {tuple(x.shape)} is no part of the program's state")
        if x._post_hooks or (x._node is not None and x._node.hooks):
            raise NotImplementedError(f"a tensor of shape {tuple(x.shape)} has hooks, which are code")
        self.tensors[self._owners[x]] = x
        return self._owners[x]

    def _object(self, x: object) -> int:
        if id(x) not in self._numbers:
            if _CLASSES.get(type(x).__name__) is not type(x):
                raise NotImplementedError(f"a {type(x).__qualname__} is none of {', '.join(_CLASSES)}")
            encoded = self._encoded(x)  # adds those that it refers to
            self._numbers[id(x)] = len(self.objects)
            self.objects.append({"class": type(x).__name__, **encoded})
        return self._numbers[id(x)]

    def _encoded(self, x: object) -> dict[str, object]:
        if isinstance(x, Generator):
            return {"state": x.get_state()}
        if isinstance(x, Optimizer):
            return self._optimizer(x)
        if getattr(x, "_scale_fn_custom", None) is not None:
            raise NotImplementedError(f"the {type(x).__name__} has a scale_fn, which is code")
        found = {"optimizer": self._object(x.optimizer), "state": LRScheduler.state_dict(x)}
        if hasattr(x, "_schedulers"):
            found["schedulers"] = [self._object(inner) for inner in x._schedulers]
        return found

    def _optimizer(self, x: Optimizer) -> dict[str, object]:
        if x._hooks or x.pending_clip is not None:
            raise NotImplementedError(f"the {type(x).__name__} has hooks, or clips in its next step")
        groups = [[self._tensor(p) for p in group["params"]] for group in x.param_groups]
        saved = x.state_dict()
        held = [raw_of(y) for y in leaves([saved["state"], saved["param_groups"]]) if isinstance(y, Tensor)]
        others = [raw_of(owner) for owner in self._owners.keys() - {*_params(x)}]
        if any(starmap(np.may_share_memory, product(held, others))):
            raise NotImplementedError(f"the program uses tensors that the {type(x).__name__} holds, too")
        return {"groups": groups, "defaults": x.defaults, "state": saved}


def _methods_of(x: object) -> tuple[str, ...]:
    return next((names for kind, names in _METHODS.items() if isinstance(x, kind)), ())


def read_objects(saved: Sequence[dict[str, Any]], tensors: dict[int, Tensor]) -> list[object]:
    """Returns new objects of what ObjectWriter has encoded.

    Args:
        tensors: those that it refers to, by the numbers of their values.

    Raises:
        ValueError, or whatever the classes raise for what they don't take.
    """
    found: list[object] = []
    for x in saved:
        cls = _CLASSES.get(x["class"])
        if cls is None:
            raise ValueError(f"no object of a program is a {x['class']!r}")
        if cls is Generator:
            found.append(Generator().set_state(x["state"]))
        elif issubclass(cls, Optimizer):
            found.append(_optimizer(cls, x, tensors))
        else:
            found.append(_schedule(cls, x, found))
    return found


def _optimizer(cls: type, x: dict[str, Any], tensors: dict[int, Tensor]) -> Optimizer:
    groups = [{"params": [tensors[number] for number in numbers]} for numbers in x["groups"]]
    made = cls(groups, **_arguments(cls, x["defaults"]))
    made.defaults = {**x["defaults"]}
    _check_state(x["state"]["state"], sum(map(len, x["groups"])))
    made.load_state_dict(x["state"])
    for group in made.param_groups:
        cls([zeros(1, 1)], **_arguments(cls, group))  # raises for numbers out of their range
    return made


def _check_state(state: dict[Any, Any], count: int) -> None:
    """Raises ValueError unless the state is that of some of `count` parameters."""
    for number, entry in state.items():
        if not (is_count(number) and number < count and isinstance(entry, dict)):
            raise ValueError(f"there are {count} parameters, {number!r} has the state {entry!r}")
        if not 0 <= as_number(entry.get("step", 0)) < 1 << 53:
            raise ValueError(f"parameter {number} is at step {entry['step']!r}")


def _arguments(cls: type, options: dict[str, object]) -> dict[str, object]:
    names = [*inspect.signature(cls).parameters][1:]
    return {name: options[name] for name in names if name in options}


def _schedule(cls: type, x: dict[str, Any], found: list[object]) -> LRScheduler:
    made = cls.__new__(cls)
    made.optimizer = optimizer = found[x["optimizer"]]
    inner = [found[k] for k in x.get("schedulers", ())]
    fits = all([isinstance(y, LRScheduler) and y.optimizer is optimizer for y in inner])
    if not isinstance(optimizer, Optimizer) or not fits:
        raise ValueError(f"the {cls.__name__} is of object {x['optimizer']} and {x.get('schedulers', [])}")
    if "schedulers" in x:
        made._schedulers = inner
    if "_scale_fn_custom" in cls._not_saved:
        made._scale_fn_custom = None
    check_attributes(cls, optimizer, x["state"])
    LRScheduler.load_state_dict(made, x["state"])
    return made


def try_objects(saved: Sequence[dict[str, Any]], tensors: dict[int, Tensor]) -> None:
    """Makes the objects, of tensors without elements, and each does a step: what can't do one, raises."""
    fresh = [{**x, "state": {**x["state"], "state": {}}} if "groups" in x else x for x in saved]
    objects = read_objects(fresh, tensors)
    for x in [x for x in objects if isinstance(x, Optimizer)]:
        for p in _params(x):
            p.grad = zeros(*p.shape, dtype=p.dtype, device="meta")
        x.step()
    schedules = [x for x in objects if isinstance(x, LRScheduler)]
    for x in schedules:
        for other in schedules:
            other.last_epoch, other._step_count = 0, 2  # they may have come to their end
        x.step(*[0.0] * isinstance(x, ReduceLROnPlateau))


def _params(x: Optimizer) -> list[Tensor]:
    return [p for group in x.param_groups for p in group["params"]]


def read_reference(x: dict[str, Any], objects: Sequence[object], tensors: dict[int, Tensor]) -> Any:
    """Returns what a reference refers to."""
    ((kind, content),) = x.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "clip_grad_norm_":
        return functools.partial(clip_grad_norm_, [tensors[number] for number in content])
    if kind == "object":
        return objects[content]
    number, name = content if kind == "method" else (None, None)
    if number is None or name not in _methods_of(objects[number]):
        raise ValueError(f"a reference is {x}")
    return getattr(objects[number], name)
