"""Lion and Muon, against their papers' formulas."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from tests.optim.cases import parameters, run, same_parameters, same_state


def lion_reference(p, g, m, lr, betas, weight_decay):
    """Algorithm 2 of the paper, for one parameter in float64."""
    p = p * (1 - lr * weight_decay)
    p = p - lr * np.sign(betas[0] * m + (1 - betas[0]) * g)
    return p, betas[1] * m + (1 - betas[1]) * g


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"lr": 0.02, "betas": (0.5, 0.8)}, {"lr": 0.1, "weight_decay": 0.3}], ids=str
)
def test_lion(options, maximize):
    used = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, **options}
    (p, q), _ = parameters(shapes=[(5, 3), (2,)], dtype="float64")
    optimizer = optim.Lion([p, q], **options, maximize=maximize)
    expected, mean, rng = p.numpy(force=True).copy(), np.zeros((5, 3)), np.random.default_rng(1)
    for _ in range(20):
        g = rng.standard_normal((5, 3))
        p.grad = mytorch.Array(-g if maximize else g)
        optimizer.step()
        expected, mean = lion_reference(expected, g, mean, **used)
        np.testing.assert_allclose(p.numpy(force=True), expected, rtol=1e-12)
    assert list(optimizer.state_dict()["state"]) == [0] and list(optimizer.state[p]) == ["exp_avg"]
    resumed = optim.Lion([p, q])
    resumed.load_state_dict(optimizer.state_dict())
    np.testing.assert_allclose(resumed.state[p]["exp_avg"].numpy(), mean, rtol=1e-12)


MUON = {
    "rms": {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.3},
    "original": {"adjust_lr_fn": "original", "nesterov": False, "momentum": 0.5},
    "steps": {"ns_steps": 2, "ns_coefficients": (1.5, -0.5, 0.0), "eps": 1e-3},
}


@pytest.mark.parametrize("case", MUON)
def test_muon(case):
    """Rounds to eight bits as PyTorch does, except for a sum halfway between two values."""
    ours, theirs = parameters(shapes=[(5, 3), (3, 4), (7, 7), (1, 6)])
    optimizer, oracle = optim.Muon(ours, **MUON[case]), torch.optim.Muon(theirs, **MUON[case])
    run(optimizer, oracle, ours, theirs, steps=5)
    lr = MUON[case].get("lr", 1e-3)
    same_parameters(ours, theirs, rtol=0, atol=0.02 * lr)
    same_state(optimizer, oracle)


def test_muon_makes_a_step_of_orthogonal_matrices():
    p = mytorch.Tensor(np.zeros((6, 4), "float32"), requires_grad=True)
    p.grad = mytorch.Array(np.random.default_rng(0).standard_normal((6, 4)).astype("float32"))
    optim.Muon([p], lr=1.0, weight_decay=0.0, adjust_lr_fn="original").step()
    singular = np.linalg.svd(p.numpy(force=True), compute_uv=False) / np.sqrt(6 / 4)
    assert singular.min() > 0.6 and singular.max() < 1.3
    with pytest.raises(ValueError, match=r"only supports 2D parameters, got one of shape \(3,\)"):
        optim.Muon([mytorch.zeros(3, requires_grad=True)])
