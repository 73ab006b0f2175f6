"""Random tensors: reproducible, of the right distribution, and refusing what PyTorch refuses.

The seed is fixed, so nothing here passes or fails by chance. A bound is one that a correct generator keeps
with all but one seed in 10,000 or so.
"""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch.ops import random
from mytorch.ops.categorical import with_replacement
from tests.each import each
from tests.every import every
from tests.oracle import fails_alike, in_both

N = 100_000
FLOATS = ["float16", "float32", "float64"]

# what: call with `m` the module; the values differ from PyTorch's, the dtype and shape don't.
CALLS = {
    "rand": lambda m: m.rand(2, 3),
    "rand tuple": lambda m: m.rand((2, 3)),
    "rand 0-d": lambda m: m.rand(()),
    "rand of size 0": lambda m: m.rand(0, 3),
    "rand half": lambda m: m.rand(2, dtype=m.float16),
    "rand size=": lambda m: m.rand(size=(2,)),
    "randn": lambda m: m.randn(2, 3),
    "randn double": lambda m: m.randn(2, 3, dtype=m.float64),
    "randn half": lambda m: m.randn(2, dtype=m.float16),
    "randint": lambda m: m.randint(5, (2, 3)),
    "randint low": lambda m: m.randint(2, 5, (2,)),
    "randint []": lambda m: m.randint(5, []),
    "randint keywords": lambda m: m.randint(low=0, high=3, size=(2,)),
    "randint high=": lambda m: m.randint(high=3, size=(2,)),
    "randint float": lambda m: m.randint(0, 3, (2,), dtype=m.float32),
    "randint bool": lambda m: m.randint(0, 2, (2,), dtype=m.bool),
    "randint uint8": lambda m: m.randint(0, 256, (2,), dtype=m.uint8),
    "randint negative": lambda m: m.randint(-9, -3, (2,), dtype=m.int8),
    "randperm": lambda m: m.randperm(5),
    "randperm 0": lambda m: m.randperm(0),
    "randperm float": lambda m: m.randperm(3, dtype=m.float32),
    "rand_like": lambda m: m.rand_like(m.ones(2, 3, dtype=m.float64)),
    "randn_like": lambda m: m.randn_like(m.ones(2, 0)),
    "rand_like dtype": lambda m: m.rand_like(m.ones(2, dtype=m.int64), dtype=m.float32),
    "randint_like": lambda m: m.randint_like(m.ones(3), 5),
    "randint_like low": lambda m: m.randint_like(m.ones(3, dtype=m.int32), 2, 5),
    "normal tensors": lambda m: m.normal(m.zeros(2, 1), m.ones(3)),
    "normal mean": lambda m: m.normal(m.zeros(2, dtype=m.float64)),
    "normal std": lambda m: m.normal(0.0, m.ones(2)),
    "normal mean and number": lambda m: m.normal(m.zeros(2), 1.0),
    "normal two dtypes": lambda m: m.normal(m.zeros(2, 1), m.ones(3, dtype=m.float64)),
    "normal size": lambda m: m.normal(0, 1, (2, 3)),
    "normal keywords": lambda m: m.normal(mean=0.0, std=1.0, size=(2,)),
    "normal dtype": lambda m: m.normal(0.0, 1.0, (2,), dtype=m.float64),
    "bernoulli": lambda m: m.bernoulli(m.full((2, 3), 0.5)),
    "bernoulli p": lambda m: m.bernoulli(m.tensor([0, 1]), 0.5),
    "bernoulli p=": lambda m: m.bernoulli(m.zeros(2, dtype=m.float64), p=0.5),
    "bernoulli method": lambda m: m.full((2,), 0.5).bernoulli(),
    "multinomial": lambda m: m.multinomial(m.ones(3), 2),
    "multinomial rows": lambda m: m.multinomial(m.ones(4, 3, dtype=m.float16), 2),
    "multinomial again": lambda m: m.multinomial(m.ones(3), 7, replacement=True),
    "multinomial method": lambda m: m.ones(2, 3).multinomial(5, True),
    "multinomial no rows": lambda m: m.multinomial(m.ones(0, 3), 2),
    "uniform_": lambda m: m.ones(2, 3).uniform_(),
    "normal_": lambda m: m.ones(2).normal_(1, 2),
    "bernoulli_": lambda m: m.ones(2, dtype=m.int64).bernoulli_(0.5),
    "bernoulli_ tensor": lambda m: m.ones(2, 3).bernoulli_(m.tensor([0.0, 1.0, 0.5])),
    "exponential_": lambda m: m.ones(2).exponential_(2.0),
    "random_": lambda m: m.ones(2).random_(),
    "random_ to": lambda m: m.ones(2, dtype=m.int32).random_(5),
    "random_ range": lambda m: m.ones(2).random_(2, 5),
    "random_ bool": lambda m: m.ones(2, dtype=m.bool).random_(),
    "random_ int64": lambda m: m.ones(2, dtype=m.int64).random_(),
}


