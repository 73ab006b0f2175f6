"""
Generating text: one loop for all language models, a step per token.

    prompt → features of all its tokens → logits of the last one → a new token
    the new token → its features, with the cached keys and values of all before it → … → a new token
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

import mytorch
from mytorch import Tensor

from .sampling import Sampler

if TYPE_CHECKING:
    from .language_model import LanguageModel

Prompts = Tensor | Sequence[Sequence[int]]


class Tokenizer(Protocol):
    """What `generate` and `stream_text` need of a tokenizer."""

    def decode_bytes(self, ids: Sequence[int]) -> bytes: ...


def pad_left(prompts: Prompts, device: object = None) -> tuple[Tensor, list[int]]:
    """Returns prompts of different lengths as (B, T) int64 tokens, and how many of each row are padding.

    Raises:
        ValueError: there are no prompts, one of them is empty, or a tensor isn't (B, T).
    """
    if isinstance(prompts, Tensor):
        if prompts.ndim != 2 or 0 in prompts.shape:
            raise ValueError(
                f"expected a prompt (B, T) of at least one token, got shape {tuple(prompts.shape)}"
            )
        return prompts, [0] * len(prompts)
    longest = max(map(len, prompts), default=0)
    if not longest or not all(map(len, prompts)):
        lengths = [len(prompt) for prompt in prompts]
        raise ValueError(f"expected prompts of at least one token, got prompts of {lengths} tokens")
    padding = [longest - len(prompt) for prompt in prompts]
    rows = [[0] * n + list(prompt) for n, prompt in zip(padding, prompts, strict=True)]
    return mytorch.tensor(rows, device=device), padding


@mytorch.no_grad()
def stream(
    model: LanguageModel, prompts: Prompts, max_new_tokens: int, sampler: Sampler,
    stop_tokens: Sequence[int] = (), stop_strings: Sequence[str] = (), tokenizer: Tokenizer | None = None,
    generator: mytorch.Generator | None = None, use_cache: bool = True,
) -> Iterator[Tensor]:
    """Yields new tokens (B, 1); arguments: see `LanguageModel.stream`."""
    if stop_strings and tokenizer is None:
        raise ValueError("stop_strings need the tokenizer")
    idx, padding = pad_left(prompts, model.device)
    context, prompt = model.config.context_length, idx.shape[1]
    if prompt > context:
        raise ValueError(f"a prompt of {prompt} tokens exceeds the context length of {context}")
    ended = np.zeros(len(idx), bool)
    cache = None
    for _ in range(max_new_tokens):
        if cache is None or cache.length == context or not use_cache:
            # From the beginning. If the context is full, all positions change: the first token leaves it.
            first = max(0, idx.shape[1] - context)
            rest = [max(0, n - first) for n in padding]
            capacity = min(context, prompt + max_new_tokens)
            cache, new = model.new_cache(len(idx), capacity, rest), idx[:, first:]
        logits = model.lm_head(model.features(new, cache)[:, -1])  # (B, vocab_size)
        new = sampler(logits, without_padding(idx, padding), generator)
        if ended.any():
            new = new.where(mytorch.tensor(~ended[:, None], device=idx.device), stop_or_zero(stop_tokens))
        idx = mytorch.cat([idx, new], dim=1)
        yield new
        if stop_tokens or stop_strings:
            ended |= np.isin(new.numpy()[:, 0], stop_tokens)
            ended |= [ends_with_any(row, stop_strings, tokenizer) for row in idx[:, prompt:].tolist()]
            if ended.all():
                return


def without_padding(idx: Tensor, padding: Sequence[int]) -> Tensor:
    """Returns the tokens with -1 for padding."""
    if not any(padding):
        return idx
    columns = mytorch.arange(idx.shape[1], device=idx.device)
    return idx.where(columns >= mytorch.tensor(padding, device=idx.device)[:, None], -1)


def stop_or_zero(stop_tokens: Sequence[int]) -> int:
    """Returns the token that fills the rows of a batch which have ended."""
    return stop_tokens[0] if stop_tokens else 0


def ends_with_any(tokens: list[int], strings: Sequence[str], tokenizer: Tokenizer | None) -> bool:
    """Returns whether the text of these tokens has one of the strings in its end."""
    if not strings:
        return False
    ends = [string.encode() for string in strings]
    text = tokenizer.decode_bytes(tokens[-max(map(len, ends)) :])  # a token has a byte or more
    return any(end in text for end in ends)


def stream_text(
    model: LanguageModel, tokenizer: Tokenizer, prompt: Sequence[int], max_new_tokens: int,
    stop_strings: Sequence[str] = (), stop_tokens: Sequence[int] = (), **options: object,
) -> Iterator[str]:
    """Yields the text that a model continues a prompt with, in pieces, up to a stop string or token.

    Characters that several tokens make are yielded whole, and a text that may become a stop string only when
    it is clear that it doesn't.

    Args:
        prompt: tokens.
        max_new_tokens, stop_strings, stop_tokens, **options: see `LanguageModel.stream`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = ""
    for new in model.stream([prompt], max_new_tokens, stop_tokens=stop_tokens, **options):
        token = new.item()
        if token in stop_tokens:
            break
        text += decoder.decode(tokenizer.decode_bytes([token]))
        ends = [text.find(string) for string in stop_strings if string in text]
        if ends:
            yield text[: min(ends)]
            return
        held = max((common_end(text, string) for string in stop_strings), default=0)
        if len(text) > held:
            yield text[: len(text) - held]
            text = text[len(text) - held :]
    yield text + decoder.decode(b"", final=True)


def common_end(text: str, string: str) -> int:
    """Returns the length of the longest end of `text` that `string` begins with."""
    return next(n for n in range(min(len(text), len(string)), -1, -1) if text.endswith(string[:n]))
