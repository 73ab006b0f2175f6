"""The state of optimizers: PyTorch's format, exchanged both ways, copied, and what doesn't fit."""

import copy
import pickle

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from tests.optim.cases import CASES, make, parameters, run, same_parameters, same_state


def to_ours(state_dict):
    """PyTorch's state_dict with our Tensors."""
    if isinstance(state_dict, torch.Tensor):
        return mytorch.Tensor(state_dict.numpy().copy())
    if isinstance(state_dict, dict):
        return {k: to_ours(v) for k, v in state_dict.items()}
    return [to_ours(v) for v in state_dict] if isinstance(state_dict, list) else state_dict


def to_theirs(state_dict):
    if isinstance(state_dict, mytorch.Tensor):
        return torch.tensor(state_dict.numpy().copy())
    if isinstance(state_dict, dict):
        return {k: to_theirs(v) for k, v in state_dict.items()}
    return [to_theirs(v) for v in state_dict] if isinstance(state_dict, list) else state_dict


@pytest.mark.parametrize("case", ["AdamW GPT", "Adagrad start", "SGD nesterov"])
def test_state_dicts_are_exchanged_with_pytorch(case):
    ours, theirs = parameters()
    optimizer, oracle = make(case, ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=5, skip=lambda step: {3} if step < 2 else {1})
    fresh, fresh_oracle = make(case, ours, theirs, lr=7.0)
    fresh.load_state_dict(to_ours(oracle.state_dict()))
    fresh_oracle.load_state_dict(to_theirs(optimizer.state_dict()))
    run(fresh, fresh_oracle, ours, theirs, steps=5, seed=2)
    same_parameters(ours, theirs)
    same_state(fresh, fresh_oracle)


@pytest.mark.parametrize("case", {name: case for case, (name, _) in CASES.items()}.values())
def test_a_fresh_optimizer_continues_exactly(case):
    ours, theirs = parameters()
    optimizer, oracle = make(case, ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=5)
    twin, _ = parameters(seed=9)
    for p, q in zip(ours, twin, strict=True):
        q.data[...] = p.data
    resumed, _ = make(case, twin, theirs)
    resumed.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    for params, opt in ((ours, optimizer), (twin, resumed)):
        rng = np.random.default_rng(4)
        for _ in range(5):
            for p in params:
                p.grad = mytorch.Array(np.asarray(rng.standard_normal(p.shape), np.float32))
            opt.step()
    for p, q in zip(ours, twin, strict=True):
        assert p.data.numpy().tobytes() == q.data.numpy().tobytes()


def test_loading_copies_and_leaves_the_source_alone():
    ours, theirs = parameters()
    optimizer, oracle = make("AdamW GPT", ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=2)
    saved = copy.deepcopy(optimizer.state_dict())
    twin, _ = parameters()
    other = optim.AdamW(twin)
    other.load_state_dict(saved)
    run(other, oracle, twin, theirs, steps=2)
    assert int(saved["state"][0]["step"]) == 2 and int(other.state[twin[0]]["step"]) == 4
    np.testing.assert_array_equal(
        saved["state"][0]["exp_avg"].numpy(), optimizer.state[ours[0]]["exp_avg"].numpy()
    )


def test_a_state_that_was_cleared_begins_anew():
    ours, theirs = parameters()
    optimizer, oracle = make("Adagrad start", ours, theirs)
    for opt in (optimizer, oracle):
        opt.state.clear()
    run(optimizer, oracle, ours, theirs, steps=3)
    same_parameters(ours, theirs)
    same_state(optimizer, oracle)


def test_names_are_loaded_with_the_state():
    ours, theirs = parameters(shapes=[(2,), (3,)])
    results = []
    for module, params in ((optim, ours), (torch.optim, theirs)):
        named = module.SGD(zip("ab", params, strict=True))
        renamed, plain = module.SGD(zip("xy", params, strict=True)), module.SGD(params)
        renamed.load_state_dict(named.state_dict())
        named.load_state_dict(plain.state_dict())
        results.append([opt.param_groups[0]["param_names"] for opt in (renamed, named)])
    assert results[0] == results[1] == [["a", "b"], ["a", "b"]]


def test_old_state_dicts_lack_options_and_count_in_python():
    (p,), _ = parameters(shapes=[(2,)])
    optimizer = optim.Adam([p], lr=0.5)
    entry = {"step": 3, "exp_avg": np.ones(2, np.float32), "exp_avg_sq": mytorch.Array([4.0, 4.0])}
    optimizer.load_state_dict({"state": {0: entry}, "param_groups": [{"lr": 0.25, "params": [0]}]})
    assert optimizer.param_groups[0]["lr"] == 0.25 and optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    p.grad = mytorch.Array([1.0, 1.0])
    optimizer.step()
    assert int(optimizer.state[p]["step"]) == 4
    np.testing.assert_allclose(optimizer.state[p]["exp_avg_sq"].numpy(), [3.997, 3.997], rtol=1e-6)


def bad_group_count(d):
    d["param_groups"].append(d["param_groups"][0])


def bad_param_count(d):
    d["param_groups"][0]["params"] = [0]


def bad_shape(d):
    d["state"][1]["exp_avg"] = mytorch.Tensor(np.zeros((3, 1), np.float32))


def no_step(d):
    del d["state"][1]["step"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (bad_group_count, "has 2 parameter groups, the optimizer 1"),
        (bad_param_count, r"have \[1\] parameters, the optimizer's \[6\]"),
        (bad_shape, r"parameter 1 doesn't fit: exp_avg has shape \(3, 1\), expected \(7,\)"),
        (no_step, "the state of parameter 1 has exp_avg, exp_avg_sq, but no 'step'"),
    ],
)
def test_a_state_dict_that_does_not_fit(spoil, message):
    ours, theirs = parameters()
    optimizer, oracle = make("AdamW GPT", ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=2)
    wrong = copy.deepcopy(optimizer.state_dict())
    spoil(wrong)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(wrong)
    run(optimizer, oracle, ours, theirs, steps=2)  # it is as it was
    same_parameters(ours, theirs)
    same_state(optimizer, oracle)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_lives_on_by_itself(duplicate):
    ours, theirs = parameters()
    optimizer, oracle = make("AdamW GPT", ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=3)
    twin, other = duplicate((ours, optimizer))
    run(other, oracle, twin, theirs, steps=3)
    same_parameters(twin, theirs)
    same_state(other, oracle)
    assert int(optimizer.state[ours[0]]["step"]) == 3
