"""Fused updates on a GPU (the strict stand-in for CuPy): what goes to the kernels and back, without waiting.

The kernels have tests of their own, in tests/triton/updates.py; here their formulas are CuPy's calls.
"""

import types

import numpy as np
import pytest

import mytorch
from mytorch import Tensor, optim
from mytorch.backends.device import on
from mytorch.nn.fused_ops import registry
from mytorch.nn.utils import clip_grad_norm_

SHAPES = [(5, 3), (7,), (4, 4)]


def scaled(grad, factors):
    """The gradient for the update, and whether there is one, as in triton/gradient.py."""
    grad_scale, found_inf, total_norm, max_norm, stores = factors
    go = np.zeros(1, like=grad) == 0 if found_inf is None else found_inf == 0
    g, norm = grad, total_norm
    if grad_scale is not None:
        g = g / grad_scale
        norm = None if norm is None else norm / grad_scale
        if stores:
            grad[...] = np.where(go, g, grad)
    return (g if norm is None else g * np.minimum(max_norm / (norm + 1e-6), 1)), go


def adam(data, grad, state, step, options, factors):
    assert step.shape == (1,) and step.dtype == np.float32
    g, go = scaled(grad, factors)
    (beta1, beta2), lr, m, v = options["betas"], options["lr"], state["exp_avg"], state["exp_avg_sq"]
    m[...] = np.where(go, beta1 * m + (1 - beta1) * g, m)
    v[...] = np.where(go, beta2 * v + (1 - beta2) * g * g, v)
    change = (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + options["eps"])
    kept = data * (1 - lr * options["weight_decay"])
    data[...] = np.where(go, kept - lr * change, data)


def sgd(data, grad, state, step, options, factors):
    assert isinstance(step, int)
    g, go = scaled(grad, factors)
    b = state["momentum_buffer"]
    new = g if step == 1 else options["momentum"] * b + (1 - options["dampening"]) * g
    b[...] = np.where(go, new, b)
    data[...] = np.where(go, data - options["lr"] * b, data)


def sum_of_squares(x):
    return np.square(x).sum()


def scale(x, factor):
    x[...] = np.where(x == 0, x, x * factor)


def module(**functions):
    return types.SimpleNamespace(require_dtypes=lambda *arrays: None, **functions)


