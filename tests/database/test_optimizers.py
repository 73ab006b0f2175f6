"""PyTorch's optimizer database: each sample for steps on a small model; state_dict, schedules, errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import mytorch

from .compare import array, leaves
from .share import ALL
from .translate import Foreign, ours

STEPS = 12
SHAPES = [(3, 5), (5,), (), (2, 3, 4), (0, 2)]
MATRICES = [(6, 5), (5, 9), (4, 4), (1, 3)]  # for Muon
ENTRIES = {e.name: e for e in optim_db if hasattr(mytorch.optim, e.name)}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
TOLERANCE = {"float32": (2e-5, 1e-5), "float64": (1e-12, 1e-13)}
LBFGS = (1e-7, 1e-9)  # its differences of gradients magnify rounding
BFLOAT16 = (2e-3, 2e-5)  # Muon rounds to eight bits, now and then a sum to the other side


def samples() -> Iterator:
    for name, entry in ENTRIES.items():
        if name == "LBFGS":  # near the minimum only rounding is left: tests/optim/test_lbfgs.py instead
            continue
        for i, sample in enumerate(entry.optim_inputs_func("cpu")):
            for dtype in DTYPES if ALL else [list(DTYPES)[i % 2]]:
                yield pytest.param(entry, sample.kwargs, dtype, id=f"{name}-{i} {sample.desc}-{dtype}")


def parameters(entry: Any, dtype: str, seed: int = 0) -> tuple[list, list]:
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(s) for s in (MATRICES if entry.name == "Muon" else SHAPES)]
    theirs = [torch.nn.Parameter(torch.tensor(v, dtype=DTYPES[dtype])) for v in values]
    return ours(theirs), theirs


def loss_of(module: Any, params: list) -> Any:
    """Something with a curved landscape that every parameter is part of, in the same words for both."""
    total = 0
    for i, p in enumerate(params):
        total = total + ((p - 0.3 * i).tanh() ** 2).sum() + 0.1 * (p * p * p * p).sum()
    return total


def train(module: Any, optimizer: Any, params: list, steps: int, after: Callable = lambda i: None) -> list:
    """The losses of `steps` steps with a closure; parameter 1 gets no gradient in every fourth."""
    losses = []
    for i in range(steps):

        def closure(i=i):
            optimizer.zero_grad()
            loss = loss_of(module, params)
            loss.backward()
            if i % 4 == 3:
                params[1].grad = None
            return loss

        losses.append(optimizer.step(closure).item())
        after(i)
    return losses


def same(got: Any, want: Any, what: str, tolerance: tuple) -> None:
    shape, dtype = tuple(want.shape), str(want.dtype).removeprefix("torch.")
    assert tuple(got.shape) == shape and str(got.dtype) == dtype, f"{what}: {got.shape}, {got.dtype}"
    np.testing.assert_allclose(array(got), array(want), *tolerance, err_msg=what)


def same_state(optimizer: Any, oracle: Any, tolerance: tuple) -> None:
    mine, theirs = optimizer.state_dict(), oracle.state_dict()
    assert mine.keys() == theirs.keys()
    for group, want in zip(mine["param_groups"], theirs["param_groups"], strict=True):
        assert set(group) == set(want)
        for name in want:
            for a, b in zip(leaves(group[name]), leaves(want[name]), strict=True):
                assert float(array(a) - array(b)) == 0 if isinstance(b, torch.Tensor) else a == b, name
    assert mine["state"].keys() == theirs["state"].keys()
    for i, entry in theirs["state"].items():
        assert set(mine["state"][i]) == set(entry)
        for name, value in entry.items():
            same_value(mine["state"][i][name], value, f"{name} of parameter {i}", tolerance)


def same_value(got: Any, want: Any, what: str, tolerance: tuple) -> None:
    if isinstance(want, torch.Tensor):
        same(got, want, what, tolerance)
    elif isinstance(want, list):
        assert len(got) == len(want), what
        for a, b in zip(got, want, strict=True):
            same_value(a, b, what, tolerance)
    else:
        assert got == pytest.approx(want, rel=1e-6), what


def same_parameters(mine: list, theirs: list, tolerance: tuple) -> None:
    for i, (p, q) in enumerate(zip(mine, theirs, strict=True)):
        same(p, q, f"parameter {i}", tolerance)


def make(entry: Any, mine: Any, theirs: Any, kwargs: dict) -> tuple:
    return getattr(mytorch.optim, entry.name)(mine, **ours(kwargs)), entry.optim_cls(theirs, **kwargs)


@pytest.mark.parametrize(("entry", "kwargs", "dtype"), samples())
def test_trajectory(entry, kwargs, dtype):
    tolerance = BFLOAT16 if entry.name == "Muon" else TOLERANCE[dtype]
    mine, theirs = parameters(entry, dtype)
    optimizer, oracle = make(entry, mine, theirs, kwargs)
    losses = train(mytorch, optimizer, mine, STEPS), train(torch, oracle, theirs, STEPS)
    np.testing.assert_allclose(*losses, *tolerance)
    same_parameters(mine, theirs, tolerance)
    same_state(optimizer, oracle, tolerance)
    # Both continue from the other one's state, and with other options in some groups.
    resumed, resumed_oracle = make(entry, mine, theirs, kwargs)
    resumed.load_state_dict(ours(oracle.state_dict()))
    resumed_oracle.load_state_dict(to_torch(optimizer.state_dict()))
    losses = train(mytorch, resumed, mine, 5), train(torch, resumed_oracle, theirs, 5)
    np.testing.assert_allclose(*losses, *tolerance)
    same_parameters(mine, theirs, tolerance)


def to_torch(x: Any) -> Any:
    if isinstance(x, mytorch.Tensor):
        return torch.from_numpy(np.array(x.data.numpy()))
    if isinstance(x, dict):
        return {k: to_torch(v) for k, v in x.items()}
    return type(x)(to_torch(v) for v in x) if isinstance(x, (list, tuple)) else x


@pytest.mark.parametrize("name", [n for n, e in ENTRIES.items() if e.supports_param_groups])
def test_groups(name):
    entry = ENTRIES[name]
    mine, theirs = parameters(entry, "float64")

    def groups(params):
        return [{"params": params[:2], "lr": 0.003}, {"params": (p for p in params[2:])}]

    optimizer, oracle = make(entry, groups(mine), groups(theirs), {"lr": 0.01})
    more, more_theirs = parameters(entry, "float64", seed=3)
    train(mytorch, optimizer, mine, 5)
    train(torch, oracle, theirs, 5)
    optimizer.add_param_group({"params": more, "lr": 0.02})
    oracle.add_param_group({"params": more_theirs, "lr": 0.02})
    train(mytorch, optimizer, mine + more, 5)
    train(torch, oracle, theirs + more_theirs, 5)
    tolerance = BFLOAT16 if name == "Muon" else TOLERANCE["float64"]
    same_parameters(mine + more, theirs + more_theirs, tolerance)
    same_state(optimizer, oracle, tolerance)


@pytest.mark.parametrize("name", ENTRIES)
def test_named_parameters(name):
    entry = ENTRIES[name]
    mine, theirs = parameters(entry, "float32")
    names = [f"layer.{i}" for i in range(len(mine))]
    optimizer, oracle = make(entry, zip(names, mine, strict=True), zip(names, theirs, strict=True), {})
    assert optimizer.state_dict()["param_groups"] == oracle.state_dict()["param_groups"]


@pytest.mark.parametrize(
    ("name", "makers"), [(n, m) for n, e in ENTRIES.items() for m in e.scheduler_inputs],
    ids=lambda x: x if isinstance(x, str) else len(x),
)
def test_schedules(name, makers):
    entry = ENTRIES[name]
    mine, theirs = parameters(entry, "float64")
    few = {"max_iter": 3} if name == "LBFGS" else {}  # evaluations in a step
    optimizer, oracle = make(entry, mine, theirs, {"lr": 0.01, **few})
    results = []
    for module, opt, params in ((mytorch, optimizer, mine), (torch, oracle, theirs)):
        schedulers = [in_module(maker, module)(opt) for maker in makers]
        rates = []

        def after(i, schedulers=schedulers, opt=opt, rates=rates):
            for scheduler in schedulers:
                if type(scheduler).__name__ == "ReduceLROnPlateau":
                    scheduler.step(1.0 + i)
                else:
                    scheduler.step()
            rates.append([group["lr"] for group in opt.param_groups])

        train(module, opt, params, 30, after)
        results.append(rates)
    np.testing.assert_allclose(*results, rtol=1e-13)
    assert results[0][-1] != results[0][0] or "Constant" in makers[0].__code__.co_names[0]
    same_parameters(mine, theirs, {"Muon": BFLOAT16, "LBFGS": LBFGS}.get(name, TOLERANCE["float64"]))


def in_module(maker: Callable, module: Any) -> Callable:
    """The database's function with the schedules of `module`."""
    scope = {name: getattr(module.optim.lr_scheduler, name) for name in maker.__code__.co_names}
    return type(maker)(maker.__code__, scope)


def errors() -> Iterator:
    for name, entry in ENTRIES.items():
        for i, error in enumerate(entry.optim_error_inputs_func("cpu", torch.float32)):
            yield pytest.param(entry, error, id=f"{name}-{i} {error.optimizer_error_input.desc}")


@pytest.mark.parametrize(("entry", "error"), errors())
def test_errors(entry, error):
    sample = error.optimizer_error_input
    default = [torch.nn.Parameter(torch.randn(2, 3)), torch.nn.Parameter(torch.randn(2, 3))]
    try:
        params = ours(default if sample.params is None else sample.params)
        kwargs = ours(sample.kwargs)
    except Foreign:
        return
    make_it = getattr(mytorch.optim, entry.name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error.error_type, match=error.error_regex):
            make_it(params, **kwargs)
