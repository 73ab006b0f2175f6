"""Choosing the next token from the logits of a language model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mytorch
from mytorch import Tensor


@dataclass(frozen=True)
class Sampler:
    """Chooses tokens: at random, from the probabilities that are left after these steps, in this order.

    Args:
        repetition_penalty: logits of tokens that occurred are divided by it where positive, and multiplied
            where negative.
        temperature: divides the logits; 0 selects the most probable token.
        top_k: keep the k most probable tokens.
        top_p: keep the fewest tokens whose probabilities add up to p or more.
        min_p: keep tokens whose probability is at least this fraction of the largest one.

    Raises:
        ValueError: a value is out of its range.
    Source: Keskar et al., 2019, https://arxiv.org/abs/1909.05858 (repetition penalty); Fan et al., 2018,
        https://arxiv.org/abs/1805.04833 (top-k); Holtzman et al., 2019, https://arxiv.org/abs/1904.09751
        (top-p); Nguyen et al., 2024, https://arxiv.org/abs/2407.01082 (min-p).

    >>> from mytorch.models import Sampler
    >>> Sampler(temperature=0)(mytorch.tensor([[0.1, 0.7, 0.2]]))
    tensor([[1]])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self):
        ranges = {
            "temperature": (self.temperature, 0 <= self.temperature < math.inf, "at least 0"),
            "top_k": (self.top_k, self.top_k is None or self.top_k >= 1, "at least 1"),
            "top_p": (self.top_p, self.top_p is None or 0 < self.top_p <= 1, "in (0, 1]"),
            "min_p": (self.min_p, self.min_p is None or 0 <= self.min_p <= 1, "in [0, 1]"),
            "repetition_penalty": (self.repetition_penalty, self.repetition_penalty > 0, "positive"),
        }
        for name, (value, is_valid, expected) in ranges.items():
            if not is_valid:
                raise ValueError(f"{name} must be {expected}, got {value}")

    def __call__(
        self, logits: Tensor, previous: Tensor | None = None, generator: mytorch.Generator | None = None
    ) -> Tensor:
        """Returns a token of each row, (B, 1) int64.

        Args:
            logits: (B, vocab_size)
            previous: (B, T) tokens so far, for the repetition penalty; negative ones are padding.
            generator: random number generator.
        """
        if self.repetition_penalty != 1:
            logits = self._penalized(logits.float(), previous)
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        return mytorch.multinomial(self.probabilities(logits), 1, generator=generator)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Returns the probabilities (B, vocab_size) of tokens, 0 for those that are not kept."""
        logits = logits.float() / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            smallest = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < smallest, -math.inf)
        if self.top_p is not None and self.top_p < 1:
            ordered, order = logits.softmax(-1).sort(dim=-1, descending=True)
            before = ordered.cumsum(-1) - ordered  # of the more probable tokens
            hidden = mytorch.zeros_like(before, dtype=bool).scatter_(1, order, before >= self.top_p)
            logits = logits.masked_fill(hidden, -math.inf)
        probabilities = logits.softmax(-1)
        if self.min_p:
            smallest = self.min_p * probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < smallest, 0)
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        return probabilities

    def _penalized(self, logits: Tensor, previous: Tensor) -> Tensor:
        """Returns the logits after the repetition penalty."""
        occurred = mytorch.zeros(logits.shape[0], logits.shape[1] + 1, dtype=bool, device=logits.device)
        occurred.scatter_(1, previous.where(previous >= 0, logits.shape[1]), True)  # the last one: padding
        penalty = self.repetition_penalty
        return logits.where(~occurred[:, :-1], (logits / penalty).where(logits > 0, logits * penalty))
