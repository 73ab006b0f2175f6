"""Checkpoints: the same numbers, bit for bit, with less kept."""

import gc
import weakref

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.utils.checkpoint import checkpoint, checkpoint_sequential


def build():
    mytorch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Dropout(0.3)) for _ in range(4)))


def plain(model, x):
    return model(x)


def each(model, x):
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def nested(model, x):
    def half(x, blocks):
        for block in blocks:
            x = checkpoint(block, x)
        return x

    return checkpoint(half, checkpoint(half, x, model[:2]), blocks=model[2:])


def in_segments(model, x):
    return checkpoint_sequential(model, 3, x, use_reentrant=False)


def writes(model, x):
    y = model(x)
    y[0] = y[0] * 2
    return y.mul_(3)


def writes_inside(model, x):
    return checkpoint(writes, model, x)


def step(run, data):
    model = build()
    x = mytorch.tensor(data, requires_grad=True)
    out = run(model, x)
    (out * out).sum().backward()
    after = mytorch.rand(1).item()
    return [out.detach().numpy(), x.grad.numpy(), *(p.grad.numpy() for p in model.parameters()), after]


@pytest.mark.parametrize("run", [each, nested, in_segments], ids=lambda f: f.__name__)
def test_outputs_gradients_and_random_numbers_are_the_same(run):
    data = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    for got, want in zip(step(run, data), step(plain, data), strict=True):
        np.testing.assert_array_equal(got, want)


def test_activations_are_let_go_and_made_again():
    seen = []

    def block(x):
        y = x.exp()
        seen.append(weakref.ref(y.data))
        return y * y

    x = mytorch.ones(3, requires_grad=True)
    out = checkpoint(block, x)
    gc.collect()
    assert len(seen) == 1 and seen[0]() is None
    out.sum().backward()
    assert len(seen) == 2
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2) * np.ones(3), rtol=1e-6)


def test_grad_and_second_derivatives_go_through():
    w = mytorch.tensor([2.0, 3.0], dtype=mytorch.float64, requires_grad=True)
    x = mytorch.tensor([0.5, 1.0], dtype=mytorch.float64, requires_grad=True)

    def f(x):
        return (x * w).exp()

    def derivatives(y):
        (g,) = mytorch.autograd.grad(y.sum(), w, create_graph=True)
        return g, mytorch.autograd.grad((g * g).sum(), [x, w])

    got, (got_x, got_w) = derivatives(checkpoint(f, x))
    want, (want_x, want_w) = derivatives(f(x))
    for a, b in ((got, want), (got_x, want_x), (got_w, want_w)):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)


def test_in_place_writes_inside():
    data = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    for got, want in zip(step(writes_inside, data), step(writes, data), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("choice", [{"mode": False}, {"auto": True}])
def test_the_second_run_takes_the_variants_of_the_first(choice):
    """A kernel for attention draws other numbers than the manual variant."""

    def attended(q):
        return F.dropout(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5))

    q = mytorch.randn(1, 2, 8, 4, requires_grad=True)
    grads = []
    for function in (attended, lambda q: checkpoint(attended, q)):
        mytorch.manual_seed(0)
        with F.use_fused(**choice):
            y = function(q)
        y.sum().backward()  # outside of the block
        grads.append(q.grad)
        q.grad = None
    np.testing.assert_array_equal(*(grad.numpy() for grad in grads))


def test_another_second_run_is_an_error():
    calls = []

    def fickle(x):
        calls.append(1)
        return x.exp() if len(calls) == 1 else x.sin().exp()

    out = checkpoint(fickle, mytorch.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="1 operations in the forward pass and 2"):
        out.sum().backward()


def test_without_recording_it_is_a_plain_call():
    with mytorch.no_grad():
        assert not checkpoint(lambda x: x * 2, mytorch.ones(2, requires_grad=True)).requires_grad


def test_contexts_of_both_runs():
    entered = []

    class Note:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *exception):
            pass

    x = mytorch.ones(2, requires_grad=True)
    out = checkpoint(lambda x: x.exp(), x, context_fn=lambda: (Note("first"), Note("second")))
    assert entered == ["first"]
    out.sum().backward()
    assert entered == ["first", "second"]


def test_wrong_argument():
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(lambda x: x, mytorch.ones(1), determinism_check="maybe")
