"""Normal and log-normal distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.tensor import Tensor
from ..ops import erf, erfinv, randn
from . import constraints
from .distribution import Distribution, broadcast_all


class Normal(Distribution):
    """The normal distribution, with the density exp(-((x - loc) / scale)² / 2) / (scale sqrt(2 pi)).

    Args:
        loc, scale: mean and standard deviation.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        squared = ((value - self.loc) / self.scale) ** 2
        return -squared / 2 - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class LogNormal(Normal):
    """The distribution of exp(x) for a normal x.

    Args:
        loc, scale: mean and standard deviation of x.
    """

    support = constraints.positive

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        return (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp()

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return super().rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._base().log_prob(value.log()) - value.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._base().cdf(value.log())

    def icdf(self, value: Tensor) -> Tensor:
        return super().icdf(value).exp()

    def entropy(self) -> Tensor:
        return super().entropy() + self.loc

    def _base(self) -> Normal:
        return Normal(self.loc, self.scale, validate_args=False)
