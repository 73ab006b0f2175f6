"""Calls as PyTorch's programs write them, beside PyTorch: arguments, and the errors of wrong ones."""

import numpy as np
import pytest
import torch

import mytorch

CALLS = {
    "split_size": lambda F, x: x.split(split_size=1),
    "split_size and dim": lambda F, x: x.split(split_size=2, dim=1),
    "alpha": lambda F, x: x.add(x, alpha=F.tensor(2.0)),
    "alpha in place": lambda F, x: x.clone().add_(x, alpha=F.tensor(0.5)),
    "alpha of sub": lambda F, x: F.sub(x, x, alpha=F.tensor(2)),
    "alpha 1": lambda F, x: x.add(x, alpha=F.tensor(1.0)),
    "alpha of addmm": lambda F, x: F.addmm(x, x, F.ones(3, 3), alpha=F.tensor(2.0), beta=F.tensor(3.0)),
    "value of addcdiv": lambda F, x: x.addcdiv(x, x + 9, value=F.tensor(-2.0)),
    "value of addcmul": lambda F, x: x.addcmul(x, x, value=F.tensor(3)),
    "value of masked_fill": lambda F, x: x.masked_fill(x > 0, F.tensor(7.0)),
}
X = np.array([[1.0, -2.0, 0.5], [3.0, 4.0, -5.0]], np.float32)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    got, want = CALLS[name](mytorch, mytorch.tensor(X)), CALLS[name](torch, torch.tensor(X))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-6)


ERRORS = {
    "shapes": (lambda F, x: x + F.ones(4), "tensor a .3. must match the size of tensor b .4. at .* 1"),
    "shapes, first dim": (lambda F, x: x * F.ones(3, 3), "tensor a .2. .* tensor b .3. at .*dimension 0"),
    "shapes of three": (lambda F, x: F.addcmul(x, x, F.ones(4)), "tensor a .3. .* tensor b .4. at .* 1"),
    "shapes of lerp": (lambda F, x: F.lerp(x, F.ones(4), 0.5), "tensor a .3. .* tensor b .4. at .* 1"),
    "shapes compared": (lambda F, x: x == F.ones(4), "tensor a .3. .* tensor b .4. at .* 1"),
    "shapes in place": (lambda F, x: x.add_(F.ones(2, 4)), "tensor a .3. .* tensor b .4. at .* 1"),
    "larger in place": (lambda F, x: F.ones(3).add_(x), "shape .3. doesn't match the .* shape .2, 3."),
    "where": (lambda F, x: F.where(x > 0, F.ones(4), x), "must match the size"),
    "alpha with dims": (lambda F, x: x.add(x, alpha=F.ones(1)), "alpha.* must be (a n|N)umber"),
    "alpha that requires grad": (
        lambda F, x: x.add(x, alpha=F.tensor(1.5, requires_grad=True)), "alpha.* must be (a n|N)umber"
    ),
    "a device": (lambda F, x: x.to("gpu"), "device"),
    "a module": (lambda F, x: F.optim.Adam(F.nn.Linear(2, 2)), "'Linear' object|parameters"),
    "split by nothing": (lambda F, x: x.split(), "split"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pytorchs(name):
    call, message = ERRORS[name]
    with pytest.raises((RuntimeError, TypeError), match=message) as theirs:
        call(torch, torch.tensor(X))
    with pytest.raises(theirs.type, match=message):
        call(mytorch, mytorch.tensor(X))


def test_messages_of_our_own():
    with pytest.raises(RuntimeError, match="'gpu' is not a device, which is 'cpu', 'cuda'"):
        mytorch.ones(1).to("gpu")
    with pytest.raises(TypeError, match=r"Linear, which is a module; pass .* Adam\(model.parameters\(\), "):
        mytorch.optim.Adam(mytorch.nn.Linear(2, 2))
    for uncalled in (mytorch.nn.Linear, mytorch.nn.Linear(2, 2).parameters):
        with pytest.raises(TypeError, match=r", whose parentheses are missing; pass .* Adam\(model.param"):
            mytorch.optim.Adam(uncalled)
    with pytest.raises(TypeError, match="one size"):
        mytorch.ones(2).split(1, split_size=1)


def test_tensordot_as_opt_einsum_calls_it():
    x, y = X, X.T.copy()
    got = mytorch.tensordot(mytorch.tensor(x), mytorch.tensor(y), axes=((1,), (0,)))
    np.testing.assert_allclose(got.numpy(), np.tensordot(x, y, axes=((1,), (0,))), rtol=1e-6)
