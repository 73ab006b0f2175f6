"""Beam search: the most probable text, among the best `num_beams` of each length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mytorch
from mytorch import Tensor

from .generation import Prompts, pad_left, stop_or_zero

if TYPE_CHECKING:
    from .language_model import LanguageModel


@mytorch.no_grad()
def beam_search(
    model: LanguageModel, prompts: Prompts, max_new_tokens: int, num_beams: int, length_penalty: float = 1.0,
    stop_tokens: Sequence[int] = (),
) -> Tensor | list[list[int]]:
    """Returns the prompts and the best texts that were found.

    Each step extends all beams of a prompt by all tokens and keeps the `num_beams` with the largest sums of
    log probabilities. Those that end with a stop token are set aside with the score

        (sum of log probabilities) / (number of new tokens) ** length_penalty

    The search of a prompt ends when `num_beams` of them have a score that no beam can exceed any more, if
    beams of the present length are compared.

    Args:
        prompts, max_new_tokens, stop_tokens: see `LanguageModel.stream`.
        num_beams: number of beams of each prompt.
        length_penalty: above 0, longer texts have larger scores.

    Returns:
        Of a tensor (B, T): (B, T + new tokens), shorter texts filled with the stop token. Of lists: lists.

    Raises:
        ValueError: a prompt is empty, or the text may exceed the context length.
    """
    idx, padding = pad_left(prompts, model.device)
    (B, T), context = idx.shape, model.config.context_length
    if T + max_new_tokens > context:
        raise ValueError(f"{T} + {max_new_tokens} tokens exceed the context length of {context}")
    searches = [Search(num_beams, length_penalty, set(stop_tokens)) for _ in range(B)]
    beams = idx.repeat_interleave(num_beams, 0)
    cache = model.new_cache(len(beams), T + max_new_tokens, [n for n in padding for _ in range(num_beams)])
    new = beams
    for _ in range(max_new_tokens):
        logits = model.lm_head(model.features(new, cache)[:, -1])
        log_probabilities = logits.float().log_softmax(-1).view(B, num_beams, -1)
        rows, tokens = [], []
        for b, search in enumerate(searches):
            kept = search.step(log_probabilities[b])
            rows += [b * num_beams + row for row, _ in kept]
            tokens += [token for _, token in kept]
        if all(search.is_over for search in searches):
            break
        rows = mytorch.tensor(rows, device=idx.device)
        new = mytorch.tensor(tokens, device=idx.device)[:, None]
        beams = mytorch.cat([beams[rows], new], dim=1)
        cache.reorder(rows)
    texts = [search.best() for search in searches]
    if not isinstance(prompts, Tensor):
        return [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]
    longest = max(map(len, texts))
    rows = [text + [stop_or_zero(stop_tokens)] * (longest - len(text)) for text in texts]
    return mytorch.cat([idx, mytorch.tensor(rows, device=idx.device)], dim=1)


class Search:
    """The beams of one prompt.

    Attributes:
        beams: [(sum of log probabilities, new tokens)].
        ended: [(score, new tokens)] of those that ended with a stop token, the best first.
        is_over: whether no better text can be found.
    """

    def __init__(self, num_beams: int, length_penalty: float, stop_tokens: set[int]):
        self.num_beams, self.length_penalty, self.stop_tokens = num_beams, length_penalty, stop_tokens
        # At first all beams are the prompt: only the first one is extended.
        self.beams = [(0.0, [])] + [(-math.inf, [])] * (num_beams - 1)
        self.ended: list[tuple[float, list[int]]] = []
        self.is_over = False

    def step(self, log_probabilities: Tensor) -> list[tuple[int, int]]:
        """Extends the beams by a token; returns for each new beam the number of the old one and the token.

        Args:
            log_probabilities: (num_beams, vocab_size)
        """
        if self.is_over:
            return [(row, stop_or_zero(list(self.stop_tokens))) for row in range(self.num_beams)]
        sums = log_probabilities + mytorch.tensor([s for s, _ in self.beams]).to(log_probabilities)[:, None]
        # Stop tokens take at most this many of the candidates for the next beams.
        count = min(self.num_beams * (1 + len(self.stop_tokens)), sums.numel())
        values, indices = sums.view(-1).topk(max(count, min(2 * self.num_beams, sums.numel())))
        kept, beams = [], []
        for rank, (value, index) in enumerate(zip(values.tolist(), indices.tolist(), strict=True)):
            row, token = divmod(index, log_probabilities.shape[1])
            tokens = [*self.beams[row][1], token]
            if token in self.stop_tokens:
                if rank < self.num_beams:
                    self.ended.append((self.score(value, len(tokens)), tokens))
            elif len(kept) < self.num_beams:
                kept.append((row, token))
                beams.append((value, tokens))
        self.beams = beams
        self.ended = sorted(self.ended, key=lambda text: -text[0])[: self.num_beams]
        best = self.score(beams[0][0], len(beams[0][1]))
        self.is_over = len(self.ended) == self.num_beams and self.ended[-1][0] >= best
        return kept

    def score(self, total: float, length: int) -> float:
        return total / length**self.length_penalty

    def best(self) -> list[int]:
        """Returns the new tokens of the text with the largest score."""
        running = [] if self.is_over else [(self.score(s, len(t)), t) for s, t in self.beams]
        return max([*self.ended, *running], key=lambda text: text[0])[1]
