"""Every layer, with PyTorch's weights, gives PyTorch's output and gradients; it prints and starts alike."""

import inspect

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import layers
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


TOKENS = rng.integers(0, 6, (3, 4))
CLASSES = rng.integers(0, 4, 5)

# name: [(the layer in library t, inputs)]
LAYERS = {
    "Identity": [(lambda t: t.nn.Identity(3, unused=True), [normal(2, 3)])],
    "Flatten": [
        (lambda t: t.nn.Flatten(), [normal(2, 3, 4)]), (lambda t: t.nn.Flatten(0, 1), [normal(2, 3, 4)]),
    ],
    "Linear": [
        (lambda t: t.nn.Linear(4, 3), [normal(2, 5, 4)]),
        (lambda t: t.nn.Linear(4, 3, bias=False), [normal(4)]),
        (lambda t: t.nn.Linear(4, 3, dtype=t.float64), [normal(2, 4).astype("float64")]),
    ],
    "Embedding": [
        (lambda t: t.nn.Embedding(6, 3), [TOKENS]),
        (lambda t: t.nn.Embedding(6, 3, padding_idx=-1), [TOKENS]),
        (lambda t: t.nn.Embedding(6, 3, 2, 1.5, 1.0, True), [TOKENS]),
    ],
    "Dropout": [
        (lambda t: t.nn.Dropout(0.2).eval(), [normal(3)]), (lambda t: t.nn.Dropout(0.0, True), [normal(3)]),
    ],
    "LayerNorm": [
        (lambda t: t.nn.LayerNorm(4), [normal(2, 4)]),
        (lambda t: t.nn.LayerNorm((3, 4), 0.1), [normal(2, 3, 4)]),
        (lambda t: t.nn.LayerNorm(4, bias=False), [normal(2, 4)]),
        (lambda t: t.nn.LayerNorm([4], elementwise_affine=False), [normal(2, 4)]),
    ],
    "ReLU": [
        (lambda t: t.nn.ReLU(), [normal(5)]),
        (lambda t: t.nn.Sequential(t.nn.Linear(5, 5), t.nn.ReLU(True)), [normal(5)]),
    ],
    "SiLU": [(lambda t: t.nn.SiLU(), [normal(5)])],
    "GELU": [(lambda t: t.nn.GELU(), [normal(5)]), (lambda t: t.nn.GELU("tanh"), [normal(5)])],
    "Sigmoid": [(lambda t: t.nn.Sigmoid(), [normal(5)])],
    "Tanh": [(lambda t: t.nn.Tanh(), [normal(5)])],
    "Softmax": [(lambda t: t.nn.Softmax(dim=1), [normal(2, 3)])],
    "LogSoftmax": [(lambda t: t.nn.LogSoftmax(dim=0), [normal(2, 3)])],
    "MSELoss": [
        (lambda t: t.nn.MSELoss(), [normal(3), normal(3)]),
        (lambda t: t.nn.MSELoss(reduction="sum"), [normal(3), normal(3)]),
    ],
    "NLLLoss": [
        (lambda t: t.nn.NLLLoss(), [normal(5, 4), CLASSES]),
        (
            lambda t: t.nn.NLLLoss(t.tensor([1.0, 2, 3, 4]), ignore_index=2, reduction="none"),
            [normal(5, 4), CLASSES],
        ),
    ],
    "CrossEntropyLoss": [
        (lambda t: t.nn.CrossEntropyLoss(), [normal(5, 4), CLASSES]),
        (
            lambda t: t.nn.CrossEntropyLoss(t.tensor([1.0, 2, 3, 4]), None, 2, None, "sum", 0.1),
            [normal(5, 4), CLASSES],
        ),
    ],
}  # fmt: skip
EVERY_LAYER = pytest.mark.parametrize(
    ("make", "inputs"),
    [pytest.param(*case, id=f"{name}-{i}") for name, cases in LAYERS.items() for i, case in enumerate(cases)],
)


def test_every_layer_has_a_case():
    assert LAYERS.keys() == set(layers.__all__)


@EVERY_LAYER
def test_with_pytorch_s_weights_it_is_pytorch_s_layer(make, inputs):
    ours, theirs = make(mytorch), make(torch)
    assert repr(ours) == repr(theirs)
    assert [(n, tuple(p.shape), str(p.dtype)) for n, p in ours.named_parameters()] == [
        (n, tuple(p.shape), str(p.dtype).removeprefix("torch.")) for n, p in theirs.named_parameters()
    ]
    ours.load_state_dict(theirs.state_dict())
    check(ours, theirs, *inputs)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5)