@each("what", CALLS)
def test_dtype_and_shape(what):
    ours, theirs = CALLS[what](mytorch), CALLS[what](torch)
    assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype).removeprefix(
        "torch."
    )


@each("what", CALLS)
def test_the_same_seed_gives_the_same_numbers(what):
    def drawn(seed):
        mytorch.manual_seed(seed)
        return [CALLS[what](mytorch).tolist() for _ in range(20)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4) or CALLS[what](mytorch).numel() == 0


@each("what", CALLS)
def test_on_a_gpu(what, fake_cuda):
    """Draws on the other device come from its own generator, and stay there."""
    mytorch.manual_seed(3)
    before = mytorch.get_rng_state()
    made = CALLS[what](On("cuda:1"))
    assert made.device == "cuda:1" and made.dtype == CALLS[what](mytorch).dtype
    mytorch.manual_seed(3)
    assert CALLS[what](On("cuda:1")).tolist() == made.tolist()
    assert mytorch.get_rng_state().tolist() == before.tolist()


class On:
    """mytorch, whose factories make everything on one device."""

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        value = getattr(mytorch, name)
        if name not in ("rand", "randn", "randint", "randperm", "normal", "ones", "zeros", "full", "tensor"):
            return value

        def call(*args, **kwargs):
            made_on = {} if any(isinstance(a, mytorch.Tensor) for a in args) else {"device": self.device}
            return value(*args, **made_on, **kwargs)

        return call


# Distributions.


def draws(make, dtype="float64", generator=None):
    mytorch.manual_seed(0)
    return make().numpy().astype(dtype)


def kolmogorov_smirnov(x, cdf):
    """The largest distance between the distribution of the sample and the true one."""
    x = np.sort(x)
    steps = np.arange(len(x) + 1) / len(x)
    return max(np.max(steps[1:] - cdf(x)), np.max(cdf(x) - steps[:-1]))


