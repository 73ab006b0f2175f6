"""Optimizers step by step against PyTorch's: parameters, state and the format of state_dict."""

import copy
import pickle

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim

SHAPES = [(5, 3), (7,), (), (4, 4), (0, 3), (1, 65)]
STEPS = 25

# name: (class, options)
CASES = {
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD weight decay": ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    "SGD momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "SGD dampening": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    "SGD nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    "SGD maximize": ("SGD", {"lr": 0.05, "momentum": 0.5, "maximize": True, "weight_decay": 0.1}),
    "SGD maximize only": ("SGD", {"lr": 0.05, "maximize": True}),
    "Adam": ("Adam", {}),
    "Adam weight decay": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "Adam options": ("Adam", {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}),
    "Adam amsgrad": ("Adam", {"lr": 0.01, "betas": (0.9, 0.6), "amsgrad": True}),
    "Adam maximize": ("Adam", {"lr": 0.01, "maximize": True, "weight_decay": 0.1}),
    "Adam decoupled": ("Adam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "Adam no memory": ("Adam", {"lr": 0.01, "betas": (0.0, 0.0)}),
    "AdamW": ("AdamW", {}),
    "AdamW GPT": ("AdamW", {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "RMSprop": ("RMSprop", {}),
    "RMSprop weight decay": ("RMSprop", {"lr": 1e-3, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1}),
    "RMSprop momentum": ("RMSprop", {"lr": 1e-3, "momentum": 0.9, "maximize": True, "weight_decay": 0.1}),
    "RMSprop centered": ("RMSprop", {"lr": 1e-3, "centered": True, "alpha": 0.8, "eps": 1e-3}),
    "RMSprop all": ("RMSprop", {"centered": True, "momentum": 0.5, "eps": 0.1, "maximize": True}),
    "Adagrad": ("Adagrad", {}),
    "Adagrad decay": ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "eps": 1e-4}),
    "Adagrad start": ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
    "Adadelta": ("Adadelta", {}),
    "Adadelta options": ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1}),
    "Adadelta maximize": ("Adadelta", {"rho": 1.0, "maximize": True, "weight_decay": 0.1}),
    "NAdam": ("NAdam", {}),
    "NAdam weight decay": ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "momentum_decay": 0.1}),
    "NAdam decoupled": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    "NAdam options": ("NAdam", {"lr": 0.05, "betas": (0.5, 0.8), "eps": 1e-3, "momentum_decay": 0.0}),
    "RAdam": ("RAdam", {"lr": 0.01}),
    "RAdam weight decay": ("RAdam", {"lr": 0.01, "betas": (0.5, 0.9), "weight_decay": 0.1, "eps": 1e-3}),
    "RAdam decoupled": ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    "Adamax": ("Adamax", {}),
    "Adamax options": ("Adamax", {"lr": 0.05, "betas": (0.5, 0.8), "eps": 0.1, "weight_decay": 0.1}),
    "Adamax maximize": ("Adamax", {"maximize": True}),
    "Rprop": ("Rprop", {}),
    "Rprop options": ("Rprop", {"lr": 0.3, "etas": (0.3, 1.5), "step_sizes": (0.1, 0.6), "maximize": True}),
    "ASGD": ("ASGD", {}),
    "ASGD options": ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.1}),
    "ASGD maximize": ("ASGD", {"lr": 0.1, "t0": 0, "maximize": True}),
    "AdamW amsgrad": ("AdamW", {"lr": 0.01, "betas": (0.9, 0.6), "amsgrad": True, "maximize": True}),
}


def parameters(seed=0, dtype="float32", shapes=SHAPES):
    """The same random parameters for both."""
    rng = np.random.default_rng(seed)
    values = [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]
    ours = [mytorch.Tensor(v.copy(), requires_grad=True) for v in values]
    return ours, [torch.tensor(v, requires_grad=True) for v in values]


def give_grads(ours, theirs, rng, skip=()):
    """The same random gradients to both, by way of backward; none to the parameters in `skip`."""
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        if i not in skip:
            g = np.asarray(rng.standard_normal(p.shape), p.dtype)
            p.backward(g)
            q.backward(torch.tensor(g))


