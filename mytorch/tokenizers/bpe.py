"""Byte-level BPE, the tokenizer of GPT-2, Llama 3, Qwen2 and SmolLM.

Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.2,
https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .added_tokens import AddedToken
from .merges import learn_merges, merge, merge_table
from .pre_tokenizer import PATTERNS, PreTokenizer
from .subword import SubwordTokenizer, _without_surrogates

# Files spell a byte as a visible character: that of Latin-1, or if it has none, one from U+0100 on. They are
# in the order of GPT-2's ids 0 … 255, which is that of the characters.
_VISIBLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _VISIBLE]
BYTE_OF_CHAR = {chr(b): b for b in _VISIBLE} | {chr(256 + i): b for i, b in enumerate(_OTHERS)}
CHAR_OF_BYTE = {byte: char for char, byte in BYTE_OF_CHAR.items()}
NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


class BPETokenizer(SubwordTokenizer):
    r"""Byte-level byte pair encoding: words are sequences of bytes, and neighbours are merged in the order in
    which training found the merges. Every text has ids, and they decode to exactly that text.

    Args:
        vocab: the id of each token. Tokens are spelled with `CHAR_OF_BYTE`, as in files.
        merges: pairs of tokens, the first to be merged first.
        patterns: split the text into words; see `PreTokenizer`.
        normalizer: a normal form of Unicode, "NFC" for example: the text decodes in that form.
        ignore_merges: a word that is a token is that token, whatever the merges say (Llama 3).
        For the others see `SubwordTokenizer`.

    Raises:
        ValueError: a merge has a token that isn't in the vocabulary; see `SubwordTokenizer`.

    >>> from mytorch.tokenizers import BPETokenizer
    >>> tokenizer = BPETokenizer.train("low lower lowest, low lower", vocab_size=261)
    >>> ids = tokenizer.encode("lowest <|endoftext|>")
    >>> [tokenizer.decode([i]) for i in ids[:5]]
    ['low', 'e', 's', 't', ' ']
    >>> tokenizer.decode(ids), tokenizer.eos_token_id
    ('lowest <|endoftext|>', 260)
    >>> tokenizer.encode("low<|endoftext|>", allowed_special="all")
    [257, 260]
    """

    type = "bpe"

    def __init__(
        self, vocab: Mapping[str, int], merges: Sequence[tuple[str, str]],
        patterns: Sequence[str] = PATTERNS["gpt-2"], added_tokens: Sequence[AddedToken] = (),
        normalizer: str | None = None, ignore_merges: bool = False, prefix_ids: Sequence[int] = (),
        suffix_ids: Sequence[int] = (), bos_token_id: int | None = None, eos_token_id: int | None = None,
    ):
        if normalizer not in (None, *NORMAL_FORMS):
            raise ValueError(f"normalizer must be None or one of {NORMAL_FORMS}, got {normalizer!r}")
        self.normalizer, self.ignore_merges = normalizer, ignore_merges
        super().__init__(vocab, added_tokens, prefix_ids, suffix_ids, bos_token_id, eos_token_id)
        self.merges = list(merges)
        self._table = merge_table(self.vocab, self.merges)
        self._id_of_byte = [self.vocab.get(CHAR_OF_BYTE[byte]) for byte in range(256)]
        self.pre_tokenizer = PreTokenizer(patterns)

    @classmethod
    def train(
        cls, texts: str | Iterable[str], vocab_size: int, patterns: Sequence[str] = PATTERNS["gpt-2"],
        special_tokens: Sequence[str] = ("<|endoftext|>",),
    ) -> BPETokenizer:
        """Returns a tokenizer that learned its merges from `texts`, a text or several.

        The ids are as GPT-2's: the 256 bytes, the merges in the order in which they were learned, the special
        tokens. Of equally frequent pairs that of the lowest ids is merged first.

        Args:
            vocab_size: 256, the number of merges and the number of special tokens together.

        Raises:
            ValueError: `vocab_size` is too small, or the texts have too few different words for it.
        """
        num_merges = vocab_size - 256 - len(special_tokens)
        if num_merges < 0:
            raise ValueError(
                f"vocab_size must be at least {vocab_size - num_merges}, for the 256 bytes and "
                f"{len(special_tokens)} special tokens, got {vocab_size}"
            )
        split, words = PreTokenizer(patterns).split, Counter[str]()
        for text in [texts] if isinstance(texts, str) else texts:
            words.update(split(_without_surrogates(text)))
        id_of_byte = {byte: i for i, byte in enumerate(BYTE_OF_CHAR.values())}
        symbols = {tuple(id_of_byte[b] for b in word.encode()): count for word, count in words.items()}
        tokens, merges = list(BYTE_OF_CHAR), []
        for a, b in learn_merges(symbols, num_merges, first_id=len(tokens)):
            merges.append((tokens[a], tokens[b]))
            tokens.append(tokens[a] + tokens[b])
        added = [AddedToken(text, len(tokens) + i) for i, text in enumerate(special_tokens)]
        return cls({token: i for i, token in enumerate(tokens)}, merges, patterns, added)

    def encode_bytes(self, raw: bytes) -> list[int]:
        """Returns the ids of any bytes: as `encode` of their text, if they are UTF-8; special tokens are not
        looked for. `decode_bytes` returns the same bytes."""
        if self.normalizer is not None:
            raise ValueError(f"bytes can't be encoded with the normalizer {self.normalizer}")
        return self._encode(raw.decode("utf-8", "surrogateescape"))

    def _normalize(self, text: str) -> str:
        return text if self.normalizer is None else unicodedata.normalize(self.normalizer, text)

    def _words(self, text: str, is_start: bool) -> list[str]:
        return self.pre_tokenizer.split(text)

    def _encode_word(self, word: str) -> list[int]:
        raw = word.encode("utf-8", "surrogateescape")
        if self.ignore_merges:
            whole = self.vocab.get("".join(CHAR_OF_BYTE[byte] for byte in raw))
            if whole is not None and whole not in self._special_ids:
                return [whole]
        ids = [self._id_of_byte[byte] for byte in raw]
        if None in ids:
            raise ValueError(f"byte {raw[ids.index(None)]:#04x} of {word!r} is not in the vocabulary")
        return merge(ids, self._table)

    def _to_bytes(self, token: str) -> bytes:
        if all(char in BYTE_OF_CHAR for char in token):
            return bytes(BYTE_OF_CHAR[char] for char in token)
        return token.encode()  # a token that is no sequence of bytes, and which no word contains
