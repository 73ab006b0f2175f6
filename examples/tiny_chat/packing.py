"""
Conversations as rows of tokens: what is learned are the answers, and a row holds several conversations.

Each conversation is whole. Attention is causal over the row, so that a conversation also sees those before it
in its row (as in nanochat); they are others in each epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mytorch.tokenizers import BPETokenizer

from .common import read_lines
from .tokenizer import END, START

Encoded = tuple[list[int], list[int]]  # tokens, and for each of them itself if it is to be learned, or -1


def encode(messages: Any, tokenizer: BPETokenizer) -> Encoded:
    """Returns the tokens of a conversation, as the chat template has them; what is learned are the answers
    and the token that ends them.

    Raises:
        ValueError: it is no conversation, or has no answer.
    """
    start, end = (tokenizer.token_to_id(token) for token in (START, END))
    tokens, learned = [], []
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError('expected {"messages": [{"role": …, "content": …}, …]}')
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise ValueError(f"expected a role and a content, got {message!r}")
        if role == "assistant":  # its first line is the prompt, encoded for itself
            prompt, answer = [start, *tokenizer.encode("assistant\n")], [*tokenizer.encode(content), end]
        else:
            prompt, answer = [start, *tokenizer.encode(f"{role}\n{content}"), end], []
        newline = tokenizer.encode("\n")
        tokens += prompt + answer + newline
        learned += [-1] * len(prompt) + answer + [-1] * len(newline)
    if max(learned, default=-1) < 0:
        raise ValueError("expected messages with an answer of the assistant")
    return tokens, learned


def read_conversations(paths: Sequence[Path], tokenizer: BPETokenizer, context: int) -> list[Encoded]:
    """Returns the conversations in JSONL files.

    Raises:
        ValueError: one of them is damaged, or longer than the context; the message has its line.
    """
    found = []
    for path in paths:
        for number, line in enumerate(read_lines(path), 1):
            try:
                found.append(encode(line.get("messages"), tokenizer))
                if len(found[-1][0]) > context + 1:
                    raise ValueError(f"{len(found[-1][0])} tokens, but a row has {context + 1}")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    return found


def pack(conversations: Sequence[Encoded], size: int) -> list[Encoded]:
    """Returns rows of `size` tokens: a conversation is in the first of the last 16 with room for it."""
    rows: list[Encoded] = []
    for tokens, learned in conversations:
        row = next((row for row in rows[-16:] if len(row[0]) + len(tokens) <= size), None)
        if row is None:
            rows.append(row := ([], []))
        row[0].extend(tokens)
        row[1].extend(learned)
    return [(t + [0] * (size - len(t)), y + [-1] * (size - len(y))) for t, y in rows]
