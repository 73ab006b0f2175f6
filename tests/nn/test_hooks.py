"""Hooks of modules: what they see and what they change, as in PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn


def test_forward_hooks_see_and_change():
    layer, calls = nn.Identity(), []
    x = mytorch.ones(2)

    def before(module, args):
        calls.append("before")
        assert module is layer and args == (x,)
        return args[0] * 2

    def after(module, args, result):
        calls.append("after")
        return result + 1

    handles = [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
    np.testing.assert_array_equal(layer(x).numpy(), [3, 3])
    assert calls == ["before", "after"]
    with handles[0]:
        handles[1].remove()
        np.testing.assert_array_equal(layer(x).numpy(), [2, 2])
    assert layer(x) is x


def test_hooks_with_keyword_arguments_and_in_front():
    class Scale(nn.Module):
        def forward(self, x, by=1):
            return x * by

    layer, order = Scale(), []
    layer.register_forward_hook(lambda m, args, result: order.append("second"))
    layer.register_forward_hook(
        lambda m, args, kwargs, result: order.append(kwargs["by"]), prepend=True, with_kwargs=True
    )
    layer.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"by": kwargs["by"] + 1}), with_kwargs=True
    )
    np.testing.assert_array_equal(layer(mytorch.ones(1), by=2).numpy(), [3])
    assert order == [3, "second"]


@pytest.mark.parametrize("changes", [False, True])
def test_full_backward_hooks_are_pytorch_s(changes):
    results = []
    for library in (mytorch, torch):
        seen = []

        class Twice(library.nn.Module):
            def forward(self, x, number, y):
                return x * y, x + number

        def hook(module, grad_input, grad_output, seen=seen):
            seen.extend(None if g is None else g.numpy().copy() for g in (*grad_input, *grad_output))
            return tuple(None if g is None else g * 10 for g in grad_input) if changes else None

        layer = Twice()
        layer.register_full_backward_hook(hook)
        x, y = (library.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        a, b = layer(x * 1, 3, y)
        (a * library.tensor([1.0, 5.0]) + b).sum().backward()
        results.append([*seen, x.grad.numpy(), y.grad.numpy()])
    assert len(results[0]) == len(results[1]) == 7
    for got, want in zip(*results, strict=True):
        assert (got is None) == (want is None)
        np.testing.assert_array_equal(got, want)


def test_full_backward_hooks_and_inplace_layers():
    """What a hooked module gets is a view that can't be overwritten, as in PyTorch."""
    for library in (mytorch, torch):
        layer = library.nn.ReLU(inplace=True)
        layer.register_full_backward_hook(lambda *args: None)
        with pytest.raises(RuntimeError, match="view"):
            layer(library.ones(2, requires_grad=True) * 1)


def test_full_backward_hook_without_a_gradient_of_the_input():
    seen, layer = [], nn.Linear(2, 1)
    layer.register_full_backward_hook(lambda m, *grads: seen.append(grads))
    layer(mytorch.ones(3, 2)).sum().backward()
    [(grad_input, grad_output)] = seen
    assert grad_input == (None,) and grad_output[0].shape == (3, 1) and layer.weight.grad is not None
