"""Compiled steps see which parameters an optimizer has, and methods that it or a schedule has got."""

import warnings

import pytest
import torch

import mytorch


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mytorch.compile")
        yield


def zero_grad(lib, optimizer, params):
    optimizer.zero_grad()


def by_hand(lib, optimizer, params):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def clip(lib, optimizer, params):
    for p in params:
        p.grad = None


def step_of(lib, optimizer, params, reset):
    def step(x):
        reset(lib, optimizer, params)
        (params[0] * params[1] * x).sum().backward()
        if reset is clip:
            given = [p for group in optimizer.param_groups for p in group["params"]]
            lib.nn.utils.clip_grad_norm_(given, 0.5)
        optimizer.step()

    return step


def assigned(optimizer, p, q):
    optimizer.param_groups[0]["params"] = [q]


def item_replaced(optimizer, p, q):
    optimizer.param_groups[0]["params"][0] = q


def appended(optimizer, p, q):
    optimizer.param_groups[0]["params"].append(q)


def group_replaced(optimizer, p, q):
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "params": [q, p]}


def groups_replaced(optimizer, p, q):
    optimizer.param_groups = [{**optimizer.param_groups[0], "params": [q]}]


def added(optimizer, p, q):
    optimizer.add_param_group({"params": [q], "lr": 0.2})


CHANGES = [assigned, item_replaced, appended, group_replaced, groups_replaced, added]


def trained(lib, change, reset, compile=lambda f: f):
    params = [lib.nn.Parameter(lib.full((2,), value)) for value in (2.0, 3.0)]
    optimizer = lib.optim.SGD(params[:1], 0.1)
    step, found = compile(step_of(lib, optimizer, params, reset)), []
    for k in range(5):
        if k == 2:
            change(optimizer, *params)
        step(lib.ones(2))
        found += [x for p in params for x in (*p.tolist(), *p.grad.tolist())]
    return found


@pytest.mark.parametrize("reset", [zero_grad, by_hand, clip])
@pytest.mark.parametrize("change", CHANGES)
def test_parameters_of_an_optimizer(change, reset):
    want = trained(torch, change, reset)
    assert trained(mytorch, change, reset, mytorch.compile) == pytest.approx(want, rel=1e-5)


def test_a_state_that_is_loaded_captures_nothing():
    p = mytorch.nn.Parameter(mytorch.ones(2))
    optimizer = mytorch.optim.AdamW([p])

    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()

    compiled, counts = mytorch.compile(step, fullgraph=True), []
    for _ in range(4):
        compiled(mytorch.ones(2))
        optimizer.load_state_dict(optimizer.state_dict())
        counts.append(len(compiled.history))
    assert counts[1] == counts[-1]  # the first call sees no .grad


def set_zero_grad(optimizer, schedule):
    optimizer.zero_grad = lambda: None


def set_zero_grad_twice(optimizer, schedule):
    last = optimizer.zero_grad
    optimizer.zero_grad = (lambda: None) if "zero_grad" in vars(optimizer) else (lambda: last())


def set_step(optimizer, schedule):
    optimizer.step = lambda: None


def set_step_of_a_schedule(optimizer, schedule):
    schedule.step = lambda: None


def set_get_lr(optimizer, schedule):
    schedule.get_lr = lambda: [0.3]


def set_on_the_class(optimizer, schedule):
    type(schedule).step = lambda self: None


def add_a_hook(optimizer, schedule):
    optimizer.register_step_pre_hook(lambda *_: optimizer.zero_grad())


METHODS = [set_zero_grad, set_zero_grad_twice, set_step, set_step_of_a_schedule, set_get_lr, set_on_the_class]


@pytest.mark.parametrize("change", [*METHODS, add_a_hook])
def test_methods_of_optimizers_and_schedules(change):
    def run(compile):
        class Schedule(mytorch.optim.lr_scheduler.ExponentialLR):
            pass

        p = mytorch.nn.Parameter(mytorch.ones(2))
        optimizer = mytorch.optim.SGD([p], 0.1)
        schedule = Schedule(optimizer, 0.5)

        def function(x):
            optimizer.zero_grad()
            (p * p * x).sum().backward()
            optimizer.step()
            schedule.step()

        step, found = compile(function), []
        for k in range(6):
            if k in (2, 4):
                change(optimizer, schedule)
            step(mytorch.ones(2))
            found += [p.tolist(), p.grad is not None and p.grad.tolist(), optimizer.param_groups[0]["lr"]]
        return found

    assert run(mytorch.compile) == run(lambda f: f)
