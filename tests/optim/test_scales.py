"""Updates and clipping for tiny and huge gradients: as near to float64 as PyTorch's, NaN where its are.

The largest error may be twice PyTorch's in float32, or 8 machine epsilons of the largest number.
"""

import numpy as np
import pytest
import torch

from mytorch import Tensor, nn, optim
from mytorch.nn.fused_ops import norm, registry
from tests.optim.fused_cases import CASES, make

SCALES = (1e-42, 1e-30, 1e-15, 1.0, 1e4, 1e15, 1e30, 1e37)
EPS, TINY = np.finfo("float32").eps, np.finfo("float32").smallest_normal
SIZE = 300
VARIANTS = [True, False] if not registry.why_not("cpu") else [False]


def gradients(scale):
    rng = np.random.default_rng(3)
    return [np.float32(scale) * rng.uniform(-1, 1, SIZE).astype("float32") for _ in range(3)]


def updated(case, scale, library, dtype, **choice):
    """The parameters and the state after three updates, in float64."""
    start = np.random.default_rng(1).standard_normal(SIZE).astype("float32").astype(dtype)
    p = Tensor(start, requires_grad=True) if library is optim else torch.tensor(start, requires_grad=True)
    optimizer = make(case, [p], library, **choice)
    for g in gradients(scale):
        g = g.astype(dtype)
        if library is optim:
            p.grad = None
            p.backward(g)
        else:
            p.grad = torch.tensor(g)
        optimizer.step()
    state = optimizer.state[p]
    names = sorted(n for n in state if n != "step" and state[n] is not None)
    arrays = [p.detach().numpy(), *(np.asarray(state[n].numpy()) for n in names)]
    return [np.asarray(a, "float64") for a in arrays]


@pytest.mark.parametrize("fused", VARIANTS)
@pytest.mark.parametrize("case", [case for case in CASES if "Lion" not in case])
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_updates(case, fused):
    for scale in SCALES:
        exact, theirs = (updated(case, scale, torch.optim, dtype) for dtype in ("float64", "float32"))
        ours = updated(case, scale, optim, "float32", fused=fused)
        for k, arrays in enumerate(zip(ours, theirs, exact, strict=True)):
            assert not excess(*arrays), f"gradients of {scale:g}, array {k}: {excess(*arrays)}"


@pytest.mark.parametrize("fused", VARIANTS)
def test_lion_looks_at_signs_only(fused):
    wanted, *_ = updated("Lion", 1.0, optim, "float32", fused=fused)
    for scale in (2.0**-100, 2.0**100, 2.0**127):  # exact factors
        got, _ = updated("Lion", scale, optim, "float32", fused=fused)
        np.testing.assert_array_equal(got, wanted)


def excess(ours, theirs, exact):
    finite = np.isfinite(theirs)
    mine, his = np.where(finite, np.isfinite(ours), ours), np.where(finite, 1, theirs)
    if not np.array_equal(mine, his, equal_nan=True):
        return "not finite where PyTorch's numbers are, or the other way round"
    error, error_of_theirs = (np.max(abs(a - exact)[finite], initial=0) for a in (ours, theirs))
    limit = max(2 * error_of_theirs, 8 * EPS * np.max(abs(exact)[finite], initial=0) + TINY)
    return "" if error <= limit else f"error {error:.2g}, PyTorch's {error_of_theirs:.2g}, limit {limit:.2g}"


@pytest.mark.parametrize("fused", VARIANTS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_the_norm_and_clipping(fused, monkeypatch):
    monkeypatch.setattr(norm, "SHORTEST", 0 if fused else 1 << 60)
    for scale in SCALES:
        g = gradients(scale)[0]
        ours = Tensor(np.zeros(SIZE, "float32"), requires_grad=True)
        ours.backward(g)
        theirs = torch.zeros(SIZE, requires_grad=True)
        theirs.grad = torch.tensor(g)
        total = nn.utils.clip_grad_norm_([ours], 1.0).numpy()
        wanted = torch.nn.utils.clip_grad_norm_([theirs], 1.0).numpy()
        message = f"gradients of {scale:g}"
        np.testing.assert_allclose(total, wanted, rtol=1e-6, atol=1e-22, err_msg=message)
        clipped = ours.grad.numpy(), theirs.grad.numpy()
        np.testing.assert_allclose(*clipped, rtol=2e-6, atol=TINY, err_msg=message)
