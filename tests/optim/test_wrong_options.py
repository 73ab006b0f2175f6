"""What optimizers refuse: options, parameters, names that are not there."""

import pytest
import torch

import mytorch
from mytorch import optim
from tests.optim.cases import parameters

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
