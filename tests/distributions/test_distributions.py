"""Distributions against PyTorch: densities, entropies, moments, divergences; samples by their law."""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch import distributions as D
from mytorch.autograd import gradcheck
from tests.oracle import check, fails_alike, in_both

TD = torch.distributions
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def validating():
    """Another test of this process may have called torch.compile, which switches PyTorch's checks off."""
    TD.Distribution.set_default_validate_args(True)


def normal(*shape):
    return rng.standard_normal(shape)


def positive(*shape):
    return rng.uniform(0.3, 3, shape)


def probabilities(*shape):
    p = rng.uniform(0.1, 1, shape)
    return p / p.sum(-1, keepdims=True)


def factor(*shape):
    return np.tril(normal(*shape), -1) + np.eye(shape[-1]) * positive(*shape[:-1], 1)


def covariance(*shape):
    a = normal(*shape)
    return a @ a.swapaxes(-1, -2) + np.eye(shape[-1])


# name: [(constructor by library, parameters, parameters of another one, values)]
CASES = {
    "Normal": [("Normal", (normal(2, 3), positive(3)), (normal(3), positive(2, 3)), normal(4, 2, 3))],
    "LogNormal": [("LogNormal", (normal(3), positive(3)), (normal(3), positive(3)), positive(4, 3))],
    "Uniform": [
        (
            "Uniform", (-positive(3), positive(3)), (-3 - positive(3), 4 + positive(3)),
            rng.uniform(-0.2, 0.2, (4, 3)),
        ),
    ],
    "Exponential": [("Exponential", (positive(2, 3),), (positive(3),), positive(4, 1, 3))],
    "Laplace": [("Laplace", (normal(3), positive(3)), (normal(3), positive(3)), normal(4, 3))],
    "Bernoulli": [
        (
            "Bernoulli", (rng.uniform(0.1, 0.9, 3),), (rng.uniform(0.1, 0.9, 3),),
            np.array([[0.0, 1, 1], [1, 0, 1]]),
        ),
        ("Bernoulli logits", (normal(2, 3),), (normal(2, 3),), np.array([0.0, 1, 1])),
    ],
    "Categorical": [
        ("Categorical", (positive(3, 4),), (probabilities(3, 4),), rng.integers(0, 4, (5, 3))),
        ("Categorical logits", (normal(2, 3, 4),), (normal(3, 4),), np.array(2)),
    ],
    "OneHotCategorical": [
        ("OneHotCategorical", (positive(3, 4),), (positive(3, 4),), np.eye(4)[[0, 2, 3]]),
        ("OneHotCategorical logits", (normal(4),), (normal(4),), np.eye(4)),
    ],
    "Gamma": [("Gamma", (positive(2, 3), positive(3)), (positive(3), positive(3)), positive(4, 2, 3))],
    "Beta": [("Beta", (positive(3), positive(3)), (positive(3), positive(3)), rng.uniform(0.1, 0.9, (4, 3)))],
    "Dirichlet": [("Dirichlet", (positive(2, 4),), (positive(4),), probabilities(3, 2, 4))],
    "MultivariateNormal": [
        ("MultivariateNormal", (normal(2, 3), factor(3, 3)), (normal(3), factor(2, 3, 3)), normal(4, 2, 3)),
        (
            "MultivariateNormal covariance", (normal(3), covariance(2, 3, 3)),
            (normal(3), covariance(3, 3)), normal(3),
        ),
    ],
    "Independent": [
        ("Independent 1", (normal(2, 3), positive(3)), (normal(3), positive(2, 3)), normal(4, 2, 3)),
        ("Independent 2", (normal(2, 3), positive(3)), (normal(3), positive(2, 3)), normal(4, 2, 3)),
    ],
}
EVERY = [case for cases in CASES.values() for case in cases]
each = pytest.mark.parametrize(("what", "params", "others", "value"), EVERY, ids=[case[0] for case in EVERY])


def make(t, what, params):
    module, (name, *how) = t.distributions, what.split()
    if name == "Independent":
        return module.Independent(module.Normal(*params), int(how[0]))
    if name == "MultivariateNormal":
        return module.MultivariateNormal(
            params[0], **{"covariance_matrix" if how else "scale_tril": params[1]}
        )
    return getattr(module, name)(**{"logits": params[0]}) if how else getattr(module, name)(*params)