KERNELS = {
    "adam": module(update=adam), "sgd": module(update=sgd),
    "norm": module(sum_of_squares=sum_of_squares, scale=scale),
}
CASES = {
    "AdamW": (optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    "SGD": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
}


@pytest.fixture
def kernels(fake_cuda, monkeypatch):
    """There are kernels for the GPU: those above."""
    monkeypatch.setattr(registry, "why_not", lambda kind: "")
    monkeypatch.setattr(registry, "load", lambda kind, file, demanded=False: KERNELS[file])


class Pair:
    """The same parameters on a GPU, with a kernel, and on the CPU, without."""

    def __init__(self, case, device="cuda:1"):
        kind, options = CASES[case]
        rng = np.random.default_rng(0)
        raws = [rng.standard_normal(shape).astype("float32") for shape in SHAPES]
        self.device = device
        self.here = [Tensor(a.copy(), requires_grad=True) for a in raws]
        self.there = [Tensor(a.copy(), requires_grad=True, device=device) for a in raws]
        self.cpu = kind(self.here, fused=False, **options)
        self.gpu = kind(self.there, fused=True, **options)

    def give(self, seed, scale=1.0, skip=()):
        rng = np.random.default_rng(seed)
        for i, (p, q) in enumerate(zip(self.here, self.there, strict=True)):
            g = scale * rng.standard_normal(p.shape).astype("float32")
            p.grad = q.grad = None
            if i not in skip:
                p.backward(Tensor(g))
                q.backward(Tensor(g, device=self.device))

    def both(self):
        return ((self.cpu, "cpu"), (self.gpu, self.device))

    def compare(self):
        for p, q in zip(self.here, self.there, strict=True):
            np.testing.assert_allclose(p.data.numpy(), q.data.cpu().numpy(), 1e-4, 1e-5)
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                np.testing.assert_allclose(p.grad.numpy(), q.grad.cpu().numpy(), 1e-6)
            for name, value in self.cpu.state[p].items():
                got = self.gpu.state[q][name]
                assert got.device == self.device
                np.testing.assert_allclose(value.numpy(), got.cpu().numpy(), 1e-5, 1e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_parameters_without_gradients(kernels, case):
    """The steps are counted on the GPU, where those of neighbours may or may not be equal."""
    pair = Pair(case)
    for step, skip in enumerate([(), (1,), (0,), (0, 2), (), (1,), ()]):
        pair.give(step, skip=skip)
        for optimizer, _ in pair.both():
            optimizer.step()
        pair.compare()
    assert pair.gpu.state_dict()["state"].keys() == pair.cpu.state_dict()["state"].keys()


@pytest.mark.parametrize("case", CASES)
def test_scaled_clipped_and_skipped(kernels, case):
    pair = Pair(case)
    for step, found_inf in enumerate([1.0, 0.0, 0.0, 1.0, 0.0]):
        pair.give(step, scale=64.0, skip=(step % 3,))
        for optimizer, device in pair.both():
            optimizer.grad_scale = Tensor(64.0, device=device)
            optimizer.found_inf = Tensor(found_inf, device=device)
            norm = optimizer.clip_grad_norm(1.5)
            assert norm.device == device and 3 < norm.item() < 8
            optimizer.step()
        if step:  # before the first update the CPU has no state
            pair.compare()


@pytest.mark.parametrize("case", CASES)
def test_gradients_that_nobody_reads_are_not_written(kernels, case):
    pair = Pair(case)
    for step in range(3):
        pair.give(step, scale=64.0)
        before = [q.grad.tolist() for q in pair.there]
        pair.gpu.discards_grads = True
        for optimizer, device in pair.both():
            optimizer.grad_scale = Tensor(64.0, device=device)
            optimizer.clip_grad_norm(1.5)
            optimizer.step()
        assert [q.grad.tolist() for q in pair.there] == before
    for p, q in zip(pair.here, pair.there, strict=True):
        np.testing.assert_allclose(p.data.numpy(), q.data.cpu().numpy(), 1e-4, 1e-5)


def test_nothing_waits_for_the_gpu(kernels, fake_cuda):
    """In a stream that captures, waiting is an error."""
    for case in CASES:
        pair = Pair(case)
        pair.give(0)
        pair.gpu.step()
        lr = Tensor(0.05, device="cuda:1")
        pair.gpu.param_groups[0]["lr"] = lr
        pair.gpu.grad_scale, pair.gpu.found_inf = (Tensor(x, device="cuda:1") for x in (2.0, 0.0))
        with on(mytorch.device("cuda:1")):
            stream = fake_cuda.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()
                pair.gpu.clip_grad_norm(1.0)
                pair.gpu.step()
                with pytest.raises(RuntimeError, match="apture"):
                    pair.there[0].data.cpu()


def test_a_norm_that_is_nan_leaves_the_gaps_alone(kernels):
    """They are part of every later norm."""
    pair = Pair("SGD")
    for bad in (True, False):
        pair.give(0)
        if bad:
            pair.there[0].grad[0, 0] = np.nan
        norm = clip_grad_norm_(pair.there, 1.0)
        assert norm.device == "cuda:1" and np.isnan(norm.item()) == bad
        norms = [np.linalg.norm(p.grad.cpu().numpy()) for p in pair.there]
        assert np.isnan(norms).all() if bad else np.linalg.norm(norms) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_states_go_between_devices(kernels, case):
    pair = Pair(case)
    for step in range(2):
        pair.give(step)
        for optimizer, _ in pair.both():
            optimizer.step()
    here, there = pair.cpu.state_dict()["state"], pair.gpu.state_dict()["state"]
    pair.cpu.load_state_dict({**pair.cpu.state_dict(), "state": there})
    pair.gpu.load_state_dict({**pair.gpu.state_dict(), "state": here})
    pair.give(2)
    for optimizer, fused in ((pair.cpu, False), (pair.gpu, True)):
        optimizer.param_groups[0]["fused"] = fused
        optimizer.step()
    pair.compare()


def test_the_kernel_comes_and_goes(kernels):
    """The steps move between CPU and GPU with it, or are read there by NumPy's formula."""
    pair = Pair("AdamW")
    for step, fused in enumerate([None, False, True, None]):
        pair.give(step)
        pair.gpu.param_groups[0]["fused"] = fused
        pair.cpu.step()
        with mytorch.use_fused(step != 3):
            pair.gpu.step()
        (p, *_), (q, *_) = pair.here, pair.there
        assert pair.gpu.state[q]["step"].device == ("cpu" if fused is False else "cuda:1")
        assert pair.gpu.state[q]["step"].item() == pair.cpu.state[p]["step"].item() == step + 1
        np.testing.assert_allclose(p.data.numpy(), q.data.cpu().numpy(), 1e-4, 1e-5)
