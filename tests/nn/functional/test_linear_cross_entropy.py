"""What `linear_cross_entropy` promises beyond its values: small chunks, and no gradient that nobody wants."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, nn
from mytorch.backends import threads
from mytorch.nn import functional as F
from mytorch.nn.functional import linear_cross_entropy as composite
from mytorch.nn.functional.composite import REGISTRY

rng = np.random.default_rng(0)
X, W, B = (np.asarray(rng.standard_normal(s), "float32") for s in ((50, 8), (300, 8), (300,)))
T = rng.integers(0, 300, 50)
VARIANTS = [{"fused": False}, {"fused": True}] if threads.installed() else [{"fused": False}]


def tensors(*wanted, dtype="float32"):
    return [
        Tensor(a.astype(dtype), requires_grad=name in wanted)
        for name, a in zip("xwb", (X, W, B), strict=True)
    ]


@pytest.fixture
def sizes(monkeypatch):
    """The shapes of the products, which are made where the module says `add_product`."""
    found = []
    module = __import__("sys").modules[composite.reference.__module__]
    original = module.add_product

    def spy(x, y, out, beta=1):
        found.append(out.shape)
        original(x, y, out, beta)

    monkeypatch.setattr(module, "add_product", spy)
    return found


@pytest.mark.parametrize("choice", VARIANTS)
@pytest.mark.parametrize(
    ("wanted", "reduction", "products"),
    [
        ("", "mean", 1),
        ("x", "mean", 2),
        ("w", "sum", 2),
        ("xw", "mean", 3),
        ("b", "sum", 1),
        ("xw", "none", 4),
    ],
)
def test_only_chunks_and_only_what_is_wanted(sizes, choice, wanted, reduction, products):
    x, w, b = tensors(*wanted)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=16)
    loss = F.linear_cross_entropy(x, w, Tensor(T), b, None, reduction, options=options, **choice)
    if wanted:
        loss.sum().backward()
    assert [t.grad is not None for t in (x, w, b)] == [name in wanted for name in "xwb"]
    assert len(sizes) == 4 * products and {s for s in sizes if s[1] == 300} == {(16, 300), (2, 300)}
    before = len(sizes)
    with mytorch.no_grad():
        F.linear_cross_entropy(x, w, Tensor(T), b, options=options, **choice)
    assert len(sizes) == before + 4


@pytest.mark.parametrize("choice", VARIANTS)
def test_the_size_of_chunks_makes_no_difference(choice):
    results = []
    for options in (
        None,
        *(nn.LinearCrossEntropyOptions(batch_chunk_size=size) for size in (1, 7, 50, 1000)),
    ):
        inputs = tensors(*"xwb", dtype="float32")
        loss = F.linear_cross_entropy(*inputs[:2], Tensor(T), inputs[2], options=options, **choice)
        (loss * 3).backward()
        results.append([loss.detach().numpy(), *(t.grad.numpy() for t in inputs)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-7)


@pytest.mark.parametrize("choice", VARIANTS)
def test_double_backward_goes_through_the_reference(choice):
    x, w, b = tensors(*"xw", dtype="float64" if choice == {"fused": False} else "float32")
    y = [
        torch.tensor(t.detach().numpy(), dtype=torch.float64, requires_grad=t.requires_grad)
        for t in (x, w, b)
    ]
    loss = F.linear_cross_entropy(x, w, Tensor(T), b, **choice)
    theirs = torch.nn.functional.linear_cross_entropy(y[0], y[1], torch.tensor(T), linear_bias=y[2])
    (first,) = mytorch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(theirs, y[0], create_graph=True)
    (first**2).sum().backward()
    (second**2).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), y[1].grad.numpy(), 1e-3, 1e-7)


def test_small_gradients_survive_half_precision():
    """The share of a row in the mean times a probability is 1 / 4096 / 4096, too small for float16."""
    x, t = np.ones((4096, 4), "float16"), np.arange(4096) % 16
    for choice in VARIANTS:
        w = Tensor(np.zeros((4096, 4), "float16"), requires_grad=True)
        F.linear_cross_entropy(Tensor(x), w, Tensor(t), **choice).backward()
        want = np.full((4096, 1), 1 / 4096)
        want[:16] -= 1 / 16
        np.testing.assert_allclose(w.grad.numpy(), np.broadcast_to(want, (4096, 4)), 2e-3)


@pytest.mark.parametrize(
    "asked",
    [
        {"batch_chunk_size": 7}, {"batch_chunk_size": 700}, {"chunking_method": None},
        {"chunking_method": None, "batch_chunk_size": 9}, {"chunking_method": "aspect_ratio"},
        {"chunking_method": "aspect_ratio:4"}, {"chunking_method": "aspect_ratio:4", "batch_chunk_size": 2},
    ],
)
@pytest.mark.parametrize(
    ("count", "features", "classes"), [(100, 8, 64), (37, 16, 1000), (100, 20, 10), (1, 8, 9)]
)
def test_options_mean_what_pytorch_s_mean(asked, count, features, classes):
    ours, theirs = nn.LinearCrossEntropyOptions(**asked), torch.nn.LinearCrossEntropyOptions(**asked)
    try:
        want = theirs._adjust(count, features, classes, torch.float32).batch_chunk_size
    except ValueError:
        with pytest.raises(ValueError, match="give different chunk sizes"):
            ours.rows(count, features, classes, "cpu")
        return
    assert min(ours.rows(count, features, classes, "cpu"), count) == want


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"acc_policy": "best"}, "invalid acc_policy: 'best'"),
        ({"batch_chunk_size": 0}, "must be positive int or None, got 0"),
        ({"batch_chunk_size": 2.5}, "must be positive int or None, got 2.5"),
        ({"chunking_method": "half"}, "invalid chunking_method: 'half'"),
        ({"chunking_method": "aspect_ratio:0"}, "invalid chunking_method"),
        ({"chunking_method": "aspect_ratio:x"}, "invalid chunking_method"),
    ],
)
def test_wrong_options(wrong, message):
    with pytest.raises(ValueError, match=message):
        nn.LinearCrossEntropyOptions(**wrong)
    with pytest.raises(ValueError):
        torch.nn.LinearCrossEntropyOptions(**wrong)


def test_options_of_another_kind():
    x, w, _ = tensors()
    with pytest.raises(TypeError, match="options must be LinearCrossEntropyOptions, got dict"):
        F.linear_cross_entropy(x, w, Tensor(T), options={})


def test_probabilities_are_not_for_the_kernel():
    x, w, _ = tensors()
    if "cpu" in {**REGISTRY["linear_cross_entropy"].kernels, **REGISTRY["linear_cross_entropy"].suppliers}:
        with pytest.raises(RuntimeError, match="fused=True, but chunks are for class indices"):
            F.linear_cross_entropy(x, w, mytorch.ones(50, 300), fused=True)
