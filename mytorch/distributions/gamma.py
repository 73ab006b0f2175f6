"""Gamma, beta and Dirichlet distributions.

Their samples are those of gamma distributions, which are drawn by rejection, and differentiable all the same:
see `ops.gamma_sample`. Samples of beta and Dirichlet distributions are ratios of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..autograd import no_grad
from ..backends.device import on
from ..backends.dtypes import finfo
from ..core.tensor import Tensor, from_raw, raw_of
from ..ops import digamma, gamma_sample, lgamma, stack
from ..random import default_generator
from . import constraints
from .distribution import Distribution, broadcast_all


def standard_gamma(concentration: Tensor) -> Tensor:
    """Returns samples of gamma distributions of rate 1, differentiable by the concentration."""
    with on(concentration.device):
        rng = default_generator(concentration.device).rng
        drawn = from_raw(rng.standard_gamma(raw_of(concentration).astype("float64"))).to(concentration.dtype)
    return gamma_sample.standard_gamma(concentration, drawn)


class Gamma(Distribution):
    """The gamma distribution, with the density rate^a x^(a-1) exp(-rate x) / Γ(a).

    Args:
        concentration: a.
        rate: 1 / scale.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(
        self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None
    ):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return _positive(
            standard_gamma(self.concentration.expand(self._extended_shape(sample_shape))) / self.rate
        )

    def log_prob(self, value: Tensor) -> Tensor:
        (value,) = broadcast_all(value)
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return (a * rate.log()) + (a - 1).xlogy(value) - rate * value - lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + lgamma(a) + (1.0 - a) * digamma(a)


class Dirichlet(Distribution):
    """Vectors of probabilities p, with a density proportional to the product of p_i^(a_i - 1).

    Args:
        concentration: a, (..., K).
    """

    arg_constraints = {"concentration": constraints.positive_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if concentration.ndim < 1:
            raise ValueError(
                f"`concentration` parameter must be at least one-dimensional, got {concentration}"
            )
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = _positive(standard_gamma(self.concentration.expand(self._extended_shape(sample_shape))))
        return drawn / drawn.sum(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return (a - 1).xlogy(value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        k, total = a.shape[-1], a.sum(-1)
        digammas = ((a - 1) * digamma(a)).sum(-1)
        return lgamma(a).sum(-1) - lgamma(total) - (k - total) * digamma(total) - digammas


class Beta(Distribution):
    """The beta distribution, with a density proportional to x^(a-1) (1 - x)^(b-1).

    Args:
        concentration1, concentration0: a, b.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float,
        validate_args: bool | None = None,
    ):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _dirichlet(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._dirichlet.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()


def _positive(x: Tensor) -> Tensor:
    """Returns x, which tiny concentrations round to 0, as at least the smallest normal number."""
    with no_grad():
        x.clamp_(min=float(finfo(x.dtype).tiny))
    return x
