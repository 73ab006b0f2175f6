"""Kinds of arrays from outside of the package: one that counts calls, and one that holds an array a rank."""

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.backends.holding import HoldingArray, HoldingKind
from mytorch.core.tensor import raw_of
from mytorch.nn import functional as F
from mytorch.models import GPT2, GPT2Config


class Counting(HoldingKind):
    """Counts the calls of NumPy's functions, and the bytes that they read and write."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls, self.bytes = {}, 0

    def call(self, name, function, args, kwargs):
        result = super().call(name, function, args, kwargs)
        self.calls[name] = self.calls.get(name, 0) + 1
        self.bytes += sum(x.nbytes for x in (*args, result) if isinstance(x, HoldingArray))
        return result


class TwoRanks(HoldingKind):
    """Holds an array for each of two ranks, which run in lockstep."""

    count = 2

    def scatter(self, x):
        """The halves of a batch, one for each rank."""
        return mytorch.Tensor(HoldingArray(np.split(x.numpy(), 2), self))

    def average(self, raw):
        """The all-reduce of data parallelism, in place."""
        mean = sum(raw.parts) / self.count
        for part in raw.parts:
            part[...] = mean


def batches():
    rng = np.random.default_rng(0)
    for _ in range(3):
        text = rng.integers(0, 65, (2, 17))
        yield mytorch.from_numpy(text[:, :-1].copy()), mytorch.from_numpy(text[:, 1:].copy())


def trained(scatter=lambda x: x, average=lambda raw: None, value=lambda x: x.item()):
    """The losses and norms of three steps of a GPT nano."""
    mytorch.manual_seed(0)
    model = GPT2(GPT2Config.of_size("nano", vocab_size=65, context_length=16))
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for x, y in batches():
        loss = model(scatter(x), scatter(y))[1]
        loss.backward()
        for p in model.parameters():
            average(raw_of(p.grad))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append((value(loss), norm.item()))
    return found


def test_a_kind_that_counts_trains_a_gpt():
    with F.use_fused(False):  # the kernels' sums are rounded otherwise
        want = trained()
    with Counting() as kind:
        got = trained()
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert kind.calls["matmul"] > 100 and kind.bytes > 1e7


def test_a_kind_that_holds_two_ranks_trains_a_gpt():
    with F.use_fused(False):  # the kernels' sums are rounded otherwise
        want = trained()
    with TwoRanks() as kind:
        got = trained(kind.scatter, kind.average, lambda x: np.mean([part.item() for part in raw_of(x).parts]))
    np.testing.assert_allclose(got, want, rtol=1e-5)
