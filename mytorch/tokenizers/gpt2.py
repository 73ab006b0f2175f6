"""GPT-2's own tokenizer, from its files."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..utils.atomic import atomic_write
from ..utils.reading import is_count, read_json, read_text
from .added_tokens import AddedToken
from .bpe import BYTE_OF_CHAR, BPETokenizer
from .pre_tokenizer import GPT2_PATTERN

URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
NAMES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))  # OpenAI's, and Hugging Face's
END_OF_TEXT = "<|endoftext|>"
# What tiktoken can't encode: surrogates, which stand for bytes that are no UTF-8, and endless white space.
HARD = re.compile(r"[\ud800-\udfff]|\s{10000}")


def gpt2_tokenizer(path: str | Path | None = None) -> GPT2Tokenizer:
    """Returns GPT-2's tokenizer, with 50,257 tokens.

    Where `tiktoken` is installed, it encodes: the same ids, faster.

    Args:
        path: a folder with `encoder.json` and `vocab.bpe`, or with Hugging Face's `vocab.json` and
            `merges.txt`. None takes the folder mytorch/gpt2 of the user's cache; the first time `tiktoken`
            downloads the files and compares their hashes.

    Raises:
        FileNotFoundError: the files are in neither folder, and `tiktoken` isn't installed.
        OSError: the download fails.
        ValueError: a file is damaged.
    """
    folder = cache_folder() if path is None else Path(path)
    for names in NAMES:
        encoder, merges = (folder / name for name in names)
        if encoder.exists() and merges.exists():
            return from_gpt2_files(encoder, merges)
    if path is not None:
        raise FileNotFoundError(
            f"{folder} contains neither {' and '.join(NAMES[0])} nor {' and '.join(NAMES[1])}"
        )
    download(folder)
    return from_gpt2_files(*(folder / name for name in NAMES[0]))


class GPT2Tokenizer(BPETokenizer):
    """Byte-level BPE for which `tiktoken` encodes where it is installed: the same ids, faster.

    Args: see `BPETokenizer`.
    """

    def __init__(
        self, vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], added_tokens: Sequence[AddedToken]
    ):
        super().__init__(vocab, merges, added_tokens=added_tokens)
        self._encoding: Any = None
        by_rank = [*BYTE_OF_CHAR, *(a + b for a, b in merges)]
        if [vocab.get(token) for token in by_rank] == list(range(len(by_rank))):  # for tiktoken ids are ranks
            with suppress(ImportError):
                import tiktoken

                self._encoding = tiktoken.Encoding(
                    "gpt2",
                    pat_str=GPT2_PATTERN,
                    mergeable_ranks={self._bytes_of_id[i]: i for i in range(len(by_rank))},
                    special_tokens={token.content: token.id for token in added_tokens},
                )

    def _encode_ordinary(self, text: str, is_start: bool) -> list[int]:
        if self._encoding is None or HARD.search(text):
            return super()._encode_ordinary(text, is_start)
        return self._encoding.encode_ordinary(text)


def from_gpt2_files(encoder: str | Path, merges: str | Path) -> GPT2Tokenizer:
    """Returns the tokenizer of the files `encoder.json`, the id of each token, and `vocab.bpe`, the merges.

    Raises:
        OSError: a file can't be read.
        ValueError: a file is damaged; the message names it.
    """
    vocab = read_json(encoder)
    if not isinstance(vocab, dict) or not all(is_count(i) for i in vocab.values()):
        raise ValueError(f"{encoder} is damaged: expected the ids of tokens")
    pairs = []
    for number, line in enumerate(read_text(merges).split("\n"), 1):
        if line and not (number == 1 and line.startswith("#version")):
            left, _, right = line.partition(" ")
            if not left or not right or " " in right:
                raise ValueError(f"{merges}, line {number}, is damaged: expected two tokens, got {line!r}")
            pairs.append((left, right))
    added = [AddedToken(END_OF_TEXT, vocab[END_OF_TEXT])] if END_OF_TEXT in vocab else []
    try:
        return GPT2Tokenizer(vocab, pairs, added)
    except ValueError as error:
        raise ValueError(f"{encoder} and {merges} don't fit: {error}") from error


def cache_folder() -> Path:
    """Returns the folder in which the downloaded files are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mytorch" / "gpt2"


def download(folder: Path) -> None:
    """Saves GPT-2's files in `folder`; `tiktoken` downloads them, or takes them from its cache."""
    try:
        from tiktoken.load import read_file_cached
    except ImportError:
        raise FileNotFoundError(
            f"GPT-2's tokenizer needs {' and '.join(NAMES[0])}: pass their folder, copy them to {folder}, "
            "or let tiktoken download them: pip install tiktoken"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    for name, digest in SHA256.items():
        raw = read_file_cached(URL + name, digest)
        if hashlib.sha256(raw).hexdigest() != digest:
            raise ValueError(f"{URL}{name} was truncated or changed: its sha256 isn't {digest[:8]}…")
        with atomic_write(folder / name) as partial:
            partial.write_bytes(raw)
