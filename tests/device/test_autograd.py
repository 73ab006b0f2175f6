"""Autograd on a GPU (the strict stand-in for CuPy): hooks, custom functions, gradients as values."""

import numpy as np
import pytest

import mytorch
from mytorch import Tensor
from mytorch.autograd import Function, backward, grad, gradcheck
from tests.on_device import DEVICE, check

rng = np.random.default_rng(0)


def numbers(*shape):
    return np.asarray(rng.uniform(0.5, 2, shape), "float32")


class Split(Function):
    """Two outputs, a saved tensor, an input without gradient."""

    @staticmethod
    def forward(ctx, x, y, scale):
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * y * scale, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        assert g.device == h.device == x.device
        return g * y * ctx.scale + h, g * x * ctx.scale + h, None


def hooked(F, x, y):
    seen = []
    z = x * y
    z.register_hook(lambda g: seen.append(g.detach()) or g * 2)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.copy()))
    z.retain_grad()
    (z * z).sum().backward()
    return [*seen, z.grad]


def accumulated(F, x, y):
    """Several paths to one leaf, and several walks."""
    for _ in range(2):
        z = x * y + x[:1] + x.T @ y + (x + y).exp().mean()
        (z * z).sum().backward()
    return []


def retained(F, x, y):
    z = (x * y).sigmoid()
    loss = (z * z).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return [z.grad]


def as_values(F, x, y):
    z = x * y
    gradients = grad([z.sum(), (z * z)], [x, z], [None, F.ones(3, 3)], retain_graph=True)
    unused = grad(z.sum(), [x, F.ones(2, requires_grad=True)], allow_unused=True, materialize_grads=True)
    return [*gradients, *unused]


def several_roots(F, x, y):
    backward([(x * y).sum(), x * x], [None, F.ones(3, 3)])
    return []


def function_of_ours(F, x, y):
    product, total = Split.apply(x, y, 3.0)
    return product * 2, total


def function_with_one_output_used(F, x, y):
    return Split.apply(x, y, 3.0)[0]


def unrecorded(F, x, y):
    with mytorch.no_grad():
        x += 1
        y.mul_(x)
    return x * y.detach()


def grad_set_by_hand(F, x, y):
    x.grad = F.ones(3, 3)
    x.grad.mul_(3).add_(1, alpha=2).div_(2).clamp_(0, 2)
    (x * y).sum().backward()
    return [x.grad.norm(), x.grad.norm(1), x.grad.norm(float("inf")), x.grad.abs().sum(), x.grad.clone()]


PROGRAMS = [
    hooked, accumulated, retained, as_values, several_roots, function_of_ours, function_with_one_output_used,
    unrecorded, grad_set_by_hand,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(fake_cuda, program):
    check(program, numbers(3, 3), numbers(3, 3))


def test_gradcheck(fake_cuda):
    x = Tensor(rng.uniform(0.5, 2, (2, 3)), requires_grad=True, device=DEVICE)
    assert gradcheck(lambda a: (a * a).exp().sum(0), x)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(lambda a: a * a.detach(), x)


def test_a_deep_chain(fake_cuda):
    x = Tensor([1.0], requires_grad=True, device=DEVICE)
    y = x
    for _ in range(5_000):
        y = y + 0.0
    y.backward()
    assert x.grad.device == DEVICE and x.grad.tolist() == [1]


def test_leaves_have_gradients_of_their_own(fake_cuda):
    x, y = (Tensor(numbers(2), requires_grad=True, device=DEVICE) for _ in range(2))
    (x + y).backward(mytorch.ones(2, device=DEVICE))
    x.grad.zero_()
    assert y.grad.tolist() == [1, 1]


ERRORS = {
    "gradient on the CPU": (lambda x: x.backward(mytorch.ones(3)), f"is on cpu, the tensor on {DEVICE}"),
    "gradient of NumPy": (lambda x: x.backward(np.ones(3)), f"is on cpu, the tensor on {DEVICE}"),
    "gradient on another GPU": (lambda x: x.backward(mytorch.ones(3, device="cuda:0")), "cuda:0"),
    "grad on the CPU": (lambda x: setattr(x.detach(), "grad", mytorch.ones(3)), f"device {DEVICE}.*cpu"),
    "no scalar": (lambda x: x.backward(), "scalar"),
    "no gradient": (lambda x: x.detach().backward(), "does not require grad"),
    "numpy": (lambda x: x.detach().numpy(), f"{DEVICE}.*cpu"),
    "np.asarray": (lambda x: np.asarray(x.detach()), f"{DEVICE}.*cpu"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_calls(fake_cuda, name):
    call, match = ERRORS[name]
    x = Tensor(numbers(3), requires_grad=True, device=DEVICE) * 2
    with pytest.raises((RuntimeError, TypeError), match=match):
        call(x)


def test_a_spent_graph_says_so(fake_cuda):
    x = Tensor(numbers(3), requires_grad=True, device=DEVICE)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
