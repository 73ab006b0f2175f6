"""Tokenizers of GGUF files.

Source: the keys, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .added_tokens import AddedToken
from .bpe import BPETokenizer
from .pre_tokenizer import PATTERNS
from .sentencepiece_bpe import SentencePieceBPE, score_table
from .subword import SubwordTokenizer

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # the values in token_type


def from_gguf(metadata: Mapping[str, object], name: str = "GGUF") -> SubwordTokenizer:
    """Returns the tokenizer that the metadata of a GGUF file describes.

    Args:
        metadata: the values of the keys `tokenizer.ggml.model` ("gpt2" for byte-level BPE, "llama" for
            SentencePiece's), `.tokens`, `.token_type`, `.merges` or `.scores`, `.pre`, `.bos_token_id`,
            `.eos_token_id`, `.unknown_token_id`, `.add_bos_token`, `.add_eos_token`, `.add_space_prefix`:
            numbers, strings, and lists or arrays of them.
        name: of the file, for the messages.

    Raises:
        ValueError: a key is missing or damaged, or its value is not supported.

    >>> from mytorch.tokenizers import from_gguf
    >>> tokens = {"tokens": ["<s>", "▁", "a", "▁a"], "scores": [0, -2, -3, -1], "token_type": [3, 1, 1, 1]}
    >>> tokens |= {"model": "llama", "bos_token_id": 0, "eos_token_id": 0}
    >>> tokenizer = from_gguf({f"tokenizer.ggml.{key}": value for key, value in tokens.items()})
    >>> tokenizer.encode("a a", add_special_tokens=True)
    [0, 3, 3]
    """
    try:
        return _Reader(metadata).tokenizer()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


class _Reader:
    """Metadata whose values are checked as they are read."""

    def __init__(self, metadata: Mapping[str, object]):
        self.metadata = metadata

    def tokenizer(self) -> SubwordTokenizer:
        model = self.value("model", str)
        if model not in ("gpt2", "llama"):
            raise ValueError(f"{PREFIX}model: {model!r} is not supported, only 'gpt2' and 'llama' are")
        tokens = self.values("tokens", str)
        if len(set(tokens)) < len(tokens):
            twice = next(token for token, count in Counter(tokens).items() if count > 1)
            raise ValueError(f"{PREFIX}tokens: {twice!r} occurs twice")
        types = self.values("token_type", int, len(tokens), NORMAL)
        added = [
            AddedToken(token, i, special=kind != USER_DEFINED)
            for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (UNKNOWN, CONTROL, USER_DEFINED)
        ]
        vocab = {token: i for i, token in enumerate(tokens)}
        return (self.byte_level if model == "gpt2" else self.sentencepiece)(vocab, types, added)

    def byte_level(
        self, vocab: dict[str, int], types: Sequence[int], added: Sequence[AddedToken]
    ) -> BPETokenizer:
        pre = self.value("pre", str, "default")
        if pre not in PATTERNS:
            raise ValueError(f"{PREFIX}pre: {pre!r} is not supported, only {', '.join(PATTERNS)} are")
        merges = []
        for i, pair in enumerate(self.values("merges", str)):
            left, space, right = pair.partition(" ")
            if not left or not right or " " in right:
                raise ValueError(f"{PREFIX}merges[{i}]: expected two tokens, got {pair!r}")
            merges.append((left, right))
        is_llama = pre == "llama-bpe"
        return BPETokenizer(
            vocab, merges, PATTERNS[pre], added, ignore_merges=is_llama, **self.ends(vocab, is_llama)
        )

    def sentencepiece(
        self, vocab: dict[str, int], types: Sequence[int], added: Sequence[AddedToken]
    ) -> SentencePieceBPE:
        scores = self.values("scores", float, len(vocab))
        mergeable = {
            token: scores[i] for token, i in vocab.items() if types[i] in (NORMAL, USER_DEFINED, UNUSED)
        }
        unk = [i for i, kind in enumerate(types) if kind == UNKNOWN]
        return SentencePieceBPE(
            vocab,
            score_table(vocab, mergeable),
            added,
            prefix="every" if self.value("add_space_prefix", bool, True) else "never",
            unk_token_id=self.id("unknown_token_id", vocab, unk[0] if unk else None),
            fuse_unk=False,
            **self.ends(vocab, True),
        )

    def ends(self, vocab: dict[str, int], add_bos: bool) -> dict[str, object]:
        """Returns the arguments for the tokens at the ends of a text; `add_bos`: the key's default."""
        bos, eos = (self.id(f"{name}_token_id", vocab) for name in ("bos", "eos"))
        put = {}
        for name, i, default in (("bos", bos, add_bos), ("eos", eos, False)):
            wanted = self.value(f"add_{name}_token", bool, default)
            if wanted and i is None and f"{PREFIX}add_{name}_token" in self.metadata:
                raise ValueError(f"{PREFIX}add_{name}_token is true without {PREFIX}{name}_token_id")
            put[name] = [i] if wanted and i is not None else []
        return {
            "prefix_ids": put["bos"], "suffix_ids": put["eos"], "bos_token_id": bos, "eos_token_id": eos,
        }

    def id(self, key: str, vocab: dict[str, int], default: int | None = None) -> int | None:
        i = self.value(key, int, default)
        if i is not None and not 0 <= i < len(vocab):
            raise ValueError(f"{PREFIX}{key}: {i} is outside the vocabulary of {len(vocab):,} tokens")
        return i

    def value(self, key: str, kind: type, default: object = None) -> Any:
        """Returns the value of a key, or its default; raises ValueError if it isn't a `kind`."""
        value = self.metadata.get(PREFIX + key, default)
        value = value.item() if isinstance(value, np.generic) else value
        if value is None and kind is int:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"{PREFIX}{key}: expected {kind.__name__}, got {value!r:.60}")
        return value

    def values(self, key: str, kind: type, count: int | None = None, default: object = None) -> list[Any]:
        """Returns the list of a key, of `count` values if that is given, or `count` times the default."""
        values = self.metadata.get(PREFIX + key)
        if values is None and default is not None:
            return [default] * count
        if isinstance(values, np.ndarray):
            values = values.tolist()
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ValueError(f"{PREFIX}{key}: expected a list, got {values!r:.60}")
        if count not in (None, len(values)):
            raise ValueError(f"{PREFIX}{key}: expected {count:,} values, got {len(values):,}")
        kinds = (int, float) if kind is float else kind
        wrong = next((x for x in values if not isinstance(x, kinds) or x != x), None)  # a NaN isn't itself
        if wrong is not None:
            raise ValueError(f"{PREFIX}{key}: expected values of type {kind.__name__}, got {wrong!r:.60}")
        return values
