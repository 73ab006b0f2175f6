"""Constraints: which values a parameter or a sample may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.tensor import Tensor
from .triangular import cholesky


@dataclass(frozen=True)
class Constraint:
    """A condition on tensors.

    Attributes:
        name: what `repr` shows.
        check: returns for each element, or each event, whether it satisfies the condition.
        event_dim: the number of dims of an event.
    """

    name: str
    check: Callable[[Tensor], Tensor]
    event_dim: int = 0

    def __repr__(self) -> str:
        return self.name


def greater_than(low: float) -> Constraint:
    return Constraint(f"GreaterThan(lower_bound={low})", lambda x: x > low)


def greater_than_eq(low: float) -> Constraint:
    return Constraint(f"GreaterThanEq(lower_bound={low})", lambda x: x >= low)


def interval(low: float | Tensor, high: float | Tensor) -> Constraint:
    name = f"Interval(lower_bound={low}, upper_bound={high})"
    return Constraint(name, lambda x: (x >= low) & (x <= high))


def integer_interval(low: int, high: int) -> Constraint:
    name = f"IntegerInterval(lower_bound={low}, upper_bound={high})"
    return Constraint(name, lambda x: (x % 1 == 0) & (x >= low) & (x <= high))


def independent(base: Constraint, dims: int) -> Constraint:
    """A constraint on events of `dims` more dims: all elements satisfy `base`."""
    name = f"IndependentConstraint({base}, {dims})"
    return Constraint(name, lambda x: base.check(x).flatten(-dims).all(-1), base.event_dim + dims)


def _is_simplex(x: Tensor) -> Tensor:
    return (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6)


def _is_one_hot(x: Tensor) -> Tensor:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _is_lower_cholesky(x: Tensor) -> Tensor:
    return (x.tril() == x).flatten(-2).all(-1) & (x.diagonal(0, -2, -1) > 0).all(-1)


def _is_positive_definite(x: Tensor) -> Tensor:
    """Symmetric and, by its Cholesky factor, positive definite."""
    symmetric = ((x - x.mT).abs() <= 1e-6).flatten(-2).all(-1)
    return symmetric & (cholesky(x.detach()).diagonal(0, -2, -1) > 0).all(-1)


real = Constraint("Real()", lambda x: x == x)
real_vector = Constraint("IndependentConstraint(Real(), 1)", lambda x: (x == x).all(-1), 1)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1))
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = Constraint("Simplex()", _is_simplex, 1)
one_hot = Constraint("OneHot()", _is_one_hot, 1)
positive_vector = independent(positive, 1)
lower_cholesky = Constraint("LowerCholesky()", _is_lower_cholesky, 2)
positive_definite = Constraint("PositiveDefinite()", _is_positive_definite, 2)
