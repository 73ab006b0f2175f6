"""`nn.utils.prune` beside PyTorch: masks, names in the state_dict, gradients; pruning again; errors."""

import numpy as np
import pytest
import torch
import torch.nn.utils.prune

import mytorch
from mytorch.nn.utils import prune

RNG = np.random.default_rng(0)
LINEAR, CONV, BIAS = RNG.standard_normal((6, 8)), RNG.standard_normal((4, 3, 3, 3)), RNG.standard_normal(6)
SCORES, MASK = RNG.standard_normal((6, 8)), RNG.random((6, 8)) < 0.5


def layers(m):
    linear, conv = m.nn.Linear(8, 6), m.nn.Conv2d(3, 4, 3)
    for p, value in ((linear.weight, LINEAR), (linear.bias, BIAS), (conv.weight, CONV)):
        with m.no_grad():
            p.copy_(m.tensor(value))
    return linear, conv


def smallest(m, base):
    class EverySecond(base):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    return EverySecond


# name: what is done to a linear layer and a convolution, with the framework and its `prune`.
CASES = {
    "l1": lambda m, p, linear, conv: p.l1_unstructured(linear, "weight", 0.3),
    "l1, a number": lambda m, p, linear, conv: p.l1_unstructured(linear, "bias", amount=2),
    "nothing": lambda m, p, linear, conv: p.l1_unstructured(linear, "bias", amount=0),
    "all": lambda m, p, linear, conv: p.l1_unstructured(linear, "bias", amount=1.0),
    "scores": lambda m, p, linear, conv: p.l1_unstructured(
        linear, "weight", 0.5, importance_scores=m.tensor(SCORES)
    ),
    "ln": lambda m, p, linear, conv: p.ln_structured(conv, "weight", 0.5, n=2, dim=0),
    "ln, inf": lambda m, p, linear, conv: p.ln_structured(conv, "weight", 2, n=float("inf"), dim=1),
    "ln, -1": lambda m, p, linear, conv: p.ln_structured(linear, "weight", 3, 1, -1),
    "ln, nothing": lambda m, p, linear, conv: p.ln_structured(linear, "weight", 0, 1, 0),
    "mask": lambda m, p, linear, conv: p.custom_from_mask(linear, "weight", m.tensor(MASK)),
    "identity": lambda m, p, linear, conv: p.identity(linear, "weight"),
    "own": lambda m, p, linear, conv: smallest(m, p.BasePruningMethod).apply(conv, "weight"),
    "again": lambda m, p, linear, conv: [p.l1_unstructured(linear, "weight", 0.4) for _ in range(3)],
    "slices, then entries": lambda m, p, linear, conv: [
        p.ln_structured(linear, "weight", 2, 2, 1), p.l1_unstructured(linear, "weight", 0.5)],
    "entries, then slices": lambda m, p, linear, conv: [
        p.l1_unstructured(conv, "weight", 0.5), p.ln_structured(conv, "weight", 0.25, 2, 0),
        p.ln_structured(conv, "weight", 0.34, 1, -1)],
    "mask, then own": lambda m, p, linear, conv: [
        p.custom_from_mask(linear, "weight", m.tensor(MASK)),
        smallest(m, p.BasePruningMethod).apply(linear, "weight")],
    "global": lambda m, p, linear, conv: p.global_unstructured(
        [(linear, "weight"), (conv, "weight"), (linear, "bias")], p.L1Unstructured, amount=0.4),
    "global again": lambda m, p, linear, conv: [
        p.l1_unstructured(linear, "weight", 0.5),
        p.global_unstructured([(linear, "weight"), (conv, "weight")], p.L1Unstructured, amount=30)],
    "global, scores": lambda m, p, linear, conv: p.global_unstructured(
        [(linear, "weight"), (conv, "weight")], p.L1Unstructured,
        importance_scores={(linear, "weight"): m.tensor(SCORES)}, amount=0.4),
}


def seen(m, module):
    """The state, the loss' gradient of the originals, and what is left when pruning is removed."""
    shape = (2, 8) if hasattr(module, "in_features") else (1, 3, 4, 4)
    x = m.tensor(np.linspace(-1, 1, np.prod(shape)).reshape(shape), dtype=m.float32)
    module(x).square().sum().backward()
    names = [[*module.state_dict()], sorted(key for key, _ in module.named_parameters())]
    values = [value.numpy() for value in module.state_dict().values()]
    values += [p.grad.numpy() for _, p in sorted(module.named_parameters())]
    for name in ("weight", "bias"):
        if hasattr(module, f"{name}_mask"):
            m.nn.utils.prune.remove(module, name)
    names += [sorted(module.state_dict()), m.nn.utils.prune.is_pruned(module)]
    return names, values + [getattr(module, name).detach().numpy() for name in ("weight", "bias")]