def test_every_distribution_has_a_case():
    classes = {n for n in D.__all__ if isinstance(getattr(D, n), type)}
    public = {n for n in classes if issubclass(getattr(D, n), D.Distribution)}
    assert set(CASES) == public - {"Distribution"}


def limits_of(what, dtype):
    if dtype == "float32":
        return {"rtol": 2e-4, "atol": 2e-5}
    by_gamma = what in ("Gamma", "Beta", "Dirichlet")  # PyTorch's trigamma has nine digits
    return {"rtol": 2e-9, "atol": 2e-9} if by_gamma else {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each
def test_log_prob_entropy_and_moments(what, params, others, value, dtype):
    limits = limits_of(what, dtype)
    params = [p.astype(dtype) for p in params]
    value = value.astype(dtype) if value.dtype == float else value
    check(*in_both(lambda t, v, *p: make(t, what, p).log_prob(v)), value, *params, **limits)
    check(*in_both(lambda t, *p: make(t, what, p).entropy()), *params, **limits)
    for name in ("mean", "variance", "stddev", "mode"):
        if name != "mode" or not what.startswith(("Beta", "Dirichlet", "Uniform")):  # which we don't have
            check(*in_both(lambda t, *p, n=name: getattr(make(t, what, p), n)), *params, **limits)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each
def test_divergence(what, params, others, value, dtype):
    def divergence(t, *p):
        first, second = make(t, what, p[: len(params)]), make(t, what, p[len(params) :])
        return t.distributions.kl_divergence(first, second)

    arrays = [p.astype(dtype) for p in (*params, *others)]
    check(*in_both(divergence), *arrays, **limits_of(what, dtype))


@each
def test_shapes_repr_and_expand(what, params, others, value):
    ours = make(mytorch, what, [mytorch.tensor(p) for p in params])
    theirs = make(torch, what, [torch.tensor(p) for p in params])
    if not repr(theirs).endswith("()"):
        assert repr(ours).replace("Size", "torch.Size") == repr(theirs)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    for shape in ((), (5,), (2, 3), (0,)):
        if shape == (0,) and "Categorical" in what:  # not in PyTorch
            assert ours.sample(shape).shape[0] == 0
            continue
        sample, want = ours.sample(shape), theirs.sample(shape)
        assert tuple(sample.shape) == tuple(want.shape)
        assert str(sample.dtype) == str(want.dtype).removeprefix("torch.") and not sample.requires_grad
    larger, theirs = (d.expand((3, *d.batch_shape)) for d in (ours, theirs))
    assert tuple(larger.sample((2,)).shape) == tuple(theirs.sample((2,)).shape)
    assert larger.log_prob(ours.sample()).shape == larger.entropy().shape == larger.batch_shape


@pytest.fixture
def unchecked():
    """Parameters may be perturbed where they are fixed."""
    D.Distribution.set_default_validate_args(False)
    yield
    D.Distribution.set_default_validate_args(True)


@each
def test_gradients(what, params, others, value, unchecked):
    value = mytorch.tensor(value)
    inputs = [mytorch.tensor(p, requires_grad=True) for p in params]
    if "covariance" in what:  # perturbed, it isn't symmetric
        inputs[1] = mytorch.tensor(factor(3, 3), requires_grad=True)

        def log_prob(loc, a):
            return D.MultivariateNormal(loc, a @ a.mT).log_prob(value)
    else:

        def log_prob(*p):
            return make(mytorch, what, p).log_prob(value)

    gradcheck(log_prob, inputs)


@each
def test_samples_have_mean_and_variance(what, params, others, value):
    if what.startswith("Categorical"):
        params = [params[0].reshape(-1, 4)[0]]
        found = make(mytorch, what, [mytorch.tensor(params[0])])
        shares = found.sample((20000,)).bincount() / 20000
        np.testing.assert_allclose(shares.numpy(), found.probs.numpy(), atol=0.015)
        return
    found = make(mytorch, what, [mytorch.tensor(p) for p in params])
    drawn, mean, std = found.sample((20000,)).numpy(), found.mean.numpy(), found.stddev.numpy()
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * std / math.sqrt(20000))
    if what != "LogNormal":  # its fourth moment is huge
        np.testing.assert_allclose(drawn.std(0), np.broadcast_to(std, drawn.shape[1:]), rtol=0.1)


