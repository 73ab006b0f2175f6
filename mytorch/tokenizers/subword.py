"""Base class of the tokenizers whose tokens are parts of words."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..utils.atomic import atomic_write
from .added_tokens import AddedToken, AddedTokens
from .char import check_ids
from .tokenizer_json_writer import tokenizer_json

BOS_TOKENS = ("<s>", "<|begin_of_text|>", "<bos>", "[CLS]")  # by name, if a file says nothing of them
EOS_TOKENS = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]")
MAX_CACHED = 2**16  # words whose ids are kept
MAX_CACHED_LENGTH = 64  # of such a word


class SubwordTokenizer(ABC):
    """What the subword tokenizers share: added tokens, the ids of words, decoding, files.

    Args:
        vocab: the id of each token, spelled as in a `tokenizer.json`.
        added_tokens: tokens that are found in the text before it is split into words.
        prefix_ids, suffix_ids: what `encode(…, add_special_tokens=True)` puts around the ids.
        bos_token_id, eos_token_id: of the tokens that begin and end a text. None takes those of the usual
            names, such as `<s>` and `<|endoftext|>`, if there are any.

    Raises:
        ValueError: the vocabulary is empty, two tokens have one id, or a token has two.
    """

    type: str
    # Returns the tokenizer of a `tokenizer.json`; tokenizer_json.py, which knows the subclasses, sets it.
    _read: Callable[[str | Path], SubwordTokenizer]

    def __init__(
        self, vocab: Mapping[str, int], added_tokens: Sequence[AddedToken] = (),
        prefix_ids: Sequence[int] = (), suffix_ids: Sequence[int] = (), bos_token_id: int | None = None,
        eos_token_id: int | None = None,
    ):
        self.vocab = dict(vocab)
        for token in added_tokens:
            if not token.content or self.vocab.setdefault(token.content, token.id) != token.id:
                raise ValueError(
                    f"the added token {token.content!r} has the id {token.id}, "
                    f"and {self.vocab.get(token.content)} in the vocabulary"
                )
        if not self.vocab:
            raise ValueError("the vocabulary is empty")
        self._token_of_id = {i: token for token, i in self.vocab.items()}
        if len(self._token_of_id) < len(self.vocab):
            token = next(t for t, i in self.vocab.items() if self._token_of_id[i] != t)
            raise ValueError(f"two tokens have the id {self.vocab[token]}: {token!r} is one of them")
        self.vocab_size = max(self._token_of_id) + 1
        self.added_tokens = AddedTokens(added_tokens, self._normalize)
        self.prefix_ids, self.suffix_ids = list(prefix_ids), list(suffix_ids)
        self.bos_token_id = self._named(BOS_TOKENS) if bos_token_id is None else bos_token_id
        self.eos_token_id = self._named(EOS_TOKENS) if eos_token_id is None else eos_token_id
        added = {token.id: token.content for token in added_tokens}
        self._bytes_of_id = {
            i: added[i].encode() if i in added else self._to_bytes(token)
            for i, token in self._token_of_id.items()
        }
        self._special_ids = frozenset(token.id for token in added_tokens if token.special)
        self._cache: dict[str, list[int]] = {}

    def _named(self, names: Sequence[str]) -> int | None:
        return next((self.vocab[name] for name in names if name in self.added_tokens.special), None)

    def _normalize(self, text: str) -> str:
        """Returns the text as the tokens spell it; called once for each text between added tokens."""
        return text

    @abstractmethod
    def _to_bytes(self, token: str) -> bytes:
        """Returns the UTF-8 bytes that a token of the vocabulary means."""

    @abstractmethod
    def _words(self, text: str, is_start: bool) -> Iterable[str]:
        """Returns the words of a normalized text between added tokens; `is_start`: nothing precedes it."""

    @abstractmethod
    def _encode_word(self, word: str) -> list[int]:
        """Returns the ids of a word."""

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, spelled as in the vocabulary; None if there is no such token."""
        return self.vocab.get(token)

    def id_to_token(self, id: int) -> str | None:
        """Returns the token of an id, spelled as in the vocabulary; None if there is no such id."""
        return self._token_of_id.get(id)

    def encode(
        self, text: str, allowed_special: Collection[str] | str = (), add_special_tokens: bool = False
    ) -> list[int]:
        """Returns the ids of `text`.

        Args:
            allowed_special: the special tokens that are looked for in `text`, or "all". Elsewhere, text that
                looks like a special token is encoded as any other text, so that a user's text can't control
                the model.
            add_special_tokens: put the tokens around them that the tokenizer's file asks for, such as
                `<s>` before them.

        Raises:
            ValueError: `text` contains a surrogate, half a character.
        """
        return self._encode(_without_surrogates(text), allowed_special, add_special_tokens)

    def _encode(
        self, text: str, allowed_special: Collection[str] | str = (), add_special_tokens: bool = False
    ) -> list[int]:
        ids = list(self.prefix_ids) if add_special_tokens else []
        for i, piece in enumerate(self.added_tokens.split(text, allowed_special)):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._encode_ordinary(piece, is_start=i == 0)
        return ids + self.suffix_ids if add_special_tokens else ids

    def _encode_ordinary(self, text: str, is_start: bool) -> list[int]:
        """Returns the ids of a normalized text without added tokens."""
        cache, ids = self._cache, []
        for word in self._words(text, is_start):
            found = cache.get(word)
            if found is None:
                found = self._encode_word(word)
                if len(word) <= MAX_CACHED_LENGTH:
                    if len(cache) >= MAX_CACHED:
                        cache.clear()
                    cache[word] = found
            ids += found
        return ids

    def encode_to_numpy(self, text: str, allowed_special: Collection[str] | str = ()) -> np.ndarray:
        """Returns the ids as an array (N,): uint16, the format of the token files, if all ids fit; or else
        uint32."""
        dtype = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        return np.array(self.encode(text, allowed_special), dtype)

    def decode_bytes(self, ids: Iterable[int] | np.ndarray, skip_special_tokens: bool = False) -> bytes:
        """Returns the bytes of `ids`, one token's after the other; a character may span several tokens.

        Raises:
            ValueError: an id isn't in the vocabulary.
        """
        return b"".join(self._bytes_of_id[i] for i in self._known(ids, skip_special_tokens))

    def _known(self, ids: Iterable[int] | np.ndarray, skip_special_tokens: bool) -> list[int]:
        """Returns `ids`, all of the vocabulary, perhaps without special tokens."""
        found = check_ids(ids, self.vocab_size).tolist()
        unknown = next((i for i in found if i not in self._bytes_of_id), None)
        if unknown is not None:
            raise ValueError(f"id {unknown} is not in the vocabulary")
        return [i for i in found if i not in self._special_ids] if skip_special_tokens else found

    def decode(self, ids: Iterable[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """Returns the text of `ids`; bytes that are no UTF-8 are replaced by U+FFFD.

        Raises:
            ValueError: an id isn't in the vocabulary.
        """
        return self.decode_bytes(ids, skip_special_tokens).decode("utf-8", "replace")

    def to_json(self) -> dict[str, object]:
        """Returns the content of a `tokenizer.json`."""
        return tokenizer_json(self)

    def save(self, path: str | Path) -> None:
        """Saves the tokenizer as a `tokenizer.json`, which Hugging Face's `tokenizers` reads, too.

        The write is atomic. The format has no place for `bos_token_id` and `eos_token_id`: they are saved
        only as far as their names are the usual ones.
        """
        content = json.dumps(self.to_json(), ensure_ascii=False)
        with atomic_write(path) as partial:
            partial.write_text(content + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> SubwordTokenizer:
        """Loads a `tokenizer.json`; raises ValueError if it is damaged or of another kind of tokenizer."""
        tokenizer = cls._read(path)
        if not isinstance(tokenizer, cls):
            raise ValueError(f"{path} is a tokenizer of type {tokenizer.type!r}, not {cls.type!r}")
        return tokenizer

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size})"


def _without_surrogates(text: str) -> str:
    """Returns `text`; raises ValueError if it contains a surrogate, which UTF-8 can't encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text contains the surrogate {text[error.start]!r} at position {error.start}"
        ) from None
    return text
