"""Compiled steps use parameters where they are after `optimizer.step()`, which may move them."""

import warnings

import pytest
import torch

import mytorch
from tests.every import every


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mytorch.compile")
        yield


def ones(lib, *shape):
    return lib.nn.Parameter(lib.ones(*shape))


def minimize(lib, params, optimizer, x, **options):
    optimizer.zero_grad(**options)
    loss = x.sum()
    for p in params:
        loss = loss * (p * p).sum()
    loss.backward()
    optimizer.step()


def average(lib, params, optimizer):
    """An average of the weights, after the step."""
    averages = [p.detach().clone() for p in params]

    def step(x):
        minimize(lib, params, optimizer, x)
        with lib.no_grad():
            for ours, p in zip(averages, params, strict=True):
                ours.lerp_(p, 0.5)
        return sum([ours.sum() for ours in averages])

    return step


def clamped(lib, params, optimizer):
    def step(x):
        minimize(lib, params, optimizer, x)
        with lib.no_grad():
            for p in params:
                p.clamp_(-0.9, 0.7)

    return step


def returned(lib, params, optimizer):
    def step(x):
        minimize(lib, params, optimizer, x)
        return params[0].detach()

    return step


def gradients_after(lib, params, optimizer):
    def step(x):
        (params[0] * params[1].sum() * x).sum().backward()
        optimizer.step()
        params[0].grad.mul_(0.5)
        return params[0].grad

    return step


def zeros_before(lib, params, optimizer):
    def step(x):
        minimize(lib, params, optimizer, x, set_to_none=False)

    return step


def replaced(lib, params, optimizer):
    params[0].data = lib.full((2,), 3.0)


CHANGES = {
    "nothing": lambda lib, params, optimizer: None,
    "a layer is unfrozen": lambda lib, params, optimizer: params[1].requires_grad_(True),
    "momentum": lambda lib, params, optimizer: optimizer.param_groups[0].update(momentum=0.5),
    ".data": replaced,
    "the state is cleared": lambda lib, params, optimizer: optimizer.state.clear(),
    "another optimizer": lambda lib, params, optimizer: lib.optim.SGD(params, 0.1),
    "a hook": lambda lib, params, optimizer: optimizer.register_step_post_hook(
        lambda *_: setattr(params[0], "data", params[0].data * 0.5)
    ),
}


def trained(lib, make, change, optimizer, compile=lambda f: f):
    params = [ones(lib, 2), ones(lib, 3)]
    params[1].requires_grad_(change != "a layer is unfrozen")
    options = {"momentum": 0.9} if change == "the state is cleared" else {}
    optimizer = getattr(lib.optim, optimizer)(params, 0.01, **options)
    step, found = compile(make(lib, params, optimizer)), []
    for k in range(5):
        if k == 2:
            CHANGES[change](lib, params, optimizer)
        result = step(lib.ones(2) / 8)
        found += [[] if result is None else result.tolist(), *[p.tolist() for p in params]]
        found += [[] if p.grad is None else p.grad.tolist() for p in params]
    return [x for item in found for x in (item if isinstance(item, list) else [item])]


@pytest.mark.parametrize("make", [average, clamped, returned, gradients_after, zeros_before])
@pytest.mark.parametrize("change", CHANGES)
def test_a_step_that_moves_them(make, change):
    want = trained(torch, make, change, "SGD")
    assert trained(mytorch, make, change, "SGD", mytorch.compile) == pytest.approx(want, rel=1e-5)


def test_state_of_adam_that_is_cleared():
    def adam(lib, compile=lambda f: f):
        p = ones(lib, 2)
        optimizer = lib.optim.Adam([p], 0.1)
        step, found = compile(returned(lib, [p], optimizer)), []
        for k in range(4):
            if k == 2:
                optimizer.state.clear()
            found += [*step(lib.ones(2)).tolist(), *p.tolist()]
        return found

    assert adam(mytorch, mytorch.compile) == pytest.approx(adam(torch), rel=1e-5)


