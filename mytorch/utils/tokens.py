"""
Token files, as the scripts in prepare_data/ write them to a folder.

- train.bin, val.bin: the token ids of a split, uint16
- tokenizer.json: the tokenizer
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..tokenizers.load import load_tokenizer, tokenizer_type
from .data.dataset import Dataset
from .reading import open_regular

_CHUNK = 1 << 20  # tokens that are checked at once
_GPT2_VOCAB_SIZE = 50304  # 50,257 tokens, rounded up to a multiple of 64


def load_tokens(
    folder: str | Path, split: str, context_length: int, vocab_size: int | None = None
) -> np.memmap:
    """Returns the tokens of a split, "train" or "val", as a memory-mapped array (N,) uint16.

    Args:
        vocab_size: of the model; the whole file is read once to check its ids. None checks none.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it is a folder, a FIFO, a socket or a device.
        ValueError: N < context_length + 1, the length of one window with its targets; the number of bytes
            is odd; an id isn't less than `vocab_size`.
    """
    path = Path(folder) / f"{split}.bin"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; create it with: "
            f"python prepare_data/prepare_shakespeare.py --path_to_save {folder}"
        )
    with open_regular(path) as file:
        size, rest = divmod(os.fstat(file.fileno()).st_size, 2)
        if rest:
            raise ValueError(f"{path} is damaged: {2 * size + 1:,} bytes are no whole number of uint16 ids")
        if size <= context_length:
            needed = context_length + 1
            raise ValueError(
                f"{path} has {size} tokens, a context of {context_length} needs at least {needed}"
            )
        if vocab_size is not None:
            _check_ids(file, vocab_size, path)
        return np.memmap(file, dtype=np.uint16, mode="r", shape=(size,))


def _check_ids(file: BinaryIO, vocab_size: int, path: Path) -> None:
    """Raises ValueError for an id outside the vocabulary: an embedding would fail late, or not at all."""
    chunk, start = np.empty(_CHUNK, np.uint16), 0  # read, which is faster than the page faults of a memmap
    while count := file.readinto(chunk.data) // 2:
        if chunk[:count].max() >= vocab_size:
            i = int((chunk >= vocab_size).argmax())
            raise ValueError(
                f"{path}: token {start + i:,} has the id {chunk[i]}, but the vocabulary has {vocab_size:,} "
                "ids; is it of another tokenizer.json?"
            )
        start += count


class TokenWindows(Dataset[np.ndarray]):
    """Dataset of all windows of a split: sample i contains the tokens i … i + context_length, int64.

    A window contains the inputs and, shifted by one, the targets: `x, y = batch[:, :-1], batch[:, 1:]`.

    Args and errors: see `load_tokens`.
    """

    def __init__(self, folder: str | Path, split: str, context_length: int, vocab_size: int | None = None):
        self.tokens = load_tokens(folder, split, context_length, vocab_size)
        self.context_length = context_length

    def __len__(self) -> int:
        return len(self.tokens) - self.context_length

    def __getitem__(self, start: int) -> np.ndarray:
        if not 0 <= start < len(self):
            raise IndexError(f"window {start} is out of range for {len(self)} windows")
        return np.array(self.tokens[start : start + self.context_length + 1], np.int64)


def size_of_vocabulary(folder: str | Path) -> int:
    """Returns the vocabulary size of a folder's tokenizer; for GPT-2's, rounded up to a multiple of 64.

    Raises:
        OSError, ValueError: see `load_tokenizer`.
    """
    path = Path(folder) / "tokenizer.json"
    if os.path.lexists(path) and tokenizer_type(path) != "gpt2":
        return load_tokenizer(path).vocab_size
    return _GPT2_VOCAB_SIZE
