"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.tensor import Tensor
from ..ops import broadcast_shapes, randn
from . import constraints
from .distribution import Distribution
from .triangular import cholesky, solve_lower


class MultivariateNormal(Distribution):
    """Vectors loc + L z, for a vector z of independent normal numbers.

    Args:
        loc: the mean, (..., n).
        covariance_matrix: L L^T, (..., n, n); or
        scale_tril: L, lower triangular with a positive diagonal, (..., n, n).

    Raises:
        ValueError: both or none of them, or of too few dims.
    """

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if loc.ndim < 1:
            raise ValueError(f"loc must be at least one-dimensional, got {loc}")
        if (covariance_matrix is None) == (scale_tril is None):
            raise ValueError("Exactly one of covariance_matrix or scale_tril may be specified.")
        name = "scale_tril" if covariance_matrix is None else "covariance_matrix"
        matrix = scale_tril if covariance_matrix is None else covariance_matrix
        if matrix.ndim < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions, "
                f"got shape {list(matrix.shape)}"
            )
        self._shown = ("loc", name)
        batch = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand((*batch, loc.shape[-1]))
        self.__dict__[name] = matrix.expand((*batch, *matrix.shape[-2:]))
        super().__init__(batch, loc.shape[-1:], validate_args)
        if scale_tril is None:
            self.scale_tril = cholesky(self.covariance_matrix)

    def __getattr__(self, name: str) -> Tensor:
        if name == "covariance_matrix" and "scale_tril" in self.__dict__:
            return self.scale_tril @ self.scale_tril.mT
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril**2).sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = solve_lower(self.scale_tril, (value - self.loc).unsqueeze(-1)).squeeze(-1)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + (z**2).sum(-1)) - self._half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)
