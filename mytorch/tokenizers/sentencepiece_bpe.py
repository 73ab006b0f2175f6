"""BPE as SentencePiece has it, the tokenizer of Llama 2, Mistral and TinyLlama.

Source: Kudo and Richardson 2018, SentencePiece: A simple and language independent subword tokenizer and
detokenizer for Neural Text Processing, https://arxiv.org/abs/1808.06226
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from .added_tokens import AddedToken
from .merges import MergeTable, merge
from .pre_tokenizer import SPACE
from .subword import SubwordTokenizer

BYTE = re.compile("<0x([0-9A-F]{2})>")
# Where a space is put before the text, so that a first word has the same token as later ones.
PREFIXES = ("every", "missing", "start", "never")


class SentencePieceBPE(SubwordTokenizer):
    """Byte pair encoding of characters: spaces are part of the tokens, spelled ▁, and characters that are not
    in the vocabulary are encoded as the bytes of their UTF-8, the tokens <0x00> … <0xFF>.

    Args:
        vocab: the id of each token.
        table: the merges: of a pair of ids its rank and its result; see `merge_table`, `score_table`.
        prefix: where a space is put before a text: before "every" text between added tokens, only where it
            is "missing" there, only if missing at the "start" of the whole text, or "never".
        split_words: a word ends before each ▁, also where two follow each other.
        unk_token_id: of characters whose bytes aren't in the vocabulary. None: they are errors.
        fuse_unk: several such characters become one token.
        For the others see `SubwordTokenizer`.

    >>> from mytorch.tokenizers import SentencePieceBPE
    >>> vocab = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "aa": 4, "<0xC3>": 5, "<0xA9>": 6}
    >>> tokenizer = SentencePieceBPE(vocab, {(1, 2): (0, 3), (2, 2): (1, 4)})
    >>> tokenizer.encode("a aaaé"), tokenizer.decode([3, 3, 4, 5, 6])
    ([3, 3, 4, 5, 6], 'a aaaé')
    """

    type = "sentencepiece"

    def __init__(
        self, vocab: Mapping[str, int], table: MergeTable, added_tokens: Sequence[AddedToken] = (),
        prefix: str = "every", split_words: bool = False, unk_token_id: int | None = None,
        fuse_unk: bool = True, prefix_ids: Sequence[int] = (), suffix_ids: Sequence[int] = (),
        bos_token_id: int | None = None, eos_token_id: int | None = None,
    ):
        if prefix not in PREFIXES:
            raise ValueError(f"prefix must be one of {PREFIXES}, got {prefix!r}")
        if prefix == "every" and split_words:
            raise ValueError("split_words needs another prefix than 'every'")
        self.prefix, self.split_words = prefix, split_words
        self.unk_token_id, self.fuse_unk = unk_token_id, fuse_unk
        super().__init__(vocab, added_tokens, prefix_ids, suffix_ids, bos_token_id, eos_token_id)
        self.table = table
        self._id_of_byte = [self.vocab.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._byte_ids = frozenset(i for i in self._id_of_byte if i is not None)
        # Without a token that has ▁ after another character, no merge crosses the beginning of a word: words
        # can be encoded alone, and their ids be cached.
        crossing = any(re.search(f"[^{SPACE}]{SPACE}", token) for token in vocab)
        self._word = re.compile(
            f"{SPACE}[^{SPACE}]*|[^{SPACE}]+" if split_words
            else "(?s:.+)" if crossing or SPACE not in vocab else f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+"
        )

    def _normalize(self, text: str) -> str:
        return (SPACE if self.prefix == "every" else "") + text.replace(" ", SPACE)

    def _words(self, text: str, is_start: bool) -> list[str]:
        wanted = self.prefix == "missing" or (self.prefix == "start" and is_start)
        return self._word.findall(SPACE + text if wanted and not text.startswith(SPACE) else text)

    def _encode_word(self, word: str) -> list[int]:
        ids: list[int] = []
        for char in word:
            if char in self.vocab:
                ids.append(self.vocab[char])
            elif None not in (found := [self._id_of_byte[byte] for byte in char.encode()]):
                ids += found
            elif self.unk_token_id is None:
                raise ValueError(f"neither the character {char!r} nor its bytes are in the vocabulary")
            elif not self.fuse_unk or ids[-1:] != [self.unk_token_id]:
                ids.append(self.unk_token_id)
        return merge(ids, self.table)

    def _to_bytes(self, token: str) -> bytes:
        byte = BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace(SPACE, " ").encode()

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """Returns the text of `ids`, without the space that was put before it.

        In a run of byte tokens that is no UTF-8, each byte is replaced by U+FFFD. `decode_bytes` keeps the
        space: the bytes of a text are those of its parts.

        Raises:
            ValueError: an id isn't in the vocabulary.
        """
        parts: list[str] = []
        run = b""  # of byte tokens
        for i in [*self._known(ids, skip_special_tokens), None]:
            if i in self._byte_ids:
                run += self._bytes_of_id[i]
                continue
            if run:
                parts.append(_text_of_run(run))
                run = b""
            if i is not None:
                parts.append(self._bytes_of_id[i].decode())
        text = "".join(parts)
        return text if self.prefix == "never" else text.removeprefix(" ")


def _text_of_run(run: bytes) -> str:
    try:
        return run.decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(run)


def score_table(vocab: Mapping[str, int], scores: Mapping[str, float]) -> MergeTable:
    """Returns the merges that the scores of tokens mean, as in a GGUF file: two tokens are merged if together
    they are one, the token of the highest score first."""
    return {
        (vocab[token[:i]], vocab[token[i:]]): (-score, vocab[token])
        for token, score in scores.items()
        for i in range(1, len(token))
        if token[:i] in scores and token[i:] in scores
    }
