"""Hooks of optimizers: when they are called, with what, and what they may change."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim


def pair():
    """The same optimizer in both libraries, with a gradient."""
    p = mytorch.Tensor([1.0, 2.0], requires_grad=True)
    q = torch.tensor([1.0, 2.0], requires_grad=True)
    p.grad, q.grad = mytorch.Array([1.0, 1.0]), torch.tensor([1.0, 1.0])
    return optim.SGD([p], lr=0.5, momentum=0.9), torch.optim.SGD([q], lr=0.5, momentum=0.9)


def test_step_hooks():
    seen = []
    for optimizer in pair():
        calls = []

        def before(opt, args, kwargs, calls=calls, optimizer=optimizer):
            assert opt is optimizer
            calls.append(("before", len(args), sorted(kwargs)))
            return (opt, lambda: 7), {}

        def after(opt, args, kwargs, calls=calls):
            calls.append(("after", args[0] is opt, args[1](), opt.param_groups[0]["params"][0].tolist()))

        handle = optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        calls.append(optimizer.step(closure=lambda: 3))
        handle.remove()
        calls.append(optimizer.step(lambda: 4))
        seen.append(calls)
    assert seen[0] == seen[1]
    optimizer, _ = pair()
    optimizer.register_step_pre_hook(lambda *_: 3)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple \(args, kwargs\), got 3"):
        optimizer.step()


def test_state_hooks():
    seen = []
    for optimizer in pair():
        calls = []

        def after_saving(opt, state, calls=calls):
            calls.append(("after saving", sorted(state)))
            return {**state, "note": 5}

        def before_loading(opt, state, calls=calls):
            calls.append(("before loading", state.get("note")))
            return {key: value for key, value in state.items() if key != "note"}

        optimizer.step()
        optimizer.register_state_dict_pre_hook(lambda opt, c=calls: c.append("saving"))
        optimizer.register_state_dict_pre_hook(lambda opt, c=calls: c.append("first"), prepend=True)
        optimizer.register_state_dict_post_hook(after_saving)
        optimizer.register_load_state_dict_pre_hook(before_loading)
        optimizer.register_load_state_dict_post_hook(lambda opt, c=calls: c.append("loaded"))
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        seen.append([*calls, sorted(state)])
    assert seen[0] == seen[1]
    assert "first" in seen[0] and "loaded" in seen[0]


def test_a_step_of_ones_own_is_hooked_as_well():
    class Still(optim.Optimizer):
        def step(self, closure=None):
            self.calls.append("step")

    optimizer = Still([mytorch.Tensor(np.ones(2), requires_grad=True)], {})
    optimizer.calls = []
    optimizer.register_step_pre_hook(lambda opt, *_: opt.calls.append("before"))
    optimizer.register_step_post_hook(lambda opt, *_: opt.calls.append("after"))
    optimizer.step()
    assert optimizer.calls == ["before", "step", "after"]
