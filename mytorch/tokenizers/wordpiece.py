"""WordPiece, the tokenizer of BERT.

Source: Devlin et al. 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding,
section 3, https://arxiv.org/abs/1810.04805
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..utils.reading import read_text
from .added_tokens import AddedToken
from .pre_tokenizer import WHITE_SPACE
from .subword import SubwordTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CHINESE = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f])")


class WordPieceTokenizer(SubwordTokenizer):
    """WordPiece: words are cut into the longest tokens of the vocabulary, from left to right; tokens that
    continue a word begin with ##. Words are split at white space and at punctuation, which is removed and
    kept, respectively.

    The classes of characters are those of the running Python's `unicodedata`; Hugging Face's `tokenizers`
    has those of Unicode 8, and may differ at characters of later versions.

    Args:
        vocab: the id of each token.
        lowercase: to lower case, character by character.
        strip_accents: remove them; BERT does so when it lowers the case.
        clean_text: remove control characters.
        split_chinese: every Chinese character is a word.
        unk_token: for words that can't be composed of tokens, or have more than `max_chars` characters.
        continuation: begins the tokens that continue a word.
        For the others see `SubwordTokenizer`.

    Raises:
        ValueError: the vocabulary has no `unk_token`; see `SubwordTokenizer`.

    >>> from mytorch.tokenizers import WordPieceTokenizer
    >>> tokens = ["[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "!"]
    >>> tokenizer = WordPieceTokenizer.from_tokens(tokens)
    >>> ids = tokenizer.encode("Unaffable!", add_special_tokens=True)
    >>> ids, tokenizer.decode(ids, skip_special_tokens=True)
    ([1, 3, 4, 5, 6, 2], 'unaffable!')
    """

    type = "wordpiece"

    def __init__(
        self, vocab: Mapping[str, int], added_tokens: Sequence[AddedToken] = (), lowercase: bool = True,
        strip_accents: bool = True, clean_text: bool = True, split_chinese: bool = True,
        unk_token: str = "[UNK]", continuation: str = "##", max_chars: int = 100,
        prefix_ids: Sequence[int] = (), suffix_ids: Sequence[int] = (), bos_token_id: int | None = None,
        eos_token_id: int | None = None,
    ):
        self.lowercase, self.strip_accents = lowercase, strip_accents
        self.clean_text, self.split_chinese = clean_text, split_chinese
        self.unk_token, self.continuation, self.max_chars = unk_token, continuation, max_chars
        super().__init__(vocab, added_tokens, prefix_ids, suffix_ids, bos_token_id, eos_token_id)
        if unk_token not in self.vocab:
            raise ValueError(f"the vocabulary has no {unk_token}, the token of unknown words")
        self._longest = max(map(len, self.vocab))

    @classmethod
    def from_tokens(cls, tokens: Sequence[str], lowercase: bool = True) -> WordPieceTokenizer:
        """Returns BERT's tokenizer for a list of tokens, whose ids are their indices; [CLS] and [SEP] are put
        around a text."""
        vocab = {token: i for i, token in enumerate(tokens)}
        if len(vocab) < len(tokens):
            raise ValueError("the tokens must be unique")
        added = [AddedToken(token, vocab[token]) for token in SPECIAL_TOKENS if token in vocab]
        around = [[vocab[token]] if token in vocab else [] for token in ("[CLS]", "[SEP]")]
        return cls(
            vocab, added, lowercase, strip_accents=lowercase, prefix_ids=around[0], suffix_ids=around[1]
        )

    @classmethod
    def from_vocab_file(cls, path: str | Path, lowercase: bool = True) -> WordPieceTokenizer:
        """Returns BERT's tokenizer of a `vocab.txt`, which has a token a line; see `from_tokens`."""
        try:
            return cls.from_tokens(read_text(path).removesuffix("\n").split("\n"), lowercase)
        except ValueError as error:
            raise ValueError(f"{path} is no vocabulary of WordPiece: {error}") from error

    def _normalize(self, text: str) -> str:
        if self.clean_text:
            text = "".join(" " if char in WHITE_SPACE else char for char in text if not _is_control(char))
        if self.split_chinese:
            text = CHINESE.sub(r" \1 ", text)
        if self.strip_accents:
            decomposed = unicodedata.normalize("NFD", text)
            text = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        if self.lowercase:
            text = "".join(char.lower() for char in text)  # one by one: no final sigma
        return text

    def _words(self, text: str, is_start: bool) -> list[str]:
        spaced = "".join(f" {char} " if _is_punctuation(char) else char for char in text)
        return [word for word in re.split(f"[{WHITE_SPACE}]+", spaced) if word]

    def _encode_word(self, word: str) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(word) <= self.max_chars:
            prefix = self.continuation if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                found = self.vocab.get(prefix + word[start:end])
                if found is not None and found not in self._special_ids:
                    break
            else:
                return [self.vocab[self.unk_token]]
            ids.append(found)
            start = end
        return ids or [self.vocab[self.unk_token]]

    def _to_bytes(self, token: str) -> bytes:
        return token.encode()

    def decode_bytes(self, ids: Iterable[int] | np.ndarray, skip_special_tokens: bool = False) -> bytes:
        """Returns `decode(ids)` as UTF-8."""
        return self.decode(ids, skip_special_tokens).encode()

    def decode(self, ids: Iterable[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """Returns the words of `ids` with a space before each but the first, and before none of .,?! either.

        Raises:
            ValueError: an id isn't in the vocabulary.
        """
        first, *others = [self._token_of_id[i] for i in self._known(ids, skip_special_tokens)] or [""]
        parts = [first]
        for token in others:
            if token.startswith(self.continuation):
                parts.append(token.removeprefix(self.continuation))
            else:
                parts.append(token if token.startswith((".", ",", "?", "!")) else f" {token}")
        return "".join(parts)


def _is_control(char: str) -> bool:
    """Whether `clean_text` removes a character: control, format and private ones, and U+FFFD."""
    return (char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf", "Co")) or char == "\ufffd"


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char)[0] == "P"