@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Uniform", "Exponential", "Laplace"])
def test_cdf_and_icdf(name):
    _, params, _, value = CASES[name][0]
    check(*in_both(lambda t, v, *p: make(t, name, p).cdf(v)), value, *params)
    inside = rng.uniform(0.05, 0.95, (4, 3))
    params = [p.reshape(-1, 3)[-1] for p in params]
    check(*in_both(lambda t, v, *p: make(t, name, p).icdf(v)), inside, *params)


@pytest.mark.parametrize(
    "what", ["Normal", "LogNormal", "Uniform", "Exponential", "Laplace", "MultivariateNormal"]
)
def test_rsample_is_differentiable(what, unchecked):
    _, params, _, _ = CASES[what][0]

    def sample(*p):
        mytorch.manual_seed(0)
        return make(mytorch, what, p).rsample((2,))

    gradcheck(sample, [mytorch.tensor(p, requires_grad=True) for p in params])


@pytest.mark.parametrize("what", ["Gamma", "Beta", "Dirichlet"])
def test_rsample_has_the_gradient_of_the_mean_and_the_second_moment(what):
    """Samples come by rejection, so that only the means of their gradients are known."""
    params = [p[0] if p.ndim == 2 else p for p in CASES[what][0][1]]
    ours, theirs = ([t.tensor(p, requires_grad=True) for p in params] for t in (mytorch, torch))
    x, d = make(mytorch, what, ours).rsample((40000,)), make(torch, what, theirs)
    first = x.mean(0)
    for got, want in ((first, d.mean), ((x**2).mean(0), d.variance + d.mean**2)):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=0.08)
        for i in range(len(params[0])):
            gots = mytorch.autograd.grad(got[i], ours, retain_graph=True)
            wants = torch.autograd.grad(want[i], theirs, retain_graph=True)
            for a, b in zip(gots, wants, strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), atol=0.05 * np.abs(b.numpy()).max())


def test_rsample_of_gamma_has_pytorchs_gradient():
    a, rate, g = positive(5, 3), positive(3), normal(5, 3)
    ours = [mytorch.tensor(p, requires_grad=True) for p in (a, rate)]
    x = D.Gamma(*ours).rsample()
    x.backward(mytorch.tensor(g))
    slope = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x.detach().numpy() * rate)).numpy()
    np.testing.assert_allclose(ours[0].grad.numpy(), g * slope / rate, 1e-3)
    np.testing.assert_allclose(ours[1].grad.numpy(), (-g * x.detach().numpy() / rate).sum(0), 1e-12)


def test_numbers_as_parameters():
    for name, params, value in (
        ("Normal", (0, 2.0), 0.3), ("Uniform", (0, 2), 0.3), ("Exponential", (2.0,), 0.3),
        ("Laplace", (0.0, 1), 0.3), ("Bernoulli", (0.3,), 1.0), ("Gamma", (2.0, 1.0), 0.3),
        ("Beta", (2.0, 3.0), 0.3),
    ):
        check(*in_both(lambda t, v, n=name, p=params: getattr(t.distributions, n)(*p).log_prob(v)),
              np.array(value, "float32"))


def test_other_pairs():
    low, high, loc, scale = -positive(3), positive(3), normal(3), positive(3)
    check(
        *in_both(lambda t, a, b, c, d: t.distributions.kl_divergence(
            t.distributions.Uniform(a, b), t.distributions.Normal(c, d))),
        low, high, loc, scale,
    )
    check(
        *in_both(lambda t, a, b, c, d: t.distributions.kl_divergence(
            t.distributions.Uniform(a, b), t.distributions.Uniform(c, d))),
        low, high, low + 0.1, high, grad=False,
    )
    with pytest.raises(NotImplementedError, match="p type Normal and q type Gamma"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Gamma(1.0, 1.0))