def run(optimizer, oracle, ours, theirs, steps=STEPS, seed=1, skip=lambda step: ()):
    rng = np.random.default_rng(seed)
    for step in range(steps):
        optimizer.zero_grad()
        oracle.zero_grad()
        give_grads(ours, theirs, rng, skip(step))
        optimizer.step()
        oracle.step()


def same_parameters(ours, theirs, rtol=1e-6, atol=1e-6):
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(
            p.data.numpy(), q.detach().numpy(), rtol, atol, err_msg=f"parameter {i} of shape {q.shape}"
        )


def same_state(optimizer, oracle, rtol=2e-6, atol=1e-6):
    ours, theirs = optimizer.state_dict(), oracle.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for i, entry in theirs["state"].items():
        assert ours["state"][i].keys() == entry.keys(), f"state of parameter {i}"
        for name, value in entry.items():
            mine = ours["state"][i][name]
            assert isinstance(mine, mytorch.Tensor)
            assert mine.shape == tuple(value.shape) and str(mine.dtype) == str(value.dtype).removeprefix(
                "torch."
            )
            np.testing.assert_allclose(
                mine.numpy(), value.numpy(), rtol, atol, err_msg=f"{name} of parameter {i}"
            )


def make(case, ours, theirs, **more):
    name, options = CASES[case]
    options = {**options, **more}
    return getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trajectory(case, dtype):
    ours, theirs = parameters(dtype=dtype)
    optimizer, oracle = make(case, ours, theirs)
    before = [p.data.numpy().copy() for p in ours]
    run(optimizer, oracle, ours, theirs)
    assert not np.allclose(before[0], ours[0].data.numpy())
    exact = {"rtol": 1e-13, "atol": 1e-13} if dtype == "float64" else {}
    same_parameters(ours, theirs, **exact)
    same_state(optimizer, oracle, **exact)


@pytest.mark.parametrize("case", CASES)
def test_parameters_without_gradient_are_left_alone(case):
    ours, theirs = parameters()
    optimizer, oracle = make(case, ours, theirs)
    # 0 from the start, 1 every third step missing, 3 never a gradient, 5 from the tenth step on
    run(
        optimizer,
        oracle,
        ours,
        theirs,
        skip=lambda step: {3} | ({1} if step % 3 == 0 else {5} if step < 10 else set()),
    )
    same_parameters(ours, theirs)
    same_state(optimizer, oracle)
    steps = {i: int(entry["step"]) for i, entry in optimizer.state_dict()["state"].items() if "step" in entry}
    if case.startswith("Adagrad"):
        assert steps.pop(3) == 0  # its state is there from the beginning
    assert steps in ({}, {0: 25, 1: 16, 2: 25, 4: 25, 5: 19})


@pytest.mark.parametrize("case", ["SGD nesterov", "Adam weight decay", "AdamW GPT"])
def test_groups(case):
    ours, theirs = parameters()

    def groups(p):
        return [{"params": p[:2], "lr": 0.02, "weight_decay": 0.0}, {"params": p[2]}, {"params": iter(p[3:])}]

    optimizer, oracle = make(case, groups(ours), groups(theirs))
    run(optimizer, oracle, ours, theirs, steps=10)
    for both in (optimizer, oracle):
        for group in both.param_groups:
            group["lr"] *= 0.5
    extra, extra_theirs = parameters(seed=5, shapes=[(3, 2), (2,)])
    optimizer.add_param_group({"params": extra, "lr": 0.3})
    oracle.add_param_group({"params": extra_theirs, "lr": 0.3})
    run(optimizer, oracle, ours + extra, theirs + extra_theirs, steps=10)
    same_parameters(ours + extra, theirs + extra_theirs)
    same_state(optimizer, oracle)


def test_options_may_be_tensors_or_numpy_numbers():
    ours, theirs = parameters()
    optimizer = optim.AdamW(ours, lr=mytorch.Tensor(0.01), betas=(np.float64(0.8), np.float64(0.9)))
    oracle = torch.optim.AdamW(theirs, lr=0.01, betas=(0.8, 0.9))
    run(optimizer, oracle, ours, theirs)
    same_parameters(ours, theirs)


