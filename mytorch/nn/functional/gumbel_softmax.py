"""gumbel_softmax: differentiable samples of one class of several."""

from __future__ import annotations

import warnings

from ...core.tensor import Tensor
from ...ops import empty_like, zeros_like
from .softmax import softmax


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Returns softmax((logits + noise) / tau) along a dim, a sample that is differentiable by the logits.

    The noise is - log(E), E exponentially distributed; so the largest element is that of class i with the
    probability softmax(logits)[i].

    Args:
        tau: the temperature, not negative; the smaller, the closer is the sample to one-hot.
        hard: return the one-hot vector of the largest element, with the gradient of the soft sample.
        eps: without effect, deprecated.

    Source: Jang, Gu & Poole, 2017, https://arxiv.org/abs/1611.01144;
        Maddison, Mnih & Teh, 2017, https://arxiv.org/abs/1611.00712

    >>> F.gumbel_softmax(mytorch.zeros(2, 3), hard=True).sum(1)
    tensor([1.00000 1.00000])
    """
    if eps != 1e-10:
        warnings.warn("gumbel_softmax(): eps is deprecated and has no effect", stacklevel=2)
    noise = -empty_like(logits.detach()).exponential_().log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    largest = soft.detach().argmax(dim, True)
    one_hot = zeros_like(soft.detach()).scatter(dim, largest, 1.0)
    return one_hot - soft.detach() + soft
