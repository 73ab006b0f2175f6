"""Dropout in all its variants: seeds, masks, what is kept for backward."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import grad
from mytorch.backends.device import CPU
from mytorch.core.closure import closure_arrays
from mytorch.nn import functional as F
from mytorch.nn.functional import philox
from mytorch.nn.functional.dropout import Draw
from mytorch.random import default_generator

VARIANTS = {"reference": {"auto": True}, "manual": {"fused": False}, "fused": {"fused": True}}
EVERY = pytest.mark.parametrize("choice", VARIANTS.values(), ids=VARIANTS)
SEEDED = pytest.mark.parametrize(
    "choice", [VARIANTS["reference"], VARIANTS["fused"]], ids=["reference", "fused"]
)
SHAPES = [(), (1,), (7, 5), (0, 3), (300, 401)]  # the last is shared out to the threads


def run(x, p, seed=3, **choice):
    """The result and the gradient for ones."""
    x = Tensor(x, requires_grad=True)
    mytorch.manual_seed(seed)
    y = F.dropout(x, p, **choice)
    y.sum().backward()
    return y.detach().numpy(), x.grad.numpy()


@SEEDED
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.999, 1.0])
def test_the_seed_makes_the_mask(choice, shape, p):
    """Element i stays if the i-th number of the seed is above p: on any device, for any number of threads."""
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    y, d = run(x, p, **choice)
    mytorch.manual_seed(3)
    kept = (philox.uniform(default_generator().next_seed(), x.size, CPU) > np.float32(p)).reshape(shape)
    factor = np.where(kept, np.float32(1 / (1 - p) if p < 1 else 0), np.float32(0))
    np.testing.assert_allclose(y, x * factor, rtol=2e-7)
    np.testing.assert_allclose(d, factor, rtol=2e-7)


@EVERY
def test_it_is_reproducible_and_draws_anew(choice):
    x = np.ones((50, 40), "float32")
    first, again, other = run(x, 0.5, 1, **choice), run(x, 0.5, 1, **choice), run(x, 0.5, 2, **choice)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[0] != other[0]).any()
    mytorch.manual_seed(1)
    one, two = (F.dropout(Tensor(x), 0.5, **choice).numpy() for _ in range(2))
    np.testing.assert_array_equal(one, first[0])
    assert (one != two).any()


@EVERY
def test_a_saved_state_goes_on_as_before(choice):
    x = Tensor(np.ones(99, "float32"))
    F.dropout(x, 0.5, **choice)
    state = mytorch.get_rng_state()
    wanted = [F.dropout(x, 0.5, **choice).tolist() for _ in range(2)]
    mytorch.set_rng_state(state)
    assert [F.dropout(x, 0.5, **choice).tolist() for _ in range(2)] == wanted


@EVERY
@pytest.mark.parametrize("p", [0.1, 0.7])
def test_the_mean_stays(choice, p):
    y, _ = run(np.ones((600, 500), "float32"), p, **choice)
    assert set(np.unique(y)) == {0, np.float32(1 / (1 - p))}
    assert abs(y.mean() - 1) < 6 * np.sqrt(p / (1 - p) / y.size)


@EVERY
def test_nan_and_inf_come_through_as_in_pytorch(choice):
    x = np.repeat(np.array([np.nan, np.inf, -np.inf, 1], "float32"), 50)
    for p in (0.5, 1.0):
        y, _ = run(x, p, **choice)
        want = torch.nn.functional.dropout(torch.from_numpy(x), p).numpy()
        for i in range(0, 200, 50):
            assert {str(v) for v in y[i : i + 50]} == {str(v) for v in want[i : i + 50]}


@EVERY
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_gradient_of_a_gradient_has_the_same_mask(choice, dtype):
    if dtype == "float64" and "fused" in choice and choice["fused"]:
        with pytest.raises(RuntimeError, match="none for float64"):
            F.dropout(mytorch.ones(3, dtype="float64"), **choice)
        return
    x = Tensor(np.linspace(0.5, 2, 400).astype(dtype), requires_grad=True)
    y = F.dropout(x * x, 0.5, **choice)
    kept = y.detach().numpy() != 0
    (g,) = grad(y.sum(), x, create_graph=True)
    (gg,) = grad(g.sum(), x)
    np.testing.assert_array_equal(gg.numpy(), np.where(kept, 4, 0))


def test_what_is_kept_for_backward():
    """The kernel keeps nothing, the hand-derived variant one byte for each element."""
    pytest.importorskip("numba")
    x = mytorch.ones(1000)
    F.dropout(x, fused=True)
    draw = Draw(x.device)
    _, vjp = F.dropout.kernels["cpu"].forward(x.numpy(), 0.5, draw, False)
    assert closure_arrays(vjp) == []
    _, vjp = F.dropout.manual_variant.forward(x.numpy(), 0.5, draw, False)
    assert [a.nbytes for a in closure_arrays(vjp) if a.ndim] == [1000]


@EVERY
def test_in_place(choice):
    x = Tensor(np.ones((300, 400), "float32"), requires_grad=True)
    y = x * 1
    assert F.dropout(y, 0.5, inplace=True, **choice) is y
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


@EVERY
def test_layouts(choice):
    base = np.random.default_rng(0).standard_normal((30, 44)).astype("float32")
    want, _ = run(base, 0.5, **choice)
    for view in (
        base.T.copy().T,
        np.repeat(base, 2, 1)[:, ::2],
        base[::-1][::-1],
        np.flip(np.flip(base).copy()),
    ):
        y, d = run(view, 0.5, **choice)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(d != 0, want != 0)


def test_both_devices_have_the_same_mask(fake_cuda):
    x = mytorch.ones(20, 30)
    masks = []
    for place in ("cpu", "cuda:1"):
        mytorch.manual_seed(5)
        masks.append(F.dropout(x.to(place), 0.5, auto=True).cpu().numpy())
    np.testing.assert_array_equal(*masks)


def test_module():
    layer = mytorch.nn.Dropout(0.5, fused=True)
    x = mytorch.ones(50)
    assert (layer(x) == 0).any() and layer.eval()(x) is x


def test_a_captured_graph_has_masks_of_its_own(monkeypatch):
    """It would repeat a seed with everything else; what it draws from the generator is new each time."""
    from mytorch.backends.device import thread

    x = mytorch.ones(50)
    monkeypatch.setattr(thread, "is_capturing", True)
    with pytest.raises(RuntimeError, match="dropout by seed would be constant in a captured graph"):
        F.dropout(x, fused=True)
    assert (F.dropout(x) == 0).any()
