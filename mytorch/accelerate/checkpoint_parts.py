"""What the files of a checkpoint must contain, before anything is loaded from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from reprlib import repr as brief
from typing import Any

from ..core.tensor import Tensor
from ..utils.reading import is_count
from .random_state import check_random_states


def kind_of(name: str) -> str:
    """Returns "model" of model_2.safetensors."""
    return re.sub(r"_\d+$", "", name.partition(".")[0])


def is_part(name: str) -> bool:
    """Returns whether `Accelerator.save_state` gives such names to files."""
    suffix = ".safetensors" if kind_of(name) == "model" else ".bin"
    return kind_of(name) in {*_CHECKS, "custom_checkpoint"} and name.endswith(suffix)


def check_part(name: str, content: object) -> None:
    """Raises ValueError if the content of a file isn't what `Accelerator.save_state` writes."""
    check = _CHECKS.get(kind_of(name))
    if check is not None:
        check(content)


def _expect(condition: bool, what: str, found: object) -> None:
    if not condition:
        raise ValueError(f"expected {what}, got {brief(found)}")


def _fields(content: object, what: str, *names: str) -> list[Any]:
    """Returns the values of a dict under these keys."""
    is_complete = isinstance(content, dict) and all(name in content for name in names)
    _expect(is_complete, f"{what} with {', '.join(names)}", content)
    return [content[name] for name in names]


def _list_of(kind: type, content: object, what: str) -> list[Any]:
    _expect(isinstance(content, list) and all(isinstance(x, kind) for x in content), what, content)
    return content


def _accelerator(content: object) -> None:
    step, processes, classes = _fields(content, "the run", "step", "num_processes", "classes")
    _expect(is_count(step), "a step of at least 0", step)
    _expect(is_count(processes, 1), "at least one process", processes)
    for names in _fields(classes, "classes", "optimizer", "scheduler"):
        _list_of(str, names, "a list of class names")


def _sampler(content: object) -> None:
    ranks = _list_of(list, content, "a list with the loaders of each process")
    _expect(len({len(rank) for rank in ranks}) == 1, "as many loaders in each process", content)
    for rank in ranks:
        _list_of(dict, rank, "a list of the states of loaders")


def _random_states(content: object) -> None:
    _expect(bool(content), "the random states of each process", content)
    for states in _list_of(dict, content, "a list with the random states of each process"):
        _fields(states, "random states", "python", "numpy", "mytorch")
        check_random_states(states)


def _mixed_precision(content: object) -> None:
    names = ("precision", "scaler", "float32_weights")
    precision, scaler, weights = _fields(content, "mixed precision", *names)
    _expect(isinstance(precision, str), "the name of a precision", precision)
    _expect(scaler is None or isinstance(scaler, dict), "the state of a scaler", scaler)
    for masters in _list_of(dict, weights, "a list of dicts of float32 weights"):
        _list_of(Tensor, list(masters.values()), "a dict of float32 weights")


def _model(content: object) -> None:
    is_named = isinstance(content, dict) and all(isinstance(name, str) for name in content)
    _expect(is_named, "a dict of tensors by name", content)


def _optimizer(content: object) -> None:
    state, groups = _fields(content, "the state of an optimizer", "state", "param_groups")
    _expect(isinstance(state, dict), "a dict of states by parameter", state)
    _list_of(dict, list(state.values()), "a dict of states by parameter")
    for group in _list_of(dict, groups, "a list of groups of parameters"):
        (params,) = _fields(group, "a group", "params")
        _expect(isinstance(params, list), "a list of parameters", params)


def _scheduler(content: object) -> None:
    _expect(isinstance(content, dict), "the state of a schedule", content)


_CHECKS: dict[str, Callable[[object], None]] = {
    "accelerator": _accelerator, "sampler": _sampler, "random_states": _random_states,
    "mp_config": _mixed_precision, "model": _model, "optimizer": _optimizer, "scheduler": _scheduler,
}