@pytest.mark.parametrize("what", ["Bernoulli", "Categorical", "OneHotCategorical"])
def test_enumerate_support(what):
    _, params, _, _ = CASES[what][0]
    for expand in (True, False):
        check(*in_both(lambda t, *p, e=expand: make(t, what, p).enumerate_support(e)), *params, grad=False)


def test_probabilities_of_0():
    p, q = np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.0, 0.5])
    for name in ("Categorical", "OneHotCategorical"):
        check(*in_both(lambda t, p, n=name: getattr(t.distributions, n)(p).entropy()), p, grad=False)
        for pair in ((p, q), (q, p), (p, p)):
            check(
                *in_both(lambda t, p, q, n=name: t.distributions.kl_divergence(
                    getattr(t.distributions, n)(p), getattr(t.distributions, n)(q))),
                *pair, grad=False,
            )


def test_arguments_are_refused():
    ones = np.ones(3)
    for match, call in (
        ("Expected parameter scale .* to satisfy the constraint GreaterThan.lower_bound=0.0.",
         lambda m, x: m.Normal(x, -x)),
        ("low >= high|lower", lambda m, x: m.Uniform(x, x)),
        ("Either `probs` or `logits`", lambda m, x: m.Bernoulli()),
        ("Either `probs` or `logits`", lambda m, x: m.Categorical(x, x)),
        ("at least one-dimensional", lambda m, x: m.Categorical(x[0])),
        ("Expected parameter probs", lambda m, x: m.Bernoulli(2 * x)),
        ("Expected parameter scale_tril", lambda m, x: m.MultivariateNormal(x, scale_tril=-x.diag())),
        ("Expected parameter covariance_matrix", lambda m, x: m.MultivariateNormal(x, -x.diag())),
        ("Exactly one", lambda m, x: m.MultivariateNormal(x)),
        ("reinterpreted_batch_ndims", lambda m, x: m.Independent(m.Normal(x, x), 2)),
        ("must be a Tensor", lambda m, x: m.Normal(x, x).log_prob(1.0)),
        ("not broadcastable", lambda m, x: m.Normal(x, x).log_prob(x[:2])),
        ("must match event_shape", lambda m, x: m.Dirichlet(x).log_prob(x[:2] / 2)),
        ("to be within the support", lambda m, x: m.Exponential(x).log_prob(-x)),
        ("to be within the support .Boolean", lambda m, x: m.Bernoulli(x / 2).log_prob(x / 2)),
        ("to be within the support .IntegerInterval", lambda m, x: m.Categorical(x).log_prob(3 * x[0])),
        ("to be within the support", lambda m, x: m.Uniform(0 * x, x).log_prob(2 * x)),
    ):
        fails_alike(*in_both(lambda t, x, c=call: c(t.distributions, x)), ones, match=match)
    loose = D.Normal(mytorch.zeros(1), -mytorch.ones(1), validate_args=False)
    assert loose.log_prob(mytorch.ones(1)).isnan().all()
    with pytest.raises(NotImplementedError, match="Gamma does not implement cdf"):
        D.Gamma(1.0, 1.0).cdf(mytorch.ones(1))


@each
def test_on_a_gpu(what, params, others, value, fake_cuda):
    cpu, gpu = (make(mytorch, what, [mytorch.tensor(p, device=d) for p in params]) for d in ("cpu", "cuda:1"))
    assert gpu.sample((2,)).device == "cuda:1"
    if gpu.has_rsample:
        leaf = mytorch.tensor(params[0], device="cuda:1", requires_grad=True)
        make(mytorch, what, [leaf, *(mytorch.tensor(p, device="cuda:1") for p in params[1:])]).rsample(
            (2,)
        ).sum().backward()
        assert leaf.grad.device == "cuda:1" and leaf.grad.isfinite().all()
    for call in (lambda d: d.log_prob(mytorch.tensor(value, device=d.mean.device)), lambda d: d.entropy()):
        got = call(gpu)
        assert got.device == "cuda:1"
        np.testing.assert_allclose(got.cpu().numpy(), call(cpu).numpy(), rtol=1e-12)