def of_two(lib, alternate, compile=lambda f: f):
    """Two optimizers of a parameter, in one function or in two that alternate."""
    p = ones(lib, 2)
    a, b = lib.optim.SGD([p], 0.1), lib.optim.SGD([p], 0.1, momentum=0.9)

    def both(x):
        minimize(lib, [p], a, x)
        b.step()
        return p.detach().clone()

    steps = [compile(clamped(lib, [p], o)) for o in (a, b)] if alternate else [compile(both)] * 2
    found = []
    for k in (0, 0, 1, 0, 1):
        steps[k](lib.ones(2) / 2)
        found += p.tolist()
    return found


@pytest.mark.parametrize("alternate", [False, True])
def test_two_optimizers_of_a_parameter(alternate):
    assert of_two(mytorch, alternate, mytorch.compile) == pytest.approx(of_two(torch, alternate), rel=1e-5)


@pytest.mark.parametrize("in_place", [False, True])
def test_an_optimizer_with_its_own_step(in_place):
    class Own(mytorch.optim.Optimizer):
        @mytorch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                if in_place:
                    p.sub_(p.grad, alpha=0.1)
                else:
                    p.data = (p.detach() - 0.1 * p.grad).data

    p = ones(mytorch, 2)
    optimizer = Own([p], {})
    step = mytorch.compile(returned(mytorch, [p], optimizer))
    q = ones(torch, 2)
    same = returned(torch, [q], torch.optim.SGD([q], 0.1))
    for _ in range(3):
        found, want = step(mytorch.ones(2) / 2).tolist(), same(torch.ones(2) / 2).tolist()
        assert found == pytest.approx(want, rel=1e-5)


def test_a_schedule_that_begins_with_a_momentum():
    def run(lib, compile=lambda f: f):
        p = ones(lib, 2)
        optimizer = lib.optim.SGD([p], 0.1, momentum=0.1)
        options = {"step_size_up": 2, "base_momentum": 0.0, "max_momentum": 0.5}
        schedule = lib.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, **options)

        def step(x):
            optimizer.zero_grad()
            (p * p * x).sum().backward()
            schedule.step()
            optimizer.step()
            return p.detach().clone()

        compiled = compile(step)
        return [x for _ in range(6) for x in compiled(lib.ones(2)).tolist()]

    assert run(mytorch, mytorch.compile) == pytest.approx(run(torch), rel=1e-5)


def test_a_captured_step_moves_them_before():
    p, q = ones(mytorch, 2), ones(mytorch, 2)
    optimizer = mytorch.optim.SGD([p], 0.1)
    program = mytorch.capture(clamped(mytorch, [p], optimizer), mytorch.ones(2))
    eager, found = clamped(mytorch, [q], other := mytorch.optim.SGD([q], 0.1)), []
    for k in range(4):
        if k == 2:
            for o in (optimizer, other):
                o.param_groups[0]["momentum"] = 0.9
        found.append(p.tolist() == q.tolist())
        program(mytorch.ones(2) / 8), eager(mytorch.ones(2) / 8)
    assert every(found) and p.tolist() == q.tolist()
    mytorch.optim.SGD([p], 0.1)  # it has the parameter now, until the next step
    program(mytorch.ones(2) / 8), eager(mytorch.ones(2) / 8)
    assert p.tolist() == q.tolist()
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="uses a parameter after a step that may move it"):
        program(mytorch.ones(2))


def test_an_ordinary_step_has_no_more_to_compare():
    params = [ones(mytorch, 2)]
    optimizer = mytorch.optim.SGD(params, 0.1)
    step = mytorch.compile(lambda x: minimize(mytorch, params, optimizer, x), fullgraph=True)
    step(mytorch.ones(2))
    assert not step.programs()[0].executable().movers