@EVERY_LAYER
def test_constructors_take_pytorch_s_arguments(make, inputs):
    ours, theirs = make(mytorch), make(torch)
    if isinstance(ours, nn.Sequential):
        ours, theirs = ours[1], theirs[1]
    mine = list(inspect.signature(type(ours).__init__).parameters)
    his = list(inspect.signature(type(theirs).__init__).parameters)
    without_rest = [name for name in his if name not in ("args", "kwargs")]
    assert [name for name in mine if name != "fused"] == without_rest or mine == his


@pytest.mark.parametrize("layer", [lambda: nn.Linear(2, 2, fused=True), lambda: nn.GELU(fused=True)])
def test_the_choice_of_the_kernel_is_passed_on(layer, monkeypatch):
    seen = {}
    for function in (nn.functional.linear, nn.functional.gelu):
        monkeypatch.setattr(type(function), "__call__", lambda self, *args, **kwargs: seen.update(kwargs))
    layer()(mytorch.ones(2, 2))
    assert seen == {"fused": True}


def moments(values):
    return values.mean(), values.std(), values.min(), values.max()


STARTS = {  # name: (the layer, its parameter)
    "Linear weight": (lambda t: t.nn.Linear(400, 300), "weight"),
    "Linear bias": (lambda t: t.nn.Linear(4, 100_000), "bias"),
    "Embedding": (lambda t: t.nn.Embedding(400, 300), "weight"),
    "LayerNorm weight": (lambda t: t.nn.LayerNorm(10), "weight"),
    "LayerNorm bias": (lambda t: t.nn.LayerNorm(10), "bias"),
}


@pytest.mark.parametrize(("make", "name"), STARTS.values(), ids=STARTS)
def test_initial_values_have_pytorch_s_distribution(make, name):
    mytorch.manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = (np.sort(getattr(make(t), name).detach().numpy().ravel()) for t in (mytorch, torch))
    steps = np.linspace(0, ours.size - 1, 101).astype(int)[5:-5]  # the tails of a normal sample vary most
    spread = theirs.std() or 1
    np.testing.assert_allclose(ours[steps], theirs[steps], atol=0.03 * spread)
    np.testing.assert_allclose(moments(ours)[:2], moments(theirs)[:2], atol=0.03 * spread)


def test_padding_row_starts_as_zeros_and_stays():
    layer = nn.Embedding(5, 3, padding_idx=2)
    assert not layer.weight[2].any()
    layer(mytorch.tensor([2, 3])).sum().backward()
    assert layer.weight.grad[2].tolist() == [0, 0, 0] and layer.weight.grad[3].tolist() == [1, 1, 1]


def test_embedding_from_pretrained():
    table = mytorch.randn(4, 3)
    layer = nn.Embedding.from_pretrained(table)
    assert layer.weight.data_ptr() == table.data_ptr() and not layer.weight.requires_grad
    assert repr(layer) == repr(torch.nn.Embedding.from_pretrained(torch.ones(4, 3)))
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_dropout_drops_in_training_only():
    layer, x = nn.Dropout(0.5), mytorch.ones(1000)
    assert 300 < int((layer(x) == 0).sum()) < 700
    assert layer.eval()(x) is x


WRONG = {
    "dropout": (lambda t: t.nn.Dropout(1.5), "between 0 and 1, but got 1.5"),
    "reduction": (lambda t: t.nn.MSELoss(reduction="max")(t.ones(1), t.ones(1)), "max is not a valid value"),
    "padding_idx": (lambda t: t.nn.Embedding(3, 2, padding_idx=3), "(?i)padding_idx"),
    "from_pretrained": (lambda t: t.nn.Embedding.from_pretrained(t.ones(3)), "2-dimensional"),
    "weight": (lambda t: t.nn.Embedding(3, 2, _weight=t.ones(2, 2)), "(?i)weight"),
    "negative size": (lambda t: t.nn.Linear(-1, 2), "negative"),
    "features": (lambda t: t.nn.Linear(3, 2)(t.ones(2, 2)), "cannot be multiplied"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_use(call, message):
    with pytest.raises(Exception) as expected:  # noqa: B017 - whatever PyTorch raises
        call(torch)
    with pytest.raises(expected.type, match=message):
        call(mytorch)


def test_a_model_learns():
    """A small network fits a function: layers, loss, gradients and updates work together."""
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=0.01)
    x = Tensor(np.linspace(-2, 2, 64, dtype="float32")[:, None])
    y = x.sin()
    losses = []
    for _ in range(150):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 5e-3 < 0.2 < losses[0]