def normal_cdf(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def uniform_cdf(x):
    return np.clip(x, 0, 1)


CONTINUOUS = {
    "rand": (lambda dtype: mytorch.rand(N, dtype=dtype), uniform_cdf),
    "uniform_": (lambda dtype: (mytorch.empty(N, dtype=dtype).uniform_(-2, 2) + 2) / 4, uniform_cdf),
    "randn": (lambda dtype: mytorch.randn(N, dtype=dtype), normal_cdf),
    "normal_": (lambda dtype: (mytorch.empty(N, dtype=dtype).normal_(3, 2) - 3) / 2, normal_cdf),
    "normal": (lambda dtype: mytorch.normal(mytorch.zeros(N, dtype=dtype), 1.0), normal_cdf),
    "normal numbers": (lambda dtype: mytorch.normal(0, 1, (N,), dtype=dtype), normal_cdf),
    "exponential_": (
        lambda dtype: mytorch.empty(N, dtype=dtype).exponential_(2),
        lambda x: 1 - np.exp(-2 * x),
    ),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_distribution(name, dtype):
    make, cdf = CONTINUOUS[name]
    rounding = {"float16": 2e-3}.get(dtype, 0)
    assert kolmogorov_smirnov(draws(lambda: make(dtype)), cdf) < 2.2 / math.sqrt(N) + rounding


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_and_range(dtype):
    x = draws(lambda: mytorch.rand(N, dtype=dtype))
    assert x.min() >= 0 and x.max() < 1
    assert abs(x.mean() - 0.5) < 4 * math.sqrt(1 / 12 / N) + 1e-3 * (dtype == "float16")
    assert abs(x.var() - 1 / 12) < 4 * math.sqrt(1 / 180 / N)
    x = draws(lambda: mytorch.randn(N, dtype=dtype))
    assert abs(x.mean()) < 4 / math.sqrt(N) and abs(x.var() - 1) < 4 * math.sqrt(2 / N)
    assert abs((x**3).mean()) < 4 * math.sqrt(15 / N) and abs((x**4).mean() - 3) < 4 * math.sqrt(96 / N)


def test_half_precision_never_reaches_one():
    x = draws(lambda: mytorch.rand(2_000_000, dtype="float16"))
    assert x.max() == 1 - 2**-11 and np.all(x * 2**11 == np.floor(x * 2**11))


def chi_square(counts, expected):
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    return np.sum((counts - expected) ** 2 / expected)


def bound(categories):
    """About where the chi-square distribution leaves 1 in 10,000 above it (Wilson and Hilferty)."""
    k = categories - 1
    return k * (1 - 2 / (9 * k) + 3.72 * math.sqrt(2 / (9 * k))) ** 3


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32"])
def test_randint_is_uniform(dtype):
    x = draws(lambda: mytorch.randint(3, 10, (N,), dtype=dtype), "int64")
    assert x.min() == 3 and x.max() == 9
    assert chi_square(np.bincount(x)[3:], [N / 7] * 7) < bound(7)


def test_randint_over_all_of_int64():
    x = draws(lambda: mytorch.randint(-(2**63), 2**63 - 1, (N,)), "float64") / 2**64 + 0.5
    assert kolmogorov_smirnov(x, uniform_cdf) < 2.2 / math.sqrt(N)


def test_randperm_gives_every_order_as_often():
    mytorch.manual_seed(0)
    n = 12_000
    orders = [tuple(mytorch.randperm(4).tolist()) for _ in range(n)]
    assert every(sorted(o) == [0, 1, 2, 3] for o in orders)
    counts = [orders.count(o) for o in sorted(set(orders))]
    assert len(counts) == 24 and chi_square(counts, [n / 24] * 24) < bound(24)


def test_randperm_on_a_gpu_is_a_permutation(fake_cuda):
    assert sorted(mytorch.randperm(1000, device="cuda").tolist()) == list(range(1000))


def test_bernoulli():
    p = np.linspace(0, 1, 11)
    x = draws(lambda: mytorch.bernoulli(mytorch.tensor(np.tile(p, (N // 10, 1)))))
    assert set(np.unique(x)) == {0.0, 1.0} and not x[:, 0].any() and x[:, -1].all()
    assert np.all(np.abs(x.mean(0) - p) <= 4.5 * np.sqrt(p * (1 - p) / len(x)))
    mytorch.manual_seed(0)
    assert abs(mytorch.zeros(N).bernoulli_(0.3).mean().item() - 0.3) < 4 * math.sqrt(0.21 / N)
    assert mytorch.bernoulli(mytorch.ones(1000), 1.0).tolist() == [1] * 1000


def test_normal_takes_a_mean_and_std_an_element():
    mean, std = mytorch.tensor([0.0, 10.0, -5.0]), mytorch.tensor([0.0, 1.0, 3.0])
    x = draws(lambda: mytorch.normal(mean.expand(N, 3), std))
    assert not x[:, 0].any()
    assert np.all(np.abs(x.mean(0) - mean.numpy()) <= 4 * std.numpy() / math.sqrt(N))
    assert np.all(np.abs(x.std(0) - std.numpy()) <= 4 * std.numpy() / math.sqrt(2 * N))


P = np.array([0.1, 0.0, 0.4, 0.2, 0.3])


@pytest.mark.parametrize("scale", [1, 17.0])
def test_multinomial_with_replacement(scale):
    x = draws(
        lambda: mytorch.multinomial(mytorch.tensor(np.stack([P, P[::-1]]) * scale), N, replacement=True),
        "int64",
    )
    for row, p in zip(x, (P, P[::-1]), strict=True):
        counts = np.bincount(row, minlength=5)
        assert not counts[p == 0].any()
        assert chi_square(counts[p > 0], N * p[p > 0]) < bound(4)


def test_multinomial_at_the_ends_of_the_unit_interval():
    """A category of probability 0 is never drawn, whatever the uniform number and the rounding."""

    class Ends:
        def random(self, count, dtype):
            return np.array([0.0, 1 - 2**-53, 0.5])

    p = np.array([[0, 0.5, 0, 0.5, 0], [0, 0.1, 0.1, 0.1, 0], [0, 0, 0, 5e-324, 0]])
    assert with_replacement(p, 3, Ends()).tolist() == [[1, 3, 3], [1, 3, 2], [3, 3, 3]]


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_of_one(replacement):
    p = mytorch.tensor(P).expand(N, 5)
    counts = np.bincount(draws(lambda: mytorch.multinomial(p, 1, replacement), "int64").ravel(), minlength=5)
    assert not counts[1] and chi_square(counts[P > 0], N * P[P > 0]) < bound(4)


def test_multinomial_without_replacement():
    x = draws(lambda: mytorch.multinomial(mytorch.tensor(P).expand(N, 5), 2), "int64")
    assert np.all(x[:, 0] != x[:, 1])
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j and P[i] and P[j]]
    expected = [N * P[i] * P[j] / (1 - P[i]) for i, j in pairs]
    counts = [np.sum((x[:, 0] == i) & (x[:, 1] == j)) for i, j in pairs]
    assert sum(counts) == N and chi_square(counts, expected) < bound(len(pairs))
    assert sorted(mytorch.multinomial(mytorch.tensor(P), 4).tolist()) == [0, 2, 3, 4]


def test_what_was_drawn_has_no_gradient_but_a_zero_one():
    p = mytorch.full((3,), 0.5, requires_grad=True)
    theirs = torch.full((3,), 0.5, requires_grad=True)
    for m, x in ((mytorch, p), (torch, theirs)):
        for y in (m.bernoulli(x), m.normal(x, 1.0), m.normal(0.0, x), m.normal(x, x)):
            y.sum().backward()
            assert y.requires_grad and x.grad.tolist() == [0, 0, 0]
        assert not m.multinomial(x, 2).requires_grad


FILLS = {
    "normal_": lambda x: x.normal_(1, 2), "uniform_": lambda x: x.uniform_(-1, 2),
    "exponential_": lambda x: x.exponential_(3), "bernoulli_": lambda x: x.bernoulli_(0.3),
    "random_": lambda x: x.random_(), "a range": lambda x: x.random_(3, 90),
    "a tensor of probabilities": lambda x: x.bernoulli_(mytorch.linspace(0, 1, x.numel()).reshape(x.shape)),
    "trunc_normal_": mytorch.nn.init.trunc_normal_,
}


@each("dtype", ["float32", "float64", "float16", mytorch.bfloat16, "int64", "uint8"])
@each("name", FILLS)
def test_blocks_have_the_numbers_of_a_whole_tensor(name, dtype, monkeypatch):
    if dtype in ("int64", "uint8") and not name.startswith(("bern", "random", "a ")):
        return
    found = []
    for block in (1 << 30, 7, 64):
        monkeypatch.setattr(random, "BLOCK", block)
        mytorch.manual_seed(4)
        wide = mytorch.empty(13, 2, 5, dtype=dtype)
        many = [mytorch.empty(131, dtype=dtype), wide.transpose(0, 2), mytorch.empty(0, 3, dtype=dtype)]
        found.append([FILLS[name](x).numpy().copy() for x in [*many, mytorch.empty((), dtype=dtype)]])
        found[-1].append(mytorch.rand(1).numpy())  # the generator is where it was, too
    for other in found[1:]:
        assert every(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_filling_in_place():
    x = mytorch.zeros(4, 6)
    x[1:3, ::2].normal_()
    assert np.count_nonzero(x.numpy()) == 6 and x.uniform_() is x
    y = mytorch.ones(3, requires_grad=True) * 2
    z = y * y
    y.uniform_()
    with pytest.raises(RuntimeError, match="in-?place"):
        z.sum().backward()
    leaf = mytorch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.normal_()
    with mytorch.no_grad():
        assert leaf.normal_() is leaf and leaf.requires_grad


# Errors.

FAILS = {
    "no size": (lambda m: m.rand(), "size is missing"),
    "negative": (lambda m: m.rand(-1), "-1"),
    "rand int": (lambda m: m.rand(2, dtype=m.int64), "int64"),
    "randn int": (lambda m: m.randn(2, dtype=m.int64), "int64"),
    "randint size": (lambda m: m.randint(5, 2), "2"),
    "randint empty": (lambda m: m.randint(5, 2, (2,)), "5 to 2"),
    "randint equal": (lambda m: m.randint(5, 5, (2,)), "5 to 5"),
    "randint uint8": (lambda m: m.randint(0, 300, (2,), dtype=m.uint8), "299.*uint8"),
    "randint below": (lambda m: m.randint(-1, 25, (2,), dtype=m.uint8), "-1.*uint8"),
    "randint float": (lambda m: m.randint(0, 2.5, (2,)), "2.5"),
    "randint grad": (lambda m: m.randint(3, (2,), requires_grad=True), "int64"),
    "like a list": (lambda m: m.rand_like([1]), "list"),
    "rand_like int": (lambda m: m.rand_like(m.ones(2, dtype=m.int64)), "int64"),
    "randperm negative": (lambda m: m.randperm(-1), "-1"),
    "randperm uint8": (lambda m: m.randperm(300, dtype=m.uint8), "299.*uint8"),
    "randperm float": (lambda m: m.randperm(2.5), "2.5"),
    "normal no size": (lambda m: m.normal(0.0, 1.0), "size"),
    "normal size": (lambda m: m.normal(0.0, 1.0, 2), "2"),
    "normal std": (lambda m: m.normal(0.0, -1.0, (2,)), "-1"),
    "normal std tensor": (lambda m: m.normal(m.zeros(2), -m.ones(2)), "-1"),
    "normal mean and std": (lambda m: m.normal(m.zeros(2), -1.0), "-1"),
    "normal int": (lambda m: m.normal(m.zeros(2, dtype=m.int64), 1.0), "int64"),
    "normal shapes": (lambda m: m.normal(m.zeros(2), m.ones(3)), r"\(2,\).*\(3,\)"),
    "bernoulli above 1": (lambda m: m.bernoulli(m.tensor([0.0, 1.5])), "1.5"),
    "bernoulli nan": (lambda m: m.bernoulli(m.tensor([0.0, float("nan")])), "nan"),
    "bernoulli int": (lambda m: m.bernoulli(m.tensor([0, 1])), "int64"),
    "bernoulli p": (lambda m: m.bernoulli(m.ones(2), 1.5), "1.5"),
    "bernoulli_ p": (lambda m: m.ones(3).bernoulli_(-0.5), "-0.5"),
    "bernoulli_ shape": (lambda m: m.ones(3).bernoulli_(m.zeros(2)), r"\(2,\).*\(3,\)"),
    "multinomial too many": (lambda m: m.multinomial(m.ones(3), 4), "4 of 3"),
    "multinomial 0": (lambda m: m.multinomial(m.ones(3), 0), "0"),
    "multinomial float": (lambda m: m.multinomial(m.ones(3), 2.5), "2.5"),
    "multinomial 3-d": (lambda m: m.multinomial(m.ones(2, 3, 4), 2), r"\(2, 3, 4\)"),
    "multinomial 0-d": (lambda m: m.multinomial(m.tensor(1.0), 2), r"\(\)"),
    "multinomial int": (lambda m: m.multinomial(m.ones(3, dtype=m.int64), 2), "int64"),
    "multinomial negative": (lambda m: m.multinomial(m.tensor([1.0, -1]), 1), "negative"),
    "multinomial nan": (lambda m: m.multinomial(m.tensor([float("nan")]), 1), "NaN"),
    "multinomial inf": (lambda m: m.multinomial(m.tensor([float("inf")]), 1, True), "inf"),
    "multinomial zeros": (lambda m: m.multinomial(m.zeros(2), 1), "above 0"),
    "multinomial of nothing": (lambda m: m.multinomial(m.ones(0), 2), "2 of 0"),
    "uniform_ bounds": (lambda m: m.ones(3).uniform_(2, 1), "a=2, b=1"),
    "uniform_ inf": (lambda m: m.ones(3).uniform_(0, float("inf")), "inf"),
    "uniform_ int": (lambda m: m.ones(3, dtype=m.int64).uniform_(), "int64"),
    "normal_ int": (lambda m: m.ones(3, dtype=m.int64).normal_(), "int64"),
    "normal_ std": (lambda m: m.ones(3).normal_(0, -1), "-1"),
    "exponential_": (lambda m: m.ones(3).exponential_(0), "0"),
    "random_ empty": (lambda m: m.ones(3).random_(5, 5), "5 to 5"),
    "random_ uint8": (lambda m: m.ones(3, dtype=m.uint8).random_(0, 300), "299.*uint8"),
    "generator": (lambda m: m.rand(2, generator=3), "int"),
    "seed too large": (lambda m: m.manual_seed(2**64), "18446744073709551616"),
    "seed too small": (lambda m: m.manual_seed(-(2**63) - 1), "-9223372036854775809"),
    "state float": (lambda m: m.set_rng_state(m.zeros(3)), "float32"),
    "state size": (lambda m: m.set_rng_state(m.zeros(3, dtype=m.uint8)), "3"),
}


@each("what", FAILS)
def test_refuses_what_pytorch_refuses(what):
    call, message = FAILS[what]
    fails_alike(*in_both(call), match=message)


def test_more_samples_than_categories_that_can_be_drawn():
    with pytest.raises(RuntimeError, match="fewer than 2"):  # PyTorch draws one of probability 0
        mytorch.multinomial(mytorch.tensor([1.0, 0.0, 0.0]), 2)
