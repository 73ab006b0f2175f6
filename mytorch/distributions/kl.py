"""Kullback-Leibler divergences of pairs of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.tensor import Tensor
from ..nn.functional import softplus
from ..ops import digamma, lgamma, where
from .categorical import Bernoulli, Categorical
from .distribution import Distribution
from .gamma import Beta, Dirichlet, Gamma
from .independent import Independent, sum_last
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .triangular import solve_lower
from .uniform import Exponential, Laplace, Uniform

_FORMULAS: dict[tuple[type, type], Callable] = {}


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Returns E[log p(x) - log q(x)] of x distributed as p, in the batch's shape.

    Raises:
        NotImplementedError: there is no formula for the two classes.
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _FORMULAS:
                return _FORMULAS[a, b](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


def register_kl(type_p: type, type_q: type) -> Callable:
    """Registers the decorated function of (p, q) for two classes and their subclasses."""
    for kind in (type_p, type_q):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise TypeError(f"Expected a subclass of Distribution but got {kind}")

    def register(formula: Callable) -> Callable:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return register


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Uniform, Normal)
def _uniform_normal(p, q):
    width = p.high - p.low
    squares = width**2 / 12 + ((p.high + p.low - 2 * q.loc) / 2) ** 2
    return (math.sqrt(math.pi * 2) * q.scale / width).log() + 0.5 * squares / q.scale**2


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    inside = (q.low <= p.low) & (q.high >= p.high)
    return where(inside, ((q.high - q.low) / (p.high - p.low)).log(), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    distance, ratio = (p.loc - q.loc).abs(), p.scale / q.scale
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = where(p.probs == 0, 0, where(q.probs == 0, math.inf, one))
    return one + where(p.probs == 1, 0, where(q.probs == 1, math.inf, zero))


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    terms = where((q.probs == 0).expand_as(terms), math.inf, terms)
    return where((p.probs == 0).expand_as(terms), 0, terms).sum(-1)


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    logs = b * (p.rate / q.rate).log() + lgamma(b) - lgamma(a)
    return logs + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    logs = lgamma(total) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return logs + ((a - b) * (digamma(a) - digamma(total).unsqueeze(-1))).sum(-1)


@register_kl(Beta, Beta)
def _beta(p, q):
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed, "
            f"got {list(p.event_shape)} and {list(q.event_shape)}"
        )
    spread = (solve_lower(q.scale_tril, p.scale_tril) ** 2).sum((-2, -1))
    moved = (solve_lower(q.scale_tril, (q.loc - p.loc).unsqueeze(-1)) ** 2).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (spread + moved - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p, q):
    dims = p.reinterpreted_batch_ndims
    if dims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"KL of Independent with {dims} and {q.reinterpreted_batch_ndims} reinterpreted dims"
        )
    return sum_last(kl_divergence(p.base_dist, q.base_dist), dims)