def test_half_precision_computes_and_keeps_state_in_float32():
    ours, theirs = parameters(dtype="float16")
    theirs = [q.detach().float().requires_grad_() for q in theirs]
    optimizer, oracle = make("AdamW", ours, theirs, lr=0.01)
    rng = np.random.default_rng(3)
    for _ in range(STEPS):
        for p, q in zip(ours, theirs, strict=True):
            g = np.asarray(rng.standard_normal(p.shape) * 1e-4, np.float16)  # g * g is nothing in float16
            p.grad = mytorch.Array(g)
            q.grad = torch.tensor(g).float()
        optimizer.step()
        oracle.step()
        for q in theirs:
            q.data = q.data.half().float()
    for p, q in zip(ours, theirs, strict=True):
        assert p.dtype == np.float16
        np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), rtol=1e-3, atol=1e-4)
    state = optimizer.state[ours[0]]
    assert state["exp_avg_sq"].dtype == np.float32
    np.testing.assert_allclose(
        state["exp_avg_sq"].numpy(), oracle.state[theirs[0]]["exp_avg_sq"].numpy(), 1e-5
    )


def test_a_network_trains_as_in_pytorch():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 6)).astype(np.float32), rng.standard_normal((16, 2)).astype(np.float32)

    def loss(params, x, y):
        w1, b1, w2 = params
        return (((x @ w1 + b1).tanh() @ w2 - y) ** 2).mean()

    ours, theirs = parameters(shapes=[(6, 8), (8,), (8, 2)])
    optimizer, oracle = optim.AdamW(ours, lr=0.01), torch.optim.AdamW(theirs, lr=0.01)
    mine, his = [], []
    for _ in range(STEPS):
        for record, params, opt, tensor in (
            (mine, ours, optimizer, mytorch.Tensor),
            (his, theirs, oracle, torch.from_numpy),
        ):
            opt.zero_grad()
            value = loss(params, tensor(x), tensor(y))
            value.backward()
            opt.step()
            record.append(value.item())
    np.testing.assert_allclose(mine, his, rtol=2e-6)
    same_parameters(ours, theirs)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_model_in_another_dtype(when):
    """The optimizer is made before the model is cast, or after."""
    torch.manual_seed(0)
    oracle_model = torch.nn.Linear(4, 3).double()
    model = mytorch.nn.Linear(4, 3)
    if when == "after":
        model.double()
    optimizer, oracle = (
        optim.AdamW(model.parameters(), lr=0.1),
        torch.optim.AdamW(oracle_model.parameters(), lr=0.1),
    )
    model.double()
    model.load_state_dict({k: mytorch.Tensor(v.numpy()) for k, v in oracle_model.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 4))
    for _ in range(5):
        for net, opt, tensor in ((model, optimizer, mytorch.Tensor), (oracle_model, oracle, torch.tensor)):
            opt.zero_grad()
            (net(tensor(x)) ** 2).sum().backward()
            opt.step()
    for p, q in zip(model.parameters(), oracle_model.parameters(), strict=True):
        assert p.dtype == np.float64
        np.testing.assert_allclose(p.data.numpy(), q.detach().numpy(), rtol=1e-12)


def test_closure():
    ours, theirs = parameters(shapes=[(3,)])
    optimizer, oracle = make("SGD momentum", ours, theirs)

    def closure_of(opt, p):
        def closure():
            opt.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        return closure

    for _ in range(3):
        with mytorch.no_grad():  # the closure is run with gradients all the same
            mine = optimizer.step(closure_of(optimizer, ours[0]))
        his = oracle.step(closure_of(oracle, theirs[0]))
        assert mine.item() == pytest.approx(his.item(), rel=1e-6)
    same_parameters(ours, theirs)
    assert optimizer.step() is None


# state_dict


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


@pytest.mark.parametrize("case", CASES)
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


@pytest.mark.parametrize("case", CASES)
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
    optimizer, oracle = make("AdamW", ours, theirs)
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
    optimizer, oracle = make("AdamW", ours, theirs)
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
    optimizer, oracle = make("AdamW", ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=3)
    twin, other = duplicate((ours, optimizer))
    run(other, oracle, twin, theirs, steps=3)
    same_parameters(twin, theirs)
    same_state(other, oracle)
    assert int(optimizer.state[ours[0]]["step"]) == 3


# zero_grad


def test_zero_grad():
    ours, theirs = parameters()
    optimizer, oracle = make("SGD momentum", ours, theirs)
    give_grads(ours, theirs, np.random.default_rng(0), skip={2})
    optimizer.zero_grad(set_to_none=False)
    oracle.zero_grad(set_to_none=False)
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        assert p.grad is None or not p.grad.numpy().any()
    optimizer.zero_grad()
    assert all(p.grad is None for p in ours)


