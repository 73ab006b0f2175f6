"""Distribution: the base class of all, with shapes and the validation of arguments."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..autograd import no_grad
from ..backends.dtypes import get_default_dtype
from ..core.tensor import Size, Tensor
from ..ops import broadcast_tensors, tensor
from .constraints import Constraint


class Distribution:
    """A batch of independent distributions over events.

    A sample has the shape sample_shape + batch_shape + event_shape; `log_prob` the first two.

    Args:
        batch_shape, event_shape: see above.
        validate_args: check parameters and values; by default True.

    Attributes:
        arg_constraints: the condition on each parameter.
        support: the condition on a sample.
        has_rsample: whether `rsample` exists, whose samples are differentiable by the parameters.
    """

    arg_constraints: dict[str, Constraint] = {}
    support: Constraint
    has_rsample = False
    _validate_args = True
    _shown: tuple[str, ...] = ()  # of the parameters, those in `repr`; by default all

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None and not bool(constraint.check(value.detach()).all()):
                raise ValueError(
                    f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether arguments are checked by default."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args(): expected True or False, got {value!r}")
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Distribution:
        """Returns a distribution whose parameters are expanded to a larger batch, without copying."""
        batch_shape = Size(batch_shape)
        new = copy.copy(self)
        new._batch_shape = batch_shape
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None:
                event = value.shape[value.ndim - constraint.event_dim :]
                new.__dict__[name] = value.expand((*batch_shape, *event))
        return new

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Returns samples without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Returns samples that are differentiable by the parameters."""
        raise self._missing("rsample")

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns the logarithm of the density, or of the probability, of a value."""
        raise self._missing("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Returns the probability of at most `value`."""
        raise self._missing("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Returns the quantile: the inverse of `cdf`."""
        raise self._missing("icdf")

    def entropy(self) -> Tensor:
        """Returns - E[log_prob]."""
        raise self._missing("entropy")

    def perplexity(self) -> Tensor:
        """Returns exp(entropy)."""
        return self.entropy().exp()

    def _missing(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} does not implement {name}")

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: object) -> None:
        """Raises ValueError unless `value` is a Tensor of a fitting shape within the support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob must be a Tensor, got {type(value).__name__}")
        if not self._validate_args:
            return
        shape, want = tuple(value.shape), (*self._batch_shape, *self._event_shape)
        events = len(self._event_shape)
        if shape[len(shape) - events :] != tuple(self._event_shape):
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{list(shape)} vs {list(self._event_shape)}."
            )
        for i, j in zip(reversed(shape), reversed(want), strict=False):
            if 1 not in (i, j) and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {list(shape)} vs {list(want)}."
                )
        if not bool(self.support.check(value.detach()).all()):
            raise ValueError(
                f"Expected value argument (Tensor of shape {shape}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        parts = []
        for name in self._shown or self.arg_constraints:
            value = self.__dict__.get(name)
            if value is not None:
                parts.append(f"{name}: {value.item() if value.numel() == 1 else Size(value.shape)}")
        return f"{type(self).__name__}({', '.join(parts)})"


def broadcast_all(*values: Tensor | float) -> list[Tensor]:
    """Returns the values, numbers in the first tensor's dtype, broadcast to one shape."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    how = {"dtype": get_default_dtype()}
    if tensors:
        how = {"dtype": tensors[0].dtype, "device": tensors[0].device}
    return list(broadcast_tensors(*(v if isinstance(v, Tensor) else tensor(v, **how) for v in values)))