@pytest.mark.parametrize("case", CASES)
def test_as_pytorch(case):
    results = []
    for m in (mytorch, torch):
        module_list = layers(m)
        if m is mytorch:
            module_list[1].load_state_dict({**module_list[1].state_dict(), "bias": mytorch.zeros(4)})
        else:
            torch.nn.init.zeros_(module_list[1].bias)
        CASES[case](m, m.nn.utils.prune, *module_list)
        assert m.nn.utils.prune.is_pruned(m.nn.Sequential(*module_list))
        results.append([seen(m, module) for module in module_list])
    for (ours, mine), (theirs, his) in zip(*results, strict=True):
        assert ours == theirs
        for a, b in zip(mine, his, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-6)


@pytest.mark.parametrize("again", [1, 2])
def test_random_methods_prune_as_many(again):
    linear, conv = layers(mytorch)
    for _ in range(again):
        prune.random_unstructured(linear, "weight", 0.25)
        prune.random_structured(conv, "weight", 1, dim=0)
    assert (linear.weight_mask == 0).sum() == {1: 12, 2: 21}[again]
    assert (conv.weight_mask.flatten(1).sum(1) == 0).sum() == again
    assert ((linear.weight == 0) == (linear.weight_mask == 0)).all()


def test_a_pruned_layer_trains_and_stays_pruned():
    linear, _ = layers(mytorch)
    prune.l1_unstructured(linear, "weight", 0.5)
    optimizer = mytorch.optim.SGD(linear.parameters(), 0.1)
    before = linear.weight_orig.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        linear(mytorch.ones(2, 8)).square().sum().backward()
        optimizer.step()
    linear(mytorch.ones(2, 8))
    zero = linear.weight_mask == 0
    assert (linear.weight == 0).sum() == 24 and (linear.weight_orig != before).sum() == 24
    assert (linear.weight_orig == before)[zero].all() and linear.weight[zero].abs().sum() == 0


def test_the_hooks_remember_the_methods():
    linear, _ = layers(mytorch)
    first = prune.L1Unstructured.apply(linear, "weight", 0.5)
    both = prune.RandomUnstructured.apply(linear, "weight", 1)
    assert isinstance(both, prune.PruningContainer) and len(both) == 2
    assert list(both)[0] is first and isinstance(both[1], prune.RandomUnstructured)
    with pytest.raises(TypeError, match="is not a BasePruningMethod"):
        both.add_pruning_method(3)
    other = prune.L1Unstructured.apply(linear, "bias", 1)
    with pytest.raises(ValueError, match="'weight'.* Found 'bias'"):
        both.add_pruning_method(other)
    pruned = prune.L1Unstructured(2).prune(mytorch.tensor([3.0, -1.0, 2.0, 4.0]))
    assert pruned.tolist() == [3, 0, 0, 4]


@pytest.mark.parametrize("m", [mytorch, torch])
def test_errors(m):
    linear, conv = layers(m)
    p = m.nn.utils.prune
    for match, error, call in (
        ("should either be a float in the range", ValueError, lambda: p.l1_unstructured(linear, "bias", 1.5)),
        ("should either be a float in the range", ValueError, lambda: p.l1_unstructured(linear, "bias", -1)),
        ("Invalid type for amount", TypeError, lambda: p.l1_unstructured(linear, "bias", "all")),
        ("amount=7 should be smaller", ValueError, lambda: p.l1_unstructured(linear, "bias", 7)),
        ("multidimensional", ValueError, lambda: p.ln_structured(linear, "bias", 1, 2, 0)),
        ("Invalid index 2", IndexError, lambda: p.ln_structured(linear, "weight", 1, 2, 2)),
        ("has to be pruned before", ValueError, lambda: p.remove(linear, "weight")),
        ('Only "unstructured"', TypeError,
         lambda: p.global_unstructured([(linear, "weight")], p.LnStructured, amount=1, n=2)),
        ("shape", (ValueError, AssertionError),
         lambda: p.l1_unstructured(linear, "weight", 1, importance_scores=m.zeros(3))),
    ):
        with pytest.raises(error, match=match):
            call()
    if m is mytorch:
        assert not p.is_pruned(linear) and list(linear.state_dict()) == ["weight", "bias"]
