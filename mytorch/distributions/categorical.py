"""Discrete distributions: Bernoulli, categorical, one-hot categorical."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..autograd import no_grad
from ..backends.dtypes import finfo
from ..core.tensor import Tensor
from ..nn.functional import binary_cross_entropy_with_logits, one_hot
from ..ops import arange, bernoulli, multinomial, sigmoid, where
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, broadcast_all


class _ByProbsOrLogits(Distribution):
    """Base of distributions with the parameter `probs` or `logits`; the other one is computed from it."""

    def _choose(self, probs: Tensor | float | None, logits: Tensor | float | None) -> str:
        if (probs is None) == (logits is None):
            raise ValueError(
                "Either `probs` or `logits` must be specified, but not both, "
                f"got probs={probs} and logits={logits}"
            )
        return "logits" if probs is None else "probs"

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    def __getattr__(self, name: str) -> Tensor:
        if name == "logits" and "probs" in self.__dict__:
            return self._to_logits(self.probs)
        if name == "probs" and "logits" in self.__dict__:
            return self._to_probs(self.logits)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _clamped(probs: Tensor) -> Tensor:
    eps = float(finfo(probs.dtype).eps)
    return probs.clamp(eps, 1 - eps)


class Bernoulli(_ByProbsOrLogits):
    """1 with a probability, else 0.

    Args:
        probs: the probability; or
        logits: log(probs / (1 - probs)).

    Raises:
        ValueError: both or none of them.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean

    def __init__(
        self, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        name = self._choose(probs, logits)
        (param,) = broadcast_all(logits if probs is None else probs)
        self.__dict__[name] = param
        super().__init__(param.shape, validate_args=validate_args)

    @staticmethod
    def _to_logits(probs: Tensor) -> Tensor:
        probs = _clamped(probs)
        return probs.log() - (-probs).log1p()

    _to_probs = staticmethod(sigmoid)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        best = (self.probs >= 0.5).to(self.probs.dtype)
        return where(self.probs == 0.5, math.nan, best)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns 0 and 1, for each distribution of the batch."""
        return _enumerated(arange(2, dtype=self._param.dtype, device=self._param.device), self, expand)


def _enumerated(values: Tensor, distribution: Distribution, expand: bool) -> Tensor:
    values = values.reshape(-1, *[1] * len(distribution.batch_shape))
    return values.expand(-1, *distribution.batch_shape) if expand else values


class Categorical(_ByProbsOrLogits):
    """One of K classes, 0 to K - 1.

    Args:
        probs: the probabilities, (..., K), not necessarily of sum 1; or
        logits: their logarithms, up to a constant.

    Raises:
        ValueError: both or none of them, or without a dim for the classes.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ):
        name = self._choose(probs, logits)
        param = logits if probs is None else probs
        if param.ndim < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional, got {param}")
        if name == "probs":
            param = param / param.sum(-1, keepdim=True)
        else:
            param = param - param.logsumexp(-1, keepdim=True)
        self.__dict__[name] = param
        super().__init__(*self._shapes(param), validate_args=validate_args)

    @staticmethod
    def _shapes(param: Tensor) -> tuple:
        return param.shape[:-1], ()

    @staticmethod
    def _to_logits(probs: Tensor) -> Tensor:
        return _clamped(probs).log()

    @staticmethod
    def _to_probs(logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    @property
    def _num_events(self) -> int:
        return self._param.shape[-1]

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return (self._param[..., 0] * math.nan).detach()

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        sample_shape = tuple(sample_shape)
        count = math.prod(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        if not count or not rows.shape[0]:
            return self.probs.new_zeros((*sample_shape, *self._batch_shape)).long()
        return multinomial(rows, count, True).T.reshape((*sample_shape, *self._batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._log_prob_of(value)

    def _log_prob_of(self, index: Tensor) -> Tensor:
        value, logits = index.long().unsqueeze(-1), self.logits
        shape = broadcast_all(value, logits[..., :1])[0].shape
        logits = logits.expand((*shape[:-1], self._num_events))
        return logits.gather(-1, value.expand(shape)).squeeze(-1)

    def entropy(self) -> Tensor:
        low = float(finfo(self._param.dtype).min)
        return -(self.logits.clamp(min=low) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns all classes, for each distribution of the batch."""
        return _enumerated(arange(self._num_events, device=self._param.device), self, expand)


class OneHotCategorical(Categorical):
    """One of K classes, as a one-hot vector: see `Categorical`."""

    support = constraints.one_hot

    @staticmethod
    def _shapes(param: Tensor) -> tuple:
        return param.shape[:-1], param.shape[-1:]

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self._num_events).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return one_hot(super().sample(sample_shape), self._num_events).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._log_prob_of(value.argmax(-1))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns all one-hot vectors, for each distribution of the batch."""
        count = self._num_events
        values = one_hot(arange(count, device=self._param.device), count).to(self._param.dtype)
        values = values.reshape(count, *[1] * len(self._batch_shape), count)
        return values.expand(count, *self._batch_shape, count) if expand else values
