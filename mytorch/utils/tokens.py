"""
Token files, as the scripts in prepare_data/ write them to a folder.

- train.bin, val.bin: the token ids of a split, uint16
- tokenizer.json: the tokenizer
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .data.dataset import Dataset

_GPT2_VOCAB_SIZE = 50304  # 50,257 tokens, rounded up to a multiple of 64


def load_tokens(folder: str | Path, split: str, context_length: int) -> np.memmap:
    """Returns the tokens of a split, "train" or "val", as a memory-mapped array (N,) uint16.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: N < context_length + 1, the length of one window with its targets.
    """
    path = Path(folder) / f"{split}.bin"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; create it with: "
            f"python prepare_data/prepare_shakespeare.py --path_to_save {folder}"
        )
    size = path.stat().st_size // 2
    if size <= context_length:
        needed = context_length + 1
        raise ValueError(f"{path} has {size} tokens, a context of {context_length} needs at least {needed}")
    return np.memmap(path, dtype=np.uint16, mode="r", shape=(size,))


class TokenWindows(Dataset[np.ndarray]):
    """Dataset of all windows of a split: sample i contains the tokens i … i + context_length, int64.

    A window contains the inputs and, shifted by one, the targets: `x, y = batch[:, :-1], batch[:, 1:]`.

    Args and errors: see `load_tokens`.
    """

    def __init__(self, folder: str | Path, split: str, context_length: int):
        self.tokens, self.context_length = load_tokens(folder, split, context_length), context_length

    def __len__(self) -> int:
        return len(self.tokens) - self.context_length

    def __getitem__(self, start: int) -> np.ndarray:
        if not 0 <= start < len(self):
            raise IndexError(f"window {start} is out of range for {len(self)} windows")
        return np.array(self.tokens[start : start + self.context_length + 1], np.int64)


def size_of_vocabulary(folder: str | Path) -> int:
    """Returns the vocabulary size of a folder's tokenizer; for GPT-2's, rounded up to a multiple of 64."""
    path = Path(folder) / "tokenizer.json"
    kind = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"type": "gpt2"}
    return len(kind["characters"]) if kind["type"] == "char" else _GPT2_VOCAB_SIZE
