"""Run the tests of the optimizers' Triton kernels, as test_kernels.py does for the others."""

import torch

from tests.triton.peers import compare, less_exact, tensor
from tests.triton.results import load
from tests.triton.test_kernels import COMPILE, run, without_torch  # noqa: F401 - a fixture
from tests.triton.update_cases import CASES, HALF


def test_values_in_the_interpreter(without_torch):  # noqa: F811
    """They are right, and in half precision as exact as PyTorch's."""
    results = without_torch / "results"
    results.mkdir()
    run("tests/triton/updates.py", without_torch, TRITON_INTERPRET="1", MYTORCH_TEST_RESULTS=str(results))
    paths = sorted(results.iterdir())
    assert len(paths) == len(HALF)
    bad = [e for path in paths for e in errors(path) if not e.is_small()]
    assert not bad, less_exact(bad)


def test_resources_of_what_is_compiled(without_torch):  # noqa: F811
    run("tests/triton/updates.py", without_torch, **COMPILE)


def errors(path):
    """Of the parameters after each of the steps that a kernel took."""
    case, _, dtype, saved = load(path)
    inputs, ours = ([tensor(*a) for a in saved[kind].values()] for kind in ("inputs", "outputs"))
    theirs, want = (steps(case, inputs, kept) for kept in (getattr(torch, dtype), torch.float64))
    for number, parts in enumerate(zip(ours, theirs, want, strict=True), 1):
        yield from compare(f"{case}-{dtype}: step {number}", *parts)


def steps(case, inputs, dtype):
    """The parameters after each step of PyTorch's optimizer, which starts from those that ours had."""
    kind, options = CASES[case]
    p = torch.zeros_like(inputs[0], dtype=dtype, requires_grad=True)
    optimizer = getattr(torch.optim, kind.__name__, Lion)([p], **options)
    for before, p.grad in zip(inputs[::2], (g.to(dtype) for g in inputs[1::2]), strict=True):
        p.data.copy_(before)
        optimizer.step()
        yield p.detach().clone()


class Lion:
    """PyTorch has none: composed of its functions."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        (self.p,), self.lr, self.betas, self.weight_decay = parameters, lr, betas, weight_decay
        self.sign = -1 if maximize else 1
        self.mean = torch.zeros_like(self.p)

    @torch.no_grad()
    def step(self):
        g = self.sign * self.p.grad
        self.p.mul_(1 - self.lr * self.weight_decay)
        self.p.sub_(self.lr * torch.sign(self.mean.lerp(g, 1 - self.betas[0])))
        self.mean.lerp_(g, 1 - self.betas[1])