def test_zero_grad_to_zeros_still_moves_by_momentum():
    ours, theirs = parameters()
    optimizer, oracle = make("SGD momentum", ours, theirs)
    run(optimizer, oracle, ours, theirs, steps=2)
    for _ in range(3):
        for opt in (optimizer, oracle):
            opt.zero_grad(set_to_none=False)
            opt.step()
    same_parameters(ours, theirs)


# Wrong input

WRONG = {
    "lr": ("SGD", {"lr": -1}, "Invalid learning rate: -1"),
    "lr NaN": ("SGD", {"lr": float("nan")}, "Invalid learning rate: nan"),
    "momentum": ("SGD", {"momentum": -0.5}, "Invalid momentum value: -0.5"),
    "SGD weight decay": ("SGD", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
    "nesterov": ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    "dampened nesterov": (
        "SGD",
        {"nesterov": True, "momentum": 0.9, "dampening": 0.1},
        "Nesterov momentum requires a momentum and zero dampening",
    ),
    "Adam lr": ("Adam", {"lr": -0.1}, "Invalid learning rate: -0.1"),
    "eps": ("Adam", {"eps": -1e-8}, "Invalid epsilon value: -1e-08"),
    "beta 0": ("AdamW", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
    "beta 1": ("AdamW", {"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
    "alpha": ("RMSprop", {"alpha": -0.1}, "Invalid alpha value: -0.1"),
    "RMSprop momentum": ("RMSprop", {"momentum": -1.0}, "Invalid momentum value: -1.0"),
    "rho": ("Adadelta", {"rho": 1.1}, "Invalid rho value: 1.1"),
    "lr_decay": ("Adagrad", {"lr_decay": -0.5}, "Invalid lr_decay value: -0.5"),
    "accumulator": (
        "Adagrad",
        {"initial_accumulator_value": -1},
        "Invalid initial_accumulator_value value: -1",
    ),
    "momentum_decay": ("NAdam", {"momentum_decay": -0.2}, "Invalid momentum_decay value: -0.2"),
    "RAdam beta": ("RAdam", {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
    "Adamax beta": ("Adamax", {"betas": (-0.1, 0.9)}, "Invalid beta parameter at index 0: -0.1"),
    "etas": ("Rprop", {"etas": (1.0, 0.5)}, "Invalid eta values: 1.0, 0.5"),
    "ASGD": ("ASGD", {"weight_decay": -0.5}, "Invalid weight_decay value: -0.5"),
    "weight decay": ("AdamW", {"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options(case):
    name, options, message = WRONG[case]
    ours, theirs = parameters()
    if case != "lr NaN":  # PyTorch lets it through
        with pytest.raises(ValueError, match=message):
            getattr(torch.optim, name)(theirs, **options)
    with pytest.raises(ValueError, match=message):
        getattr(optim, name)(ours, **options)


def test_wrong_parameters():
    p, q = parameters(shapes=[(2,), (3,)])[0]
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts, but got one Tensor"):
        optim.SGD(p)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="can only optimize Tensors, but one of the params is float"):
        optim.SGD([p, 1.0])
    with pytest.raises(TypeError, match="set"):
        optim.SGD([{"params": {p, q}}])
    with pytest.raises(ValueError, match=r"can't optimize a non-leaf Tensor \(shape \(2,\), made by mul\)"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [q, p]}])
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optim.SGD([p]).add_param_group([q])
    with pytest.warns(UserWarning, match="a parameter group with duplicate parameters"):
        optim.SGD([p, p])


def test_what_is_not_there_says_so():
    (p,), _ = parameters(shapes=[(2,)])
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        optim.AdamW([p], fused=True, foreach=True)
    with pytest.raises(ValueError, match="differentiable=True"):
        optim.SGD([p], differentiable=True)
    with pytest.raises(NotImplementedError, match="Optimizer defines neither"):
        plain = optim.Optimizer([p], {"lr": 0.1})
        p.grad = mytorch.Array([1.0, 1.0])
        plain.step()


# Around it


def test_named_parameters():
    ours, theirs = parameters(shapes=[(2,), (3,)])
    optimizer = optim.SGD(zip("ab", ours, strict=True), lr=0.1)
    oracle = torch.optim.SGD(zip("ab", theirs, strict=True), lr=0.1)
    assert optimizer.state_dict() == oracle.state_dict()
    with pytest.raises(ValueError, match="Some param names are missing: 1 of 2"):
        optim.SGD([("a", ours[0]), ours[1]])
    with pytest.raises(ValueError, match="cannot add param group without names"):
        optimizer.add_param_group({"params": [mytorch.Tensor([1.0], requires_grad=True)]})


def lion_by_hand(p, g, m, lr, betas, weight_decay):
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
        expected, mean = lion_by_hand(expected, g, mean, **used)
        np.testing.assert_allclose(p.numpy(force=True), expected, rtol=1e-12)
    assert list(optimizer.state_dict()["state"]) == [0] and list(optimizer.state[p]) == ["exp_avg"]
    resumed = optim.Lion([p, q])
    resumed.load_state_dict(optimizer.state_dict())
    np.testing.assert_allclose(resumed.state[p]["exp_avg"].numpy(), mean, rtol=1e-12)


MUON = {
    "default": {"lr": 0.05}, "rms": {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.3},
    "original": {"adjust_lr_fn": "original", "nesterov": False, "momentum": 0.5},
    "steps": {"ns_steps": 2, "ns_coefficients": (1.5, -0.5, 0.0), "eps": 1e-3},
}  # fmt: skip


@pytest.mark.parametrize("case", MUON)
def test_muon(case):
    """Every rounding to eight bits as in PyTorch: but for a sum that lies between two of them."""
    ours, theirs = parameters(shapes=[(5, 3), (3, 4), (7, 7), (1, 6), (40, 20)])
    optimizer, oracle = optim.Muon(ours, **MUON[case]), torch.optim.Muon(theirs, **MUON[case])
    run(optimizer, oracle, ours, theirs, steps=20)
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


def test_repr():
    ours, theirs = parameters(shapes=[(2,)])
    groups = [{"params": ours}, {"params": [mytorch.Tensor([1.0], requires_grad=True)], "lr": 3}]
    groups_theirs = [{"params": theirs}, {"params": [torch.ones(1, requires_grad=True)], "lr": 3}]
    assert repr(optim.SGD(groups, lr=0.5)) == repr(torch.optim.SGD(groups_theirs, lr=0.5))


def test_an_optimizer_of_ones_own_is_a_formula():
    class SignDescent(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def state_names(self, group):
            return ("total",)

        def update(self, x, step, group):
            x.state["total"] += x.grad
            x.data -= group["lr"] * step * np.sign(x.state["total"])

    p = mytorch.Tensor([1.0, 2.0], requires_grad=True)
    optimizer = SignDescent([p], lr=0.5)
    for g in ([1.0, 1.0], [-3.0, 1.0]):
        p.grad = mytorch.Array(g)
        optimizer.step()
    assert p.tolist() == [1 - 0.5 + 1, 2 - 0.5 - 1]
    assert optimizer.state[p]["total"].tolist() == [-2, 2] and int(optimizer.state[p]["step"]) == 2


def test_an_optimizer_written_for_pytorch():
    def lion(torch):
        class Lion(torch.optim.Optimizer):
            def __init__(self, params, lr=1e-2, beta=0.9, weight_decay=0.1):
                super().__init__(params, {"lr": lr, "beta": beta, "weight_decay": weight_decay})

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        if len(state) == 0:
                            state["step"], state["exp_avg"] = 0, torch.zeros_like(p)
                        state["step"] += 1
                        p.mul_(1 - group["lr"] * group["weight_decay"])
                        mean = state["exp_avg"]
                        mean.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                        p.add_(torch.sign(mean), alpha=-group["lr"] / state["step"])

        return Lion

    ours, theirs = parameters()
    optimizer, oracle = lion(mytorch)(ours), lion(torch)(theirs)
    run(optimizer, oracle, ours, theirs, steps=4)
    other, other_oracle = lion(mytorch)(ours), lion(torch)(theirs)
    other.load_state_dict(optimizer.state_dict())
    other_oracle.load_state_dict(oracle.state_dict())
    run(other, other_oracle, ours, theirs, steps=4)
    same_parameters(ours, theirs)
    assert other.state[ours[0]]["step"] == 8
