"""`auto=` and `fused=` of layers: every layer takes them, and they choose what its forward computes."""

import copy
import functools
import inspect
import pickle
import threading

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.nn import layers
from mytorch.nn.functional.composite import REGISTRY, choose
from mytorch.nn.fused_ops.registry import why_not
from tests.nn.test_layers import LAYERS, RECURRENT, normal
from tests.oracle import compare_gradients, outputs, same, tensors

needs_kernels = pytest.mark.skipif(bool(why_not("cpu")), reason=why_not("cpu") or "-")
SEQUENCE, STEP = normal(3, 2, 4).astype("d"), normal(2, 4).astype("d")
CASES = {  # name: (the layer in library t, inputs)
    **{name: cases[0] for name, cases in LAYERS.items()},
    **{n: (lambda t, n=n: getattr(t.nn, n)(4, 3, dtype=t.float64), [SEQUENCE]) for n in RECURRENT if "C" not in n},
    **{n: (lambda t, n=n: getattr(t.nn, n)(4, 3, dtype=t.float64), [STEP]) for n in RECURRENT if "C" in n},
}


class Choosing:
    """mytorch, whose layers get these arguments, too."""

    def __init__(self, **choice):
        self.nn, self.choice = self, choice

    def __getattr__(self, name):
        found = getattr(nn, name, None) or getattr(mytorch, name)
        return functools.partial(found, **self.choice) if name in layers.__all__ else found


@pytest.fixture
def ran(monkeypatch):
    """The names of the references that ran."""
    names = set()
    for name, function in REGISTRY.items():

        def reference(*args, name=name, before=function.reference):
            names.add(name)
            return before(*args)

        monkeypatch.setattr(function, "reference", reference)
    return names


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_the_default_is_pytorch(name):
    make, inputs = CASES[name]
    inputs = [x.astype("d") if x.dtype.kind == "f" else x for x in inputs]
    theirs = make(torch).double()
    results = []
    for library in (mytorch, Choosing(auto=True), Choosing(fused=False)):
        ours = make(library).double()
        ours.load_state_dict(theirs.state_dict())
        mine, his = tensors(inputs, True)
        expected = outputs(copy.deepcopy(theirs)(*his))  # batch norm counts
        found = outputs(ours(*mine))
        for got, want in zip(found, expected, strict=True):
            same(got, want, 1e-7, 1e-9)
        compare_gradients(found, expected, mine, his, 1e-7, 1e-9)
        results.append((library, ours))
    assert [(layer.auto, layer.fused) for _, layer in results] == [(False, None), (True, None), (False, False)]
    assert len({repr(layer) for _, layer in results}) == 1
